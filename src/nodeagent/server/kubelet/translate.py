"""Clients that speak WebSocket, for runtimes that speak only SPDY.

docs/behaviour/server.md, "Streams".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from anyio.abc import ByteStream

from nodeagent.aio import PEER_GONE, background
from nodeagent.server.kubelet.stream_limits import Activity, StreamLimits, limited
from nodeagent.server.kubelet.stream_request import Streams, Wish
from nodeagent.streaming.protocols import (
    BASE64,
    PORT_FORWARD,
    SPDY,
    TUNNEL,
    V3,
    V4,
    V5,
    VERSION_HEADER,
    Wanted,
)
from nodeagent.streaming.upgrading import (
    Agreed,
    Asked,
    UpgradeError,
    command_upgrade,
    port_upgrade,
)

if TYPE_CHECKING:
    from nodeagent.server.app import Request
    from nodeagent.server.kubelet.upgrade import Upgraded
    from nodeagent.streaming.channels import Channels

_LIMIT: Final = 128 * 1024
_FAREWELL: Final = 30.0
"""Seconds that a client has to take the last bytes."""
_UNKNOWN_PROTOCOL: Final = (400, 403, 405, 426, 501)
"""What servers answer that do not know a protocol."""


def to_translate(request: Request, wish: Wish, declined: int = 0) -> Agreed | None:
    """What the client is answered when its protocol is to be translated; None when it is not.

    Those that no runtime need know are translated at once, the others for a runtime that has
    declined them.

    Args:
        request: of the client.
        wish: what it asks for.
        declined: what the runtime has answered to this protocol; 0 when it was not asked.
    """
    asked = Asked(request.method, "", {}, request.headers, b"")
    command = isinstance(wish, Streams)
    try:
        agreed = command_upgrade(asked) if command else port_upgrade(asked)
    except UpgradeError:
        return None  # the runtime finds the words for it
    if not agreed.websocket:
        return None
    at_once = agreed.protocol == (V5 if command else TUNNEL)
    return agreed if at_once or declined in _UNKNOWN_PROTOCOL else None


def spdy_headers(agreed: Agreed, wish: Wish) -> dict[str, str]:
    """With what the runtime is asked in place of the client's headers."""
    command = isinstance(wish, Streams)
    version = _command_version(agreed.protocol) if command else PORT_FORWARD
    return {"connection": "Upgrade", "upgrade": SPDY, VERSION_HEADER: version}


def _command_version(protocol: str) -> str:
    """The version of SPDY whose channel for errors says the same as the client's."""
    return V4 if protocol in (V5, V4, BASE64[0]) else V3


class TransportStream(ByteStream):
    """A connection that was taken from a protocol of asyncio.

    Args:
        transport: reading is paused.
        activity: is told of what comes in.
    """

    def __init__(self, transport: asyncio.Transport, activity: Activity) -> None:
        self._seen = activity.seen
        loop = asyncio.get_running_loop()
        self._reader = asyncio.StreamReader(limit=_LIMIT, loop=loop)
        protocol = asyncio.StreamReaderProtocol(self._reader, loop=loop)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        self._writer = asyncio.StreamWriter(transport, protocol, self._reader, loop)
        self._transport = transport
        transport.resume_reading()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """What has come."""
        try:
            data = await self._reader.read(max_bytes)
        except OSError as error:
            raise anyio.BrokenResourceError from error
        if not data:
            raise anyio.EndOfStream
        self._seen()
        return data

    async def send(self, item: bytes) -> None:
        """Send; waits while the other side does not take it."""
        if self._transport.is_closing():
            raise anyio.BrokenResourceError
        self._writer.write(item)
        try:
            await self._writer.drain()
        except OSError as error:
            raise anyio.BrokenResourceError from error

    async def send_eof(self) -> None:
        """Say no more, where that is possible."""
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()

    async def aclose(self) -> None:
        """Close, after what still waits was sent."""
        self._transport.close()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """None."""
        return {}


