"""The channels of a command over SPDY or a WebSocket, which look the same here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from nodeagent.aio import PEER_GONE
from nodeagent.streaming import spdy
from nodeagent.streaming.messages import MessageError, MessageReader, message
from nodeagent.streaming.protocols import BASE64, NAMES, Channel
from nodeagent.streaming.spdy_sender import SpdySender

if TYPE_CHECKING:
    from anyio.abc import ByteStream

    from nodeagent.streaming.websocket import WebSocket

STREAMS_WITHIN: Final = 30.0
"""Seconds in which a client must have opened all streams that it has asked for."""
_PART: Final = 64 * 1024


class ChannelsError(Exception):
    """The other side does not keep to the protocol, or does not answer."""


@dataclass(frozen=True, slots=True)
class Said:
    """Bytes of a channel; ``end``: there will be no more."""

    channel: Channel
    data: bytes
    end: bool = False


class Channels(ABC):
    """One side of the channels of a command. What cannot be sent for want of a peer is lost.

    Args:
        protocol: as agreed on.
    """

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol

    @abstractmethod
    async def receive(self) -> Said | None:
        """What the other side says next; None when it has gone.

        Raises:
            ChannelsError: it does not keep to the protocol.
        """

    @abstractmethod
    async def send(self, channel: Channel, data: bytes) -> None:
        """Say something; waits while the other side does not take it.

        Raises:
            anyio.BrokenResourceError: it has gone.
        """

    @abstractmethod
    async def end(self, channel: Channel) -> None:
        """Say no more on a channel, where the protocol can tell that."""

    @abstractmethod
    async def close(self) -> None:
        """Say goodbye."""


class SpdyChannels(Channels):
    """Streams of SPDY, each with its ``streamtype``.

    Args:
        stream: the connection.
        protocol: as agreed on.
        client: whether this side opens the streams.
        rest: what has already been read of the connection.
    """

    def __init__(
        self, stream: ByteStream, protocol: str, *, client: bool = False, rest: bytes = b""
    ) -> None:
        super().__init__(protocol)
        self._stream = stream
        self._core = spdy.SpdyConnection(client=client)
        self._rest = rest
        self._ids: dict[Channel, int] = {}
        self._names: dict[int, Channel] = {}
        self._said: deque[Said] = deque()
        self._replied: set[int] = set()
        self._sender = SpdySender(stream, self._core)
        self._over = False

    async def open(self, channels: Iterable[Channel]) -> None:
        """Open streams as a client, and wait until the other side has taken them.

        Raises:
            ChannelsError: it does not.
        """
        for channel in channels:
            stream = self._core.open({"streamtype": channel.name.lower()})
            self._ids[channel], self._names[stream] = stream, channel
        await self._sender.flush()
        await self._until(lambda: self._replied >= set(self._names))

    async def accept(self, channels: Iterable[Channel]) -> None:
        """Wait as a server for the streams that were asked for.

        Raises:
            ChannelsError: they do not come.
        """
        await self._until(lambda: self._ids.keys() >= set(channels))

    async def _until(self, complete: Callable[[], bool]) -> None:
        with anyio.move_on_after(STREAMS_WITHIN):
            while not complete():
                if not await self._feed():
                    raise ChannelsError("the connection ended before all streams were open")
            return
        raise ChannelsError("timed out waiting for the streams to be opened")

    async def receive(self) -> Said | None:
        """See :class:`Channels`."""
        while not self._said:
            if self._over or not await self._feed():
                return None
        return self._said.popleft()

    async def send(self, channel: Channel, data: bytes) -> None:
        """See :class:`Channels`."""
        if channel in self._ids:
            self._core.send(self._ids[channel], data)
            await self._sender.flush()

    async def end(self, channel: Channel) -> None:
        """See :class:`Channels`."""
        if channel in self._ids:
            self._core.send(self._ids[channel], b"", fin=True)
            await self._sender.flush()

    async def close(self) -> None:
        """See :class:`Channels`."""
        self._core.go_away()
        await self._sender.flush()

    async def _feed(self) -> bool:
        """Take in what has come; False when there is no more."""
        data, self._rest = self._rest, b""
        if not data:
            try:
                data = await self._stream.receive(_PART)
            except PEER_GONE:
                self._over = True
                return False
        try:
            for event in self._core.receive(data):
                self._take(event)
        except spdy.SpdyError as error:
            self._over = True
            raise ChannelsError(str(error)) from error
        await self._sender.answer()
        return True

    def _take(self, event: spdy.Event) -> None:
        if isinstance(event, spdy.Opened):
            channel = NAMES.get(event.headers.get("streamtype", "").lower())
            if channel is None or channel in self._ids:
                self._core.reset(event.stream, spdy.REFUSED)
                return
            self._ids[channel], self._names[event.stream] = event.stream, channel
            self._core.reply(event.stream)
            if event.fin:
                self._said.append(Said(channel, b"", end=True))
        elif isinstance(event, spdy.Replied):
            self._replied.add(event.stream)
        elif isinstance(event, spdy.Data):
            self._said.append(Said(self._names[event.stream], event.data, event.fin))
        elif isinstance(event, spdy.Reset):
            self._said.append(Said(self._names[event.stream], b"", end=True))


class WebSocketChannels(Channels):
    """Messages of a WebSocket, each with the number of its channel.

    Args:
        socket: the connection, as the server of it.
        protocol: as agreed on.
        channels: those that there are; messages of others are dropped.
    """

    def __init__(self, socket: WebSocket, protocol: str, channels: Iterable[Channel]) -> None:
        super().__init__(protocol)
        self._socket = socket
        self._reader = MessageReader(protocol)
        self._there = frozenset(channels)

    async def greet(self) -> None:
        """Send an empty message on the first channel that one may write to, as servers do."""
        outputs = (Channel.STDOUT, Channel.STDERR, Channel.ERROR)
        await self.send(next(one for one in outputs if one in self._there), b"")

    async def receive(self) -> Said | None:
        """See :class:`Channels`."""
        while True:
            found = await self._socket.receive()
            if found is None:
                return None
            try:
                part = self._reader.read(*found)
            except MessageError as error:
                await self._socket.close(1002, str(error))
                raise ChannelsError(str(error)) from error
            if part is not None and part.channel in self._there:
                return Said(Channel(part.channel), part.data, part.end)

    async def send(self, channel: Channel, data: bytes) -> None:
        """See :class:`Channels`."""
        if channel in self._there:
            encoded = self.protocol in BASE64
            await self._socket.send(message(self.protocol, channel, data), text=encoded)

    async def end(self, channel: Channel) -> None:
        """Nothing: also in version 5 only clients end channels one by one."""

    async def close(self) -> None:
        """See :class:`Channels`."""
        await self._socket.close()
