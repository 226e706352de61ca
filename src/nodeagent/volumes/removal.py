"""Removing a pod's directory without ever leaving it.

The walk goes by directory descriptors and follows no symbolic link. It stops at mount points:
what is mounted below a pod's directory belongs to somebody else. All functions block.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_OPEN_DIR: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")
_MOUNTINFO: Final = Path("/proc/self/mountinfo")


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


def mount_points_below(path: Path, mountinfo: Path = _MOUNTINFO) -> frozenset[str]:
    """Mount points at or below a path, as the kernel lists them; none where it does not."""
    top = os.path.realpath(path)
    found = set()
    with suppress(OSError):
        for line in mountinfo.read_text(errors="surrogateescape").splitlines():
            fields = line.split(" ")
            if len(fields) > 4:
                point = _ESCAPE.sub(lambda m: chr(int(m[1], 8)), fields[4])
                if point == top or point.startswith(f"{top}/"):
                    found.add(point)
    return frozenset(found)


def remove_tree(path: Path, mountinfo: Path = _MOUNTINFO) -> Removal:
    """Remove a directory and all in it, except what is mounted there.

    A path that does not exist is removed already.
    """
    removal = Removal()
    mounts = mount_points_below(path, mountinfo)
    top = os.path.realpath(path.parent)
    try:
        parent = os.open(top, _OPEN_DIR)
    except FileNotFoundError:
        return removal
    try:
        device = os.fstat(parent).st_dev
        _remove_entry(parent, path.name, str(Path(top, path.name)), device, mounts, removal)
    finally:
        os.close(parent)
    return removal


def _remove_entry(
    parent: int, name: str, path: str, device: int, mounts: frozenset[str], removal: Removal
) -> None:
    try:
        info = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if path in mounts or info.st_dev != device:
            removal.mounts.append(path)
        elif stat.S_ISDIR(info.st_mode):
            _remove_directory(parent, name, path, device, mounts, removal)
        else:
            os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass
    except OSError as error:
        removal.failures.append(f"{path}: {error.strerror}")


def _remove_directory(
    parent: int, name: str, path: str, device: int, mounts: frozenset[str], removal: Removal
) -> None:
    before = len(removal.mounts) + len(removal.failures)
    descriptor = os.open(name, _OPEN_DIR, dir_fd=parent)
    try:
        for entry in os.listdir(descriptor):  # noqa: PTH208 - a descriptor has no path
            _remove_entry(descriptor, entry, f"{path}/{entry}", device, mounts, removal)
    finally:
        os.close(descriptor)
    if len(removal.mounts) + len(removal.failures) == before:
        os.rmdir(name, dir_fd=parent)
