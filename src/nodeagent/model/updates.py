"""What sources say, and what the merge makes of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from nodeagent.api import Pod

FILE_SOURCE: Final = "file"
HTTP_SOURCE: Final = "http"
API_SOURCE: Final = "api"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The full current set of pods of one source. Empty means: the source wants no pods.

    Attributes:
        source: the source's name.
        pods: what it wants.
        remembered: this is what the source wanted when it was last heard (a checkpoint), and
            it has not been heard since.
    """

    source: str
    pods: tuple[Pod, ...]
    remembered: bool = False


class PodOp(enum.Enum):
    """What the merge asks the sync loop to do (docs/behaviour/merge.md)."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    """Gracefully: the pod got a deletionTimestamp."""
    REMOVE = "REMOVE"
    """The source no longer names the pod."""
    RECONCILE = "RECONCILE"
    """Only the status differs."""


@dataclass(frozen=True, slots=True)
class PodUpdate:
    """One step of the config channel. An empty ADD says only that the source has spoken.

    Attributes:
        op: what to do.
        pods: with which pods.
        source: the source's name.
        heard: whether the source has been heard in full once this is handled.
    """

    op: PodOp
    pods: tuple[Pod, ...]
    source: str
    heard: bool = True


class UpdateType(enum.Enum):
    """Why a pod worker is woken (docs/behaviour/workers.md)."""

    CREATE = "create"
    UPDATE = "update"
    SYNC = "sync"
    KILL = "kill"
