"""Asking for port-forward over SPDY: any number of connections over one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.abc import ByteStream

from nodeagent.aio import PEER_GONE
from nodeagent.streaming import spdy
from nodeagent.streaming.ports import PortError
from nodeagent.streaming.spdy_sender import SpdySender

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

_WAITING: Final = 16
_MOST_TEXT: Final = 4096


@dataclass(slots=True)
class _Pair:
    """Two streams of one connection: what it says, and what went wrong with it."""

    data: int
    error: int
    sender: MemoryObjectSendStream[bytes]
    receiver: MemoryObjectReceiveStream[bytes]
    trouble: bytes = b""


@dataclass(slots=True)
class SpdyPortClient:
    """The client's side of one connection that was upgraded.

    Args:
        stream: the connection.
        rest: what has already been read of it.
    """

    stream: ByteStream
    rest: bytes = b""
    _core: spdy.SpdyConnection = field(default_factory=lambda: spdy.SpdyConnection(client=True))
    _pairs: dict[int, _Pair] = field(default_factory=dict)
    _sender: SpdySender = field(init=False)
    _over: bool = False

    def __post_init__(self) -> None:
        self._sender = SpdySender(self.stream, self._core)

    async def run(self) -> None:
        """Take in what the other side says until it has gone; all connections end then."""
        try:
            data = self.rest
            while True:
                for event in self._core.receive(data):
                    await self._take(event)
                await self._sender.answer()
                data = await self.stream.receive()
        except (*PEER_GONE, spdy.SpdyError):
            pass  # as good as gone
        finally:
            self._over = True
            for pair in self._pairs.values():
                pair.sender.close()

    async def connect(self, port: int) -> ByteStream:
        """A connection to a port.

        Raises:
            PortError: the other side has gone.
        """
        if self._over:
            raise PortError("the runtime has gone")
        number = {"port": str(port), "requestid": str(len(self._pairs))}
        error = self._core.open({"streamtype": "error", **number})
        data = self._core.open({"streamtype": "data", **number})
        sender, receiver = anyio.create_memory_object_stream[bytes](_WAITING)
        pair = _Pair(data, error, sender, receiver)
        self._pairs[data] = self._pairs[error] = pair
        await self.say(error, b"", fin=True)  # only the other side says what goes wrong
        return _PortStream(self, pair)

    async def _take(self, event: spdy.Event) -> None:
        if isinstance(event, spdy.Opened):
            self._core.reset(event.stream, spdy.REFUSED)
        elif isinstance(event, spdy.Data | spdy.Reset):
            pair = self._pairs.get(event.stream)
            if pair is None:
                return
            data = event.data if isinstance(event, spdy.Data) else b""
            if event.stream == pair.error:
                pair.trouble = (pair.trouble + data)[:_MOST_TEXT]
                return
            try:
                if data:
                    await pair.sender.send(data)
            except PEER_GONE:
                return  # nobody wants to hear it any more
            if isinstance(event, spdy.Reset) or event.fin:
                pair.sender.close()

    async def say(self, stream: int, data: bytes, *, fin: bool = False) -> None:
        """Send bytes of a stream.

        Raises:
            anyio.BrokenResourceError: the other side has gone.
        """
        self._core.send(stream, data, fin=fin)
        await self._sender.flush()


class _PortStream(ByteStream):
    """One of the connections."""

    def __init__(self, client: SpdyPortClient, pair: _Pair) -> None:
        self._client = client
        self._pair = pair
        self._rest = b""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """What the port says; PortError for what is wrong with it."""
        if not self._rest:
            try:
                self._rest = await self._pair.receiver.receive()
            except anyio.EndOfStream:
                if self._pair.trouble:
                    raise PortError(self._pair.trouble.decode(errors="replace")) from None
                raise
        data, self._rest = self._rest[:max_bytes], self._rest[max_bytes:]
        return data

    async def send(self, item: bytes) -> None:
        """Say something to the port; waits while the other side does not take it."""
        await self._client.say(self._pair.data, item)

    async def send_eof(self) -> None:
        """Say no more."""
        await self._client.say(self._pair.data, b"", fin=True)

    async def aclose(self) -> None:
        """Say no more, and hear no more."""
        self._pair.receiver.close()
        self._pair.sender.close()
        try:
            await self._client.say(self._pair.data, b"", fin=True)
        except PEER_GONE:
            return

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """None."""
        return {}
