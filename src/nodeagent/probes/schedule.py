"""When each probe is due: one heap, one timer, no task that sleeps."""

from __future__ import annotations

import asyncio
import heapq
import math
from contextlib import ExitStack
from typing import Final, Generic, TypeVar

import anyio

T = TypeVar("T")

_SLACK: Final = 64


def _whole(due: float) -> float:
    """The next whole millisecond: a loop that counts those would else wake early, over and over."""
    return math.ceil(due * 1000) / 1000


class Schedule(Generic[T]):
    """Due times of hashable items; setting one replaces the one before. Times are loop times."""

    def __init__(self) -> None:
        self._due: dict[T, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, T]] = []
        self._seq = 0
        self._earlier = anyio.Event()
        self._sleeping_until = math.inf

    def __len__(self) -> int:
        return len(self._due)

    def set(self, item: T, due: float) -> None:
        """Make the item due at ``due``, and at no other time."""
        self._seq += 1
        self._due[item] = (due, self._seq)
        # The number keeps entries comparable and the order of equal times stable.
        heapq.heappush(self._heap, (due, self._seq, item))
        if len(self._heap) > 2 * len(self._due) + _SLACK:
            self._heap = [(due, seq, item) for item, (due, seq) in self._due.items()]
            heapq.heapify(self._heap)
        if due < self._sleeping_until:
            self._earlier.set()

    def discard(self, item: T) -> None:
        """The item is not due any more."""
        self._due.pop(item, None)

    def pop_due(self, now: float) -> list[tuple[float, T]]:
        """Take out what is due at ``now``, with its due time, the longest due first."""
        due: list[tuple[float, T]] = []
        while (first := self._first()) is not None and first[0] <= now:
            heapq.heappop(self._heap)
            del self._due[first[2]]
            due.append((first[0], first[2]))
        return due

    async def wait(self) -> None:
        """Return when the first item is due."""
        loop = asyncio.get_running_loop()
        while True:
            first = self._first()
            self._sleeping_until = math.inf if first is None else _whole(first[0])
            if loop.time() >= self._sleeping_until:
                await anyio.lowlevel.checkpoint()
                return
            self._earlier = anyio.Event()
            with ExitStack() as timer:
                if first is not None:
                    handle = loop.call_at(self._sleeping_until, self._earlier.set)
                    timer.callback(handle.cancel)
                await self._earlier.wait()

    def _first(self) -> tuple[float, int, T] | None:
        while self._heap:
            due, seq, item = self._heap[0]
            if self._due.get(item) == (due, seq):
                return self._heap[0]
            heapq.heappop(self._heap)
        return None
