"""How many requests may be made: a token bucket, first come first served."""

from __future__ import annotations

import anyio


class Throttle:
    """A bucket of ``burst`` tokens that fills with ``qps`` tokens a second of loop time.

    Args:
        qps: requests per second in the long run; 0 means no limit.
        burst: requests that may come at once; at least 1.
    """

    def __init__(self, qps: float, burst: int) -> None:
        self._period = 1.0 / qps if qps > 0 else 0.0
        self._slack = self._period * (max(burst, 1) - 1)
        # When the bucket will be as full as it was at the beginning.
        self._full_at = float("-inf")

    def change(self, qps: float, burst: int) -> None:
        """Let so many through from now on; who waits already has its turn as it was."""
        self._period = 1.0 / qps if qps > 0 else 0.0
        self._slack = self._period * (max(burst, 1) - 1)
        self._full_at = min(self._full_at, anyio.current_time() + self._slack)

    async def acquire(self) -> None:
        """Take a token; waits until it is this caller's turn.

        Who is cancelled while waiting gives its turn back only if nobody came after it.
        """
        if not self._period:
            return
        now = anyio.current_time()
        turn = max(self._full_at, now)
        self._full_at = turn + self._period
        delay = turn - self._slack - now
        if delay <= 0:
            return
        mine = self._full_at
        try:
            await anyio.sleep(delay)
        except BaseException:
            if self._full_at == mine:
                self._full_at = turn
            raise
