"""How much of a disk volumes take (docs/behaviour/volumes.md, "Usage").

Measured when somebody asks, in a thread, and not again for a while: a node at rest that nobody
asks spends nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import anyio

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
    """What a volume takes, and what there is.

    Attributes:
        used: bytes on the disk.
        inodes_used: files and directories.
        capacity: bytes of its file system.
        available: bytes of it that are free for anybody.
        inodes: of its file system.
        inodes_free: of its file system.
        partial: whether there was more than is ever counted.
        measured_at: loop time.
    """

    used: int
    inodes_used: int
    capacity: int
    available: int
    inodes: int
    inodes_free: int
    partial: bool = False
    measured_at: float = 0.0


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


class VolumeUsages:
    """Measures volumes, and remembers what came of it.

    Args:
        threads: where volumes are measured.
        max_age: seconds for which a measurement is good enough.
    """

    def __init__(self, threads: DiskThreads, max_age: float = MAX_AGE) -> None:
        self._threads = threads
        self._max_age = max_age
        self._known: dict[PodUID, dict[str, VolumeUsage]] = {}
        self._locks: dict[PodUID, anyio.Lock] = {}

    async def of_pod(self, uid: PodUID, paths: Mapping[str, Path]) -> dict[str, VolumeUsage]:
        """What the volumes of a pod take, as far as that can be measured.

        One whose disk does not answer has its last measurement, or none.

        Args:
            uid: the pod.
            paths: its volumes by name.
        """
        # Who asks at the same time waits for the same measurement.
        async with self._locks.setdefault(uid, anyio.Lock()):
            known = self._known.setdefault(uid, {})
            for name in [name for name in known if name not in paths]:
                del known[name]
            for name, path in paths.items():
                last = known.get(name)
                if last is None or anyio.current_time() - last.measured_at >= self._max_age:
                    await self._measure(known, name, path)
            return dict(known)

    async def _measure(self, known: dict[str, VolumeUsage], name: str, path: Path) -> None:
        try:
            found = await self._threads.run(lambda: measure(path), _SLOW)
        except OSError:
            # TimeoutError is one of them.
            return
        known[name] = replace(found, measured_at=anyio.current_time())

    def forget(self, uid: PodUID) -> None:
        """The pod is gone."""
        self._known.pop(uid, None)
        self._locks.pop(uid, None)
