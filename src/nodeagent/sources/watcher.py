"""Notices that something has changed below the manifest paths.

By inotify where it is to be had; else by saying that it is time to look again. An event is a hint
to look and tells when a file has been written; what lies there, only a look knows.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from nodeagent.inotify import FileEvent, Inotify, Mask, out_of_reach
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.sources.manifest_scan import is_leftover
from nodeagent.sources.settling import Change, Settling

log = Log("source.file")

POLL_SECONDS: Final = 1.0
"""Between two looks when something cannot be watched."""

_NAMES: Final = Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO
_FILES: Final = _NAMES | Mask.MODIFY | Mask.ATTRIB | Mask.CLOSE_WRITE
_ITSELF: Final = Mask.DELETE_SELF | Mask.MOVE_SELF
_CHANGES: Final[Mapping[Mask, Change]] = {
    Mask.CREATE: Change.CREATED,
    Mask.MODIFY: Change.WRITTEN,
    Mask.CLOSE_WRITE: Change.CLOSED,
    Mask.MOVED_TO: Change.PLACED,
    Mask.MOVED_FROM: Change.GONE,
    Mask.DELETE: Change.GONE,
    Mask.ATTRIB: Change.TOUCHED,
}
_LIMITS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM, errno.ENOSYS)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A directory to watch.

    Attributes:
        directory: its path.
        files: whether what happens inside its files counts, or only names that come and go.
        names: the only names that count; None for all that may be manifests.
        needed: without this watch changes are seen only by looking.
    """

    directory: str
    files: bool
    names: frozenset[str] | None
    needed: bool = True

    def counts(self, name: str) -> bool:
        """Whether events of that name count. ``..data`` leads links elsewhere."""
        if self.names is not None:
            return name in self.names
        return name == "..data" or not is_leftover(name)


class Watcher:
    """Watches what lies at some paths.

    Args:
        paths: manifest directories and files.
        settling: is told of every change.
        journal: flight recorder.
        events: False watches nothing.
    """

    def __init__(
        self, paths: Iterable[Path], settling: Settling, journal: Journal, *, events: bool = True
    ) -> None:
        self._paths = tuple(paths)
        self._settling = settling
        self._journal = journal
        self._events = events
        self._inotify: Inotify | None = None
        self._watches: dict[int, list[Wanted]] = {}
        self._links: frozenset[str] = frozenset()
        self._trouble = ""
        self.complete = False
        """Whether all that is needed is watched; else the caller must look now and then."""

    def close(self) -> None:
        """Give all watches back."""
        if self._inotify is not None:
            self._inotify.close()
        self._inotify = None
        self._watches = {}
        self.complete = False

    def follow(self, targets: Iterable[str]) -> bool:
        """Also watch the files that links lead to; whether these are others than before."""
        links = frozenset(targets)
        changed, self._links = links != self._links, links
        return changed

    def arm(self) -> str:
        """Watch what is there now; blocking. Why that is not possible, "" when it is.

        A watch belongs to a directory, not to its path: when another one was put, or mounted,
        there, this watches the other one.
        """
        self.complete = not self._events
        if not self._events:
            return ""
        try:
            self._inotify = self._inotify or Inotify()
            watches, missing, refused = self._watch(self._inotify)
        except OSError as error:
            return out_of_reach(error)
        for gone in self._watches.keys() - watches.keys():
            self._inotify.unwatch(gone)
        self._watches = watches
        self.complete = not missing and refused is None
        return "" if refused is None else out_of_reach(refused)

    def _watch(self, inotify: Inotify) -> tuple[dict[int, list[Wanted]], bool, OSError | None]:
        watches: dict[int, list[Wanted]] = {}
        missing, refused = False, None
        for wanted in _wanted(self._paths, self._links):
            mask = (_FILES if wanted.files else _NAMES) | _ITSELF
            try:
                watch = inotify.watch_directory(wanted.directory, mask)
            except OSError as error:
                if error.errno in _LIMITS:
                    refused = refused or error
                missing = missing or wanted.needed
                continue
            watches.setdefault(watch, []).append(wanted)
        return watches, missing, refused

    def report(self, trouble: str) -> None:
        """Say what ``arm`` has answered, when it is another answer than before."""
        if trouble == self._trouble:
            return
        if trouble:
            log.warning("watch_failed", cause=trouble, meanwhile=f"looks every {POLL_SECONDS:g} s")
            self._journal.record("source", "WatchFailed", why=trouble)
        else:
            log.info("watch_works_again")
            self._journal.record("source", "WatchWorks")
        self._trouble = trouble

    async def wait(self, until: float) -> None:
        """Return when it is time to look: at ``until`` (loop time), or when a change is whole."""
        while True:
            now = anyio.current_time()
            self.read(now)
            end = min(until, self._settling.due())
            if end <= now:
                return
            if self._inotify is None:
                await anyio.sleep(end - now)
                return
            with anyio.CancelScope(deadline=end):
                await self._inotify.wait()

    def read(self, now: float) -> None:
        """Take note of all that has happened; never waits."""
        if self._inotify is None:
            return
        for event in self._inotify.read():
            self._take(event, now)

    def _take(self, event: FileEvent, now: float) -> None:
        if event.mask & Mask.OVERFLOW:
            log.info("events_lost", cause="inotify queue overflow", remedy="looking at all files")
            self._settling.lost_track(now)
            return
        places = self._watches.get(event.watch, ())
        if not places:
            return
        if not event.name:
            if event.mask & Mask.IGNORED:
                del self._watches[event.watch]
            self._settling.look_soon(now)
            return
        for wanted in places:
            if not wanted.counts(event.name):
                continue
            if not wanted.files:
                self._settling.look_soon(now)
                continue
            key = os.path.join(wanted.directory, event.name)  # noqa: PTH118 - any bytes
            for mask, change in _CHANGES.items():
                if event.mask & mask:
                    self._settling.note(key, change, now)


def _wanted(paths: Iterable[Path], links: Iterable[str]) -> list[Wanted]:
    """What to watch: the manifests, what links lead to, and where directories may be replaced."""
    found: list[Wanted] = []
    parents: dict[str, set[str]] = {}
    for path in paths:
        directory, names = str(path), None
        if not os.path.isdir(path):  # noqa: PTH112 - never raises
            directory, names = str(path.parent), frozenset({path.name})
        found.append(Wanted(directory, files=True, names=names))
        parent, name = os.path.split(directory)
        if name:
            parents.setdefault(parent, set()).add(name)
    targets: dict[str, set[str]] = {}
    for link in links:
        parent, name = os.path.split(link)
        targets.setdefault(parent, set()).add(name)
    for files, beside in ((True, targets), (False, parents)):
        found += [Wanted(d, files, frozenset(n), needed=False) for d, n in beside.items()]
    return found
