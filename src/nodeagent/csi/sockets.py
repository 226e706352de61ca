"""The sockets of plugins: which lie in a directory, and when others do."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

import anyio

from nodeagent.inotify import Inotify, Mask, out_of_reach
from nodeagent.log import Log

log = Log("plugins")

Identity: TypeAlias = tuple[int, int]
"""Tells a socket from one that was put in its place."""

_CHANGES: Final = Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO | Mask.DELETE_SELF
_DEEPEST: Final = 8


def find_sockets(directory: Path) -> tuple[dict[str, Identity], list[str]]:
    """The sockets in a directory and below, and the directories that there are. Blocking.

    What begins with a dot is left out.
    """
    sockets: dict[str, Identity] = {}
    directories: list[str] = []
    for entry, found in _walk(str(directory), _DEEPEST):
        if found is None:
            directories.append(entry)
        else:
            sockets[entry] = (found.st_ino, found.st_mtime_ns)
    return sockets, directories


def _walk(directory: str, depth: int) -> Iterator[tuple[str, os.stat_result | None]]:
    yield directory, None
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    if depth:
                        yield from _walk(entry.path, depth - 1)
                elif stat.S_ISSOCK((found := entry.stat(follow_symlinks=True)).st_mode):
                    yield entry.path, found


class SocketWatch:
    """Says when something changes in some directories.

    A hint to look: without inotify, or at its limits, nothing is said.
    """

    def __init__(self) -> None:
        self._inotify: Inotify | None = None
        self._watches: dict[int, str] = {}
        self._trouble = ""

    def close(self) -> None:
        """Give all watches back."""
        if self._inotify is not None:
            self._inotify.close()
        self._inotify = None

    @property
    def works(self) -> bool:
        """Whether all that was asked for is watched."""
        return self._inotify is not None and not self._trouble

    def watch(self, directories: list[str]) -> bool:
        """Watch these directories; whether some were not watched before. Blocking."""
        trouble, new = "", False
        try:
            self._inotify = self._inotify or Inotify()
            watches = {self._inotify.watch_directory(path, _CHANGES): path for path in directories}
            for gone in self._watches.keys() - watches.keys():
                self._inotify.unwatch(gone)
            new = bool(watches.keys() - self._watches.keys())
            self._watches = watches
        except OSError as error:
            trouble = out_of_reach(error)
        if trouble and trouble != self._trouble:
            log.warning("watch_failed", cause=trouble, meanwhile="looks every second")
        self._trouble = trouble
        return new

    async def wait(self, seconds: float) -> None:
        """Return when something has changed, or after some time."""
        if self._inotify is None:
            await anyio.sleep(seconds)
            return
        with anyio.move_on_after(seconds):
            await self._inotify.wait()
        self._inotify.read()
