"""An event loop whose time stands still while there is work, then jumps to the next timer.

anyio, grpclib and aiohttp all read ``loop.time()``, so code under test sleeps plainly and an
hour of one-second ticks takes seconds. Bytes on a local socket are readable as soon as they
are written, so an idle selector means that nothing is in flight.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

from anyio import to_thread

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A selector loop on virtual time.

    While a worker thread or an executor job runs, time follows the real clock, because
    nobody knows when it ends. (Not so for threads under a limiter of their own: they are not
    seen, and time may jump past them.)
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.jobs: set[asyncio.Future[Any]] = set()
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self.now

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Run ``func`` in a thread; time follows the real clock until it ends."""
        future = super().run_in_executor(executor, func, *args)
        self.jobs.add(future)
        future.add_done_callback(self.jobs.discard)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for the threads of the default executor; time follows the real clock meanwhile.

        Since Python 3.12 a loop that closes gives them ``timeout`` seconds, which virtual time
        would jump over.
        """
        end: asyncio.Future[Any] = self.create_future()
        self.jobs.add(end)
        try:
            if sys.version_info >= (3, 12):
                await super().shutdown_default_executor(timeout)
            else:
                await super().shutdown_default_executor()
        finally:
            self.jobs.discard(end)


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None or self._loop.jobs or _threads_at_work(self._loop):
            began = time.monotonic()
            ready = super().select(timeout)
            self._loop.now += time.monotonic() - began
            return ready
        self._loop.now += max(timeout, 0.0)
        return []


def _threads_at_work(loop: VirtualTimeLoop) -> bool:
    try:
        return to_thread.current_default_thread_limiter().borrowed_tokens > 0
    except Exception:  # noqa: BLE001 - outside a task there is no limiter, and no thread
        return bool(loop.jobs)
