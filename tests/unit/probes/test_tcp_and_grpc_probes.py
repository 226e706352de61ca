"""TCP and gRPC probes against servers that listen, refuse, hang and speak something else."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server
from tests.unit.probes.servers import (
    answer,
    closed_port,
    full_port,
    hang,
    raw_server,
    target,
)

from nodeagent import http_action
from nodeagent.api import ContainerPort, GRPCAction, HTTPGetAction, TCPSocketAction
from nodeagent.model import ProbeResult
from nodeagent.probes import address
from nodeagent.probes.address import ProbeError, connect, resolve_port
from nodeagent.probes.grpc_probe import GrpcProbe
from nodeagent.probes.http_probe import HttpProbe
from nodeagent.probes.outcome import Outcome
from nodeagent.probes.tcp_probe import TcpProbe
from nodeagent.proto.grpc.health import v1 as health
from nodeagent.proto.runtime import v1
from nodeagent.testing import make_container

pytestmark = pytest.mark.anyio

SUCCESS, FAILURE, UNKNOWN = ProbeResult.SUCCESS, ProbeResult.FAILURE, ProbeResult.UNKNOWN
CHECK = "/grpc.health.v1.Health/Check"


async def dial(port: int | str, address: str = "127.0.0.1", host: str = "") -> Outcome:
    return await TcpProbe()(target(address, tcp_socket=TCPSocketAction(port=port, host=host)))


async def ask(port: int, service: str | None = None, address: str = "127.0.0.1") -> Outcome:
    return await GrpcProbe()(target(address, grpc=GRPCAction(port=port, service=service)))


# -- ports --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("port", "number"), [(80, 80), ("web", 81), ("8080", 8080), (65535, 65535)]
)
def test_bp2_a_port_is_a_number_or_a_name(port: int | str, number: int) -> None:
    container = make_container(ports=(ContainerPort(name="web", container_port=81),))
    assert resolve_port(port, container) == number


@pytest.mark.parametrize("port", [0, -1, 65536, "", "db", "70000", "8\u0661"])
def test_bp3_anything_else_is_no_port(port: int | str) -> None:
    with pytest.raises(ProbeError):
        resolve_port(port, make_container())


# -- tcpSocket ------------------------------------------------------------------------------------


async def test_bc1_a_connection_that_opens_is_success() -> None:
    async with raw_server(hang) as port:
        assert await dial(port) == Outcome(SUCCESS)
        assert await dial(port, "192.0.2.1", "localhost") == Outcome(SUCCESS)


async def test_bc2_nobody_listens() -> None:
    with closed_port() as port:
        text = f"dial tcp 127.0.0.1:{port}: connect: connection refused"
        assert await dial(port) == Outcome(FAILURE, text)


async def test_bc2_a_host_that_does_not_exist() -> None:
    outcome = await dial(80, host="nobody.invalid")
    assert outcome.result is FAILURE


async def test_bc3_it_does_not_open_in_time() -> None:
    start = anyio.current_time()
    with full_port() as port:
        assert await dial(port) == Outcome(FAILURE, f"dial tcp 127.0.0.1:{port}: i/o timeout")
    assert anyio.current_time() - start == pytest.approx(1.0, abs=0.2)


async def test_bp3_without_a_place_to_go_it_cannot_be_made() -> None:
    assert (await dial("db")).result is UNKNOWN
    assert (await dial(80, "")).result is UNKNOWN
    assert (await ask(0)).result is UNKNOWN
    assert (await ask(80, address="")).result is UNKNOWN


async def test_bp4_a_connection_leaves_nothing_behind() -> None:
    """The other side sees it end at once, by a reset."""
    seen: list[object] = []
    done = anyio.Event()

    async def serve(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        try:
            seen.append(await reader.read(1))
        except ConnectionResetError:
            seen.append("reset")
        done.set()

    async with raw_server(serve) as port:
        await dial(port)
        await done.wait()
    assert seen == ["reset"]


async def test_a_cancelled_connection_closes_its_socket() -> None:
    with full_port() as port, anyio.move_on_after(0.1):
        await connect("127.0.0.1", port)


# -- grpc -----------------------------------------------------------------------------------------


class Health(health.HealthBase):
    """Answers as the name of the service says."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.metadata: dict[str, Any] = {}

    async def check(self, message: health.HealthCheckRequest) -> health.HealthCheckResponse:
        name = message.service
        self.asked.append(name)
        if name == "stall":
            await anyio.sleep(1000)
        if name == "unknown":
            raise GRPCError(Status.NOT_FOUND, "unknown service")
        statuses = health.HealthCheckResponseServingStatus
        chosen = statuses.NOT_SERVING if name == "ill" else statuses.SERVING
        return health.HealthCheckResponse(status=chosen)


