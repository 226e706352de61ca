"""The Watch strategy: one watch for each object that pods refer to."""

from __future__ import annotations

from typing import Any, Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus

from nodeagent.journal import Journal
from nodeagent.kube import KubeClient, paths
from nodeagent.kube.informer import Informer
from nodeagent.kube.objects import object_key
from nodeagent.kube.reflector import Reflected
from nodeagent.model import SyncError
from nodeagent.objects.refs import ObjectRef, ObjectValue
from nodeagent.objects.strategy import PLURALS, TYPES, Notify, ignore, not_registered

FIRST_READ: Final = 1.0
"""Seconds that a read waits for the first answer of the API server."""
SCAN_PERIOD: Final = 60.0
"""Seconds between two searches for watches that nobody needs."""
SHORTEST_IDLE: Final = 60.0
WATCH_SECONDS: Final = (240, 300)
"""Longer than for pods: there are many of these, and a dead connection shows in that one."""

_UNREAD: Final = object()
_FAILED: Final = object()


class _Watched:
    """One object, and who watches it.

    Attributes:
        informer: None while nobody watches.
        scope: ends the watch.
        read_at: loop time of the last read.
        given: what readers have got last.
        final: the object, once it is known that it never changes.
    """

    __slots__ = ("final", "given", "informer", "read_at", "scope")

    def __init__(self, now: float) -> None:
        self.informer: Informer[Any] | None = None
        self.scope: anyio.CancelScope | None = None
        self.read_at = now
        self.given: object = _UNREAD
        self.final: ObjectValue | None = None


class WatchedObjects:
    """Watches every object that is referred to.

    Args:
        client: asks the API server.
        journal: flight recorder.
        sync_frequency: seconds between two syncs of a pod: what is not read for five times as
            long, and for a minute, is not watched until the next read.
    """

    def __init__(
        self, client: KubeClient, journal: Journal, *, sync_frequency: float = 60.0
    ) -> None:
        self._client = client
        self._journal = journal
        self._idle = max(SHORTEST_IDLE, 5 * sync_frequency)
        self._entries: dict[ObjectRef, _Watched] = {}
        self._tasks: TaskGroup | None = None
        self.notify: Notify = ignore

    def added(self, ref: ObjectRef) -> None:
        """Watch the object, if nobody does yet."""
        if ref not in self._entries:
            self._entries[ref] = _Watched(anyio.current_time())
            self._start(ref)

    def dropped(self, ref: ObjectRef) -> None:
        """Watch it no more."""
        if (entry := self._entries.pop(ref, None)) is not None:
            _stop(entry)

    @property
    def watching(self) -> int:
        """How many objects are being watched."""
        return sum(entry.scope is not None for entry in self._entries.values())

    def retry_now(self) -> None:
        """Ask for all that could not be had."""
        for entry in self._entries.values():
            if entry.informer is not None and entry.informer.trouble:
                entry.informer.retry_now()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled."""
        try:
            async with anyio.create_task_group() as self._tasks:
                for ref in self._entries:
                    self._start(ref)
                task_status.started()
                while True:
                    await anyio.sleep(SCAN_PERIOD)
                    self.stop_idle()
        finally:
            self._tasks = None

    def stop_idle(self) -> None:
        """End the watches of what nobody has read for long."""
        now = anyio.current_time()
        for entry in self._entries.values():
            if entry.scope is not None and now - entry.read_at > self._idle:
                _stop(entry)

    async def get(self, ref: ObjectRef) -> ObjectValue | None:
        """The object as the watch shows it."""
        entry = self._entries.get(ref)
        if entry is None:
            raise SyncError(not_registered(ref))
        entry.read_at = anyio.current_time()
        if entry.final is not None:
            return entry.final
        if entry.scope is None:
            self._start(ref)
        informer = entry.informer
        if informer is not None and not informer.synced:
            with anyio.move_on_after(FIRST_READ):
                await informer.wait_synced()
        value = self._value(ref, informer)
        entry.given = value
        return value

    def _value(self, ref: ObjectRef, informer: Informer[Any] | None) -> ObjectValue | None:
        entry = self._entries.get(ref)
        if informer is None or not informer.synced:
            if entry is not None:
                entry.given = _FAILED
            why = f": {informer.trouble}" if informer is not None and informer.trouble else ""
            msg = f"failed to sync {ref.resource} cache: timed out waiting for the condition{why}"
            raise SyncError(msg)
        value: ObjectValue | None = informer.get(ref.name, ref.namespace)
        bad = informer.bad.get(object_key(ref.name, ref.namespace), "")
        if value is None and bad:
            if entry is not None:
                entry.given = _FAILED
            msg = f'{ref.resource} "{ref.name}" cannot be read: {bad}'
            raise SyncError(msg)
        return value

    def _start(self, ref: ObjectRef) -> None:
        entry = self._entries[ref]
        if self._tasks is None or entry.scope is not None or entry.final is not None:
            return
        plural = PLURALS[ref.kind]
        reflected = Reflected(
            paths.namespaced(ref.namespace, plural),
            f'{plural} "{ref.namespace}/{ref.name}"',
            {"fieldSelector": f"metadata.name={ref.name}"},
            self._journal,
            watch_seconds=WATCH_SECONDS,
            quiet=True,
        )
        kind: type[Any] = TYPES[ref.kind]
        entry.informer = Informer(
            self._client, kind, ref.kind, reflected, lambda: self._changed(ref, entry)
        )
        entry.scope = anyio.CancelScope()
        self._tasks.start_soon(_watch, entry.informer, entry.scope)

    def _changed(self, ref: ObjectRef, entry: _Watched) -> None:
        if entry.informer is None or self._entries.get(ref) is not entry:
            return
        value: ObjectValue | None = entry.informer.get(ref.name, ref.namespace)
        if value is not None and value.immutable:
            entry.final = value
            _stop(entry)
        if entry.given is not _UNREAD and entry.given is not value:
            # Told once; whoever wants it reads it.
            entry.given = _UNREAD
            self.notify(ref)


async def _watch(informer: Informer[Any], scope: anyio.CancelScope) -> None:
    with scope:
        await informer.run()


def _stop(entry: _Watched) -> None:
    if entry.scope is not None:
        entry.scope.cancel()
    entry.scope = None
