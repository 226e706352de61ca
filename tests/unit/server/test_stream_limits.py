"""How long streams last: docs/behaviour/server.md, "Streams"."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream, SocketStream
from tests.unit.server.api_lab import Lab, Talk, api_lab, head, streaming_server

from nodeagent.config import AgentConfig, ConfigError
from nodeagent.config.kubelet_file import load_kubelet_file
from nodeagent.server.kubelet.stream_limits import StreamLimits
from nodeagent.streaming.protocols import PORT_FORWARD, TUNNEL
from nodeagent.streaming.websocket import Tunnel, WebSocket
from nodeagent.testing import make_container, make_pod

pytestmark = pytest.mark.anyio

EXEC = "/exec/default/web/main?command=sh&input=1&output=1"
PORTS = "/portForward/default/web"
UPGRADE = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
SPDY = {**UPGRADE, "X-Stream-Protocol-Version": "v4", "Content-Length": "0"}
SOCKET = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol": TUNNEL,
}  # fmt: skip
SWITCHED = (
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
    f"X-Stream-Protocol-Version: {PORT_FORWARD}\r\n\r\n"
).encode()
IDLE = 600.0
LIMITS = StreamLimits(idle=IDLE, lifetime=10 * IDLE)


@asynccontextmanager
async def streaming(
    tmp_path: Path, talk: Talk, limits: StreamLimits = LIMITS
) -> AsyncIterator[tuple[Lab, ByteStream]]:
    """A connection to a node whose runtime talks like that."""
    async with (
        streaming_server(talk) as url,
        api_lab(tmp_path, limits=limits) as lab,
        lab.connected() as stream,
    ):
        pod = make_pod("web", make_container("main"))
        lab.table.pods = [pod]
        lab.table.set_container(pod, "main", "c1")
        lab.runtime.url = url
        yield lab, stream


async def switched(stream: ByteStream, method: str = "POST", path: str = EXEC) -> bytes:
    """Ask for a stream; what has come behind the answer."""
    await stream.send(head(method, path, "admin", SPDY if method == "POST" else SOCKET))
    got = b""
    while b"\r\n\r\n" not in got:
        got += await stream.receive()
    assert got.startswith(b"HTTP/1.1 101 ")
    return got.partition(b"\r\n\r\n")[2]


async def echo(stream: SocketStream, _head: bytes) -> None:
    await stream.send(SWITCHED)
    async for data in stream:
        await stream.send(data)


async def to_its_end(stream: ByteStream) -> int:
    """How many bytes still come."""
    size = 0
    while True:
        try:
            size += len(await stream.receive())
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return size


async def test_hs14_a_silent_stream_is_closed(tmp_path: Path) -> None:
    ended = anyio.Event()

    async def listen(stream: SocketStream, request: bytes) -> None:
        with suppress(anyio.BrokenResourceError):
            await echo(stream, request)
        ended.set()

    async with streaming(tmp_path, listen) as (_, stream):
        await switched(stream)
        for _ in range(3):
            await anyio.sleep(0.9 * IDLE)
            await stream.send(b"x")
            assert await stream.receive() == b"x"
        spoken = anyio.current_time()
        assert await to_its_end(stream) == 0
        assert IDLE <= anyio.current_time() - spoken < 2 * IDLE
        await ended.wait()


async def test_hs14_what_the_runtime_says_counts_too(tmp_path: Path) -> None:
    async def mumble(stream: SocketStream, _head: bytes) -> None:
        await stream.send(SWITCHED)
        for _ in range(5):
            await anyio.sleep(0.9 * IDLE)
            await stream.send(b"x")
        await to_its_end(stream)

    async with streaming(tmp_path, mumble) as (_, stream):
        size = len(await switched(stream))
        assert size + await to_its_end(stream) == 5


async def test_hs14_a_client_that_takes_nothing_is_silent(tmp_path: Path) -> None:
    ended = anyio.Event()

    async def flood(stream: SocketStream, _head: bytes) -> None:
        await stream.send(SWITCHED)
        try:
            while True:
                await stream.send(b"x" * 65536)
        except anyio.BrokenResourceError:
            ended.set()

    async with streaming(tmp_path, flood) as (_, stream):
        await stream.send(head("POST", EXEC, "admin", SPDY))
        await ended.wait()


async def test_hs14_a_translated_stream_is_closed(tmp_path: Path) -> None:
    async with streaming(tmp_path, echo) as (_, stream):
        rest = await switched(stream, "GET", PORTS)
        tunnel = Tunnel(WebSocket(stream, client=True, rest=rest))
        for _ in range(3):
            await anyio.sleep(0.9 * IDLE)
            await tunnel.send(b"x")
            assert await tunnel.receive() == b"x"
        spoken = anyio.current_time()
        with pytest.raises(anyio.EndOfStream):
            await tunnel.receive()
        assert IDLE <= anyio.current_time() - spoken < 2 * IDLE


async def test_hs15_no_stream_lasts_for_ever(tmp_path: Path) -> None:
    async with streaming(tmp_path, echo) as (_, stream):
        await switched(stream)
        began, rounds = anyio.current_time(), 0
        try:
            while True:
                await anyio.sleep(0.5 * IDLE)
                await stream.send(b"x")
                await stream.receive()
                rounds += 1
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            pass
        assert 15 <= rounds <= 20
        assert 10 * IDLE <= anyio.current_time() - began < 12 * IDLE


async def test_hs15_nothing_ends_without_limits(tmp_path: Path) -> None:
    never = StreamLimits(idle=0, lifetime=0)
    async with streaming(tmp_path, echo, never) as (_, stream):
        await switched(stream)
        await anyio.sleep(20 * IDLE)
        await stream.send(b"x")
        assert await stream.receive() == b"x"


def test_hs14_the_limits_are_settings(tmp_path: Path) -> None:
    assert AgentConfig().streaming_connection_idle_timeout == 4 * 3600
    assert AgentConfig().streaming_connection_lifetime == 24 * 3600
    kind = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    file = tmp_path / "kubelet.yaml"
    for said, found in (("1h30m", {"streaming_connection_idle_timeout": 5400.0}), ("0s", {})):
        file.write_text(f"{kind}streamingConnectionIdleTimeout: {said}\n")
        loaded = load_kubelet_file(file)
        assert (loaded.settings, loaded.warnings) == (found, ())
    with pytest.raises(ConfigError, match="streaming_connection_idle_timeout"):
        AgentConfig(streaming_connection_idle_timeout=-1)
