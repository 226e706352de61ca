"""Running the pod sources, those of an embedder's own among them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus

from nodeagent.api import Pod
from nodeagent.api.validation.metadata import check_metadata
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import Snapshot
from nodeagent.sources import Publish, Source
from nodeagent.watch import Watch

log = Log("sources")

PATIENCE: Final = 10.0
"""Seconds that the start of the agent waits for a source."""


class NotASnapshotError(TypeError):
    """A source handed on something that is no snapshot of pods."""


class WatchedSource:
    """A source that is named when it holds up the event loop or hands on what cannot be.

    Args:
        source: the source.
        watch: measures it.
    """

    def __init__(self, source: Source, watch: Watch) -> None:
        self.name = source.name
        self._source = source
        self._watch = watch
        self._good: dict[str, Pod] = {}

    async def run(
        self, publish: Publish, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED
    ) -> None:
        """Run it; what the ring does with its snapshots does not count as its own."""

        async def handed_on(snapshot: Snapshot) -> None:
            await steps.of_others(publish(self._checked(snapshot)))

        name = f"{type(self._source).__qualname__}.run of the source {self.name}"
        steps = self._watch.steps(name, self._source.run(handed_on, task_status=task_status))
        try:
            await steps
        except NotASnapshotError as error:
            # What it published before stays wanted; the ring turns without it from now on.
            log.warning(
                "source_failed", source=self.name, cause=str(error), remedy="mend the source"
            )
            await anyio.sleep_forever()

    def _checked(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot without pods whose names cannot be; of these, what was good before."""
        if wrong := _not_a_snapshot(snapshot):
            msg = f"source {self.name} published {wrong}"
            raise NotASnapshotError(msg)
        pods = [pod for pod in map(self._last_good, snapshot.pods) if pod is not None]
        self._good = {pod.metadata.uid: pod for pod in pods}
        return replace(snapshot, pods=tuple(pods))

    def _last_good(self, pod: Pod) -> Pod | None:
        faults = [str(fault) for fault in check_metadata("metadata", pod.metadata)]
        if not faults:
            return pod
        shown = f"{pod.metadata.namespace}/{pod.metadata.name}"
        log.warning("pod_refused", source=self.name, pod=shown, cause="; ".join(faults))
        return self._good.get(pod.metadata.uid)


def _not_a_snapshot(given: object) -> str:
    """What it is instead of a snapshot of pods; "" for one."""
    if not isinstance(given, Snapshot):
        return f"an object of type {type(given).__name__}, not a Snapshot"
    pods: tuple[object, ...] = given.pods
    for number, pod in enumerate(pods):
        if not isinstance(pod, Pod):
            return f"a Snapshot whose pods[{number}] is of type {type(pod).__name__}, not a Pod"
    return ""


class RunningSources:
    """The sources that run.

    Args:
        tasks: where they run.
        publish: takes their snapshots.
    """

    def __init__(self, tasks: TaskGroup, publish: Publish) -> None:
        self._tasks = tasks
        self._publish = publish
        self._running: dict[str, tuple[anyio.CancelScope, anyio.Event]] = {}

    def start(self, source: Source) -> anyio.Event:
        """Start a source; gives an event that is set when it has started. Never waits."""
        scope, started, ended = anyio.CancelScope(), anyio.Event(), anyio.Event()
        self._running[source.name] = scope, ended
        self._tasks.start_soon(self._run, source, scope, started, ended)
        return started

    async def end(self, name: str) -> None:
        """End a source; nothing if it does not run. What it gave stays wanted."""
        scope, ended = self._running.pop(name, (None, None))
        if scope is not None and ended is not None:
            scope.cancel()
            await ended.wait()

    async def _run(
        self, source: Source, scope: anyio.CancelScope, started: anyio.Event, ended: anyio.Event
    ) -> None:
        try:
            with scope:
                async with anyio.create_task_group() as own:
                    await own.start(source.run, self._publish)
                    started.set()
        finally:
            ended.set()


@asynccontextmanager
async def running_sources(
    sources: Sequence[Source], publish: Publish, journal: Journal, *, patience: float = PATIENCE
) -> AsyncIterator[RunningSources]:
    """Run sources side by side; each has started inside, or had ``patience`` seconds for it.

    One that takes longer is named and not waited for: the ring turns without it.
    """
    async with anyio.create_task_group() as tasks:
        running = RunningSources(tasks, publish)
        started = {source.name: running.start(source) for source in sources}
        with anyio.move_on_after(patience):
            for event in started.values():
                await event.wait()
        for name, event in started.items():
            if not event.is_set():
                journal.record("sources", "SlowToStart", "", name, patience, source=name)
                log.warning(
                    "source_slow_to_start",
                    source=name,
                    seconds=patience,
                    remedy="the agent runs without it until it calls task_status.started()",
                )
        try:
            yield running
        finally:
            tasks.cancel_scope.cancel()
