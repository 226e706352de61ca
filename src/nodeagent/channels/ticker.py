"""Ticks on loop time; a missed tick is skipped, not queued."""

from __future__ import annotations

import math

import anyio

from nodeagent.aio import setting


class Ticker:
    """An async iterator that yields once a period.

    The first tick comes one period after the first ``__anext__``. When the consumer was
    late, the ticks it missed are skipped and the rhythm is kept. Within an agent it is moved
    a little, into step with that of others.

    Args:
        period: seconds of loop time between two ticks.
    """

    def __init__(self, period: float) -> None:
        if not period > 0:
            msg = f"a ticker needs a positive period, not {period}"
            raise ValueError(msg)
        self.period = period
        self.skipped = 0
        self._due: float | None = None
        self._event = anyio.Event()

    def __aiter__(self) -> Ticker:
        return self

    def change(self, period: float) -> None:
        """Tick in another rhythm, counted from the last tick; who waits now goes by it."""
        if period == self.period:
            return
        if self._due is not None:
            self._due += period - self.period
        self.period = period
        self._event.set()

    async def __anext__(self) -> float:
        """Wait for the next tick; returns the loop time at which it was due."""
        now = anyio.current_time()
        if self._due is None:
            self._due = now + self.period
        while True:
            if self._due <= now:
                missed = math.floor((now - self._due) / self.period)
                self.skipped += missed
                self._due += missed * self.period
            due = self._due
            self._event = anyio.Event()
            with setting(self._event, due, now) as at:
                await self._event.wait()
            if self._due == due:
                self._due = at + self.period
                return at
            now = anyio.current_time()  # another rhythm since
