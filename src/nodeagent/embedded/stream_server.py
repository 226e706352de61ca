"""The streaming server of the embedded runtime: exec, attach and port-forward by URL.

A URL is good for one connection, and for a minute. The server listens on the loopback interface
from the first URL on.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import ByteStream, SocketAttribute

from nodeagent.aio import PEER_GONE
from nodeagent.log import Log
from nodeagent.rpc import ResourceExhausted, RpcError
from nodeagent.streaming.upgrading import (
    Asked,
    UpgradeError,
    command_upgrade,
    port_upgrade,
    read_request,
    refusal,
)

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from anyio.abc import Listener, SocketStream, TaskGroup

    from nodeagent.streaming.channels import Channels
    from nodeagent.streaming.commands import Command
    from nodeagent.streaming.ports import Connect
    from nodeagent.streaming.protocols import Wanted

log = Log("embedded.streams")
Serve = Callable[[ByteStream, Asked], Awaitable[None]]
GOOD_FOR: Final = 60.0
"""Seconds in which a URL has to be used."""
MOST_TOKENS: Final = 1000
"""URLs that may wait to be used."""
_REQUEST: Final = 30.0
_FAREWELL: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Promise:
    due: float
    serve: Serve


class StreamServer:
    """Gives URLs, and serves them.

    Attributes:
        tasks: what serves; must be set before the first URL.
    """

    def __init__(self) -> None:
        self.tasks: TaskGroup
        self._port = 0
        self._promises: dict[str, _Promise] = {}
        self._lock = anyio.Lock()

    async def promise(self, kind: str, serve: Serve) -> str:
        """A URL under which ``serve`` gets one connection, and closes it by returning.

        Raises:
            ResourceExhausted: too many wait to be used.
        """
        now = anyio.current_time()
        self._promises = {k: one for k, one in self._promises.items() if one.due > now}
        if len(self._promises) >= MOST_TOKENS:
            raise ResourceExhausted("maximum number of in-flight requests exceeded")
        async with self._lock:
            if not self._port:
                listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
                self._port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - no query
                self.tasks.start_soon(self._listen, listener)
        token = secrets.token_urlsafe(24)
        self._promises[token] = _Promise(now + GOOD_FOR, serve)
        return f"http://127.0.0.1:{self._port}/{kind}/{token}"

    async def _listen(self, listener: Listener[SocketStream]) -> None:
        async with listener:
            await listener.serve(self._connected)

    async def _connected(self, stream: SocketStream) -> None:
        async with stream:
            try:
                await self._serve(stream)
                # Closing with something unread would take from the client what is on its way.
                await stream.send_eof()
                with anyio.move_on_after(_FAREWELL):
                    while True:
                        await stream.receive()
            except (*PEER_GONE, OSError):
                return  # the client has gone

    async def _serve(self, stream: ByteStream) -> None:
        try:
            with anyio.move_on_after(_REQUEST):
                asked = await read_request(stream)
                if asked is not None:
                    serve = self._redeem(asked.path)
        except UpgradeError as error:
            await stream.send(refusal(error))
            return
        if asked is None:
            return
        try:
            await serve(stream, asked)
        except UpgradeError as error:
            await stream.send(refusal(error))

    def _redeem(self, path: str) -> Serve:
        found = self._promises.pop(path.rpartition("/")[2], None)
        if found is None or found.due <= anyio.current_time():
            raise UpgradeError(404, "this address was used, or is too old")
        return found.serve


async def serve_streams(
    stream: ByteStream,
    asked: Asked,
    wanted: Wanted,
    run: Callable[[], AbstractAsyncContextManager[Command]],
) -> None:
    """Give a client the streams of a command.

    Raises:
        UpgradeError: the client cannot have them.
    """
    from nodeagent.streaming.channels import ChannelsError
    from nodeagent.streaming.commands import serve_command, tell
    from nodeagent.streaming.protocols import Outcome

    try:
        channels = await _agree(stream, asked, wanted)
    except ChannelsError as error:
        log.warning("no_streams", error=str(error))
        return
    try:
        async with run() as command:
            await serve_command(channels, command)
    except (RpcError, OSError) as error:
        await tell(channels, Outcome(error=str(error)))


async def _agree(stream: ByteStream, asked: Asked, wanted: Wanted) -> Channels:
    from nodeagent.streaming.channels import SpdyChannels, WebSocketChannels

    agreed = command_upgrade(asked)
    await stream.send(agreed.head)
    names = wanted.channels(agreed.protocol)
    if agreed.websocket:
        from nodeagent.streaming.websocket import WebSocket

        socket = WebSocket(stream, rest=asked.rest)
        messages = WebSocketChannels(socket, agreed.protocol, names)
        await messages.greet()
        return messages
    channels = SpdyChannels(stream, agreed.protocol, rest=asked.rest)
    await channels.accept(names)
    return channels


async def serve_ports(stream: ByteStream, asked: Asked, ports: list[int], connect: Connect) -> None:
    """Join a client with ports of a pod.

    Raises:
        UpgradeError: the client cannot have that.
    """
    from nodeagent.streaming.ports import SpdyPorts, serve_websocket_ports
    from nodeagent.streaming.protocols import TUNNEL

    agreed = port_upgrade(asked)
    await stream.send(agreed.head)
    if not agreed.websocket:
        await SpdyPorts(stream, connect, asked.rest).serve()
        return
    from nodeagent.streaming.websocket import Tunnel, WebSocket

    socket = WebSocket(stream, rest=asked.rest)
    if agreed.protocol == TUNNEL:
        await SpdyPorts(Tunnel(socket), connect).serve()
    else:
        await serve_websocket_ports(socket, agreed.protocol, ports, connect)
