"""Exec, attach and port-forward: docs/behaviour/server.md, "Streams"."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream, SocketStream
from tests.unit.server.api_lab import Lab, api_lab, head, reply, streaming_server

from nodeagent.proto.runtime import v1
from nodeagent.rpc import NotFound, ResourceExhausted, RpcError, Unavailable
from nodeagent.server import Request
from nodeagent.server.kubelet.stream_request import (
    BadStreamRequestError,
    Streams,
    upgrade_headers,
    wanted_ports,
    wanted_streams,
)
from nodeagent.testing import make_container, make_pod

pytestmark = pytest.mark.anyio

EXEC = "/exec/default/web/main?command=sh&command=-c&command=a%20b&input=1&output=1&error=1"
SPDY = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4"}
SWITCHED = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
    b"X-Stream-Protocol-Version: v4\r\n\r\n"
)


async def echo(stream: SocketStream, _head: bytes) -> None:
    """Switch, greet, and send back what comes; at its end say goodbye."""
    await stream.send(SWITCHED + b"hello ")
    async for data in stream:
        await stream.send(data)
    await stream.send(b"bye")


@asynccontextmanager
async def with_pod(tmp_path: Path) -> AsyncIterator[Lab]:
    async with api_lab(tmp_path) as lab:
        pod = make_pod("web", make_container("main"), make_container("shell", tty=True))
        lab.table.pods = [pod]
        lab.table.set_container(pod, "main", "c1")
        yield lab


async def read_head(stream: ByteStream) -> tuple[str, bytes]:
    """The head of an answer, and what came after it."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += await stream.receive()
    found, _, rest = got.partition(b"\r\n\r\n")
    return found.decode(), rest


async def read_until(stream: ByteStream, end: bytes, got: bytes = b"") -> bytes:
    while not got.endswith(end):
        got += await stream.receive()
    return got


async def test_hs1_bytes_go_both_ways_as_they_are(tmp_path: Path) -> None:
    async with (
        streaming_server(echo) as url,
        with_pod(tmp_path) as lab,
        lab.connected() as stream,
    ):
        lab.runtime.url = url
        await stream.send(head("POST", EXEC, "admin", {**SPDY, "Content-Length": "0"}))
        found, rest = await read_head(stream)
        assert found.startswith("HTTP/1.1 101 Switching Protocols\r\n")
        assert "x-stream-protocol-version: v4" in found
        await stream.send(b"\x80\x03\x00\x01GET / HTTP/1.1\r\n\r\n")
        got = await read_until(stream, b"\r\n\r\n", rest)
        assert got == b"hello \x80\x03\x00\x01GET / HTTP/1.1\r\n\r\n"
    assert lab.runtime.requests == [
        v1.ExecRequest(
            container_id="c1", cmd=["sh", "-c", "a b"], stdin=True, stdout=True, stderr=True
        )
    ]


async def test_hs1_a_side_that_does_not_take_anything_holds_the_other_up(tmp_path: Path) -> None:
    sent = 0
    stuck = anyio.Event()

    async def flood(stream: SocketStream, _head: bytes) -> None:
        nonlocal sent
        await stream.send(SWITCHED)
        while True:
            with anyio.move_on_after(5) as patience:
                await stream.send(b"x" * 65536)
                sent += 65536
            if patience.cancelled_caught:
                stuck.set()
                return

    async with (
        streaming_server(flood) as url,
        with_pod(tmp_path) as lab,
        lab.connected() as stream,
    ):
        lab.runtime.url = url
        await stream.send(head("POST", EXEC, "admin", {**SPDY, "Content-Length": "0"}))
        await stuck.wait()
        assert sent < 64 * 1024 * 1024


async def test_hs2_the_end_of_one_side_is_the_end_of_the_other(tmp_path: Path) -> None:
    ended = anyio.Event()

    async def listen(stream: SocketStream, _head: bytes) -> None:
        await stream.send(SWITCHED)
        async for _data in stream:
            pass
        ended.set()

    async with streaming_server(listen) as url, with_pod(tmp_path) as lab:
        lab.runtime.url = url
        async with lab.connected() as stream:
            await stream.send(head("POST", EXEC, "admin", {**SPDY, "Content-Length": "0"}))
            await read_head(stream)
        await ended.wait()

    async def leave(stream: SocketStream, _head: bytes) -> None:
        await stream.send(SWITCHED + b"x" * 1_000_000 + b"end")

    (tmp_path / "2").mkdir()
    async with (
        streaming_server(leave) as url,
        with_pod(tmp_path / "2") as lab,
        lab.connected() as stream,
    ):
        lab.runtime.url = url
        await stream.send(head("POST", EXEC, "admin", {**SPDY, "Content-Length": "0"}))
        _, got = await read_head(stream)
        assert len(await read_until(stream, b"end", got)) == 1_000_003
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()


