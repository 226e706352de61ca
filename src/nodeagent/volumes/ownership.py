"""Giving a volume's files to a group (docs/behaviour/volumes.md, "fsGroup"). Blocking.

What is changed is held by a descriptor first: a container that swaps a file for a link while
it is looked at gains nothing.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.log import Log
from nodeagent.volumes.tree import walk_entry

log = Log("volumes")

_READ_WRITE: Final = 0o660
_READ: Final = 0o440
_SEARCH: Final = 0o110
_O_PATH: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class Progress:
    """How far it is; read from another thread.

    Attributes:
        seen: files and directories looked at so far.
        failures: how many of them could not be changed.
    """

    seen: int = 0
    failures: int = 0


def wanted_mode(mode: int, *, read_only: bool) -> int:
    """The mode that a file or directory shall have, given what it has. Pure."""
    bits = _READ if read_only else _READ_WRITE
    if stat.S_ISDIR(mode):
        bits |= _SEARCH | stat.S_ISGID
    return stat.S_IMODE(mode) | bits


def is_settled(info: os.stat_result, group: int, *, read_only: bool) -> bool:
    """Whether a top directory says that all below it is right already. Pure."""
    mode = stat.S_IMODE(info.st_mode)
    return info.st_gid == group and wanted_mode(info.st_mode, read_only=read_only) == mode


def set_group(
    directory: Path,
    group: int,
    *,
    read_only: bool = False,
    on_root_mismatch: bool = False,
    progress: Progress | None = None,
) -> None:
    """Give a directory and all in it to a group, which may read and write then.

    One that cannot be changed is logged, and the others are changed all the same.

    Args:
        directory: the volume's top.
        group: who shall have it.
        read_only: whether reading is enough.
        on_root_mismatch: do nothing when the top directory is right already.
        progress: is kept up to date meanwhile.
    """
    progress = progress or Progress()
    if on_root_mismatch and is_settled(directory.stat(), group, read_only=read_only):
        return
    giver = _Giver(group, read_only, progress)
    top = directory.resolve()
    parent = os.open(top.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        walk_entry(parent, top.name, str(top), giver)
    finally:
        os.close(parent)


class _Giver:
    """Changes what it sees. A directory last, so that a settled top means a settled tree."""

    def __init__(self, group: int, read_only: bool, progress: Progress) -> None:
        self._group = group
        self._read_only = read_only
        self._progress = progress

    def enter(self, parent: int, name: str, path: str, info: os.stat_result) -> bool:
        """Go into every directory."""
        del parent, name, path, info
        return True

    def leave(self, parent: int, name: str, path: str, info: os.stat_result) -> None:
        """Change a directory."""
        del path
        self._give(parent, name, info)

    def other(self, parent: int, name: str, path: str, info: os.stat_result) -> None:
        """Change a file."""
        del path
        self._give(parent, name, info)

    def failed(self, path: str, error: OSError) -> None:
        """Log what could not be changed."""
        self._progress.failures += 1
        log.warning("owner_not_set", path=path, error=error.strerror)

    def _give(self, parent: int, name: str, info: os.stat_result) -> None:
        self._progress.seen += 1
        if stat.S_ISLNK(info.st_mode):
            os.chown(name, -1, self._group, dir_fd=parent, follow_symlinks=False)
            return
        held = os.open(name, _O_PATH, dir_fd=parent)
        try:
            found = os.fstat(held)
            if stat.S_ISLNK(found.st_mode):
                return
            itself = f"/proc/self/fd/{held}"
            if found.st_gid != self._group:
                os.chown(itself, -1, self._group)
            mode = wanted_mode(found.st_mode, read_only=self._read_only)
            if os.fstat(held).st_mode & 0o7777 != mode:
                Path(itself).chmod(mode)
        finally:
            os.close(held)
