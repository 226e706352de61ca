"""The mounts that the kernel lists. All functions block."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MOUNTINFO: Final = Path("/proc/thread-self/mountinfo")
"""Of the thread, which may have a mount namespace of its own."""

_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class MountPoint:
    """One mount.

    Attributes:
        path: where it is.
        fs_type: type of its file system.
        source: what is mounted, as it was named.
        root: which directory or file of the file system.
        options: options of this mount.
        device: the file system, as ``major:minor``.
    """

    path: str
    fs_type: str
    source: str = ""
    root: str = "/"
    options: frozenset[str] = frozenset()
    device: str = ""


def read_mounts(below: Path, mountinfo: Path = MOUNTINFO) -> list[MountPoint]:
    """The mounts at or below a path, in the order in which they were made.

    Where the kernel lists none there are none. Links on the way to the path are followed, the
    path itself may be one.
    """
    top = os.path.realpath(below)
    found = []
    with suppress(OSError):
        for line in mountinfo.read_text(errors="surrogateescape").splitlines():
            point = _parse(line, top)
            if point is not None:
                found.append(point)
    return found


def _parse(line: str, top: str) -> MountPoint | None:
    head, _, tail = line.partition(" - ")
    fields = head.split(" ")
    if len(fields) < 5:
        return None
    path = _plain(fields[4])
    if path != top and not path.startswith(f"{top.rstrip('/')}/"):
        return None
    fs_type, _, rest = tail.partition(" ")
    options = frozenset(fields[5].split(",")) if len(fields) > 5 else frozenset[str]()
    source = _plain(rest.partition(" ")[0])
    return MountPoint(path, fs_type, source, _plain(fields[3]), options, fields[2])


def _plain(field: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1], 8)), field)
