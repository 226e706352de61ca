"""Notices that configuration files have changed, and that their writers are done.

By inotify where it is to be had, and by looking at the files' stamps every few seconds, which also
finds what no event tells of. An event is a hint to read; what counts is what is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias

import anyio
from anyio import to_thread

from nodeagent.inotify import FileEvent, Inotify, Mask, out_of_reach
from nodeagent.log import Log

log = Log("config")

QUIET: Final = 0.5
"""Seconds without an event after which a change counts as whole."""
LONGEST: Final = 5.0
"""Seconds that a change may take; then the files are read although they still change."""
POLL: Final = 10.0
"""Seconds between two looks at the stamps of the files."""
POLL_ALONE: Final = 1.0
"""The same where nothing can be watched."""

_NAMES: Final = Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO
_ALL: Final = _NAMES | Mask.MODIFY | Mask.ATTRIB | Mask.CLOSE_WRITE
_ITSELF: Final = Mask.DELETE_SELF | Mask.MOVE_SELF

Stamp: TypeAlias = tuple[str, int, int, int]
"""Path, inode, size and time of change of a file."""


class ConfigWatch:
    """Watches files, and directories with all that is in them.

    Args:
        paths: of both; they need not exist.
        events: False looks at the stamps only.
    """

    def __init__(self, paths: Iterable[Path], *, events: bool = True) -> None:
        self._paths = tuple(paths)
        self._events = events
        self._inotify: Inotify | None = None
        self._watches: dict[int, frozenset[str]] = {}
        self._stamps: frozenset[Stamp] = frozenset()
        self._writing: set[str] = set()
        self._pending = False
        self._trouble = ""

    def close(self) -> None:
        """Give all watches back."""
        if self._inotify is not None:
            self._inotify.close()
        self._inotify, self._watches = None, {}

    async def arm(self) -> None:
        """Take note of what is there now, and watch it from now on."""
        trouble, self._stamps = await to_thread.run_sync(self._arm)
        if trouble != self._trouble:
            self._trouble = trouble
            if trouble:
                log.warning(
                    "watch_failed", cause=trouble, meanwhile=f"looks every {POLL_ALONE:g} s"
                )

    async def wait(self) -> None:
        """Return when something has changed since :meth:`arm`, and its writers are done."""
        while not (self._pending or await self._changed()):
            pass
        self._pending = False
        started = anyio.current_time()
        while (left := started + LONGEST - anyio.current_time()) > 0:
            pause = left if self._writing else min(left, QUIET)
            if not await self._event_within(pause):
                break
        self._writing.clear()

    async def _changed(self) -> bool:
        watched = self._inotify is not None and not self._trouble
        if await self._event_within(POLL if watched else POLL_ALONE):
            return True
        return await to_thread.run_sync(stamps, self._paths) != self._stamps

    async def _event_within(self, seconds: float) -> bool:
        """Whether something happens to a file that counts within so many seconds."""
        if self._inotify is None:
            await anyio.sleep(seconds)
            return False
        with anyio.move_on_after(seconds):
            while True:
                await self._inotify.wait()
                if self._read():
                    return True
        return False

    def stirred(self) -> bool:
        """Whether something has happened since the last event was read; never waits.

        If so, :meth:`wait` waits for the end of it.
        """
        self._pending = self._inotify is not None and self._read()
        return self._pending

    def _read(self) -> bool:
        assert self._inotify is not None
        counting = [event for event in self._inotify.read() if self._counts(event)]
        return bool(counting)

    def _counts(self, event: FileEvent) -> bool:
        if event.mask & Mask.OVERFLOW:
            return True
        names = self._watches.get(event.watch)
        if names is None:
            return False
        if event.name and names and event.name not in names:
            return False
        if event.mask & Mask.MODIFY:
            self._writing.add(event.name)
        if event.mask & (Mask.CLOSE_WRITE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO):
            self._writing.discard(event.name)
        return True

    def _arm(self) -> tuple[str, frozenset[Stamp]]:
        trouble = self._watch_all() if self._events else ""
        return trouble, stamps(self._paths)

    def _watch_all(self) -> str:
        """Watch the directories that there are now; why some cannot be, "" if all can."""
        try:
            self._inotify = self._inotify or Inotify()
        except OSError as error:
            return out_of_reach(error)
        trouble, watches = "", dict[int, frozenset[str]]()
        for directory, names in _places(self._paths).items():
            try:
                mask = _ALL | _ITSELF
                watch = self._inotify.watch_directory(directory, mask)
            except (FileNotFoundError, NotADirectoryError):
                continue  # its parent is watched, and the stamps are looked at
            except OSError as error:
                trouble = out_of_reach(error)
                continue
            watches[watch] = _joined(watches.get(watch), names)
        for gone in self._watches.keys() - watches.keys():
            self._inotify.unwatch(gone)
        self._watches = watches
        return trouble


def stamps(paths: Iterable[Path]) -> frozenset[Stamp]:
    """What tells whether files, and those in directories, are others than before. Blocks."""
    found: set[Stamp] = set()
    for path in paths:
        found.add(_stamp(str(path)))
        for place, names, files in os.walk(path):
            names[:] = [name for name in names if not name.startswith("..")]
            found |= {_stamp(os.path.join(place, name)) for name in files}  # noqa: PTH118
    return frozenset(found)


def _stamp(path: str) -> Stamp:
    try:
        status = os.stat(path)  # noqa: PTH116 - any bytes
    except OSError:
        return path, 0, 0, 0
    return path, status.st_ino, status.st_size, status.st_mtime_ns


def _joined(known: frozenset[str] | None, names: frozenset[str]) -> frozenset[str]:
    """The names that count in a directory that is named again; none of them for all."""
    if known is None:
        return names
    return known | names if known and names else frozenset()


def _places(paths: Iterable[Path]) -> dict[str, frozenset[str]]:
    """The directories to watch, and the names that count in each; none of them for all."""
    found: dict[str, frozenset[str]] = {}

    def add(directory: str, names: frozenset[str]) -> None:
        found[directory] = _joined(found.get(directory), names)

    for path in paths:
        # A mounted ConfigMap changes by its link ``..data`` alone.
        add(str(path.parent), frozenset({path.name, "..data"}))
        for place, names, _ in os.walk(path):
            names[:] = [name for name in names if not name.startswith("..")]
            add(place, frozenset())
    return found
