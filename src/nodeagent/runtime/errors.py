"""Why a container is not running: reasons and their mapping from runtime errors.

docs/behaviour/runtime.md, "Waiting reasons".
"""

from __future__ import annotations

import enum
from typing import Final

from nodeagent.model import ContainerError
from nodeagent.rpc import AlreadyExists, Cancelled, DeadlineExceeded, RpcError, Unavailable


class Waiting(enum.StrEnum):
    """Reasons that a waiting container shows."""

    CRASH_LOOP = "CrashLoopBackOff"
    IMAGE_PULL = "ErrImagePull"
    IMAGE_BACK_OFF = "ImagePullBackOff"
    IMAGE_INSPECT = "ImageInspectError"
    IMAGE_NEVER = "ErrImageNeverPull"
    IMAGE_NAME = "InvalidImageName"
    REGISTRY = "RegistryUnavailable"
    SIGNATURE = "SignatureValidationFailed"
    CONFIG = "CreateContainerConfigError"
    PRE_CREATE = "PreCreateHookError"
    CREATE = "CreateContainerError"
    PRE_START = "PreStartHookError"
    RUN = "RunContainerError"
    POST_START = "PostStartHookError"


_FROM_IMAGE: Final = frozenset(
    {
        Waiting.IMAGE_PULL,
        Waiting.IMAGE_BACK_OFF,
        Waiting.IMAGE_INSPECT,
        Waiting.IMAGE_NEVER,
        Waiting.IMAGE_NAME,
        Waiting.REGISTRY,
        Waiting.SIGNATURE,
    }
)


class SyncReason(enum.StrEnum):
    """Reasons of failures that concern the pod and no single container."""

    CREATE_SANDBOX = "CreatePodSandboxError"
    KILL_SANDBOX = "KillPodSandboxError"
    KILL_CONTAINER = "KillContainerError"
    REMOVE_CONTAINER = "RemoveContainerError"


class ContainerStartError(Exception):
    """A container could not be started.

    Args:
        reason: the waiting reason.
        message: the text for people.
        until: loop time of the next try when it only waits for a back-off.
    """

    def __init__(self, reason: Waiting, message: str, until: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.until = until

    @property
    def from_image(self) -> bool:
        """Whether the image is the cause; events about it have been emitted then."""
        return self.reason in _FROM_IMAGE

    def shown(self) -> ContainerError:
        """The error as a container's waiting state has it."""
        return ContainerError(str(self.reason), self.message, self.until)


def describe(error: RpcError) -> str:
    """The runtime's own words, else what kind of error it was."""
    return error.message or str(error)


def outcome_unknown(error: RpcError) -> bool:
    """Whether the call may have had its effect although it failed."""
    return isinstance(error, (DeadlineExceeded, Unavailable, Cancelled))


def start_unknown(error: RpcError) -> bool:
    """Whether a container may come to run although its start failed.

    A start that a killed agent began goes on in the runtime, which refuses a second one until
    the first has succeeded or failed. (containerd: "is already in starting state".)
    """
    return outcome_unknown(error) or "in starting state" in error.message


def name_reserved(error: RpcError) -> bool:
    """Whether the runtime says that another object holds, or is about to hold, the name."""
    return isinstance(error, AlreadyExists) or "is reserved" in error.message
