"""Values that the parts of the ring hand to each other. Immutable, no I/O."""

from nodeagent.model.errors import (
    BackOffError,
    ContainerError,
    DeadlineError,
    NetworkNotReadyError,
    SyncError,
)
from nodeagent.model.events import (
    PodLifecycleEvent,
    PodLifecycleEventType,
    ProbeKind,
    ProbeResult,
    ProbeUpdate,
)
from nodeagent.model.ids import ContainerID, FullName, PodUID, SandboxID, full_name
from nodeagent.model.runtime import (
    ContainerRuntimeStatus,
    ContainerState,
    HandlerFeatures,
    PodRuntimeStatus,
    RuntimeContainer,
    RuntimeFeatures,
    RuntimePod,
    RuntimeSandbox,
    SandboxRuntimeStatus,
    SandboxState,
)
from nodeagent.model.updates import (
    API_SOURCE,
    FILE_SOURCE,
    HTTP_SOURCE,
    PodOp,
    PodUpdate,
    Snapshot,
    UpdateType,
)

__all__ = [
    "API_SOURCE",
    "FILE_SOURCE",
    "HTTP_SOURCE",
    "BackOffError",
    "ContainerError",
    "ContainerID",
    "ContainerRuntimeStatus",
    "ContainerState",
    "DeadlineError",
    "FullName",
    "HandlerFeatures",
    "NetworkNotReadyError",
    "PodLifecycleEvent",
    "PodLifecycleEventType",
    "PodOp",
    "PodRuntimeStatus",
    "PodUID",
    "PodUpdate",
    "ProbeKind",
    "ProbeResult",
    "ProbeUpdate",
    "RuntimeContainer",
    "RuntimeFeatures",
    "RuntimePod",
    "RuntimeSandbox",
    "SandboxID",
    "SandboxRuntimeStatus",
    "SandboxState",
    "Snapshot",
    "SyncError",
    "UpdateType",
    "full_name",
]
