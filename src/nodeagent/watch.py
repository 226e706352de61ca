"""Names the code of an embedder that holds up the event loop.

Sources and runtimes of an embedder's own run in the agent's loop. Where they wait, the ring goes
on; where they compute or block, everything stands still, and only a name helps.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar, cast

from nodeagent.journal import Journal
from nodeagent.log import Log

T = TypeVar("T")
log = Log("watch")

LIMIT: Final = 0.25
"""Seconds that a callback may keep the event loop to itself."""
_AGAIN: Final = 60.0

stopwatch: Callable[[], float] = time.perf_counter
"""What is measured with: real time, also where the event loop's is not."""


class Watch:
    """Measures callbacks, and warns of those that are slow, each once a minute.

    Args:
        journal: flight recorder; its clock also says when a minute has passed.
        limit: seconds that a callback may take.
    """

    def __init__(self, journal: Journal, limit: float = LIMIT) -> None:
        self._journal = journal
        self._limit = limit
        self._warned: dict[str, float] = {}

    def steps(self, name: str, work: Awaitable[T]) -> Steps[T]:
        """Watch each step of ``work`` from one wait to the next."""
        return Steps(work, lambda seconds: self.took(name, seconds))

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Watch a plain call."""
        began = stopwatch()
        try:
            yield
        finally:
            self.took(name, stopwatch() - began)

    def took(self, name: str, seconds: float) -> None:
        """A callback has kept the loop for so long."""
        if seconds <= self._limit:
            return
        self._journal.record("watch", "SlowCallback", "", name, seconds)
        now = self._journal.now
        if now - self._warned.get(name, -_AGAIN) >= _AGAIN:
            self._warned[name] = now
            log.warning(
                "slow_callback",
                callback=name,
                seconds=round(seconds, 3),
                remedy="nothing else ran meanwhile; let it await, or do the work in a thread",
            )


class Steps(Generic[T]):
    """An awaitable that measures each step of another one.

    Args:
        work: what is done.
        took: told how long each step was.
    """

    def __init__(self, work: Awaitable[T], took: Callable[[float], None]) -> None:
        self._work = work
        self._took = took
        self._others = 0.0

    def of_others(self, work: Awaitable[Any]) -> Steps[Any]:
        """Await ``work`` from within: its steps are not counted."""
        return Steps(work, self._exempt)

    def _exempt(self, seconds: float) -> None:
        self._others += seconds

    def __await__(self) -> Generator[Any, Any, T]:
        inner = self._work.__await__()
        error: BaseException | None = None
        while True:
            self._others = 0.0
            began = stopwatch()
            try:
                waiting = inner.send(None) if error is None else inner.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self._took(stopwatch() - began - self._others)
            error = None
            try:
                yield waiting
            except BaseException as thrown:  # noqa: BLE001 - it belongs to the work
                error = thrown


def watched(service: T, watch: Watch) -> T:
    """A runtime or image service whose calls are watched; else it is the service itself."""
    return cast("T", _WatchedService(service, watch))


class _WatchedService:
    def __init__(self, service: object, watch: Watch) -> None:
        self._service = service
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._service, name)
        if not inspect.iscoroutinefunction(method):
            return method
        label = f"{type(self._service).__qualname__}.{name}"

        async def call(*args: Any, **options: Any) -> Any:
            return await self._watch.steps(label, method(*args, **options))

        self.__dict__[name] = call
        return call
