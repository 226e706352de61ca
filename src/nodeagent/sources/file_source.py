"""Pods from manifest files: a look at once, after every change, and once a period.

A change on disk is only a hint to look again; every snapshot comes from a full look. Bad files
change nothing that runs, and files that are being written are not read
(docs/behaviour/sources.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED, to_thread
from anyio.abc import TaskStatus

from nodeagent.clock import Clock, SystemClock
from nodeagent.journal import Journal
from nodeagent.model import FILE_SOURCE
from nodeagent.sources.checkpoint import ManifestCheckpoint
from nodeagent.sources.file_book import FileBook
from nodeagent.sources.keeper import Keeper, all_supported
from nodeagent.sources.manifest_scan import FileSeen, Moment, PathSeen, scan
from nodeagent.sources.selection import Selection, Unsupported
from nodeagent.sources.settling import HINT_DELAY, Settling
from nodeagent.sources.source import ObjectSink, Publish
from nodeagent.sources.verdict_report import ManifestMetrics
from nodeagent.sources.watcher import POLL_SECONDS, Watcher

_FIRST_LOOK_SECONDS: Final = 3.0
"""How long the first snapshot waits for files that are being written when the agent starts."""


class FileSource:
    """Static pods from directories and single files.

    Args:
        paths: manifest directories and files; of two that give one pod the earlier counts.
        node_name: name of the node.
        period: seconds between full rescans.
        checkpoint: where the last good documents are kept, or None.
        journal: flight recorder.
        metrics: counts documents, or None.
        watch: react to changes at once; False leaves looking at times.
        unsupported: fields of a pod that this version cannot honour.
        clock: wall clock, to tell old files from those just written.
        objects: takes the ConfigMaps and Secrets that lie there, too; None for an agent that has
            them from an API server.
    """

    name = FILE_SOURCE

    def __init__(
        self,
        paths: Sequence[Path],
        node_name: str,
        *,
        period: float = 20.0,
        checkpoint: ManifestCheckpoint | None = None,
        journal: Journal | None = None,
        metrics: ManifestMetrics | None = None,
        watch: bool = True,
        unsupported: Unsupported = all_supported,
        clock: Clock | None = None,
        objects: ObjectSink | None = None,
    ) -> None:
        journal = journal or Journal()
        self._paths = tuple(paths)
        self._period = period
        self._clock = clock or SystemClock()
        self._settling = Settling()
        self._watcher = Watcher(self._paths, self._settling, journal, events=watch)
        self._keeper = Keeper(
            self.name,
            node_name,
            journal=journal,
            metrics=metrics,
            checkpoint=checkpoint,
            unsupported=unsupported,
            objects=objects,
        )
        self._book = FileBook(self._keeper.kinds)

    @property
    def selection(self) -> Selection:
        """What the last look found: pods in force and the verdict of every file."""
        return self._keeper.selection

    def problems(self) -> dict[str, str]:
        """The first error of every file that has one."""
        return self._keeper.problems()

    def refused(self) -> dict[str, str]:
        """Why the last good documents cannot be saved, by file name; empty when they can."""
        return self._keeper.refused()

    async def run(
        self, publish: Publish, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED
    ) -> None:
        """Publish a snapshot at once and after every change, until cancelled."""
        await self._keeper.load()
        patience = anyio.current_time() + _FIRST_LOOK_SECONDS
        started = False
        try:
            while True:
                next_look = await self._look(publish, patience)
                if self._keeper.spoken and not started:
                    started = True
                    task_status.started()
                await self._watcher.wait(next_look)
        finally:
            self._watcher.close()

    async def _look(self, publish: Publish, patience: float) -> float:
        """Look at all files; loop time of the next look that is due without a change.

        Args:
            publish: takes the snapshot, if it is another one.
            patience: loop time until which the first snapshot waits for unfinished files.
        """
        now = anyio.current_time()
        self._watcher.read(now)
        number = self._settling.begin()
        moment = Moment(now, self._clock.time_ns(), self._settling.readable_at)
        trouble, seen = await to_thread.run_sync(self._arm_and_scan, moment)
        self._watcher.report(trouble)
        # What was read while its writer came back may be half of it.
        self._watcher.read(anyio.current_time())
        seen = [_without(path, self._changed(path, number), now) for path in seen]
        supplying = self._keeper.origins
        # Large files take seconds, which nobody who ends the agent should wait for.
        files = await to_thread.run_sync(
            self._book.judge, seen, supplying, now, abandon_on_cancel=True
        )
        waiting = {key: f.due for path in seen for f in path.files if f.due for key in f.keys}
        self._settling.end(number, waiting)
        next_look = self._next_look(now, seen)
        if waiting and not self._keeper.spoken and anyio.current_time() < patience:
            return min(next_look, patience)
        self._book.slim(await self._keeper.apply(files, publish, seen=seen))
        return next_look

    def _arm_and_scan(self, moment: Moment) -> tuple[str, list[PathSeen]]:
        trouble = self._watcher.arm()
        return trouble, scan(self._paths, self._book.stamps, moment)

    def _changed(self, path: PathSeen, number: int) -> set[Path]:
        return {
            file.path
            for file in path.files
            if file.data is not None and self._settling.changed_since(file.keys, number)
        }

    def _next_look(self, now: float, seen: Sequence[PathSeen]) -> float:
        links = {f.keys[-1] for path in seen for f in path.files if len(f.keys) > 1}
        if self._watcher.follow(links):
            # Watched from the next look on: it also finds what changed until then.
            self._settling.look_soon(now)
        polled = POLL_SECONDS if not self._watcher.complete else math.inf
        return min(now + min(self._period, polled), self._book.next_removal)


def _without(path: PathSeen, changed: set[Path], now: float) -> PathSeen:
    """The path with some of its files unread."""
    if not changed:
        return path
    files = (
        FileSeen(f.path, f.stamp, due=now + HINT_DELAY, keys=f.keys) if f.path in changed else f
        for f in path.files
    )
    return PathSeen(path.path, tuple(files), path.problem, path.missing)
