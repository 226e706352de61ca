"""The servers that the probe bench asks answer as real ones do."""

from __future__ import annotations

import pytest
from grpclib.client import Channel
from tests.unit.probes.servers import target

from nodeagent.api import GRPCAction, HTTPGetAction, TCPSocketAction
from nodeagent.bench.probe_targets import listen, port_of
from nodeagent.model import ProbeResult
from nodeagent.probes.grpc_probe import GrpcProbe
from nodeagent.probes.http_probe import HttpProbe
from nodeagent.probes.outcome import Outcome
from nodeagent.probes.tcp_probe import TcpProbe
from nodeagent.proto.grpc.health import v1 as health

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]


async def test_each_kind_of_probe_is_answered() -> None:
    servers = await listen()
    http, grpc = port_of(servers["http"]), port_of(servers["grpc"])
    get = HttpProbe()
    try:
        answers = [
            await get(
                target(timeout_seconds=60, http_get=HTTPGetAction(path="/healthz", port=http))
            ),
            await TcpProbe()(target(timeout_seconds=60, tcp_socket=TCPSocketAction(port=http))),
            await GrpcProbe()(target(timeout_seconds=60, grpc=GRPCAction(port=grpc))),
        ]
    finally:
        await get.aclose()
        for server in servers.values():
            server.close()
    assert [answer.result for answer in answers] == [ProbeResult.SUCCESS] * 3
    assert answers[0] == Outcome(ProbeResult.SUCCESS, "ok")


async def test_the_grpc_server_speaks_http2_to_other_clients_too() -> None:
    servers = await listen()
    try:
        async with Channel("127.0.0.1", port_of(servers["grpc"])) as channel:
            stub = health.HealthStub(channel)
            for _ in range(2):
                reply = await stub.check(health.HealthCheckRequest(service="any"))
                assert reply.status == health.HealthCheckResponseServingStatus.SERVING
    finally:
        for server in servers.values():
            server.close()
