"""A WebSocket over any stream of bytes, after its handshake."""

from __future__ import annotations

import base64
import hashlib
from collections import deque
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import ByteStream
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from nodeagent.aio import PEER_GONE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_PART: Final = 64 * 1024


def accept_key(key: str) -> str:
    """What a server answers to ``Sec-WebSocket-Key`` (RFC 6455, 4.2.2)."""
    digest = hashlib.sha1(key.encode() + _MAGIC, usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


class WebSocket:
    """Messages in both directions.

    Args:
        stream: the connection.
        client: whether this side is the client.
        rest: what has already been read of it.
    """

    def __init__(self, stream: ByteStream, *, client: bool = False, rest: bytes = b"") -> None:
        self._stream = stream
        kind = ConnectionType.CLIENT if client else ConnectionType.SERVER
        self._core = Connection(kind)
        self._unread = rest
        self._events: deque[Event] = deque()
        self._lock = anyio.Lock()

    async def receive(self) -> tuple[bytes, bool] | None:
        """A part of a message, and whether it was the last one; None at the end of it all."""
        while True:
            while self._events:
                event = self._events.popleft()
                if isinstance(event, TextMessage):
                    return event.data.encode(), event.message_finished
                if isinstance(event, BytesMessage):
                    return bytes(event.data), event.message_finished
                if isinstance(event, Ping):
                    await self._send(event.response())
                elif isinstance(event, CloseConnection):
                    if self._core.state is ConnectionState.REMOTE_CLOSING:
                        await self._send(event.response())
                    return None
            if not await self._feed():
                return None

    async def send(self, data: bytes, *, text: bool = False) -> None:
        """Send a message."""
        await self._send(TextMessage(data=data.decode()) if text else BytesMessage(data=data))

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Say goodbye, once."""
        if self._core.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
            await self._send(CloseConnection(code=code, reason=reason))

    async def _send(self, event: Event) -> None:
        async with self._lock:
            try:
                data = self._core.send(event)
            except LocalProtocolError as error:
                raise anyio.BrokenResourceError from error
            await self._stream.send(data)

    async def _feed(self) -> bool:
        data, self._unread = self._unread[:_PART], self._unread[_PART:]
        if not data:
            try:
                data = await self._stream.receive(_PART)
            except PEER_GONE:
                return False
        try:
            self._core.receive_data(data)
            self._events.extend(self._core.events())
        except (RemoteProtocolError, LocalProtocolError):
            return False
        return True


class Tunnel(ByteStream):
    """A stream of bytes within the messages of a WebSocket."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._rest = b""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Bytes of the next message."""
        while not self._rest:
            found = await self._socket.receive()
            if found is None:
                raise anyio.EndOfStream
            self._rest = found[0]
        data, self._rest = self._rest[:max_bytes], self._rest[max_bytes:]
        return data

    async def send(self, item: bytes) -> None:
        """One message."""
        await self._socket.send(item)

    async def send_eof(self) -> None:
        """Messages have no half of a connection: the end of one is the end of both."""
        await self._socket.close()

    async def aclose(self) -> None:
        """Say goodbye."""
        await self._socket.close()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """None."""
        return {}
