"""Probes leave no descriptors, sockets or tasks behind, however many there were."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from tests.unit.probes.probe_fakes import Desk, pod_status, status
from tests.unit.probes.servers import Replies, answer, hang, raw_server
from tests.unit.probes.test_tcp_and_grpc_probes import Health, grpc_server

from nodeagent.api import GRPCAction, HTTPGetAction, Probe, TCPSocketAction
from nodeagent.model import PodUID
from nodeagent.probes.grpc_probe import GrpcProbe
from nodeagent.probes.http_probe import HttpProbe
from nodeagent.probes.tcp_probe import TcpProbe
from nodeagent.testing import make_container, make_pod

pytestmark = pytest.mark.anyio

_TIME_WAIT = "06"


def sockets_to(ports: set[int], state: str = "") -> int:
    """How many sockets of this machine lead to one of these ports."""
    found = 0
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        there = int(fields[2].rpartition(":")[2], 16)
        found += there in ports and fields[3].startswith(state)
    return found


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def probes_made(desk: Desk) -> float:
    return sum(
        sample.value
        for metric in desk.registry.collect()
        for sample in metric.samples
        if sample.name == "prober_probe_total"
    )


def network_desk() -> Desk:
    return Desk(64, http_get=HttpProbe(), tcp_socket=TcpProbe(), grpc=GrpcProbe())


def add(desk: Desk, n: int, **probes: Any) -> None:
    pod = make_pod(f"p{n}", make_container(**probes))
    shown = pod_status(status(cid=f"c{n}"))
    desk.statuses[PodUID(pod.metadata.uid)] = replace(shown, pod_ip="127.0.0.1")
    desk.manager.add_pod(pod)


async def test_600_probes_a_second_leave_sockets_and_descriptors_flat() -> None:
    desk = network_desk()
    async with (
        raw_server(Replies(answer("200 OK", b"fine")), backlog=1000) as web,
        grpc_server(Health()) as rpc,
        anyio.create_task_group() as tasks,
    ):
        await tasks.start(desk.manager.run)
        await anyio.sleep(100)
        for n in range(300):
            tcp = Probe(period_seconds=1, tcp_socket=TCPSocketAction(port=web))
            http = Probe(period_seconds=1, http_get=HTTPGetAction(path="/", port=web))
            health = Probe(period_seconds=1, grpc=GRPCAction(port=rpc))
            add(desk, n, liveness_probe=health, readiness_probe=http if n % 2 else tcp)
        await anyio.sleep(2.9)
        before, made = (descriptors(), len(asyncio.all_tasks())), probes_made(desk)
        await anyio.sleep(10)
        after = (descriptors(), len(asyncio.all_tasks()))
        assert probes_made(desk) - made >= 5_900
        # Open at either moment may be what is under way, and that is little: all is answered.
        assert abs(after[0] - before[0]) <= 30
        assert abs(after[1] - before[1]) <= 30
        assert sockets_to({web, rpc}, _TIME_WAIT) == 0
        tasks.cancel_scope.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert sockets_to({web, rpc}) == 0


async def test_many_probes_leave_sockets_and_descriptors_flat() -> None:
    desk = network_desk()
    async with (
        raw_server(Replies(answer("200 OK", b"fine"))) as web,
        raw_server(hang) as silent,
        grpc_server(Health()) as rpc,
        anyio.create_task_group() as tasks,
    ):
        await tasks.start(desk.manager.run)
        await anyio.sleep(100)
        every: dict[str, Any] = {
            "period_seconds": 1,
            "timeout_seconds": 1,
            "failure_threshold": 10_000,
        }
        for n in range(10):
            add(
                desk,
                n,
                liveness_probe=Probe(tcp_socket=TCPSocketAction(port=web), **every),
                readiness_probe=Probe(http_get=HTTPGetAction(path="/", port=web), **every),
            )
            add(
                desk,
                100 + n,
                liveness_probe=Probe(grpc=GRPCAction(port=rpc), **every),
                readiness_probe=Probe(http_get=HTTPGetAction(path="/", port=silent), **every),
            )
        await anyio.sleep(3.9)
        before = (descriptors(), len(asyncio.all_tasks()))
        await anyio.sleep(20)
        after = (descriptors(), len(asyncio.all_tasks()))
        # One question is open for each that hangs, and two more at the most for it to be asked.
        assert abs(after[0] - before[0]) <= 20
        assert abs(after[1] - before[1]) <= 20
        assert sockets_to({web, rpc, silent}, _TIME_WAIT) == 0
        assert probes_made(desk) >= 700
        tasks.cancel_scope.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert sockets_to({web, rpc, silent}) == 0
