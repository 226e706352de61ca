"""How long a stream may last, and how long it may be silent.

docs/behaviour/server.md, "Streams".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf

import anyio

from nodeagent.aio import background
from nodeagent.log import Log

log = Log("server")


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Bounds of a connection that was upgraded.

    Attributes:
        idle: seconds without a byte in either direction after which it is closed; 0 for never.
        lifetime: seconds after which it is closed in any case; 0 for never.
    """

    idle: float = 4 * 3600.0
    lifetime: float = 24 * 3600.0


class Activity:
    """Remembers when the last bytes came, in loop time."""

    __slots__ = ("_last", "_now")

    def __init__(self) -> None:
        self._now: Callable[[], float] = anyio.current_time
        self._last = self._now()

    def seen(self) -> None:
        """Bytes have come, from whichever side."""
        self._last = self._now()

    async def end(self, limits: StreamLimits) -> str:
        """Wait until a limit is reached; returns which one, in words.

        One wake-up for each time that the stream could have become too old, none for its bytes.
        """
        oldest = anyio.current_time() + (limits.lifetime or inf)
        while True:
            silent = self._last + (limits.idle or inf)
            now = anyio.current_time()
            if now >= oldest:
                return f"it has lasted {limits.lifetime:g} s"
            if now >= silent:
                return f"no bytes for {limits.idle:g} s"
            await anyio.sleep_until(min(oldest, silent))


@asynccontextmanager
async def limited(
    activity: Activity, limits: StreamLimits, close: Callable[[], None]
) -> AsyncIterator[None]:
    """Call ``close`` when the stream inside the context reaches a limit.

    Args:
        activity: is told of its bytes.
        limits: of the stream.
        close: must make what is inside the context end.
    """

    async def watch() -> None:
        cause = await activity.end(limits)
        log.info("stream_closed", cause=cause)
        close()

    async with background() as tasks:
        tasks.start_soon(watch)
        yield
