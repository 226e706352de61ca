"""Exec and port-forward of the embedded runtime: docs/embedded-runtime.md, "Streams"."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from embedded_lab import Lab, lab, shell
from stream_client import (
    PATIENCE,
    SOCKET_HEAD,
    SPDY_HEAD,
    SPDY_V4,
    ask,
    connected,
    over_spdy,
    over_websocket,
    talk,
)

from nodeagent import rpc
from nodeagent.proto.runtime import v1
from nodeagent.streaming import spdy
from nodeagent.streaming.channels import SpdyChannels
from nodeagent.streaming.messages import MessageReader, message
from nodeagent.streaming.protocols import TUNNEL, V1, V4, V5, Channel, Wanted
from nodeagent.streaming.websocket import Tunnel, WebSocket

pytestmark = [pytest.mark.anyio, pytest.mark.realtime, pytest.mark.timeout(120)]

BOTH = pytest.mark.parametrize("isolate", [True, False], ids=["isolated", "plain"])
ALL = Wanted(stdin=True, stdout=True, stderr=True)


def sh(line: str) -> list[str]:
    return list(shell(line))


async def url_of(one: Lab, command: Sequence[str], wanted: Wanted = ALL) -> str:
    container_id = await one.start("sleep", "1000", name=f"c{os.urandom(4).hex()}")
    return await one.runtime.exec(
        v1.ExecRequest(
            container_id=container_id,
            cmd=list(command),
            stdin=wanted.stdin,
            stdout=wanted.stdout,
            stderr=wanted.stderr,
            tty=wanted.tty,
        )
    )


@BOTH
async def test_a_command_over_spdy(tmp_path: Path, isolate: bool) -> None:
    async with lab(tmp_path, isolate=isolate) as one:
        command = shell("read x; echo got $x; echo oops >&2; exit 7")
        url = await url_of(one, command)
        with anyio.fail_after(PATIENCE):
            async with connected(url) as stream:
                head, rest = await ask(stream, url, SPDY_V4, "POST")
                assert head.startswith("HTTP/1.1 101 ")
                assert f"X-Stream-Protocol-Version: {V4}" in head
                heard = await over_spdy(stream, rest, ALL.channels(V4), b"hello\n")
        assert heard.said[Channel.STDOUT] == b"got hello\n"
        assert heard.said[Channel.STDERR] == b"oops\n"
        assert heard.code == 7
        assert heard.status["reason"] == "NonZeroExitCode"


@pytest.mark.parametrize("protocol", [V5, V4, "v4.base64.channel.k8s.io", V1])
async def test_a_command_over_a_websocket(tmp_path: Path, protocol: str) -> None:
    async with lab(tmp_path) as one:
        url = await url_of(one, shell("read x; echo got $x; echo oops >&2; exit 7"))
        with anyio.fail_after(PATIENCE):
            async with connected(url) as stream:
                wanted = {**SOCKET_HEAD, "Sec-WebSocket-Protocol": protocol}
                head, rest = await ask(stream, url, wanted)
                assert f"Sec-WebSocket-Protocol: {protocol}" in head
                assert "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
                heard = await over_websocket(stream, rest, protocol, b"hello\n")
        assert heard.said[Channel.STDOUT] == b"got hello\n"
        assert heard.said[Channel.STDERR] == b"oops\n"
        if protocol != V1:
            assert heard.code == 7


@pytest.mark.parametrize("protocol", ["spdy", V5])
async def test_ten_mebibytes_through_a_command_and_its_end_of_input(
    tmp_path: Path, protocol: str
) -> None:
    data = os.urandom(10 * 2**20)
    async with lab(tmp_path) as one:
        url = await url_of(one, shell("tee /dev/stderr | sha256sum"))
        heard = await talk(url, ALL.channels(V4), data, protocol=protocol)
    assert heard.said[Channel.STDOUT].split()[0] == hashlib.sha256(data).hexdigest().encode()
    assert heard.said[Channel.STDERR] == data
    assert heard.code == 0


async def test_a_command_that_leaves_its_input_unread(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        url = await url_of(one, ["head", "-c", "5"])
        heard = await talk(url, ALL.channels(V4), b"12345" * 100_000)
    assert heard.said[Channel.STDOUT] == b"12345"
    assert heard.code == 0


async def test_a_terminal_and_its_size(tmp_path: Path) -> None:
    wanted = Wanted(stdin=True, stdout=True, tty=True)
    async with lab(tmp_path) as one:
        url = await url_of(
            one, shell("test -t 1 && echo terminal; read x; stty size; exit 5"), wanted
        )
        with anyio.fail_after(PATIENCE):
            async with connected(url) as stream:
                _, rest = await ask(stream, url, SPDY_V4)
                client = SpdyChannels(stream, V4, client=True, rest=rest)
                await client.open(wanted.channels(V4))
                await client.send(Channel.RESIZE, b'{"Width":132,"Height":43}\n')
                await client.send(Channel.STDIN, b"go\r")
                got, error = b"", b""
                while (said := await client.receive()) is not None:
                    if said.channel is Channel.STDOUT:
                        got += said.data
                    elif said.channel is Channel.ERROR:
                        error += said.data
    assert b"terminal\r\n" in got
    assert b"43 132\r\n" in got
    assert b'"5"' in error


async def test_what_cannot_be_run_says_why(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        url = await url_of(one, ["/no/such"])
        heard = await talk(url, ALL.channels(V4))
        assert heard.status["reason"] == "InternalError"
        assert "no such file or directory" in heard.status["message"]


async def test_a_container_that_dies_ends_its_commands(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        container_id = await one.start("sleep", "1000")
        url = await one.runtime.exec(
            v1.ExecRequest(container_id=container_id, cmd=sh("echo up; sleep 1000"), stdout=True)
        )
        names = (Channel.ERROR, Channel.STDOUT)
        with anyio.fail_after(PATIENCE):
            async with connected(url) as stream:
                _, rest = await ask(stream, url, SPDY_V4)
                client = SpdyChannels(stream, V4, client=True, rest=rest)
                await client.open(names)
                said = await client.receive()
                assert said is not None
                assert said.data == b"up\n"
                await one.runtime.stop_container(container_id, 0)
                rest = b""
                while (said := await client.receive()) is not None:
                    rest += said.data
        assert b'"Failure"' in rest


async def test_a_client_that_goes_ends_its_command(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        container_id = await one.start("sleep", "1000")
        line = "echo up; sleep 1000"
        request = v1.ExecRequest(container_id=container_id, cmd=sh(line), stdout=True)
        url = await one.runtime.exec(request)
        with anyio.fail_after(PATIENCE):
            async with connected(url) as stream:
                _, rest = await ask(stream, url, SPDY_V4)
                client = SpdyChannels(stream, V4, client=True, rest=rest)
                await client.open((Channel.ERROR, Channel.STDOUT))
                assert await client.receive()
            look = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'echo u[p]' || true"
            while (await one.runtime.exec_sync(container_id, sh(look), 30)).stdout:
                await anyio.lowlevel.checkpoint()


async def test_an_address_is_good_once_and_others_are_not(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        url = await url_of(one, ["true"])
        with anyio.fail_after(PATIENCE):
            for wanted in (SPDY_V4, SPDY_V4, {"Connection": "close"}):
                async with connected(url) as stream:
                    head, rest = await ask(stream, url, wanted)
                    if head.startswith("HTTP/1.1 101"):
                        await over_spdy(stream, rest, ALL.channels(V4))
                    else:
                        assert head.startswith("HTTP/1.1 404 ")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 400),
        ({"Connection": "Upgrade", "Upgrade": "h2c"}, 400),
        ({**SPDY_HEAD, "X-Stream-Protocol-Version": "v9.channel.k8s.io"}, 403),
        ({**SOCKET_HEAD, "Sec-WebSocket-Version": "8"}, 400),
        ({**SOCKET_HEAD, "Sec-WebSocket-Protocol": "v9.channel.k8s.io"}, 403),
    ],
)
async def test_what_is_no_upgrade_is_refused(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    async with lab(tmp_path) as one:
        url = await url_of(one, ["true"])
        with anyio.fail_after(PATIENCE):
            async with connected(url) as stream:
                head, _ = await ask(stream, url, headers)
        assert head.startswith(f"HTTP/1.1 {status} ")


async def test_senseless_wishes_are_refused(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        container_id = await one.start("sleep", "1000")
        for wish, why in (
            (v1.ExecRequest(container_id=container_id, cmd=["true"]), "must be set"),
            (v1.ExecRequest(container_id=container_id, stdout=True), "must not be empty"),
            (
                v1.ExecRequest(container_id=container_id, cmd=["true"], tty=True, stderr=True),
                "cannot both",
            ),
        ):
            with pytest.raises(rpc.InvalidArgument, match=why):
                await one.runtime.exec(wish)
        with pytest.raises(rpc.NotFound):
            await one.runtime.exec(v1.ExecRequest(container_id="x", cmd=["true"], stdout=True))


@asynccontextmanager
async def shouting_server() -> AsyncIterator[int]:
    """Sends back what it gets up to its end, in capitals."""

    async def shout(stream: SocketStream) -> None:
        async with stream:
            got = b""
            async for data in stream:
                got += data
            await stream.send(got.upper())

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tg:
        tg.start_soon(listener.serve, shout)
        yield listener.extra(SocketAttribute.local_port)
        tg.cancel_scope.cancel()


async def forwarded(stream: object, rest: bytes, ports: list[int]) -> list[tuple[bytes, bytes]]:
    """For each port what it answers to its number, and what went wrong."""
    assert isinstance(stream, SocketStream | Tunnel)
    core = spdy.SpdyConnection(client=True)
    errors, datas = list[int](), list[int]()
    for number, port in enumerate(ports):
        for kind, streams in (("error", errors), ("data", datas)):
            head = {"streamtype": kind, "port": str(port), "requestid": str(number)}
            streams.append(core.open(head))
        core.send(errors[-1], b"", fin=True)
        core.send(datas[-1], b"x%d" % number, fin=True)
    await stream.send(core.take())
    said = dict.fromkeys([*errors, *datas], b"")
    over = set[int]()
    while over != set(said):
        for event in core.receive(rest):
            if isinstance(event, spdy.Data):
                said[event.stream] += event.data
            if isinstance(event, spdy.Reset) or (isinstance(event, spdy.Data) and event.fin):
                over.add(event.stream)
        if over != set(said):
            rest = await stream.receive()
    return [(said[data], said[error]) for data, error in zip(datas, errors, strict=True)]


async def port_url(one: Lab, ports: list[int]) -> str:
    return await one.runtime.port_forward(
        v1.PortForwardRequest(pod_sandbox_id=one.sandbox, port=ports)
    )


@pytest.mark.parametrize("tunnel", [False, True], ids=["spdy", "tunnel"])
async def test_ports_over_spdy(tmp_path: Path, tunnel: bool) -> None:
    async with lab(tmp_path) as one, shouting_server() as port:
        url = await port_url(one, [])
        with anyio.fail_after(PATIENCE):
            async with connected(url) as stream:
                if tunnel:
                    wanted = {**SOCKET_HEAD, "Sec-WebSocket-Protocol": TUNNEL}
                    _, rest = await ask(stream, url, wanted)
                    through: object = Tunnel(WebSocket(stream, client=True, rest=rest))
                    found = await forwarded(through, b"", [port, 1, port])
                else:
                    head = {**SPDY_HEAD, "X-Stream-Protocol-Version": "portforward.k8s.io"}
                    _, rest = await ask(stream, url, head)
                    found = await forwarded(stream, rest, [port, 1, port])
    assert found[0] == (b"X0", b"")
    assert found[2] == (b"X2", b"")
    assert found[1][0] == b""
    assert found[1][1].startswith(b"an error occurred forwarding 1 -> 1: ")


async def test_ports_over_the_channels_of_a_websocket(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:

        async def greet(peer: SocketStream) -> None:
            async with peer:
                assert await peer.receive() == b"ping"
                await peer.send(b"pong")

        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as tg:
            tg.start_soon(listener.serve, greet)
            port = int(listener.extra(SocketAttribute.local_port))
            url = await port_url(one, [port])
            said = {0: b"", 1: b""}
            with anyio.fail_after(PATIENCE):
                async with connected(url) as stream:
                    wanted = {**SOCKET_HEAD, "Sec-WebSocket-Protocol": V4}
                    _, rest = await ask(stream, url, wanted)
                    socket = WebSocket(stream, client=True, rest=rest)
                    await socket.send(message(V4, 0, b"ping"))
                    reader = MessageReader(V4)
                    while (found := await socket.receive()) is not None:
                        if part := reader.read(*found):
                            said[part.channel] += part.data
            tg.cancel_scope.cancel()
    number = port.to_bytes(2, "little")
    assert said == {0: number + b"pong", 1: number}
