"""How much of a disk volumes take (docs/behaviour/volumes.md, "Usage").

Measured when somebody asks, in a thread, and not again for a while: a node at rest that nobody
asks spends nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

import anyio

from nodeagent.clock import Clock, SystemClock
from nodeagent.model import PodUID
from nodeagent.volumes.threads import DiskThreads
from nodeagent.volumes.tree import walk_entry

MAX_AGE: Final = 60.0
MOST_ENTRIES: Final = 1_000_000
_BLOCK: Final = 512
_BREATHE_EVERY: Final = 500
_BREATH_S: Final = 0.002
_SLOW: Final = 120.0


@dataclass(frozen=True, slots=True)
class VolumeUsage:
    """What a volume takes, and what there is; None where nobody says.

    Attributes:
        used: bytes on the disk.
        inodes_used: files and directories.
        capacity: bytes of its file system.
        available: bytes of it that are free for anybody.
        inodes: of its file system.
        inodes_free: of its file system.
        partial: whether there was more than is ever counted.
        abnormal: whether its driver says that something is wrong with it.
        measured_at: loop time.
        time: wall time in nanoseconds.
    """

    used: int | None = None
    inodes_used: int | None = None
    capacity: int | None = None
    available: int | None = None
    inodes: int | None = None
    inodes_free: int | None = None
    partial: bool = False
    abnormal: bool | None = None
    measured_at: float = 0.0
    time: int = 0


Meter: TypeAlias = Callable[[], Awaitable[VolumeUsage | None]]
"""Measures a volume; None when nobody can. An ``OSError`` is taken for that, too."""


@dataclass(slots=True)
class _Tally:
    """Counts a tree on one file system; what has several names once."""

    device: int
    most: int
    used: int = 0
    entries: int = 0
    partial: bool = False
    seen: set[int] = field(default_factory=set)

    def enter(self, parent: int, name: str, path: str, info: os.stat_result) -> bool:
        """Count a directory; what is mounted in it is not of this volume."""
        del parent, name, path
        if info.st_dev != self.device or self.partial:
            return False
        self._count(info)
        return True

    def leave(self, parent: int, name: str, path: str, info: os.stat_result) -> None:
        """Nothing more."""

    def other(self, parent: int, name: str, path: str, info: os.stat_result) -> None:
        """Count a file."""
        del parent, name, path
        if info.st_dev != self.device or self.partial:
            return
        if info.st_nlink > 1:
            if info.st_ino in self.seen:
                return
            self.seen.add(info.st_ino)
        self._count(info)

    def failed(self, path: str, error: OSError) -> None:
        """What went while it was counted takes nothing."""

    def _count(self, info: os.stat_result) -> None:
        self.used += info.st_blocks * _BLOCK
        self.entries += 1
        if self.entries >= self.most:
            self.partial = True
        if self.entries % _BREATHE_EVERY == 0:
            # The interpreter belongs to the event loop first.
            time.sleep(_BREATH_S)


def measure(path: Path, most: int = MOST_ENTRIES) -> VolumeUsage:
    """Measure a directory. Blocking.

    Args:
        path: the volume.
        most: entries after which counting ends.

    Raises:
        OSError: it cannot be looked at.
    """
    top = path.resolve()
    info, room = top.stat(), os.statvfs(top)
    tally = _Tally(info.st_dev, most)
    parent = os.open(top.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        walk_entry(parent, top.name, str(top), tally)
    finally:
        os.close(parent)
    return VolumeUsage(
        used=tally.used,
        inodes_used=tally.entries,
        capacity=room.f_blocks * room.f_frsize,
        available=room.f_bavail * room.f_frsize,
        inodes=room.f_files,
        inodes_free=room.f_ffree,
        partial=tally.partial,
    )


def room(path: Path) -> VolumeUsage:
    """What the file system that a volume is takes, and has. Blocking.

    Args:
        path: the volume.

    Raises:
        OSError: it cannot be looked at.
    """
    found = os.statvfs(path)
    return VolumeUsage(
        used=(found.f_blocks - found.f_bfree) * found.f_frsize,
        inodes_used=found.f_files - found.f_ffree,
        capacity=found.f_blocks * found.f_frsize,
        available=found.f_bavail * found.f_frsize,
        inodes=found.f_files,
        inodes_free=found.f_ffree,
    )


class VolumeUsages:
    """Measures volumes, and remembers what came of it.

    Args:
        threads: where volumes are measured.
        clock: wall clock.
        max_age: seconds for which a measurement is good enough.
    """

    def __init__(
        self, threads: DiskThreads, clock: Clock | None = None, max_age: float = MAX_AGE
    ) -> None:
        self._threads = threads
        self._clock = clock or SystemClock()
        self._max_age = max_age
        self._known: dict[PodUID, dict[str, VolumeUsage]] = {}
        self._locks: dict[tuple[PodUID, str], anyio.Lock] = {}
        self._in_threads: set[Path] = set()

    async def of_pod(self, uid: PodUID, meters: Mapping[str, Meter]) -> dict[str, VolumeUsage]:
        """What the volumes of a pod take, as far as that can be measured.

        One whose disk does not answer has its last measurement, or none.

        Args:
            uid: the pod.
            meters: of its volumes, by name.
        """
        known = self._known.setdefault(uid, {})
        async with anyio.create_task_group() as tasks:
            for name, meter in meters.items():
                tasks.start_soon(self._keep_fresh, uid, name, meter)
        return {name: known[name] for name in meters if name in known}

    async def _keep_fresh(self, uid: PodUID, name: str, meter: Meter) -> None:
        # Who asks at the same time waits for the same measurement.
        async with self._locks.setdefault((uid, name), anyio.Lock()):
            known = self._known.setdefault(uid, {})
            last = known.get(name)
            if last is None or anyio.current_time() - last.measured_at >= self._max_age:
                await self._measure(known, name, meter)

    def known(self, uid: PodUID) -> Mapping[str, VolumeUsage]:
        """What was last measured of a pod, by name; nothing is measured now."""
        return self._known.get(uid, {})

    async def in_thread(
        self, path: Path, work: Callable[[Path], VolumeUsage]
    ) -> VolumeUsage | None:
        """Look at a directory in a thread; None while an earlier look at it hangs.

        Args:
            path: the directory.
            work: the look.

        Raises:
            OSError: it cannot be looked at, or does not answer in time.
        """
        if path in self._in_threads:
            return None

        def look() -> VolumeUsage:
            self._in_threads.add(path)
            try:
                return work(path)
            finally:
                self._in_threads.discard(path)

        return await self._threads.run(look, _SLOW)

    async def _measure(self, known: dict[str, VolumeUsage], name: str, meter: Meter) -> None:
        try:
            found = await meter()
        except OSError:
            # TimeoutError is one of them.
            return
        if found is not None:
            now, time_ns = anyio.current_time(), self._clock.time_ns()
            known[name] = replace(found, measured_at=now, time=time_ns)

    def forget(self, uid: PodUID) -> None:
        """The pod is gone."""
        self._known.pop(uid, None)
        for key in [key for key in self._locks if key[0] == uid]:
            del self._locks[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A volume that is to be measured.

    Attributes:
        uid: its pod.
        name: in the pod.
        path: where it is.
        usages: does blocking work.
    """

    uid: PodUID
    name: str
    path: Path
    usages: VolumeUsages
