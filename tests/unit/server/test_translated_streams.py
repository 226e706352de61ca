"""WebSocket clients of a runtime that speaks SPDY: docs/behaviour/server.md, "Streams"."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream, SocketStream
from tests.unit.server.api_lab import Lab, api_lab, head, streaming_server

from nodeagent.proto.runtime import v1
from nodeagent.streaming.channels import SpdyChannels
from nodeagent.streaming.messages import MessageReader, closing, message
from nodeagent.streaming.ports import SpdyPorts
from nodeagent.streaming.protocols import TUNNEL, V3, V4, V5, Channel, Outcome, Wanted
from nodeagent.streaming.websocket import Tunnel, WebSocket
from nodeagent.testing import make_container, make_pod

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]

EXEC = "/exec/default/web/main?command=cat&input=1&output=1"
WANTED = Wanted(stdin=True, stdout=True)
SOCKET = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}  # fmt: skip


def switched(protocol: str) -> bytes:
    return (
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
        f"X-Stream-Protocol-Version: {protocol}\r\n\r\n"
    ).encode()


@asynccontextmanager
async def with_pod(tmp_path: Path) -> AsyncIterator[Lab]:
    async with api_lab(tmp_path) as lab:
        pod = make_pod("web", make_container("main"))
        lab.table.pods = [pod]
        lab.table.set_container(pod, "main", "c1")
        yield lab


async def upgraded(stream: ByteStream, path: str, protocol: str) -> tuple[str, WebSocket]:
    offered = {"Sec-WebSocket-Protocol": protocol} if protocol else {}
    await stream.send(head("GET", path, "admin", {**SOCKET, **offered}))
    got = b""
    while b"\r\n\r\n" not in got:
        got += await stream.receive()
    found, _, rest = got.partition(b"\r\n\r\n")
    return found.decode(), WebSocket(stream, client=True, rest=rest)


async def test_hs11_version_5_is_translated(tmp_path: Path) -> None:
    asked = b""

    async def cat(stream: SocketStream, request: bytes) -> None:
        """Say what was said once that has ended, and then how it went."""
        nonlocal asked
        asked = request
        await stream.send(switched(V4))
        channels = SpdyChannels(stream, V4)
        await channels.accept(WANTED.channels(V4))
        got = b""
        while (said := await channels.receive()) is not None:
            got += said.data
            if said.end:
                break
        await channels.send(Channel.STDOUT, got)
        await channels.send(Channel.ERROR, Outcome(3).told(V4))
        for channel in (Channel.STDOUT, Channel.ERROR):
            await channels.end(channel)
        await channels.close()

    async with (
        streaming_server(cat) as url,
        with_pod(tmp_path) as lab,
        lab.connected() as stream,
    ):
        lab.runtime.url = url
        answer, socket = await upgraded(stream, EXEC, f"{V5}, {V4}")
        assert answer.startswith("HTTP/1.1 101 ")
        assert f"Sec-WebSocket-Protocol: {V5}" in answer
        data = bytes(range(256)) * 2000
        await socket.send(message(V5, 0, data[:300_000]))
        await socket.send(message(V5, 0, data[300_000:]))
        await socket.send(closing(0))
        reader, got = MessageReader(V5), {1: b"", 3: b""}
        while (found := await socket.receive()) is not None:
            if part := reader.read(*found):
                got[part.channel] += part.data
    assert got == {1: data, 3: Outcome(3).told(V4)}
    text = asked.decode().lower()
    assert "upgrade: spdy/3.1" in text
    assert f"x-stream-protocol-version: {V4}" in text
    assert "sec-websocket" not in text
    assert "authorization" not in text


async def test_hs11_a_client_that_goes_lets_the_runtime_go(tmp_path: Path) -> None:
    ended = anyio.Event()

    async def listen(stream: SocketStream, _head: bytes) -> None:
        await stream.send(switched(V4))
        channels = SpdyChannels(stream, V4)
        await channels.accept(WANTED.channels(V4))
        while await channels.receive() is not None:
            pass
        ended.set()

    async with streaming_server(listen) as url, with_pod(tmp_path) as lab:
        lab.runtime.url = url
        async with lab.connected() as stream:
            _, socket = await upgraded(stream, EXEC, V5)
            assert await socket.receive() == (b"\x01", True)
        await ended.wait()


async def test_hs11_a_runtime_that_declines_is_quoted(tmp_path: Path) -> None:
    async def decline(stream: SocketStream, _head: bytes) -> None:
        await stream.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone")

    async with (
        streaming_server(decline) as url,
        with_pod(tmp_path) as lab,
        lab.connected() as stream,
    ):
        lab.runtime.url = url
        answer, _ = await upgraded(stream, EXEC, V5)
        assert answer.startswith("HTTP/1.1 404 ")


SAID = {Channel.STDOUT: b"out" * 50_000, Channel.ERROR: b"the end"}


@pytest.mark.parametrize(
    ("protocol", "version"),
    [
        (V4, V4),
        ("v4.base64.channel.k8s.io", V4),
        ("channel.k8s.io", V3),
        ("base64.channel.k8s.io", V3),
        ("", V3),
    ],
)
async def test_hs13_older_versions_are_translated_when_they_are_declined(
    protocol: str, version: str, tmp_path: Path
) -> None:
    asked: list[bytes] = []
    heard = b""

    async def only_spdy(stream: SocketStream, request: bytes) -> None:
        nonlocal heard
        asked.append(request)
        if b"upgrade: spdy/3.1" not in request.lower():
            await stream.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nspdy")
            return
        await stream.send(switched(version))
        channels = SpdyChannels(stream, version)
        await channels.accept(WANTED.channels(version))
        while not heard.endswith(b"done"):
            said = await channels.receive()
            assert said is not None
            heard += said.data
        for channel, data in SAID.items():
            await channels.send(channel, data)
            await channels.end(channel)
        await channels.close()

    async with (
        streaming_server(only_spdy) as url,
        with_pod(tmp_path) as lab,
        lab.connected() as stream,
    ):
        lab.runtime.url = url
        answer, socket = await upgraded(stream, EXEC, protocol)
        assert answer.startswith("HTTP/1.1 101 ")
        data = bytes(range(256)) * 2000 + b"done"
        encoded = "base64" in protocol
        for some in (data[:300_000], data[300_000:]):
            await socket.send(message(protocol, 0, some), text=encoded)
        reader, got = MessageReader(protocol), {1: b"", 3: b""}
        while (found := await socket.receive()) is not None:
            if part := reader.read(*found):
                got[part.channel] += part.data
    assert heard == data
    assert got == SAID
    assert len(asked) == 2
    assert f"x-stream-protocol-version: {version}\r\n".encode() in asked[1].lower()
    assert [type(one) for one in lab.runtime.requests] == [v1.ExecRequest, v1.ExecRequest]


class Shout(ByteStream):
    """A port that greets, and says back in capitals what it is told, until that ends."""

    def __init__(self, greeting: bytes) -> None:
        self._in, self._out = anyio.create_memory_object_stream[bytes](1000)
        self._in.send_nowait(greeting)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._out.receive()

    async def send(self, item: bytes) -> None:
        await self._in.send(item.upper())
        if item.endswith(b"end"):
            self._in.close()

    async def send_eof(self) -> None:
        self._in.close()

    async def aclose(self) -> None:
        self._in.close()
        self._out.close()


@pytest.mark.parametrize("protocol", [V4, "v4.base64.channel.k8s.io", ""])
async def test_hs13_ports_are_translated_when_they_are_declined(
    protocol: str, tmp_path: Path
) -> None:
    asked: list[bytes] = []

    async def connect(port: int) -> ByteStream:
        if port == 99:
            raise ConnectionRefusedError("nobody listens")
        return Shout(b"port %d: " % port)

    async def only_spdy(stream: SocketStream, request: bytes) -> None:
        asked.append(request)
        if b"upgrade: spdy/3.1" not in request.lower():
            await stream.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nspdy")
            return
        await stream.send(switched("portforward.k8s.io"))
        await SpdyPorts(stream, connect).serve()

    async with (
        streaming_server(only_spdy) as url,
        with_pod(tmp_path) as lab,
        lab.connected() as stream,
    ):
        lab.runtime.url = url
        path = "/portForward/default/web?port=80,99,443"
        answer, socket = await upgraded(stream, path, protocol)
        assert answer.startswith("HTTP/1.1 101 ")
        data = b"x" * 300_000
        encoded = "base64" in protocol
        for channel, said in ((0, data), (4, data[:10]), (0, b"end"), (4, b"end")):
            for at in range(0, len(said), 50_000):
                part = message(protocol, channel, said[at : at + 50_000])
                await socket.send(part, text=encoded)
        reader, got = MessageReader(protocol), dict.fromkeys(range(6), b"")
        while (found := await socket.receive()) is not None:
            if heard := reader.read(*found):
                got[heard.channel] += heard.data
    first = {channel: data[:2] for channel, data in got.items()}
    assert first == {i: p.to_bytes(2, "little") for i, p in enumerate((80, 80, 99, 99, 443, 443))}
    assert {channel: data[2:] for channel, data in got.items() if channel != 3} == {
        0: b"port 80: " + data.upper() + b"END",
        1: b"",
        2: b"",
        4: b"port 443: " + data[:10].upper() + b"END",
        5: b"",
    }
    assert b"nobody listens" in got[3]
    assert b"x-stream-protocol-version: portforward.k8s.io" in asked[1].lower()
    assert [type(one) for one in lab.runtime.requests] == [v1.PortForwardRequest] * 2


async def test_hs13_a_runtime_that_goes_ends_forwarded_ports(tmp_path: Path) -> None:
    async def leave(stream: SocketStream, request: bytes) -> None:
        if b"upgrade: spdy/3.1" not in request.lower():
            await stream.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            return
        await stream.send(switched("portforward.k8s.io"))
        await stream.receive()

    async with (
        streaming_server(leave) as url,
        with_pod(tmp_path) as lab,
        lab.connected() as stream,
    ):
        lab.runtime.url = url
        answer, socket = await upgraded(stream, "/portForward/default/web?port=80", V4)
        assert answer.startswith("HTTP/1.1 101 ")
        while await socket.receive() is not None:
            pass


@pytest.mark.parametrize(("status", "times"), [(403, 2), (404, 1), (500, 1)])
async def test_hs13_a_runtime_that_declines_all_is_quoted(
    status: int, times: int, tmp_path: Path
) -> None:
    asked: list[bytes] = []

    async def decline(stream: SocketStream, request: bytes) -> None:
        asked.append(request)
        text = f"no {len(asked)}"
        head = f"HTTP/1.1 {status} No\r\nContent-Length: {len(text)}\r\n\r\n{text}"
        await stream.send(head.encode())

    async with streaming_server(decline) as url, with_pod(tmp_path) as lab:
        lab.runtime.url = url
        got = await lab.ask(EXEC, headers={**SOCKET, "Sec-WebSocket-Protocol": V4})
        assert (got.status, got.text) == (status, "no 1")
    assert len(asked) == times


async def test_hs12_a_tunnel_is_unpacked(tmp_path: Path) -> None:
    async def echo(stream: SocketStream, request: bytes) -> None:
        assert b"portforward.k8s.io" in request
        await stream.send(switched("portforward.k8s.io") + b"hello ")
        async for data in stream:
            await stream.send(data)
            if data.endswith(b"end"):
                return

    async with (
        streaming_server(echo) as url,
        with_pod(tmp_path) as lab,
        lab.connected() as stream,
    ):
        lab.runtime.url = url
        answer, socket = await upgraded(stream, "/portForward/default/web", TUNNEL)
        assert f"Sec-WebSocket-Protocol: {TUNNEL}" in answer
        tunnel, got = Tunnel(socket), b""
        await tunnel.send(b"\x80\x03\x00\x01")
        await tunnel.send(b" and the end")
        while not got.endswith(b"end"):
            got += await tunnel.receive()
        assert got == b"hello \x80\x03\x00\x01 and the end"
    assert [type(one) for one in lab.runtime.requests] == [v1.PortForwardRequest]
