"""Clients of streaming servers: exec over SPDY and over WebSockets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteStream

from nodeagent.streaming.channels import Said, SpdyChannels
from nodeagent.streaming.messages import MessageReader, closing, message
from nodeagent.streaming.protocols import V4, V5, Channel
from nodeagent.streaming.websocket import WebSocket

PATIENCE = 60.0
SPDY_HEAD = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
SPDY_V4 = {**SPDY_HEAD, "X-Stream-Protocol-Version": f"{V4}, v3.channel.k8s.io"}
SOCKET_HEAD = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}  # fmt: skip


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[ByteStream]:
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    async with await anyio.connect_tcp(parts.hostname, parts.port) as stream:
        yield stream


async def ask(
    stream: ByteStream, url: str, headers: dict[str, str], method: str = "GET"
) -> tuple[str, bytes]:
    """Ask for an upgrade; the head of the answer, and what came after it."""
    target = urlsplit(url)._replace(scheme="", netloc="").geturl()
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    await stream.send(f"{method} {target} HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode())
    got = b""
    while b"\r\n\r\n" not in got:
        got += await stream.receive()
    head, _, rest = got.partition(b"\r\n\r\n")
    return head.decode(), rest


@dataclass
class Heard:
    """What a command said."""

    said: dict[Channel, bytes] = field(default_factory=dict)

    def take(self, said: Said) -> None:
        self.said[said.channel] = self.said.get(said.channel, b"") + said.data

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.said[Channel.ERROR])
        return found

    @property
    def code(self) -> int:
        if self.status["status"] == "Success":
            return 0
        return int(self.status["details"]["causes"][0]["message"])


async def over_spdy(
    stream: ByteStream, rest: bytes, channels: Sequence[Channel], stdin: bytes = b""
) -> Heard:
    """Give a command its input and hear it to its end."""
    heard = Heard()
    client = SpdyChannels(stream, V4, client=True, rest=rest)
    await client.open(channels)
    async with anyio.create_task_group() as tg:

        async def write() -> None:
            for at in range(0, len(stdin), 50_000):
                await client.send(Channel.STDIN, stdin[at : at + 50_000])
            await client.end(Channel.STDIN)

        if Channel.STDIN in channels:
            tg.start_soon(write)
        while (said := await client.receive()) is not None:
            heard.take(said)
        tg.cancel_scope.cancel()
    return heard


async def over_websocket(
    stream: ByteStream, rest: bytes, protocol: str, stdin: bytes | None = None
) -> Heard:
    """The same over a WebSocket; only version 5 can end the input."""
    heard = Heard()
    socket = WebSocket(stream, client=True, rest=rest)
    reader = MessageReader(protocol)
    async with anyio.create_task_group() as tg:

        async def write(data: bytes) -> None:
            for at in range(0, len(data), 50_000):
                part = message(protocol, Channel.STDIN, data[at : at + 50_000])
                await socket.send(part, text="base64" in protocol)
            if protocol == V5:
                await socket.send(closing(Channel.STDIN))

        if stdin is not None:
            tg.start_soon(write, stdin)
        while (found := await socket.receive()) is not None:
            part = reader.read(*found)
            if part is not None and not part.end:
                heard.take(Said(Channel(part.channel), part.data))
        tg.cancel_scope.cancel()
    return heard


async def talk(
    url: str, channels: Sequence[Channel], stdin: bytes = b"", *, protocol: str = "spdy"
) -> Heard:
    """Be the client at an address from its upgrade to the end, over SPDY or a WebSocket."""
    with anyio.fail_after(PATIENCE):
        async with connected(url) as stream:
            if protocol == "spdy":
                _, rest = await ask(stream, url, SPDY_V4)
                return await over_spdy(stream, rest, channels, stdin)
            _, rest = await ask(stream, url, {**SOCKET_HEAD, "Sec-WebSocket-Protocol": protocol})
            return await over_websocket(stream, rest, protocol, stdin)
