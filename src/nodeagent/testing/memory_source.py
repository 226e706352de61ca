"""A pod source that tests and embedders fill by hand."""

from __future__ import annotations

from collections.abc import Iterable

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.api import Pod
from nodeagent.model import Snapshot
from nodeagent.sources import Publish


class MemorySource:
    """Pods that are set from Python; ``run`` publishes every change.

    Args:
        pods: the first pods.
        name: the source's name.
        silent: publish nothing until :meth:`set` is called.
    """

    def __init__(self, *pods: Pod, name: str = "memory", silent: bool = False) -> None:
        self.name = name
        self._pods = pods
        self._silent = silent
        self._changed = anyio.Event()

    def set(self, *pods: Pod) -> None:
        """Replace all pods."""
        self._pods, self._silent = pods, False
        self._changed.set()

    def add(self, pod: Pod) -> None:
        """Add a pod, or replace the one with its UID."""
        self.set(*self._without([pod.metadata.uid]), pod)

    def remove(self, *uids: str) -> None:
        """Remove pods."""
        self.set(*self._without(uids))

    def _without(self, uids: Iterable[str]) -> tuple[Pod, ...]:
        gone = frozenset(uids)
        return tuple(p for p in self._pods if p.metadata.uid not in gone)

    async def run(
        self, publish: Publish, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED
    ) -> None:
        """Publish at once and after every change, until cancelled."""
        started = False
        while True:
            self._changed = anyio.Event()
            if not self._silent:
                await publish(Snapshot(self.name, self._pods))
            if not started:
                task_status.started()
                started = True
            await self._changed.wait()
