"""Wall time, from one injected clock, and only ever shown.

Intervals and ordering never use it: they use the event loop's monotonic time and
logical versions (relist generation, container attempt). A test reads the whole package and
finds no other place that asks for wall time.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


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


def boot_id() -> str:
    """Which boot of the machine this is, "" when the system does not say. Blocking.

    An event loop's time counts from the boot and is the same for all processes, so moments on
    disk mean something to the next process as long as this is the same.
    """
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
