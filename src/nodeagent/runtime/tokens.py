"""A token bucket on times that the caller gives."""

from __future__ import annotations


class TokenBucket:
    """Lets ``burst`` things happen at once and ``rate`` per second in the long run.

    Args:
        rate: tokens per second; 0 or less for no limit.
        burst: tokens that can be saved up.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = float(max(burst, 1))
        self._tokens = self._burst
        self._updated: float | None = None

    def take(self, now: float) -> bool:
        """Take one token; False when there is none. Never waits."""
        if self._rate <= 0:
            return True
        if self._updated is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._updated) * self._rate)
        self._updated = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