async def test_hs2_streams_end_with_the_agent(tmp_path: Path) -> None:
    ended = anyio.Event()

    async def listen(stream: SocketStream, _head: bytes) -> None:
        await stream.send(SWITCHED)
        async for _data in stream:
            pass
        ended.set()

    async with streaming_server(listen) as url:
        async with with_pod(tmp_path) as lab:
            lab.runtime.url = url
            client = await anyio.connect_tcp(
                "127.0.0.1", lab.port, ssl_context=lab.trust(), tls_hostname="127.0.0.1"
            )
            await client.send(head("POST", EXEC, "admin", {**SPDY, "Content-Length": "0"}))
            await read_head(client)
        await ended.wait()
        await anyio.aclose_forcefully(client)


async def test_hs3_a_refusal_of_the_runtime_goes_to_the_client(tmp_path: Path) -> None:
    async def refuse(stream: SocketStream, _head: bytes) -> None:
        body = b"unable to upgrade"
        await stream.send(
            b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/odd\r\nX-More: 1\r\n"
            + f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )

    async with streaming_server(refuse) as url, with_pod(tmp_path) as lab:
        lab.runtime.url = url
        got = await lab.ask(EXEC, method="POST", headers={**SPDY, "Content-Length": "0"})
        assert (got.status, got.text) == (403, "unable to upgrade")
        assert (got.headers["content-type"], got.headers["x-more"]) == ("text/odd", "1")


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("POST", {}),
        ("POST", {"Connection": "Upgrade"}),
        ("POST", {"Upgrade": "SPDY/3.1", "Connection": "keep-alive"}),
        ("POST", {"Upgrade": "h2c", "Connection": "Upgrade"}),
        ("POST", {**SPDY, "Content-Length": "5"}),
        ("POST", {**SPDY, "Transfer-Encoding": "chunked"}),
        ("POST", {"Upgrade": "websocket", "Connection": "Upgrade"}),
    ],
)
async def test_hs4_what_is_no_upgrade_is_refused(
    method: str, headers: dict[str, str], tmp_path: Path
) -> None:
    lower = {name.lower(): value for name, value in headers.items()}
    with pytest.raises(BadStreamRequestError):
        upgrade_headers(Request.of(method, "/exec/a/b/c", lower))
    if "Transfer-Encoding" not in headers and headers.get("Content-Length") is None:
        async with with_pod(tmp_path) as lab:
            lab.runtime.url = "http://127.0.0.1:1/"
            assert (await lab.ask(EXEC, method=method, headers=headers)).status == 400


@pytest.mark.parametrize(
    ("query", "streams"),
    [
        ("input=1&output=1&error=1", Streams(True, True, True, False)),
        ("input=1&output=1&error=1&tty=1", Streams(True, True, False, True)),
        ("output=1&input=true&error=yes&tty=0", Streams(False, True, False, False)),
        ("", None),
        ("error=1&tty=1", None),
        ("input=true", None),
    ],
)
def test_hs5_streams_are_on_with_one_only(query: str, streams: Streams | None) -> None:
    request = Request.of("GET", f"/exec/a/b/c?{query}")
    if streams is not None:
        assert wanted_streams(request) == streams
        return
    text = "you must specify at least 1 of stdin, stdout, stderr"
    with pytest.raises(BadStreamRequestError, match=text):
        wanted_streams(request)


async def test_hs5_attach_has_a_terminal_when_the_container_has(tmp_path: Path) -> None:
    async with with_pod(tmp_path) as lab:
        pod = lab.table.pods[0]
        lab.runtime.error = Unavailable("later", "Attach")
        await lab.ask("/attach/default/web/main?output=1&error=1&tty=1", headers=SPDY)
        lab.table.set_container(pod, "shell", "c2")
        await lab.ask("/attach/default/web/shell?output=1&error=1", headers=SPDY)
        assert lab.runtime.requests == [
            v1.AttachRequest(container_id="c1", stdout=True),
            v1.AttachRequest(container_id="c2", stdout=True, tty=True),
        ]


async def test_hs6_pods_that_are_not_there(tmp_path: Path) -> None:
    async with with_pod(tmp_path) as lab:
        for path in ("/exec/default/no/main?output=1", "/portForward/other/web"):
            got = await lab.ask(path, headers=SPDY)
            assert (got.status, got.text) == (404, "pod does not exist")
        got = await lab.ask("/portForward/default/web/another", headers=SPDY)
        assert (got.status, got.text) == (404, "pod not found")
        lab.runtime.error = NotFound("x", "PortForward")
        got = await lab.ask("/portForward/default/web/mirror-of-web", headers=SPDY)
        assert lab.runtime.requests == [v1.PortForwardRequest(pod_sandbox_id="sandbox-1")]


