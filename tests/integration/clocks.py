"""Wall clocks that do not behave."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import anyio

_BEGAN = 1_790_000_000.0


class AdjustableClock:
    """Wall time that goes with the loop's, and jumps when it is told to."""

    def __init__(self) -> None:
        self._offset = _BEGAN

    def jump(self, seconds: float) -> None:
        self._offset += seconds

    def time_ns(self) -> int:
        return int((self._offset + anyio.current_time()) * 1e9)

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time_ns() / 1e9, UTC)


class WildClock(AdjustableClock):
    """Wall time that is another one at each look, within twenty years."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._dice = random.Random(seed)

    def time_ns(self) -> int:
        return super().time_ns() + self._dice.randint(-315_000_000, 315_000_000) * 10**9
