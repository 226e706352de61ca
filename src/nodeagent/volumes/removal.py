"""Removing a pod's directory without ever leaving it.

The walk goes by directory descriptors and follows no symbolic link. It stops at mount points:
what is mounted below a pod's directory belongs to somebody else. All functions block.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from nodeagent.volumes.mounts import MOUNTINFO, read_mounts
from nodeagent.volumes.tree import OPEN_DIR, walk_entry


@dataclass(slots=True)
class Removal:
    """What came of removing a tree.

    Attributes:
        mounts: mount points that were left alone.
        failures: what could not be removed, and why.
    """

    mounts: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether nothing is left."""
        return not self.mounts and not self.failures


def mount_points_below(path: Path, mountinfo: Path = MOUNTINFO) -> frozenset[str]:
    """Mount points at or below a path, as the kernel lists them; none where it does not."""
    return frozenset(point.path for point in read_mounts(path, mountinfo))


def remove_tree(path: Path, mountinfo: Path = MOUNTINFO) -> Removal:
    """Remove a directory and all in it, except what is mounted there.

    A path that does not exist is removed already.
    """
    removal = Removal()
    top = os.path.realpath(path.parent)
    try:
        parent = os.open(top, OPEN_DIR)
    except FileNotFoundError:
        return removal
    try:
        remover = _Remover(removal, mount_points_below(path, mountinfo), os.fstat(parent).st_dev)
        where = str(Path(top, path.name))
        try:
            walk_entry(parent, path.name, where, remover)
        except OSError as error:
            remover.failed(where, error)
    finally:
        os.close(parent)
    return removal


class _Remover:
    """Removes what it sees, on one file system."""

    def __init__(self, removal: Removal, mounts: frozenset[str], device: int) -> None:
        self._removal = removal
        self._mounts = mounts
        self._device = device
        # How much had been left when each directory on the way down was entered.
        self._left: list[int] = []

    def enter(self, parent: int, name: str, path: str, info: os.stat_result) -> bool:
        """Go into a directory that is of this file system."""
        del parent, name
        if self._foreign(path, info):
            return False
        self._left.append(self._count())
        return True

    def leave(self, parent: int, name: str, path: str, info: os.stat_result) -> None:
        """Remove a directory that is empty now."""
        del path, info
        if self._left.pop() == self._count():
            os.rmdir(name, dir_fd=parent)

    def other(self, parent: int, name: str, path: str, info: os.stat_result) -> None:
        """Remove a file."""
        if not self._foreign(path, info):
            os.unlink(name, dir_fd=parent)

    def failed(self, path: str, error: OSError) -> None:
        """Note what could not be removed."""
        self._removal.failures.append(f"{path}: {error.strerror}")

    def _foreign(self, path: str, info: os.stat_result) -> bool:
        if path not in self._mounts and info.st_dev == self._device:
            return False
        self._removal.mounts.append(path)
        return True

    def _count(self) -> int:
        return len(self._removal.mounts) + len(self._removal.failures)
