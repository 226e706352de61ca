"""Wall time, from one injected clock, and only ever shown.

Intervals and ordering never use it: they use the event loop's monotonic time and
logical versions (relist generation, container attempt).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where wall time comes from."""

    def time_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        ...

    def now(self) -> datetime:
        """The same moment as an aware UTC datetime."""
        ...


class SystemClock:
    """The machine's wall clock."""

    def time_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        return time.time_ns()

    def now(self) -> datetime:
        """The current moment in UTC."""
        return datetime.now(UTC)
