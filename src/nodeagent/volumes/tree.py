"""Walking a tree that somebody else may be changing, without ever leaving it.

The walk goes by directory descriptors, follows no symbolic link, and holds two descriptors
however deep the tree is. All functions block.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field
from typing import Final, Protocol

OPEN_DIR: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Visitor(Protocol):
    """What is done about each entry. ``parent`` is a descriptor of the entry's directory."""

    def enter(self, parent: int, name: str, path: str, info: os.stat_result) -> bool:
        """Called for a directory; says whether to go into it."""
        ...

    def leave(self, parent: int, name: str, path: str, info: os.stat_result) -> None:
        """Called for a directory when all in it was seen."""
        ...

    def other(self, parent: int, name: str, path: str, info: os.stat_result) -> None:
        """Called for all that is no directory; a link is one of them."""
        ...

    def failed(self, path: str, error: OSError) -> None:
        """Told of an entry that could not be handled; the walk goes on with the next one."""
        ...


@dataclass(slots=True)
class _Level:
    name: str
    info: os.stat_result
    names: list[str] = field(default_factory=list)


def walk_entry(parent: int, name: str, path: str, visitor: Visitor) -> None:
    """Walk one entry of a directory and all below it.

    Args:
        parent: descriptor of the directory; stays open.
        name: the entry.
        path: its path, for messages.
        visitor: what is done about each.

    Raises:
        OSError: the tree was moved away while it was walked.
    """
    levels: list[_Level] = [_Level("", os.fstat(parent), [name])]
    prefix = path[: len(path) - len(name)].rstrip("/")
    here = os.dup(parent)
    try:
        while True:
            level = levels[-1]
            if level.names:
                here = _step(here, level.names.pop(), prefix, levels, visitor)
            elif len(levels) == 1:
                return
            else:
                levels.pop()
                here = _up(here, levels[-1].info)
                where = _path(prefix, levels, level.name)
                try:
                    visitor.leave(here, level.name, where, level.info)
                except FileNotFoundError:
                    # Somebody else was faster.
                    continue
                except OSError as error:
                    visitor.failed(where, error)
    finally:
        os.close(here)


def _step(here: int, name: str, prefix: str, levels: list[_Level], visitor: Visitor) -> int:
    """See one entry; returns the directory to go on in."""
    path = _path(prefix, levels, name)
    try:
        info = os.stat(name, dir_fd=here, follow_symlinks=False)
        if not stat.S_ISDIR(info.st_mode):
            visitor.other(here, name, path, info)
            return here
        if not visitor.enter(here, name, path, info):
            return here
        child = os.open(name, OPEN_DIR, dir_fd=here)
    except FileNotFoundError:
        return here
    except OSError as error:
        visitor.failed(path, error)
        return here
    try:
        names = os.listdir(child)  # noqa: PTH208 - a descriptor has no path
        levels.append(_Level(name, os.fstat(child), names))
    except OSError as error:
        os.close(child)
        visitor.failed(path, error)
        return here
    os.close(here)
    return child


def _up(here: int, expected: os.stat_result) -> int:
    above = os.open("..", OPEN_DIR, dir_fd=here)
    found = os.fstat(above)
    if (found.st_dev, found.st_ino) != (expected.st_dev, expected.st_ino):
        os.close(above)
        raise OSError(errno.ESTALE, "a directory was moved while it was walked")
    os.close(here)
    return above


def _path(prefix: str, levels: list[_Level], name: str) -> str:
    return "/".join((prefix, *(level.name for level in levels[1:]), name))
