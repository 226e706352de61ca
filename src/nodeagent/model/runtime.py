"""The runtime's view of pods, free of any wire format.

Times are nanoseconds since the epoch as the runtime gave them, 0 when it gave none. They
are shown and never used for ordering: attempts order sandboxes and containers.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final

from nodeagent.api import ContainerUser
from nodeagent.model.ids import ContainerID, PodUID, SandboxID

_NO_SANDBOX: Final = SandboxID("")


class ContainerState(enum.Enum):
    """State of a container as the runtime reports it; anything unrecognised is UNKNOWN."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


class SandboxState(enum.Enum):
    """State of a pod sandbox."""

    READY = "ready"
    NOT_READY = "notready"


@dataclass(frozen=True, slots=True)
class RuntimeSandbox:
    """One sandbox as the list call gives it."""

    id: SandboxID
    attempt: int
    state: SandboxState
    created_at: int = 0


@dataclass(frozen=True, slots=True)
class RuntimeContainer:
    """One container as the list call gives it."""

    id: ContainerID
    name: str
    attempt: int
    state: ContainerState
    sandbox_id: SandboxID
    created_at: int = 0
    image: str = ""
    image_ref: str = ""
    hash: str = ""


@dataclass(frozen=True, slots=True)
class RuntimePod:
    """All that the list calls say about one pod; sandboxes and containers newest first."""

    uid: PodUID
    name: str
    namespace: str
    sandboxes: tuple[RuntimeSandbox, ...] = ()
    containers: tuple[RuntimeContainer, ...] = ()


@dataclass(frozen=True, slots=True)
class SandboxRuntimeStatus:
    """One sandbox as the status call gives it. ``host_network`` tells its netns mode."""

    id: SandboxID
    attempt: int
    state: SandboxState
    created_at: int = 0
    ips: tuple[str, ...] = ()
    has_network_status: bool = False
    host_network: bool = False
    runtime_handler: str = ""


@dataclass(frozen=True, slots=True)
class ContainerRuntimeStatus:
    """One container as the status call gives it.

    ``restart_count`` and ``hash`` come from our own annotations on the container;
    ``restart_count`` equals the attempt when the annotation is missing. ``user`` is who its
    first process began as, None where the runtime does not say. ``recursive_read_only`` are the
    paths in it below which nothing can be written.
    """

    id: ContainerID
    name: str
    state: ContainerState
    sandbox_id: SandboxID = _NO_SANDBOX
    attempt: int = 0
    created_at: int = 0
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    image: str = ""
    image_id: str = ""
    image_ref: str = ""
    hash: str = ""
    restart_count: int = 0
    log_path: str = ""
    annotations: dict[str, str] = field(default_factory=dict)
    user: ContainerUser | None = None
    recursive_read_only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PodRuntimeStatus:
    """What the last inspection of one pod found.

    Sandboxes and containers are newest first (attempt, then creation). ``ips`` are those of
    the newest sandbox when it is ready, else the last known ones.
    """

    uid: PodUID
    name: str = ""
    namespace: str = ""
    ips: tuple[str, ...] = ()
    sandboxes: tuple[SandboxRuntimeStatus, ...] = ()
    containers: tuple[ContainerRuntimeStatus, ...] = ()

    def latest(self, container: str) -> ContainerRuntimeStatus | None:
        """The newest record of the container with that name."""
        return next((c for c in self.containers if c.name == container), None)

    def by_id(self, container_id: str) -> ContainerRuntimeStatus | None:
        """The record with that id."""
        return next((c for c in self.containers if c.id == container_id), None)

    @property
    def running(self) -> tuple[ContainerRuntimeStatus, ...]:
        """All containers that the runtime says are running."""
        return tuple(c for c in self.containers if c.state is ContainerState.RUNNING)

    @property
    def active_containers(self) -> tuple[ContainerRuntimeStatus, ...]:
        """The containers of the newest sandbox."""
        if not self.sandboxes:
            return ()
        newest = self.sandboxes[0].id
        return tuple(c for c in self.containers if c.sandbox_id == newest)

    @property
    def has_ready_sandbox(self) -> bool:
        """Whether any sandbox is ready."""
        return any(s.state is SandboxState.READY for s in self.sandboxes)


@dataclass(frozen=True, slots=True)
class HandlerFeatures:
    """What one handler of the runtime can do.

    Attributes:
        name: "" for the default one.
    """

    name: str = ""
    recursive_read_only_mounts: bool = False
    user_namespaces: bool = False


@dataclass(frozen=True, slots=True)
class RuntimeFeatures:
    """What the runtime can do, as it says of itself.

    Attributes:
        handlers: by name, sorted; empty when it does not say.
        supplemental_groups_policy: whether it honours the policy of supplemental groups.
        user_namespaces_host_network: whether pods on the host network may have user namespaces.
    """

    handlers: tuple[HandlerFeatures, ...] = ()
    supplemental_groups_policy: bool = False
    user_namespaces_host_network: bool = False
