"""Work for the API server that is named by keys: side by side, in order per key, until it is done.

Asking for work never blocks and may be repeated: work on a key starts from what is true then, so
several wishes make one piece of work. At rest there is one task and at most one timer.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus

from nodeagent.aio import jitter as default_jitter
from nodeagent.kube import ApiError, KubeError, UnreachableError
from nodeagent.log import Log

K = TypeVar("K", bound=Hashable)

AT_ONCE: Final = 10
_FIRST_DELAY: Final = 1.0
_LONGEST_DELAY: Final = 60.0
_LONGEST_HOLD: Final = 10.0
_LONGEST_RETRY_AFTER: Final = 120.0
"""Seconds: what a server asks for beyond that is not believed."""


def is_server_trouble(error: Exception) -> bool:
    """Whether an error says that other requests will not fare better right now."""
    if isinstance(error, ApiError):
        return error.unauthorized or error.too_many_requests or error.status >= 500
    return isinstance(error, UnreachableError)


class ApiWork(Generic[K]):
    """Does what it is asked to do, and goes on trying.

    A key that fails waits for its own back-off. When the server is in trouble everything waits,
    and one piece of work alone tries whether it is back.

    Args:
        what: names the work in logs.
        work: works on one key; raises when it has to be done again. Never called for one key
            twice at a time.
        tick: called every ``period`` seconds.
        period: seconds of loop time.
        at_once: how many keys are worked on side by side.
        label: what a key is called in logs.
        jitter: spreads delays.
    """

    def __init__(
        self,
        what: str,
        work: Callable[[K], Awaitable[None]],
        *,
        label: Callable[[K], str] = str,
        tick: Callable[[], None] | None = None,
        period: float = math.inf,
        at_once: int = AT_ONCE,
        jitter: Callable[[float], float] = default_jitter,
    ) -> None:
        self._log = Log(what)
        self._work = work
        self._label = label
        self._tick = tick
        self._period = period
        self._at_once = at_once
        self._jitter = jitter
        self._queue: dict[K, None] = {}
        self._busy: set[K] = set()
        self._again: dict[K, float] = {}
        self._later: dict[K, float] = {}
        self._hurried = False
        self._failures: dict[K, int] = {}
        self._retries: dict[K, float] = {}
        self._troubles = 0
        self._hold_until = -math.inf
        self._wake = anyio.Event()
        self._idle = anyio.Event()

    def want(self, key: K, within: float = 0.0) -> None:
        """Have a key worked on, after the work on it that goes on now.

        Args:
            key: what to work on.
            within: seconds that it may wait for more to come, which one work then does for all.
        """
        if key in self._busy:
            self._again[key] = min(within, self._again.get(key, within))
        elif key in self._retries or key in self._queue:
            return
        elif within and not self._hurried:
            self._later.setdefault(key, anyio.current_time() + within)
            self._wake.set()
        else:
            self._later.pop(key, None)
            self._queue[key] = None
            self._wake.set()

    def forget(self, key: K) -> None:
        """Do no more about a key."""
        self._queue.pop(key, None)
        self._retries.pop(key, None)
        self._failures.pop(key, None)
        self._again.pop(key, None)
        self._later.pop(key, None)

    def retry_now(self) -> None:
        """Wait for no back-off: the server seems to be back."""
        self._hold_until = -math.inf
        self._queue.update(dict.fromkeys(self._retries))
        self._retries.clear()
        self._wake.set()

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return not (self._queue or self._busy or self._retries or self._later)

    async def drained(self) -> None:
        """Return when nothing is left to do; the caller's scope bounds the wait.

        From here on nothing waits for more to come: it is asked when the agent ends.
        """
        self._hurried = True
        self._queue.update(dict.fromkeys(self._later))
        self._later.clear()
        self._wake.set()
        while not self.done:
            await self._idle.wait()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Work until cancelled."""
        async with anyio.create_task_group() as tasks:
            task_status.started()
            next_tick = anyio.current_time() + self._period
            while True:
                now = anyio.current_time()
                if self._tick is not None and now >= next_tick:
                    self._look(self._tick)
                    next_tick = now + self._period
                self._wake = anyio.Event()
                self._start_what_may(tasks, now)
                with anyio.CancelScope(deadline=min(next_tick, self._next_turn())):
                    await self._wake.wait()

    def _look(self, tick: Callable[[], None]) -> None:
        try:
            tick()
        except Exception as error:  # noqa: BLE001 - what is known to be due goes on
            self._log.fault("fault", error, pod="")

    def _start_what_may(self, tasks: TaskGroup, now: float) -> None:
        for waiting in (self._retries, self._later):
            for key in [key for key, due in waiting.items() if due <= now]:
                del waiting[key]
                self._queue.setdefault(key)
        limit = 1 if self._troubles else self._at_once
        while self._queue and len(self._busy) < limit and self._hold_until <= now:
            key = next(iter(self._queue))
            del self._queue[key]
            self._busy.add(key)
            tasks.start_soon(self._do, key)

    def _next_turn(self) -> float:
        turn = min((*self._retries.values(), *self._later.values()), default=math.inf)
        if self._queue and self._hold_until > anyio.current_time():
            turn = min(turn, self._hold_until)
        return turn

    async def _do(self, key: K) -> None:
        try:
            await self._work(key)
        except Exception as error:  # noqa: BLE001 - it is tried again
            self._failed(key, error)
        else:
            self._succeeded(key)
        finally:
            self._busy.discard(key)
        if (within := self._again.pop(key, None)) is not None:
            self.want(key, within)
        self._wake.set()
        if self.done:
            self._idle.set()
            self._idle = anyio.Event()

    def _succeeded(self, key: K) -> None:
        if self._troubles:
            self._log.info("server_back", waiting=len(self._queue))
            self._troubles = 0
        if self._failures.pop(key, 0):
            self._log.info("recovered", pod=self._label(key))

    def _failed(self, key: K, error: Exception) -> None:
        now = anyio.current_time()
        if is_server_trouble(error):
            self._trouble(error, now)
            self._queue.setdefault(key)
            return
        self._failures[key] = failures = self._failures.get(key, 0) + 1
        delay = min(_FIRST_DELAY * 2.0 ** min(failures - 1, 10), _LONGEST_DELAY)
        self._retries[key] = now + self._jitter(delay)
        if not isinstance(error, KubeError):
            self._log.fault("fault", error, pod=self._label(key))
        elif failures == 1:
            self._log.warning("failed", pod=self._label(key), cause=str(error))

    def _trouble(self, error: Exception, now: float) -> None:
        if isinstance(error, ApiError) and error.retry_after is not None:
            wanted = min(error.retry_after, _LONGEST_RETRY_AFTER)
            self._hold_until = max(self._hold_until, now + wanted)
        if self._troubles and now < self._hold_until:
            return  # one of several that were under way when the trouble began
        if not self._troubles:
            self._log.warning("server_in_trouble", cause=str(error) or type(error).__name__)
        self._troubles += 1
        delay = self._jitter(min(_FIRST_DELAY * 2.0 ** min(self._troubles - 1, 10), _LONGEST_HOLD))
        self._hold_until = max(self._hold_until, now + delay)