async def translate(
    client: asyncio.Transport,
    upgraded: Upgraded,
    agreed: Agreed,
    wish: Wish,
    limits: StreamLimits,
) -> None:
    """Join a client with WebSocket and a runtime with SPDY until one of them has gone.

    Args:
        client: reading is paused.
        upgraded: the runtime's connection.
        agreed: what the client is answered.
        wish: what it asks for.
        limits: when they are closed whatever they do.
    """
    activity = Activity()
    before = client.get_protocol()
    there, here = TransportStream(upgraded.transport, activity), TransportStream(client, activity)
    try:
        with anyio.CancelScope() as scope:
            async with limited(activity, limits, scope.cancel):
                await here.send(agreed.head)
                if isinstance(wish, Streams):
                    await _command(here, there, upgraded.rest, agreed.protocol, wish)
                elif agreed.protocol == TUNNEL:
                    await _tunnel(here, there, upgraded.rest)
                else:
                    await _ports(here, there, upgraded.rest, agreed.protocol, wish)
    except PEER_GONE:
        pass
    finally:
        client.close()
        # What still waits for a client that does not read is lost in the end.
        asyncio.get_running_loop().call_later(_FAREWELL, client.abort)
        # The HTTP server keeps books about its connections.
        cast(asyncio.Protocol, before).connection_lost(None)


async def _command(
    here: TransportStream, there: TransportStream, rest: bytes, protocol: str, streams: Streams
) -> None:
    from nodeagent.streaming.channels import ChannelsError, SpdyChannels, WebSocketChannels
    from nodeagent.streaming.websocket import WebSocket

    wanted = Wanted(streams.stdin, streams.stdout, streams.stderr, streams.tty)
    names = wanted.channels(V4)
    runtime = SpdyChannels(there, _command_version(protocol), client=True, rest=rest)
    client = WebSocketChannels(WebSocket(here), protocol, names)
    try:
        await runtime.open(names)
        await client.greet()
        async with anyio.create_task_group() as tg:
            tg.start_soon(_pump, client, runtime, tg.cancel_scope)
            tg.start_soon(_pump, runtime, client, tg.cancel_scope)
        await client.close()
    except ChannelsError:
        return


async def _pump(source: Channels, target: Channels, end: anyio.CancelScope) -> None:
    from nodeagent.streaming.channels import ChannelsError

    try:
        while (said := await source.receive()) is not None:
            if said.data:
                await target.send(said.channel, said.data)
            if said.end:
                await target.end(said.channel)
    except (*PEER_GONE, ChannelsError):
        pass  # one of them has gone, and so the other one goes
    end.cancel()


async def _tunnel(here: TransportStream, there: TransportStream, rest: bytes) -> None:
    from nodeagent.streaming.websocket import Tunnel, WebSocket

    tunnel = Tunnel(WebSocket(here))

    async def copy(source: ByteStream, target: ByteStream) -> None:
        try:
            async for data in source:
                await target.send(data)
        except PEER_GONE:
            pass  # one of them has gone, and so the other one goes
        tg.cancel_scope.cancel()

    if rest:
        await tunnel.send(rest)
    async with anyio.create_task_group() as tg:
        tg.start_soon(copy, tunnel, there)
        tg.start_soon(copy, there, tunnel)
    await tunnel.aclose()


async def _ports(
    here: TransportStream,
    there: TransportStream,
    rest: bytes,
    protocol: str,
    ports: Sequence[int],
) -> None:
    from nodeagent.streaming.ports import serve_websocket_ports
    from nodeagent.streaming.ports_client import SpdyPortClient
    from nodeagent.streaming.websocket import WebSocket

    runtime = SpdyPortClient(there, rest)
    async with background() as tg:
        tg.start_soon(runtime.run)
        await serve_websocket_ports(WebSocket(here), protocol, ports, runtime.connect)
