"""Linux inotify: names of files that change in directories, on the event loop, without a thread.

Used directly because file watching libraries tell neither when a writer has closed a file nor
anything about names that are not UTF-8.
"""

from __future__ import annotations

import enum
import errno
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import anyio

_HEADER: Final = struct.Struct("iIII")
_BUFFER: Final = 1 << 16
_MASK_ADD: Final = 0x20000000
_ONLY_DIRECTORIES: Final = 0x01000000


class Mask(enum.IntFlag):
    """What may happen; numbers of the kernel's interface."""

    MODIFY = 0x2
    ATTRIB = 0x4
    CLOSE_WRITE = 0x8
    OPEN = 0x20
    MOVED_FROM = 0x40
    MOVED_TO = 0x80
    CREATE = 0x100
    DELETE = 0x200
    DELETE_SELF = 0x400
    MOVE_SELF = 0x800
    UNMOUNT = 0x2000
    OVERFLOW = 0x4000
    IGNORED = 0x8000


@dataclass(frozen=True, slots=True)
class FileEvent:
    """One event.

    Attributes:
        watch: the watch it belongs to; -1 for an overflow.
        mask: what happened; may hold flags that :class:`Mask` does not name.
        name: the file in the watched directory, "" for the directory itself. Any bytes, in the
            file system's encoding with surrogate escapes.
    """

    watch: int
    mask: int
    name: str


class Inotify:
    """One inotify instance.

    Raises:
        OSError: there is none to be had: EMFILE at a limit, ENOSYS where there is no inotify.
    """

    def __init__(self) -> None:
        libc = _libc()
        if libc is None:
            raise OSError(errno.ENOSYS, "there is no inotify on this system")
        self._libc = libc
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        self._fd = _checked(libc.inotify_init1(flags))

    def watch_directory(self, path: str, mask: Mask) -> int:
        """Watch a directory; its watch. Blocking: it looks the path up.

        A directory that is watched already, whatever path led to it, has one watch, which then
        also tells of what ``mask`` adds.

        Raises:
            OSError: ENOSPC at a limit, ENOENT, ENOTDIR, EACCES.
        """
        wanted = mask | _MASK_ADD | _ONLY_DIRECTORIES
        return _checked(self._libc.inotify_add_watch(self._fd, os.fsencode(path), wanted))

    def unwatch(self, watch: int) -> None:
        """Give a watch up; nothing if it is gone already."""
        self._libc.inotify_rm_watch(self._fd, watch)

    def read(self) -> list[FileEvent]:
        """What happened since the last reading; never waits."""
        events: list[FileEvent] = []
        while True:
            try:
                data = os.read(self._fd, _BUFFER)
            except BlockingIOError:
                return events
            events.extend(_events(data))

    async def wait(self) -> None:
        """Return when there is something to read."""
        await anyio.wait_readable(self._fd)

    def close(self) -> None:
        """Give everything back. No one may be waiting."""
        os.close(self._fd)


def out_of_reach(error: OSError) -> str:
    """Why no (further) directory can be watched, and what to do about it. Blocking."""
    if error.errno == errno.ENOSPC:
        return _limit("watches", "max_user_watches")
    if error.errno == errno.EMFILE:
        try:
            os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return "the process has no file descriptor left; raise its limit (ulimit -n)"
        return _limit("instances", "max_user_instances")
    return error.strerror or str(error)


def _limit(what: str, name: str) -> str:
    try:
        value = f" (it is {Path('/proc/sys/fs/inotify', name).read_text().strip()})"
    except OSError:
        value = ""
    return f"the limit of inotify {what} is reached; raise the sysctl fs.inotify.{name}{value}"


def _events(data: bytes) -> Iterator[FileEvent]:
    offset = 0
    while offset < len(data):
        watch, mask, _cookie, length = _HEADER.unpack_from(data, offset)
        offset += _HEADER.size
        name = data[offset : offset + length].rstrip(b"\0")
        offset += length
        yield FileEvent(watch, mask, os.fsdecode(name))


@cache
def _libc() -> Any:
    """The C library, None when it has no inotify."""
    # Loaded here: only an agent that watches files needs it.
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "inotify_init1") else None


def _checked(result: int) -> int:
    import ctypes

    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
