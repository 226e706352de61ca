"""What PLEG and the probes tell the sync loop. Hints to look again, never the truth."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from nodeagent.model.ids import PodUID


class PodLifecycleEventType(enum.Enum):
    """What happened to a container or sandbox (docs/behaviour/pleg.md, "Events")."""

    CONTAINER_STARTED = "ContainerStarted"
    CONTAINER_DIED = "ContainerDied"
    CONTAINER_REMOVED = "ContainerRemoved"
    CONTAINER_CHANGED = "ContainerChanged"
    POD_SYNC = "PodSync"


@dataclass(frozen=True, slots=True)
class PodLifecycleEvent:
    """One event; ``container_id`` is a container or sandbox id, "" for POD_SYNC."""

    pod_uid: PodUID
    type: PodLifecycleEventType
    container_id: str = ""


class ProbeKind(enum.Enum):
    """Which probe spoke."""

    LIVENESS = "liveness"
    READINESS = "readiness"
    STARTUP = "startup"


class ProbeResult(enum.Enum):
    """What a probe found."""

    SUCCESS = "success"
    FAILURE = "failure"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ProbeUpdate:
    """A changed probe result of one container."""

    pod_uid: PodUID
    container_id: str
    kind: ProbeKind
    result: ProbeResult
