"""Tells those who follow logs when to look again: one inotify instance for all of them.

docs/behaviour/server.md, "Following a log".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED, to_thread
from anyio.abc import TaskStatus

from nodeagent.inotify import Inotify, Mask, out_of_reach
from nodeagent.log import Log

log = Log("server")

_WANTED: Final = Mask.MODIFY | Mask.CREATE | Mask.MOVED_TO | Mask.MOVED_FROM | Mask.DELETE
_TURN: Final = 1.0
"""Seconds between two looks at whether containers still run."""
_SETTLE: Final = 0.02
"""Seconds in which events are collected: a container that writes a lot costs no more."""


class Follower:
    """One who follows a log.

    Args:
        over: whether nothing more will be written.
    """

    def __init__(self, over: Callable[[], bool]) -> None:
        self.over = over
        self._news = anyio.Event()

    def wake(self) -> None:
        """There may be something new."""
        self._news.set()

    async def news(self) -> None:
        """Return when there may be something new since the last time."""
        await self._news.wait()
        self._news = anyio.Event()


class LogWatch:
    """Watches the directories of the logs that somebody follows.

    Without inotify those who follow look again once a second.
    """

    def __init__(self) -> None:
        self._followers: dict[Path, list[Follower]] = {}
        self._watches: dict[int, Path] = {}
        self._numbers: dict[Path, int] = {}
        self._inotify: Inotify | None = None
        self._wanted = anyio.Event()
        self._told = ""

    def __len__(self) -> int:
        return sum(map(len, self._followers.values()))

    @asynccontextmanager
    async def following(self, path: Path, over: Callable[[], bool]) -> AsyncIterator[Follower]:
        """Be told of what happens in the directory of a log.

        Args:
            path: the log.
            over: whether nothing more will be written to it; asked once a second.
        """
        follower = Follower(over)
        directory = path.parent
        self._followers.setdefault(directory, []).append(follower)
        self._wanted.set()
        try:
            await self._watch(directory)
            yield follower
        finally:
            self._followers[directory].remove(follower)
            if not self._followers[directory]:
                del self._followers[directory]
                self._unwatch(directory)

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Tell the followers, until cancelled. Costs nothing while there are none."""
        task_status.started()
        try:
            while True:
                await self._wanted.wait()
                await self._turn()
                if not self._followers:
                    self._wanted = anyio.Event()
        finally:
            if self._inotify is not None:
                self._inotify.close()
                self._inotify = None

    async def _turn(self) -> None:
        """Tell of changes for a second, then of containers that have ended."""
        with anyio.move_on_after(_TURN):
            while self._inotify is not None:
                await self._inotify.wait()
                self._tell()
                await anyio.sleep(_SETTLE)
            await anyio.sleep_forever()
        for directory, followers in self._followers.items():
            for follower in followers:
                if directory not in self._numbers or follower.over():
                    follower.wake()

    def _tell(self) -> None:
        assert self._inotify is not None
        changed: set[Path] = set()
        for event in self._inotify.read():
            if event.mask & Mask.OVERFLOW:
                changed.update(self._followers)
            elif (directory := self._watches.get(event.watch)) is not None:
                changed.add(directory)
                if event.mask & Mask.IGNORED:
                    del self._watches[event.watch]
                    self._numbers.pop(directory, None)
        for directory in changed:
            for follower in self._followers.get(directory, ()):
                follower.wake()

    async def _watch(self, directory: Path) -> None:
        if directory in self._numbers:
            return
        try:
            if self._inotify is None:
                self._inotify = Inotify()
            inotify = self._inotify
            number = await to_thread.run_sync(inotify.watch_directory, str(directory), _WANTED)
        except OSError as error:
            cause = await to_thread.run_sync(out_of_reach, error)
            if cause != self._told:
                self._told = cause
                log.warning("logs_not_watched", cause=cause, instead="a look every second")
            return
        self._watches[number] = directory
        self._numbers[directory] = number

    def _unwatch(self, directory: Path) -> None:
        number = self._numbers.pop(directory, None)
        if number is not None and self._inotify is not None:
            del self._watches[number]
            self._inotify.unwatch(number)
