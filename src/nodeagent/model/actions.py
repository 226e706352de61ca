"""What a pod needs done in the runtime, and what came of doing it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nodeagent.model.errors import BackOffError, ContainerError, SyncError
from nodeagent.model.ids import ContainerID, SandboxID

NO_SANDBOX: Final = SandboxID("")


class KillReason(enum.Enum):
    """Why one container is killed while its pod goes on."""

    NONE = ""
    UNKNOWN = "Unknown"
    STARTUP_PROBE = "StartupProbe"
    LIVENESS_PROBE = "LivenessProbe"
    FAILED_POST_START_HOOK = "FailedPostStartHook"
    RESTART_ALL_CONTAINERS = "RestartAllContainers"


@dataclass(frozen=True, slots=True)
class ContainerToKill:
    """One container to stop; ``message`` is for the ``Killing`` event."""

    id: ContainerID
    name: str
    message: str
    reason: KillReason = KillReason.NONE


@dataclass(frozen=True, slots=True)
class ContainerToReset:
    """One container to remove; ``kill`` when it has not exited and must be killed first."""

    id: ContainerID
    name: str
    kill: bool


@dataclass(frozen=True, slots=True)
class PodActions:
    """The steps that bring a pod from its actual to its desired state.

    Containers are named by their names in the spec, in the order of the spec.

    Attributes:
        kill_pod: stop all containers and sandboxes first.
        create_sandbox: then create a sandbox with ``attempt``.
        sandbox_id: the sandbox to use, or with ``create_sandbox`` the one that is replaced
            and worth an event ("" for none).
        attempt: attempt of the sandbox to use or create.
        sandbox_why: why the sandbox is replaced; "" when it is not.
    """

    kill_pod: bool = False
    create_sandbox: bool = False
    sandbox_id: SandboxID = NO_SANDBOX
    attempt: int = 0
    sandbox_why: str = ""
    init_containers_to_start: tuple[str, ...] = ()
    ephemeral_containers_to_start: tuple[str, ...] = ()
    containers_to_start: tuple[str, ...] = ()
    containers_to_kill: tuple[ContainerToKill, ...] = ()
    containers_to_reset: tuple[ContainerToReset, ...] = ()

    @property
    def nothing_to_do(self) -> bool:
        """Whether the pod is as it should be."""
        return not (
            self.kill_pod
            or self.create_sandbox
            or self.init_containers_to_start
            or self.ephemeral_containers_to_start
            or self.containers_to_start
            or self.containers_to_kill
            or self.containers_to_reset
        )


BACK_OFF_REASONS: Final = frozenset({"CrashLoopBackOff", "ImagePullBackOff"})
"""Waiting reasons that are no failure of this sync: it only waits."""


@dataclass(frozen=True, slots=True)
class PodSyncResult:
    """What came of performing a pod's actions.

    Attributes:
        errors: why containers are not running, by container name.
        sandbox_error: why the sandbox, a kill or the configuration of the pod failed.
        did_something: whether anything was changed in the runtime.
        started: containers that were started, in order.
        reset: whether containers were removed so that the whole pod starts again.
        cause: what made a container's start fail, when that tells how soon to try again.
    """

    errors: Mapping[str, ContainerError] = field(default_factory=dict)
    sandbox_error: SyncError | None = None
    did_something: bool = False
    started: tuple[str, ...] = ()
    reset: bool = False
    cause: Exception | None = None

    @property
    def backoff_until(self) -> float | None:
        """Loop time at which the first back-off expires, None when nothing waits for one."""
        return min((e.until for e in self.errors.values() if e.until is not None), default=None)

    def error(self) -> SyncError | None:
        """The one error that stands for all: None, BackOffError or SyncError.

        BackOffError is given when any container waits for a back-off, so that the pod is
        looked at again as soon as the first one expires, or earlier when others just failed.
        """
        if self.sandbox_error is not None:
            return self.sandbox_error
        if not self.errors:
            return None
        text = "; ".join(f"{name}: {e.reason}: {e.message}" for name, e in self.errors.items())
        reason = next(iter(self.errors.values())).reason
        until = self.backoff_until
        error = SyncError(text, reason=reason)
        if until is not None:
            only = all(e.until is not None for e in self.errors.values())
            error = BackOffError(text, until=until, reason=reason, only=only)
        error.__cause__ = self.cause
        return error
