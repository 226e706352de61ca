"""What the embedded runtime knows of its sandboxes and containers."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from nodeagent.model import PodUID
from nodeagent.proto.runtime import v1

if TYPE_CHECKING:
    from nodeagent.model import ContainerID, SandboxID


class RunState(enum.Enum):
    """Where a container is in its life."""

    CREATED = v1.ContainerState.CONTAINER_CREATED
    RUNNING = v1.ContainerState.CONTAINER_RUNNING
    EXITED = v1.ContainerState.CONTAINER_EXITED


LOST_EXIT_CODE = 255
"""Exit code of a container whose end nobody saw."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container ended.

    Attributes:
        code: exit code, 128 + n when signal n ended it.
        finished_at: wall time in nanoseconds.
        reason: ``Completed``, ``Error``, ``StartError`` or ``Unknown``.
        message: more for people, empty for an ordinary end.
    """

    code: int
    finished_at: int
    reason: str = ""
    message: str = ""

    def __post_init__(self) -> None:
        if not self.reason:
            object.__setattr__(self, "reason", "Error" if self.code else "Completed")


@dataclass(eq=False, slots=True)
class SandboxRecord:
    """One sandbox. There is no process behind it.

    Attributes:
        ip: its address, unique among the sandboxes there are.
        created_at: wall time in nanoseconds.
        listed: the item of list answers, made once per change.
    """

    id: SandboxID
    config: v1.PodSandboxConfig
    ip: str
    created_at: int
    runtime_handler: str = ""
    ready: bool = True
    listed: v1.PodSandbox | None = None

    @property
    def metadata(self) -> v1.PodSandboxMetadata:
        """Pod name, namespace, uid and attempt."""
        # Messages are compared with None: whether one is empty takes far longer to find out.
        known = self.config.metadata
        return known if known is not None else v1.PodSandboxMetadata()

    @property
    def pod_uid(self) -> PodUID:
        """UID of the pod it is for."""
        return PodUID(self.metadata.uid)

    @property
    def namespaces(self) -> v1.NamespaceOption:
        """Which namespaces the pod shares with the host."""
        linux = self.config.linux
        context = linux.security_context if linux is not None else None
        options = context.namespace_options if context is not None else None
        return options if options is not None else v1.NamespaceOption()

    @property
    def host_network(self) -> bool:
        """Whether the pod asked for the host's network."""
        return self.namespaces.network is v1.NamespaceMode.NODE


@dataclass(eq=False, slots=True)
class ContainerRecord:
    """One container.

    Attributes:
        created_at, started_at: wall time in nanoseconds, 0 for not yet.
        exit: how it ended, once it has.
        exited: set when it has ended.
        starting: a start is under way.
        listed: the item of list answers, made once per change.
        resources: the limits asked for last; they are recorded and not enforced.
    """

    id: ContainerID
    sandbox_id: SandboxID
    pod_uid: PodUID
    config: v1.ContainerConfig
    image_id: str
    log_path: str
    created_at: int
    state: RunState = RunState.CREATED
    started_at: int = 0
    exit: Exit | None = None
    starting: bool = False
    resources: v1.LinuxContainerResources | None = None
    listed: v1.Container | None = None
    exited: anyio.Event = field(default_factory=anyio.Event)

    @property
    def metadata(self) -> v1.ContainerMetadata:
        """Name and attempt."""
        known = self.config.metadata
        return known if known is not None else v1.ContainerMetadata()

    @property
    def name(self) -> str:
        """The container's name in its pod."""
        return self.metadata.name

    def mark_running(self, started_at: int) -> None:
        """It has started."""
        self.state, self.started_at, self.listed = RunState.RUNNING, started_at, None

    def mark_exited(self, end: Exit) -> None:
        """It has ended, or never got to start."""
        self.state, self.exit, self.listed = RunState.EXITED, end, None
        self.started_at = self.started_at or end.finished_at
        self.exited.set()
