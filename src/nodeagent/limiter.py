"""How many things may be made side by side, when nobody knows beforehand what is best.

More at once is faster while each mostly waits, and slower when they fight for the processors
and disks. So it is tried: while others wait for a turn, twice as many go at once, and it stays at
that if more get done in the same time.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

_WORTH: Final = 1.4
"""Doubling the number must bring this many times as much; else half of them only get in the way."""


@dataclass(order=True, slots=True)
class _Waiter:
    place: int
    arrival: int
    turn: asyncio.Future[None] = field(compare=False)


class AdaptiveLimiter:
    """A limit on what is done side by side that adapts, and that what hangs cannot exhaust.

    A holder that keeps its slot longer than ``patience`` seconds of loop time goes on, but its
    slot is given to the next in line.

    Args:
        least: holders that may run side by side at first; each rush begins with it.
        most: holders that never run side by side.
        patience: seconds after which a holder gives its slot up.

    Attributes:
        limit: how many may run side by side now.
        overdue: how many holders run past their patience right now.
    """

    def __init__(self, least: int, most: int, patience: float) -> None:
        self._least = least
        self._most = max(least, most)
        self._patience = patience
        self.limit = least
        self.overdue = 0
        self._held = 0
        self._waiting: list[_Waiter] = []
        self._places = itertools.count()
        self._arrivals = itertools.count()
        self._pace = _Pace()

    def place(self) -> int:
        """A place in line, behind all that were given out before; for any number of slots."""
        return next(self._places)

    @asynccontextmanager
    async def slot(self, place: int, *, counts: bool = True) -> AsyncIterator[None]:
        """Hold one slot.

        Args:
            place: who was given one earlier has its turn first.
            counts: whether its end is one more thing done; what is only half of it does not.
        """
        await self._acquire(place)
        gave_up = False

        def give_up() -> None:
            nonlocal gave_up
            gave_up = True
            self.overdue += 1
            self._release()

        timer = asyncio.get_running_loop().call_later(self._patience, give_up)
        try:
            yield
            if counts:
                self._learn()
        finally:
            timer.cancel()
            if gave_up:
                self.overdue -= 1
            else:
                self._release()

    async def _acquire(self, place: int) -> None:
        if self._held < self.limit and not self._waiting:
            self._held += 1
            await asyncio.sleep(0)
            return
        waiter = _Waiter(place, next(self._arrivals), asyncio.get_running_loop().create_future())
        heapq.heappush(self._waiting, waiter)
        self._admit()
        try:
            await waiter.turn
        except asyncio.CancelledError:
            if waiter.turn.done() and not waiter.turn.cancelled():
                self._release()  # its turn came at the same moment
            else:
                self._waiting.remove(waiter)
                heapq.heapify(self._waiting)
            raise

    def _release(self) -> None:
        self._held -= 1
        self._admit()
        if not self._waiting:
            self.limit, self._pace = self._least, _Pace()

    def _admit(self) -> None:
        while self._waiting and self._held < self.limit:
            waiter = heapq.heappop(self._waiting)
            if not waiter.turn.done():
                self._held += 1
                waiter.turn.set_result(None)

    def _learn(self) -> None:
        """One more is done; whether others wait decides if that says anything."""
        if self._waiting:
            now = asyncio.get_running_loop().time()
            self.limit = self._pace.next_limit(now, self.limit, self._most)


@dataclass(slots=True)
class _Pace:
    """What was learned in one rush. No clock."""

    since: float | None = None
    done: int = 0
    before: tuple[int, float] | None = None
    """The limit and the rate before the limit was last doubled."""
    settled: bool = False

    def next_limit(self, now: float, limit: int, most: int) -> int:
        """Note that one is done at ``now``; the limit to go on with."""
        if self.settled:
            return limit
        if self.since is None:
            self.since = now
            return limit
        self.done += 1
        if self.done < limit:
            return limit
        took = now - self.since
        rate = self.done / took if took > 0 else float("inf")
        self.since, self.done = now, 0
        if self.before is not None and rate < _WORTH * self.before[1]:
            self.settled = True
            return self.before[0]
        if limit >= most:
            self.settled = True
            return limit
        self.before = limit, rate
        return min(2 * limit, most)
