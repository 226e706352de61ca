"""From two readings of a counter to a rate. Pure.

docs/behaviour/stats.md, "Rates".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

SPAN_NS: Final = 10_000_000_000
"""Nanoseconds that a rate covers at least, once there are readings so old."""


@dataclass(slots=True)
class _Readings:
    """The two that count; the older one is what the newest is compared with."""

    older: tuple[int, int]
    newer: tuple[int, int]


class Rates:
    """Rates of counters that somebody reads now and then."""

    def __init__(self) -> None:
        self._readings: dict[str, _Readings] = {}

    def rate(self, key: str, time: int, value: int) -> int | None:
        """The growth in a second, in the counter's unit; None before the second reading.

        Args:
            key: names the counter.
            time: nanoseconds.
            value: what the counter shows.
        """
        known = self._readings.get(key)
        if known is None or value < known.newer[1] or time < known.newer[0]:
            self._readings[key] = _Readings((time, value), (time, value))
            return None
        if time - known.newer[0] >= SPAN_NS:
            known.older, known.newer = known.newer, (time, value)
        since, before = known.older
        if time == since:
            return None
        return (value - before) * 1_000_000_000 // (time - since)

    def keep(self, keys: Collection[str]) -> None:
        """Forget all counters but these."""
        for key in self._readings.keys() - set(keys):
            del self._readings[key]
