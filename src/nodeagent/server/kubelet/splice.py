"""Two connections as one: what comes in at one goes out at the other, as bytes.

Once a connection has been upgraded, what follows is no HTTP: its transport is taken from the
HTTP server and given to :class:`Side`. A side that cannot take more holds the other one up, and
the end of what one sends is the end of what the other gets.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

import anyio

from nodeagent.server.kubelet.stream_limits import Activity, StreamLimits, limited

BUFFER: Final = 256 * 1024
"""Bytes that may wait on each side before the other one is held up."""
_NO_LIMITS: Final = StreamLimits(idle=0, lifetime=0)


class Side(asyncio.Protocol):
    """One end of a splice.

    Args:
        transport: its connection.
        activity: is told of what comes in.

    Attributes:
        transport: its connection.
        gone: set when the connection is closed.
    """

    def __init__(self, transport: asyncio.Transport, activity: Activity) -> None:
        self.transport = transport
        self._seen = activity.seen
        self.gone = anyio.Event()
        self._peer: Side | None = None
        self._secured = transport.get_extra_info("ssl_object") is not None

    def join(self, peer: Side) -> None:
        """Send what comes in here to ``peer``."""
        self._peer = peer

    def data_received(self, data: bytes) -> None:
        """Pass on."""
        assert self._peer is not None
        self._seen()
        self._peer.transport.write(data)

    def pause_writing(self) -> None:
        """Too much waits here: the other side waits, too."""
        assert self._peer is not None
        if not self._peer.transport.is_closing():
            self._peer.transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        assert self._peer is not None
        if not self._peer.transport.is_closing():
            self._peer.transport.resume_reading()

    def eof_received(self) -> bool:
        """Nothing more comes in here; the other direction goes on where that is possible."""
        assert self._peer is not None
        other = self._peer.transport
        if other.is_closing():
            return False
        if other.can_write_eof():
            other.write_eof()
            return not self._secured  # TLS has no half of a connection
        other.close()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """What still waits for the other side is sent; then it ends, too."""
        assert self._peer is not None
        self.gone.set()
        self._peer.transport.close()


async def splice(
    client: asyncio.Transport,
    runtime: asyncio.Transport,
    to_client: bytes,
    to_runtime: bytes = b"",
    limits: StreamLimits = _NO_LIMITS,
) -> None:
    """Join two connections until both are closed; they are when this returns.

    Args:
        client: reading is paused.
        runtime: reading is paused.
        to_client: is sent before anything else.
        to_runtime: the same for the other side.
        limits: when they are closed whatever they do.
    """
    activity = Activity()
    sides = Side(client, activity), Side(runtime, activity)

    def abort() -> None:
        for side in sides:
            side.transport.abort()

    before = client.get_protocol()
    for side, other in (sides, sides[::-1]):
        side.join(other)
        side.transport.set_write_buffer_limits(high=BUFFER)
        side.transport.set_protocol(side)
    client.write(to_client)
    if to_runtime:
        runtime.write(to_runtime)
    try:
        for side in sides:
            if not side.transport.is_closing():
                side.transport.resume_reading()
            else:
                sides[0].transport.close()
                sides[1].transport.close()
        async with limited(activity, limits, abort):
            for side in sides:
                await side.gone.wait()
    finally:
        abort()
        # The HTTP server keeps books about its connections.
        cast(asyncio.Protocol, before).connection_lost(None)
