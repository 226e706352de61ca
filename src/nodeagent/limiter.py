"""How many things may be made side by side, when nobody knows beforehand what is best.

More at once is faster while each mostly waits, and slower when they fight for the processors
and disks. So it is tried: while others wait for a turn, twice as many go at once, and it stays at
that if each takes hardly longer for it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

_WORTH: Final = 1.4
"""Doubling the number must bring this many times as much; else half of them only get in the way."""
_FEW: Final = 3
"""Durations that are enough to speak of a typical one."""


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
    async def slot(self, place: int, kind: str = "") -> AsyncIterator[None]:
        """Hold one slot.

        Args:
            place: who was given one earlier has its turn first.
            kind: what is made; only things of one kind are expected to take the same time.
        """
        await self._acquire(place)
        loop, gave_up = asyncio.get_running_loop(), False
        began, limit = loop.time(), self.limit

        def give_up() -> None:
            nonlocal gave_up
            gave_up = True
            self.overdue += 1
            self._release()

        timer = loop.call_later(self._patience, give_up)
        try:
            yield
            if self._waiting and limit == self.limit:
                self.limit = self._pace.next_limit(kind, loop.time() - began, limit, self._most)
        finally:
            timer.cancel()
            if gave_up:
                self.overdue -= 1
            else:
                self._release()

    async def _acquire(self, place: int) -> None:
        if self._held < self.limit and not self._waiting:
            self._held += 1
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                self._release()
                raise
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


class _Pace:
    """What was learned in one rush: how long things take with so many at once. No clock.

    So many at once, each taking so long, are so many in a second. So twice as many are worth it
    as long as each does not take much longer for that.
    """

    def __init__(self) -> None:
        self._settled = False
        self._taken: dict[str, list[float]] = {}
        self._before: dict[str, float] = {}

    def next_limit(self, kind: str, took: float, limit: int, most: int) -> int:
        """Note how long something took that was made within ``limit``; the limit to go on with."""
        if self._settled:
            return limit
        taken = self._taken.setdefault(kind, [])
        taken.append(took)
        if len(taken) < max(_FEW, limit // 2):
            return limit
        typical, before = statistics.median(taken), self._before.get(kind)
        if before is not None and typical > before * 2 / _WORTH:
            self._settled = True
            return max(1, limit // 2)
        if limit >= most:
            self._settled = True
            return limit
        self._before = {each: statistics.median(times) for each, times in self._taken.items()}
        self._taken = {}
        return min(2 * limit, most)
