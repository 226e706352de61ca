"""Small structured-concurrency helpers that several layers share."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, TypeVar

import anyio
from anyio.abc import TaskGroup

T = TypeVar("T")

PEER_GONE: Final = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)
"""What a stream raises when its other side has gone, or when it was closed here."""


def jitter(seconds: float, factor: float = 0.5) -> float:
    """A delay uniform in ``[seconds, seconds * (1 + factor))``; 0 stays 0."""
    return seconds * (1.0 + factor * random.random())


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors that a group of errors (of groups ...) stands for; a single error is itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


@asynccontextmanager
async def background() -> AsyncIterator[TaskGroup]:
    """A group of tasks that end with the body, whose own error comes out as it is.

    An error of one of the tasks cancels the body and comes out in a group, as always.
    """
    fault: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except Exception as exc:  # noqa: BLE001 - raised again below, outside the group
            fault = exc
        tasks.cancel_scope.cancel()
    if fault is not None:
        raise fault


async def linger(call: Callable[[], Awaitable[T]], patience: float) -> T:
    """Make a call that a cancellation from outside lets end, if it ends soon.

    For calls whose peer leaves half of their work behind when the caller goes away.

    Args:
        call: the call; its errors come out as they are.
        patience: seconds that the call may go on after it was cancelled.
    """
    results: list[T] = []
    errors: list[Exception] = []
    scope = anyio.CancelScope(shield=True)
    done = anyio.Event()

    async def run() -> None:
        with scope:
            try:
                results.append(await call())
            except Exception as error:  # noqa: BLE001 - raised below, outside the task group
                errors.append(error)
        done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        try:
            await done.wait()
        finally:
            # Reached by a cancellation too: the group then waits for the call until this.
            scope.deadline = anyio.current_time() + patience
    if errors:
        raise errors[0]
    return results[0]


async def side_by_side(
    calls: Sequence[Callable[[], Awaitable[T]]], at_once: int | None = None
) -> list[T]:
    """Make calls side by side; the first error cancels the others and comes out as it is.

    Args:
        calls: what to call.
        at_once: how many may run at a time; None for all.

    Returns:
        The results, in the order of the calls.
    """
    if len(calls) <= 1 or at_once == 1:
        return [await call() for call in calls]
    results: dict[int, T] = {}
    errors: list[Exception] = []
    slots = anyio.Semaphore(at_once or len(calls))

    async def run(index: int, call: Callable[[], Awaitable[T]]) -> None:
        try:
            async with slots:
                results[index] = await call()
        except Exception as error:  # noqa: BLE001 - raised below, outside the task group
            errors.append(error)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for index, call in enumerate(calls):
            tasks.start_soon(run, index, call)
    if errors:
        raise errors[0]
    return [results[index] for index in range(len(calls))]


_HALF_BEAT: Final = 0.5
_LEAST_SHARE: Final = 0.25
"""How much of a wait is left when it ends early, in step with others."""
_EXACT: Final = 1e-6
"""What is due at a beat is not put off by how floats are rounded."""


def in_step(due: float, now: float, start: float) -> float:
    """When to wake up for what is due at ``due``, so that others can be woken at that moment, too.

    It is the last whole second after ``start``, or else the last half one, that leaves a good
    part of the wait. So who waits for whole seconds gets in step within a few rounds, if his
    work takes no more than a quarter of one; he is never late for it. Short waits stay as
    they are.

    Args:
        due: loop time.
        now: loop time from which the wait counts.
        start: loop time from which seconds are counted.
    """
    wait = due - now
    if wait < _HALF_BEAT:
        return due
    for beat in (2 * _HALF_BEAT, _HALF_BEAT):
        at = start + math.floor((due - start) / beat + _EXACT) * beat
        if at - now >= _LEAST_SHARE * wait:
            return at
    return due


@dataclass(eq=False, slots=True)
class _Beat:
    timer: asyncio.TimerHandle
    waiting: set[anyio.Event]


class Beats:
    """Wakes those who wait for the same moment by one timer, so that the machine wakes up once."""

    def __init__(self, start: float) -> None:
        self.start = start
        self._beats: dict[float, _Beat] = {}

    @contextmanager
    def setting(self, event: anyio.Event, at: float) -> Iterator[None]:
        """Set the event at this loop time, unless the block is left before."""
        beat = self._beats.get(at)
        if beat is None:
            timer = asyncio.get_running_loop().call_at(at, self._wake, at)
            beat = self._beats[at] = _Beat(timer, set())
        beat.waiting.add(event)
        try:
            yield
        finally:
            beat.waiting.discard(event)
            if not beat.waiting:
                beat.timer.cancel()
                if self._beats.get(at) is beat:
                    del self._beats[at]

    def _wake(self, at: float) -> None:
        for event in self._beats.pop(at).waiting:
            event.set()


_beats: ContextVar[Beats | None] = ContextVar("nodeagent_beats", default=None)


@contextmanager
def keeping_step() -> Iterator[None]:
    """Have the tasks that are started in the block, and theirs, wait in step with each other.

    At rest an agent has little to do, and most of what that costs is waking up for it.
    """
    token = _beats.set(Beats(anyio.current_time()))
    try:
        yield
    finally:
        _beats.reset(token)


@contextmanager
def setting(
    event: anyio.Event, due: float, since: float | None = None, *, exact: bool = False
) -> Iterator[float]:
    """Set an event when ``due``, or a little sooner in step with others; gives the loop time.

    Args:
        event: is set, unless the block is left before.
        due: loop time.
        since: loop time from which the wait counts, by default now.
        exact: not sooner.
    """
    now = anyio.current_time() if since is None else since
    beats = None if exact else _beats.get()
    at = due if beats is None else in_step(due, now, beats.start)
    with (beats or Beats(at)).setting(event, at):
        yield at


async def sleep_in_step(seconds: float) -> None:
    """Sleep, at most this long: tasks of one agent that sleep long wake up together."""
    event = anyio.Event()
    with setting(event, anyio.current_time() + seconds):
        await event.wait()


class Interval:
    """A time between two things that may change while somebody waits for the next one.

    Args:
        seconds: loop time; longer than 0.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting: set[anyio.Event] = set()

    @property
    def seconds(self) -> float:
        """How long it is now."""
        return self._seconds

    def change(self, seconds: float) -> None:
        """Make it longer or shorter; who waits now goes by it, from when the wait began."""
        if seconds != self._seconds:
            self._seconds = seconds
            for event in self._waiting:
                event.set()

    async def sleep(self, spread: Callable[[float], float] | None = None) -> None:
        """Wait for as long as it is, at most: see :func:`sleep_in_step`.

        Args:
            spread: gives the time to wait for one of so many seconds, such as :func:`jitter`;
                then nobody else is in step.
        """
        began = now = anyio.current_time()
        while True:
            seconds = self._seconds
            due = began + (seconds if spread is None else spread(seconds))
            event = anyio.Event()
            self._waiting.add(event)
            try:
                with setting(event, max(due, now), now, exact=spread is not None):
                    await event.wait()
            finally:
                self._waiting.discard(event)
            if self._seconds == seconds:
                return
            now = anyio.current_time()
