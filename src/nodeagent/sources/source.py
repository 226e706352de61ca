"""The protocol of a pod source. An embedder's own source stands next to file, URL and API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeAlias

from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.api.objects import ConfigMap, Secret
from nodeagent.model import Snapshot

Publish: TypeAlias = Callable[[Snapshot], Awaitable[None]]
"""Hands a snapshot on; waits while the ring is busy."""


class ObjectSink(Protocol):
    """Takes the ConfigMaps and Secrets that lie beside pods, on a node without an API server."""

    def put(self, source: str, objects: Iterable[ConfigMap | Secret]) -> None:
        """All objects that a source has in force now. Never waits."""
        ...


class Source(Protocol):
    """An origin of pods that sends full snapshots.

    Attributes:
        name: the source's name; unique in one agent.
    """

    name: str

    async def run(
        self, publish: Publish, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED
    ) -> None:
        """Publish a snapshot at once (an empty one too) and after every change, until cancelled.

        ``task_status.started()`` is called when the first look has been taken, or at once by a
        source that others can keep waiting.
        """
        ...
