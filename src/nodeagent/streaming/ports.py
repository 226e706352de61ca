"""Serving port-forward: connections of a client joined with connections to ports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio

from nodeagent.aio import PEER_GONE, background
from nodeagent.streaming import spdy
from nodeagent.streaming.messages import MessageError, MessageReader, message
from nodeagent.streaming.protocols import BASE64
from nodeagent.streaming.spdy_sender import SpdySender

if TYPE_CHECKING:
    from anyio.abc import ByteStream, TaskGroup
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from nodeagent.streaming.websocket import WebSocket

Connect = Callable[[int], Awaitable["ByteStream"]]
"""Connects to a port; an OSError is told the client in its own words."""
_PART: Final = 32 * 1024
_WAITING: Final = 16
_MOST_PORTS: Final = 128


class PortError(ConnectionError):
    """What is wrong with a port, in words for its client."""


@dataclass(slots=True)
class _Pair:
    """Two streams of one connection: what it says, and what went wrong with it."""

    port: int
    error: int = 0
    data: int = 0
    ended: bool = False
    sender: MemoryObjectSendStream[bytes] | None = None


@dataclass(slots=True)
class SpdyPorts:
    """Any number of connections over one of SPDY.

    Args:
        stream: the client's connection.
        connect: to a port.
        rest: what has already been read of it.
    """

    stream: ByteStream
    connect: Connect
    rest: bytes = b""
    _core: spdy.SpdyConnection = field(default_factory=lambda: spdy.SpdyConnection(client=False))
    _pairs: dict[str, _Pair] = field(default_factory=dict)
    _by_data: dict[int, _Pair] = field(default_factory=dict)
    _sender: SpdySender = field(init=False)

    def __post_init__(self) -> None:
        self._sender = SpdySender(self.stream, self._core)

    async def serve(self) -> None:
        """Until the client has gone."""
        async with anyio.create_task_group() as tg:
            try:
                data = self.rest
                while True:
                    for event in self._core.receive(data):
                        await self._take(event, tg)
                    await self._sender.answer()
                    data = await self.stream.receive()
            except (*PEER_GONE, spdy.SpdyError):
                tg.cancel_scope.cancel()

    async def _take(self, event: spdy.Event, tg: TaskGroup) -> None:
        if isinstance(event, spdy.Opened):
            self._open(event, tg)
        elif isinstance(event, (spdy.Data, spdy.Reset)):
            pair = self._by_data.get(event.stream)
            if pair is None or pair.sender is None:
                return
            try:
                if isinstance(event, spdy.Data) and event.data:
                    await pair.sender.send(event.data)
            except PEER_GONE:
                return  # the port does not take it any more
            if isinstance(event, spdy.Reset) or event.fin:
                pair.sender.close()

    def _open(self, event: spdy.Opened, tg: TaskGroup) -> None:
        headers = event.headers
        kind, port = headers.get("streamtype", "").lower(), headers.get("port", "")
        number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0
        key = headers.get("requestid") or f"port {port} {event.stream - (kind == 'data') * 2}"
        if kind not in ("error", "data") or not 0 < number < 65536:
            self._core.reset(event.stream, spdy.REFUSED)
            return
        pair = self._pairs.setdefault(key, _Pair(number))
        if pair.port != number or (pair.error if kind == "error" else pair.data):
            self._core.reset(event.stream, spdy.REFUSED)
            return
        self._core.reply(event.stream)
        if kind == "error":
            pair.error = event.stream
        else:
            pair.data = event.stream
            pair.ended = event.fin
        if pair.error and pair.data:
            sender, receiver = anyio.create_memory_object_stream[bytes](_WAITING)
            pair.sender = sender
            self._by_data[pair.data] = pair
            if pair.ended:
                sender.close()
            tg.start_soon(self._join, key, pair, receiver)

    async def _join(
        self, key: str, pair: _Pair, receiver: MemoryObjectReceiveStream[bytes]
    ) -> None:
        async def send(data: bytes) -> None:
            self._core.send(pair.data, data)
            await self._sender.flush()

        try:
            with receiver:
                trouble = await join_port(self.connect, pair.port, receiver, send)
            self._core.send(pair.error, trouble.encode(), fin=True)
            self._core.send(pair.data, b"", fin=True)
            if trouble:
                self._core.reset(pair.data, spdy.CANCEL)
            await self._sender.flush()
        except PEER_GONE:
            pass
        finally:
            self._pairs.pop(key, None)
            self._by_data.pop(pair.data, None)
            if pair.sender is not None:
                pair.sender.close()


async def serve_websocket_ports(
    socket: WebSocket, protocol: str, ports: Sequence[int], connect: Connect
) -> None:
    """One connection for each port over a WebSocket, until all have ended or the client has gone.

    Channel ``2 i`` has what the connection to port ``i`` says, ``2 i + 1`` what went wrong; each
    begins with the number of the port in two bytes, the lower one first.
    """
    encoded = protocol in BASE64
    streams = [anyio.create_memory_object_stream[bytes](_WAITING) for _ in ports[:_MOST_PORTS]]

    async def say(channel: int, data: bytes) -> None:
        await socket.send(message(protocol, channel, data), text=encoded)

    async def one(index: int, port: int) -> None:
        with streams[index][1] as receiver:
            try:
                trouble = await join_port(
                    connect, port, receiver, lambda data: say(2 * index, data)
                )
                if trouble:
                    await say(2 * index + 1, trouble.encode())
            except PEER_GONE:
                return

    async with anyio.create_task_group() as tg:
        try:
            for index, port in enumerate(ports[:_MOST_PORTS]):
                for channel in (2 * index, 2 * index + 1):
                    await say(channel, port.to_bytes(2, "little"))
            async with anyio.create_task_group() as joined:
                tg.start_soon(_receive_ports, socket, protocol, streams, tg.cancel_scope)
                for index, port in enumerate(ports[:_MOST_PORTS]):
                    joined.start_soon(one, index, port)
            await socket.close()
        except PEER_GONE:
            pass  # the client has lost interest
        finally:
            for sender, receiver in streams:
                sender.close()
                receiver.close()
        tg.cancel_scope.cancel()


async def _receive_ports(
    socket: WebSocket,
    protocol: str,
    streams: Sequence[tuple[MemoryObjectSendStream[bytes], MemoryObjectReceiveStream[bytes]]],
    end: anyio.CancelScope,
) -> None:
    reader = MessageReader(protocol)
    try:
        while (found := await socket.receive()) is not None:
            part = reader.read(*found)
            if part is None or part.channel % 2 or part.channel // 2 >= len(streams):
                continue
            try:
                await streams[part.channel // 2][0].send(part.data)
            except PEER_GONE:
                continue  # that port does not take anything any more
    except MessageError:
        pass  # as good as gone
    end.cancel()


async def join_port(
    connect: Connect,
    port: int,
    receiver: MemoryObjectReceiveStream[bytes],
    send: Callable[[bytes], Awaitable[None]],
) -> str:
    """Join a client's bytes with a connection to a port until that has ended.

    Returns:
        What went wrong with the port; empty when nothing did.

    Raises:
        anyio.BrokenResourceError: the client has gone.
    """
    try:
        stream = await connect(port)
    except OSError as error:
        return f"an error occurred forwarding {port} -> {port}: {error}"
    async with stream, background() as tg:

        async def there() -> None:
            try:
                async for data in receiver:
                    await stream.send(data)
                await stream.send_eof()
            except (*PEER_GONE, OSError):
                return  # the other direction sees the same

        tg.start_soon(there)
        while True:
            try:
                data = await stream.receive(_PART)
            except anyio.EndOfStream:
                return ""
            except PortError as error:
                return str(error)
            except (anyio.BrokenResourceError, ConnectionError):
                return f"the connection to port {port} broke"
            await send(data)
