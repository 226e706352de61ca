"""Errors that cross the parts of the ring. Each says what, why, and when to try again."""

from __future__ import annotations

from dataclasses import dataclass


class SyncError(Exception):
    """A pod could not be brought to its desired state this time.

    Attributes:
        reason: a CamelCase word for status and events (``CreatePodSandboxError``).
    """

    def __init__(self, message: str, *, reason: str = "Error") -> None:
        super().__init__(message)
        self.reason = reason


class DeadlineError(SyncError):
    """Something was not done in time. Whatever kept it from being done has been told already."""


class RejectedError(SyncError):
    """The pod can never run on this node as things are: it fails, and is not tried again."""


class NetworkNotReadyError(SyncError):
    """The runtime's network is not ready and the pod needs it; worth a quick retry."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"network is not ready: {cause}", reason="NetworkNotReady")


class BackOffError(SyncError):
    """Something waits for its back-off.

    Attributes:
        until: loop time at which the first back-off expires.
        only: nothing else failed, so there is nothing to try again before that.
    """

    def __init__(
        self, message: str, *, until: float, reason: str = "BackOff", only: bool = True
    ) -> None:
        super().__init__(message, reason=reason)
        self.until = until
        self.only = only


@dataclass(frozen=True, slots=True)
class ContainerError:
    """Why a container is not running, as its waiting state shows it.

    Attributes:
        reason: ``CrashLoopBackOff``, ``ErrImagePull`` ... (docs/behaviour/runtime.md).
        message: the text for people.
        until: loop time of the next try when it only waits for a back-off, else None.
    """

    reason: str
    message: str
    until: float | None = None
