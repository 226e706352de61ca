"""A client of exec, attach and port-forward that speaks WebSocket."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from tests.e2e.cluster.authority import Identity

from nodeagent.streaming.messages import MessageReader, closing, message
from nodeagent.streaming.protocols import BASE64, V5
from nodeagent.streaming.websocket import WebSocket

PATIENCE = 60.0


class Talk:
    """Channels over one WebSocket.

    Args:
        socket: the connection.
        protocol: that was agreed on.
    """

    def __init__(self, socket: WebSocket, protocol: str) -> None:
        self._socket = socket
        self._protocol = protocol
        self._reader = MessageReader(protocol)
        self.heard: dict[int, bytes] = {}

    async def say(self, channel: int, data: bytes) -> None:
        """Write to a channel."""
        encoded = self._protocol in BASE64
        for at in range(0, len(data), 50_000):
            part = message(self._protocol, channel, data[at : at + 50_000])
            await self._socket.send(part, text=encoded)

    async def end(self, channel: int) -> None:
        """Write no more to it, where the protocol can tell that."""
        if self._protocol == V5:
            await self._socket.send(closing(channel))

    async def hear(self, there: Callable[[dict[int, bytes]], bool] = lambda _: False) -> None:
        """Take in what is said until it is enough, or to its end."""
        while not there(self.heard):
            found = await self._socket.receive()
            if found is None:
                return
            part = self._reader.read(*found)
            if part is not None:
                self.heard[part.channel] = self.heard.get(part.channel, b"") + part.data


@asynccontextmanager
async def talking(
    host: str, port: int, path: str, protocol: str, authority: Path, identity: Identity
) -> AsyncIterator[Talk]:
    """Ask a server for a WebSocket, within a minute for all of it.

    Raises:
        RuntimeError: it does not agree; says what it says.
    """
    context = ssl.create_default_context(cafile=str(authority))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.load_cert_chain(identity.cert, identity.key)
    lines = [
        f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: Upgrade", "Upgrade: websocket",
        "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        f"Sec-WebSocket-Protocol: {protocol}", "", "",
    ]  # fmt: skip
    with anyio.fail_after(PATIENCE):
        async with await anyio.connect_tcp(
            host, port, ssl_context=context, tls_hostname=host, tls_standard_compatible=False
        ) as stream:
            await stream.send("\r\n".join(lines).encode())
            got = b""
            while b"\r\n\r\n" not in got:
                got += await stream.receive()
            head, _, rest = got.partition(b"\r\n\r\n")
            agreed = f"sec-websocket-protocol: {protocol}".encode()
            if not head.startswith(b"HTTP/1.1 101 ") or agreed not in head.lower():
                raise RuntimeError(got.decode(errors="replace"))
            yield Talk(WebSocket(stream, client=True, rest=rest), protocol)