@pytest.mark.parametrize(
    "path",
    [
        "/exec/default/web/none?output=1",
        "/exec/default/web/another/main?output=1",
        "/attach/default/web/none?output=1",
    ],
)
async def test_hs7_containers_that_do_not_run(path: str, tmp_path: Path) -> None:
    async with with_pod(tmp_path) as lab:
        got = await lab.ask(path, headers=SPDY)
        assert got.status == 500
        name = "main" if "main" in path else "none"
        assert got.text == f'container not found ("{name}")'
        lab.table.set_container(lab.table.pods[0], "main", "c1", runs=False)
        got = await lab.ask(EXEC, headers=SPDY)
        assert (got.status, got.text) == (500, 'container not found ("main")')


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFound("gone", "Exec"), 404),
        (ResourceExhausted("too many", "Exec"), 429),
        (Unavailable("away", "Exec"), 500),
    ],
)
async def test_hs8_the_runtime_refuses(error: RpcError, status: int, tmp_path: Path) -> None:
    async with with_pod(tmp_path) as lab:
        lab.runtime.error = error
        got = await lab.ask(EXEC, headers=SPDY)
        assert got.status == status
        assert error.args[0] in got.text
        assert ("retry-after" in got.headers) is (status == 429)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/exec/x", "", "unix:///x", "http://[", "http://a:x/"]
)
async def test_hs8_a_streaming_server_that_is_not_there(url: str, tmp_path: Path) -> None:
    async with with_pod(tmp_path) as lab:
        lab.runtime.url = url
        got = await lab.ask(EXEC, headers=SPDY)
        assert got.status == 502
        assert "streaming server" in got.text


async def test_hs8_a_streaming_server_that_says_nothing_or_nonsense(tmp_path: Path) -> None:
    async def nothing(stream: SocketStream, _head: bytes) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            await stream.receive()

    async def nonsense(stream: SocketStream, _head: bytes) -> None:
        await stream.send(b"SSH-2.0-x\r\n\r\n")

    for number, talk in enumerate((nothing, nonsense)):
        directory = tmp_path / str(number)
        directory.mkdir()
        async with streaming_server(talk) as url, with_pod(directory) as lab:
            lab.runtime.url = url
            assert (await lab.ask(EXEC, headers=SPDY)).status == 502


async def test_hs9_credentials_do_not_get_to_the_runtime(tmp_path: Path) -> None:
    heads: list[str] = []

    async def note(stream: SocketStream, found: bytes) -> None:
        heads.append(found.decode())
        await stream.send(SWITCHED)

    async with (
        streaming_server(note) as url,
        with_pod(tmp_path) as lab,
        lab.connected() as stream,
    ):
        lab.runtime.url = url
        more = {"Cookie": "secret", "X-Forwarded-For": "1.2.3.4"}
        await stream.send(head("GET", EXEC, "admin", {**SPDY, **more}))
        await read_head(stream)
    sent = heads[0].lower()
    assert sent.startswith("get /exec/token http/1.1\r\nhost: 127.0.0.1:")
    assert "x-stream-protocol-version: v4" in sent
    for word in ("authorization", "bearer", "cookie", "secret", "1.2.3.4", "command"):
        assert word not in sent
    token = "base64url.bearer.authorization.k8s.io.c2VjcmV0"
    request = Request.of(
        "GET",
        "/exec/a/b/c",
        {
            "connection": "keep-alive, Upgrade",
            "upgrade": "websocket",
            "sec-websocket-protocol": f"v5.channel.k8s.io, {token}",
            "sec-websocket-key": "k",
        },
    )
    assert upgrade_headers(request) == {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-key": "k",
        "sec-websocket-protocol": "v5.channel.k8s.io",
    }


@pytest.mark.parametrize(
    ("query", "ports"),
    [("port=80", (80,)), ("port=80,443&port=8080", (80, 443, 8080)), ("port=65535", (65535,))],
)
def test_hs10_a_websocket_names_its_ports(query: str, ports: tuple[int, ...]) -> None:
    headers = {"upgrade": "websocket"}
    assert wanted_ports(Request.of("GET", f"/portForward/a/b?{query}", headers)) == ports
    assert wanted_ports(Request.of("POST", "/portForward/a/b", {"upgrade": "SPDY/3.1"})) == ()
    tunnel = {**headers, "sec-websocket-protocol": "SPDY/3.1+portforward.k8s.io"}
    assert wanted_ports(Request.of("GET", "/portForward/a/b", tunnel)) == ()


@pytest.mark.parametrize(
    "query", ["", "port=", "port=0", "port=65536", "port=x", "port=80,", "port=-1"]
)
async def test_hs10_ports_that_are_none(query: str, tmp_path: Path) -> None:
    socket = {"Upgrade": "websocket", "Connection": "Upgrade"}
    async with with_pod(tmp_path) as lab:
        got = await lab.ask(f"/portForward/default/web?{query}", headers=socket)
        assert got.status == 400


async def test_a_connection_whose_upgrade_was_declined_goes_on(tmp_path: Path) -> None:
    async with with_pod(tmp_path) as lab, lab.connected() as stream:
        lab.runtime.error = Unavailable("away", "Exec")
        await stream.send(head("POST", EXEC, "admin", {**SPDY, "Content-Length": "0"}))
        assert (await reply(stream)).status == 500
