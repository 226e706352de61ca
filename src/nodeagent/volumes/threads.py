"""Threads for work on disks: few at a time, and one that hangs holds up nobody else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

import anyio

from nodeagent.futures import pending
from nodeagent.limiter import PatientLimiter

T = TypeVar("T")

# They hold the interpreter in turn with the event loop: more of them would make it wait longer.
_AT_ONCE: Final = 4
_PATIENCE: Final = 5.0
_SPARE_FOR: Final = 5.0
"""Seconds that a thread waits for its next call."""


class _Daemons(Executor):
    """A thread for each call at a time, none of which keeps the process from ending.

    One that is done waits a while for the next call: to start a thread costs the event loop more
    than most of the work that is done here.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._spare = 0
        """Threads that wait for a call and have none in the queue."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future, run = pending(fn, args, kwargs)
        with self._lock:
            spare = self._spare > 0
            self._spare -= spare
        if spare:
            self._calls.put(run)
        else:
            threading.Thread(target=self._serve, args=(run,), name="volumes", daemon=True).start()
        return future

    def _serve(self, first: Callable[[], None]) -> None:
        first()
        del first  # what it holds is not kept for as long as the thread waits
        while self._next_call():
            pass

    def _next_call(self) -> bool:
        """Make the next call; False when none came in time."""
        with self._lock:
            self._spare += 1
        try:
            call = self._calls.get(timeout=_SPARE_FOR)
        except Empty:
            with self._lock:
                if self._spare > 0:
                    self._spare -= 1
                    return False
            call = self._calls.get()  # each that waits has been given one meanwhile
        call()
        return True


class DiskThreads:
    """Runs blocking work.

    A call that takes longer than ``patience`` gives its place to the next one, so that any
    number of dead file servers leaves the others alone. Who may start one call after another
    that hangs must take care of that himself (the volume manager has one per volume).

    Args:
        at_once: calls that run side by side.
        patience: seconds after which a call no longer counts as one of them.
    """

    def __init__(self, at_once: int = _AT_ONCE, patience: float = _PATIENCE) -> None:
        self._limiter = PatientLimiter(at_once, patience)
        self._executor = _Daemons()

    @property
    def overdue(self) -> int:
        """Calls that hang right now."""
        return self._limiter.overdue

    async def run(self, work: Callable[[], T], timeout: float | None = None) -> T:
        """Do the work in a thread.

        Cancellation does not wait for it: the thread is left behind, and what it does still
        happens.

        Args:
            work: what to do.
            timeout: seconds after which it is left behind; None to wait as long as it takes.

        Raises:
            TimeoutError: it took longer.
        """
        async with self._limiter.slot():
            loop = asyncio.get_running_loop()
            with anyio.fail_after(timeout):
                return await loop.run_in_executor(self._executor, work)