@asynccontextmanager
async def grpc_server(*services: Any) -> AsyncIterator[int]:
    server = Server(list(services))
    with socket.socket(proto=socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        await server.start(sock=listening.dup())
        port = listening.getsockname()[1]
    try:
        yield port
    finally:
        server.close()
        await server.wait_closed()


async def test_bg1_serving_is_success() -> None:
    served = Health()
    async with grpc_server(served) as port:
        assert await ask(port) == Outcome(SUCCESS, "service healthy")
        assert await ask(port, "db") == Outcome(SUCCESS, "service healthy")
    assert served.asked == ["", "db"]


async def test_bg2_another_status_is_failure() -> None:
    async with grpc_server(Health()) as port:
        text = 'service unhealthy (responded with "NOT_SERVING")'
        assert await ask(port, "ill") == Outcome(FAILURE, text)


async def test_bg3_a_server_without_the_health_service() -> None:
    async with grpc_server() as port:
        outcome = await ask(port)
        assert outcome.result is FAILURE
        text = "error: this server does not implement the grpc health protocol"
        assert outcome.text.startswith(text)


async def test_bg4_nobody_listens() -> None:
    with closed_port() as port:
        text = f'error: failed to connect service at "127.0.0.1:{port}": connection refused'
        assert await ask(port) == Outcome(FAILURE, text)
    with full_port() as port:
        text = f'timeout: failed to connect service "127.0.0.1:{port}" within 1s'
        assert await ask(port) == Outcome(FAILURE, text)


async def test_bg5_no_answer_in_time() -> None:
    text = "timeout: health rpc did not complete within 1s"
    async with grpc_server(Health()) as port:
        assert await ask(port, "stall") == Outcome(FAILURE, text)
    async with raw_server(hang) as port:
        assert await ask(port) == Outcome(FAILURE, text)


@pytest.mark.parametrize(
    "reply", [answer("200 OK", b"hello"), b"", b"\x00" * 100, b"SSH-2.0-OpenSSH_9\r\n"]
)
async def test_bg6_what_is_no_grpc_is_failure(reply: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(reply)
        await writer.drain()

    async with raw_server(serve) as port:
        outcome = await ask(port)
        assert outcome.result is FAILURE
        assert outcome.text.startswith("error: health rpc probe failed: ")


async def test_bg6_a_flood_is_cut() -> None:
    class Flood:
        def __mapping__(self) -> dict[str, Handler]:
            async def answer(stream: Any) -> None:
                await stream.recv_message()
                await stream.send_message(v1.VersionResponse(version="x" * 20_000_000))

            kind = Cardinality.UNARY_UNARY
            return {CHECK: Handler(answer, kind, health.HealthCheckRequest, v1.VersionResponse)}

    async with grpc_server(Flood()) as port:
        outcome = await ask(port)
    assert outcome.result is FAILURE
    assert "20000005 bytes" in outcome.text


async def test_bg6_an_error_of_the_service_is_failure() -> None:
    async with grpc_server(Health()) as port:
        outcome = await ask(port, "unknown")
        assert outcome.result is FAILURE
        assert "unknown service" in outcome.text


# -- means of the node ------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS])
async def test_ba5_a_node_without_descriptors_blames_nobody(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(address, "quick_socket", none_left)
    monkeypatch.setattr(http_action, "quick_socket", none_left)
    async with raw_server(hang) as port:
        assert (await dial(port)).result is UNKNOWN
        assert (await ask(port)).result is UNKNOWN
        probe = HttpProbe()
        found = await probe(target(http_get=HTTPGetAction(port=port)))
        assert found.result is UNKNOWN
        assert os.strerror(code).lower() in found.text
        await probe.aclose()
