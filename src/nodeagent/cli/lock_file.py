"""A file that one agent of the machine holds at a time: docs/configuration.md, "Lock file"."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from nodeagent.errors import StartError
from nodeagent.inotify import Inotify, Mask, out_of_reach
from nodeagent.log import Log

log = Log("cli")

_TRY_AGAIN: Final = 0.5
_CONTENTION: Final = Mask.OPEN | Mask.DELETE | Mask.MOVED_FROM


@dataclass(frozen=True, slots=True)
class LockFile:
    """The file, and whether to end when another program wants it.

    Attributes:
        path: of the file.
        give_way: end in order as soon as another program opens it.
    """

    path: Path
    give_way: bool = False

    @asynccontextmanager
    async def held(self, stop: anyio.Event) -> AsyncIterator[bool]:
        """Hold the lock; waits for it as long as another program does.

        Args:
            stop: ends the wait; set when the lock is to be given up.

        Yields:
            Whether it is held; not when ``stop`` was set before.

        Raises:
            StartError: the file cannot be opened, or not be watched.
        """
        descriptor = await to_thread.run_sync(self._open)
        try:
            if not await self._locked(descriptor, stop):
                yield False
                return
            if not self.give_way:
                yield True
                return
            watch = await to_thread.run_sync(self._watched)
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._give_way, watch, stop)
                    yield True
                    tasks.cancel_scope.cancel()
            finally:
                watch.close()
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            msg = f"cannot open {self.path}: {error.strerror}; choose another --lock-file"
            raise StartError(msg) from error

    def _watched(self) -> Inotify:
        try:
            watch = Inotify()
        except OSError as error:
            msg = f"--exit-on-lock-contention: {self.path} cannot be watched: {out_of_reach(error)}"
            raise StartError(msg) from error
        try:
            watch.watch_directory(str(self.path.absolute().parent), _CONTENTION)
        except OSError as error:
            watch.close()
            msg = f"--exit-on-lock-contention: {self.path} cannot be watched: {out_of_reach(error)}"
            raise StartError(msg) from error
        return watch

    async def _locked(self, descriptor: int, stop: anyio.Event) -> bool:
        told = False
        while not stop.is_set():
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not told:
                    told = True
                    log.warning("lock_file_held", path=self.path, instead="waiting for it")
                with anyio.move_on_after(_TRY_AGAIN):
                    await stop.wait()
            else:
                return True
        return False

    async def _give_way(self, watch: Inotify, stop: anyio.Event) -> None:
        while True:
            await watch.wait()
            if any(event.name == self.path.name for event in watch.read()):
                log.warning("lock_file_wanted", path=self.path, action="ending")
                stop.set()
                return
