"""Threads for work on disks: few at a time, and one that hangs holds up nobody else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Final, TypeVar

import anyio

from nodeagent.aio import PatientLimiter

T = TypeVar("T")

# They hold the interpreter in turn with the event loop: more of them would make it wait longer.
_AT_ONCE: Final = 4
_PATIENCE: Final = 5.0


class _Daemons(Executor):
    """A thread for each call, which does not keep the process from ending."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=run, name="volumes", daemon=True).start()
        return future


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
