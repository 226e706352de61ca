"""Sends what one side of a connection of SPDY has to say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from anyio.abc import ByteStream

    from nodeagent.streaming.spdy import SpdyConnection


@dataclass(slots=True)
class SpdySender:
    """The way out of a connection that many tasks write to, in the order of their words.

    Args:
        stream: the connection.
        core: gives what is to be sent.
    """

    stream: ByteStream
    core: SpdyConnection
    _lock: anyio.Lock = field(default_factory=anyio.Lock)

    async def flush(self) -> None:
        """Send what is to go out; waits while the other side does not take it.

        Raises:
            anyio.BrokenResourceError: it has gone.
        """
        async with self._lock:
            while data := self.core.take():
                await self.stream.send(data)

    async def answer(self) -> None:
        """Send what follows from what was read; never waits for somebody else who sends.

        Else a peer that takes no more input could not be heard, and so would never take any.
        """
        if not self._lock.locked():
            await self.flush()  # whoever sends now takes it along otherwise
