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

    def __aiter__(self) -> Ticker:
        return self

    async def __anext__(self) -> float:
        """Wait for the next tick; returns the loop time at which it was due."""
        now = anyio.current_time()
        due = now + self.period if self._due is None else self._due
        if due <= now:
            missed = math.floor((now - due) / self.period)
            self.skipped += missed
            due += missed * self.period
        event = anyio.Event()
        with setting(event, due, now) as at:
            await event.wait()
        self._due = at + self.period
        return at
