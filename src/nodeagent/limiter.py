"""How many things may be done side by side, and that what hangs holds up nobody."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import statistics
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio

_WORTH: Final = 1.4
"""Doubling the number must bring this many times as much; else half of them only get in the way."""
_FEW: Final = 3
"""Durations that are enough to speak of a typical one."""


@dataclass(order=True, slots=True)
class _Waiter:
    place: int
    arrival: int
    turn: asyncio.Future[None] = field(compare=False)


class _Slots:
    """Slots that are held side by side, and who waits for one.

    A holder that keeps its slot longer than ``patience`` seconds of loop time goes on, but its
    slot is given to the next in line: 40 that hang never starve the rest.

    Attributes:
        limit: how many may be held now.
        overdue: how many holders run past their patience right now.
    """

    limit: float

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self.overdue = 0
        self._held = 0
        self._waiting: list[_Waiter] = []
        self._arrivals = itertools.count()

    @asynccontextmanager
    async def _hold(self, place: int) -> AsyncIterator[None]:
        """Hold one slot; waits in order of places, and then of arrival."""
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
        finally:
            timer.cancel()
            if gave_up:
                self.overdue -= 1
            else:
                self._release()

    async def _acquire(self, place: int) -> None:
        await anyio.lowlevel.checkpoint_if_cancelled()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(place, next(self._arrivals), turn)
        heapq.heappush(self._waiting, waiter)
        self._admit()
        try:
            if turn.done():
                await anyio.lowlevel.cancel_shielded_checkpoint()
            else:
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._release()  # its turn came at the same moment
            elif waiter in self._waiting:  # not passed over yet
                self._waiting.remove(waiter)
                heapq.heapify(self._waiting)
            raise

    def _release(self) -> None:
        self._held -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._held < self.limit:
            turn = heapq.heappop(self._waiting).turn
            if not turn.done():
                self._held += 1
                turn.set_result(None)


class PatientLimiter(_Slots):
    """A limit on what is done side by side that stuck holders cannot exhaust.

    A holder that keeps its slot longer than ``patience`` seconds of loop time goes on, but its
    slot is given to the next in line.

    Args:
        total: how many holders may run side by side; infinite for any number.
        patience: seconds after which a holder gives its slot up.
    """

    def __init__(self, total: float, patience: float) -> None:
        super().__init__(patience)
        self.limit = total

    def resize(self, total: float) -> None:
        """Let more holders or fewer run side by side; those that do now go on."""
        self.limit = total
        self._admit()

    def slot(self) -> AbstractAsyncContextManager[None]:
        """Hold one slot; waits in order of arrival."""
        return self._hold(0)


class AdaptiveLimiter(_Slots):
    """A patient limit for when nobody knows beforehand how many at once are best.

    More at once is faster while each mostly waits, and slower when they fight for the processors
    and disks. So it is tried: while others wait for a turn, twice as many go at once, and it
    stays at that if each takes hardly longer for it.

    Args:
        least: holders that may run side by side at first; each rush begins with it.
        most: holders that never run side by side.
        patience: seconds after which a holder gives its slot up.
    """

    limit: int

    def __init__(self, least: int, most: int, patience: float) -> None:
        super().__init__(patience)
        self._least = least
        self._most = max(least, most)
        self.limit = least
        self._places = itertools.count()
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
        async with self._hold(place):
            began, limit = anyio.current_time(), self.limit
            yield
            if self._waiting and limit == self.limit:
                took = anyio.current_time() - began
                self.limit = self._pace.next_limit(kind, took, limit, self._most)

    def _release(self) -> None:
        super()._release()
        if not self._waiting:
            self.limit, self._pace = self._least, _Pace()


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
