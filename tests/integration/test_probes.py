"""Probes in the whole ring: results restart containers, gate each other, and flip conditions."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from ring import Ring, agent_on, phase, ring, simulated

from nodeagent.agent import NodeAgent
from nodeagent.api import (
    ContainerPort,
    ExecAction,
    HTTPGetAction,
    Pod,
    Probe,
    TCPSocketAction,
)
from nodeagent.config import AgentConfig
from nodeagent.embedded import Script, SimulatedBackend
from nodeagent.embedded.backend import ExecResult
from nodeagent.embedded.records import ContainerRecord
from nodeagent.testing import MemorySource, make_container, make_pod

pytestmark = pytest.mark.anyio


class Commands(SimulatedBackend):
    """Commands run in containers give the exit codes that the test sets, by their first word."""

    def __init__(self) -> None:
        super().__init__()
        self.codes: dict[str, int] = {}
        self.took: dict[str, float] = {}
        self.ran: list[tuple[float, str, str]] = []

    async def exec_sync(
        self, container: ContainerRecord, cmd: Sequence[str], timeout: float | None
    ) -> ExecResult:
        self.ran.append((anyio.current_time(), cmd[0], container.id))
        await anyio.sleep(self.took.get(cmd[0], 0.0))
        return ExecResult(stdout=b"said " + cmd[0].encode(), exit_code=self.codes.get(cmd[0], 0))

    def times(self, command: str) -> list[float]:
        return [at for at, name, _ in self.ran if name == command]


def probe(command: str, **fields: int) -> Probe:
    values: dict[str, Any] = {"period_seconds": 1, "timeout_seconds": 1, **fields}
    return Probe(exec=ExecAction(command=(command,)), **values)


def probed(name: str = "web", **probes: Any) -> Pod:
    return make_pod(name, make_container(**probes))


def condition(node: Ring, name: str, kind: str) -> str:
    pod = node.pod(name)
    assert pod is not None
    return next(c.status for c in pod.status.conditions if c.type == kind)


def shows(node: Ring, name: str, kind: str, wanted: str) -> bool:
    return condition(node, name, kind) == wanted


def said(node: Ring, reason: str) -> list[str]:
    return [r.why for r in node.agent.journal.select() if r.what == reason]


async def test_a_liveness_probe_that_fails_restarts_its_container(tmp_path: Path) -> None:
    backend = Commands()
    pod = probed(liveness_probe=probe("alive", failure_threshold=3))
    async with ring(tmp_path, pod, backend=backend) as node:
        await node.running("web")
        await node.until(lambda: backend.times("alive"))
        first = node.ids()
        backend.codes["alive"] = 1
        await node.until(lambda: node.ids() and node.ids() != first)
        backend.codes["alive"] = 0
        await node.until(lambda: node.status("web").restart_count == 1)
        assert said(node, "Unhealthy") == ["Liveness probe failed: said alive"]
        assert "Container main failed liveness probe, will be restarted" in said(node, "Killing")
        await anyio.sleep(30)
        assert node.status("web").restart_count == 1


async def test_readiness_flips_the_conditions_and_restarts_nothing(tmp_path: Path) -> None:
    backend = Commands()
    backend.codes["ready"] = 1
    pod = probed(readiness_probe=probe("ready", failure_threshold=2))
    async with ring(tmp_path, pod, backend=backend) as node:
        await node.until(lambda: len(backend.times("ready")) >= 3)
        assert phase(node.pod("web")) == "Running"
        assert not node.status("web").ready
        for code, wanted in ((0, "True"), (1, "False"), (0, "True")):
            backend.codes["ready"] = code
            await node.until(partial(shows, node, "web", "Ready", wanted))
            assert condition(node, "web", "ContainersReady") == wanted
            assert node.status("web").ready is (wanted == "True")
        assert node.status("web").restart_count == 0


async def test_startup_gates_the_other_probes(tmp_path: Path) -> None:
    backend = Commands()
    backend.codes["started"] = 1
    pod = probed(
        startup_probe=probe("started", failure_threshold=100),
        liveness_probe=probe("alive"),
        readiness_probe=probe("ready"),
    )
    async with ring(tmp_path, pod, backend=backend) as node:
        await node.until(lambda: len(backend.times("started")) >= 20)
        assert not node.status("web").started
        assert backend.times("alive") == backend.times("ready") == []
        backend.codes["started"] = 0
        await node.until(lambda: node.status("web").ready)
        assert node.status("web").started
        asked = len(backend.times("started"))
        await node.until(lambda: len(backend.times("alive")) >= 5)
        assert len(backend.times("started")) == asked
        # Readiness does not wait for its turn: it is asked as soon as startup has succeeded.
        assert backend.times("ready")[0] - backend.times("started")[-1] < 1


async def test_a_container_that_does_not_start_in_time_is_restarted(tmp_path: Path) -> None:
    backend = Commands()
    backend.codes["started"] = 1
    pod = probed(startup_probe=probe("started", failure_threshold=3), liveness_probe=probe("alive"))
    async with ring(tmp_path, pod, backend=backend) as node:
        await node.until(lambda: phase(node.pod("web")) and node.status("web").restart_count == 1)
        assert backend.times("alive") == []
        assert "Container main failed startup probe, will be restarted" in said(node, "Killing")


async def test_readiness_outlives_the_agent(tmp_path: Path) -> None:
    backend = Commands()
    source = MemorySource(probed(readiness_probe=probe("ready", period_seconds=30)))
    async with simulated(tmp_path, backend) as (runtime, endpoint):
        async with agent_on(runtime, endpoint, tmp_path, source) as node:
            await node.until(lambda: phase(node.pod("web")) and node.status("web").ready)
        backend.ran.clear()
        async with agent_on(runtime, endpoint, tmp_path, source) as node:
            await node.running("web")
            while not backend.ran:
                assert node.status("web").ready
                await anyio.sleep(0.1)


async def test_a_pod_that_ends_is_asked_only_whether_it_is_ready(tmp_path: Path) -> None:
    backend = Commands()
    backend.default = Script(stop_after=20.0)
    pod = make_pod(
        "web",
        make_container(liveness_probe=probe("alive"), readiness_probe=probe("ready")),
        grace=60,
    )
    async with ring(tmp_path, pod, backend=backend) as node:
        await node.until(lambda: len(backend.times("alive")) >= 3)
        node.source.remove("uid-web")
        await node.until(lambda: said(node, "Killing"))
        alive, ready = len(backend.times("alive")), len(backend.times("ready"))
        await node.until(lambda: not node.ids("web"))
        assert len(backend.times("alive")) == alive
        assert len(backend.times("ready")) >= ready + 15
        await node.until(lambda: node.agent.parts.probes.count == 0)
        assert node.agent.parts.probes.pods() == set()


async def test_commands_that_hang_hold_up_nobody(tmp_path: Path) -> None:
    backend = Commands()
    backend.took["hangs"] = 100_000.0
    pods = [
        probed(f"ill{n}", liveness_probe=probe("hangs", failure_threshold=1000)) for n in range(40)
    ]
    well = probed("well", readiness_probe=probe("ready"))
    async with ring(tmp_path, *pods, well, backend=backend) as node:
        await node.until(lambda: len(backend.times("hangs")) > 400)
        start = anyio.current_time()
        await anyio.sleep(30)
        assert 25 <= sum(at > start for at in backend.times("ready")) <= 31
        assert node.status("well").ready


# -- over the network: a sandbox of the embedded runtime has an address of the loopback range ---


class Web:
    """An HTTP server on all of this machine's addresses, as a container on the host's network."""

    def __init__(self) -> None:
        self.status = "200 OK"
        self.asked: list[str] = []
        self.port = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Web]:
        server = await asyncio.start_server(self._serve, "0.0.0.0", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.asked.append(request)
            writer.write(f"HTTP/1.1 {self.status}\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # a TCP probe only connects
        finally:
            writer.close()


async def test_probes_over_the_network_go_to_the_pods_address(tmp_path: Path) -> None:
    async with Web().open() as web:
        http = HTTPGetAction(path="/ready", port="web", scheme="HTTP")
        pod = make_pod(
            "web",
            make_container(
                readiness_probe=Probe(http_get=http, period_seconds=1, failure_threshold=1),
                liveness_probe=Probe(tcp_socket=TCPSocketAction(port=web.port), period_seconds=1),
                ports=(ContainerPort(name="web", container_port=web.port),),
            ),
        )
        async with ring(tmp_path, pod) as node:
            for status, wanted in (("200 OK", "True"), ("503 No", "False"), ("204 Yes", "True")):
                web.status = status
                await node.until(lambda: phase(node.pod("web")) and condition(node, "web", "Ready"))
                await node.until(partial(shows, node, "web", "Ready", wanted))
            shown = node.pod("web")
            assert shown is not None
            place = f"{shown.status.pod_ip}:{web.port}"
            assert f"Host: {place}" in web.asked[0]
            assert web.asked[0].startswith("GET /ready HTTP/1.1\r\n")
            assert "Readiness probe failed: HTTP probe failed with statuscode: 503" in said(
                node, "Unhealthy"
            )
            assert node.status("web").restart_count == 0


async def test_a_server_that_goes_away_is_noticed_over_tcp(tmp_path: Path) -> None:
    async with ring(tmp_path) as node:
        async with Web().open() as web:
            check = Probe(
                tcp_socket=TCPSocketAction(port=web.port), period_seconds=1, failure_threshold=2
            )
            node.source.set(make_pod("web", make_container(liveness_probe=check)))
            await node.running("web")
            await anyio.sleep(10)
            assert node.status("web").restart_count == 0
        await node.until(lambda: node.status("web").restart_count == 1)
        assert any("connection refused" in text for text in said(node, "Unhealthy"))


@pytest.mark.realtime
async def test_a_real_server_in_a_real_container_becomes_ready(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("0.0.0.0", 0))
        port = free.getsockname()[1]
    serve = (sys.executable, "-m", "http.server", str(port), "--bind", "0.0.0.0")
    check = Probe(http_get=HTTPGetAction(path="/", port=port), period_seconds=1, timeout_seconds=5)
    alive = Probe(exec=ExecAction(command=("true",)), period_seconds=1, timeout_seconds=5)
    pod = make_pod(
        "web",
        make_container(command=serve, readiness_probe=check, liveness_probe=alive),
        grace=1,
    )
    config = AgentConfig(
        container_runtime_endpoint="embedded:process",
        root_dir=tmp_path / "root",
        pod_logs_dir=tmp_path / "logs",
        node_name="node1",
        stop_pods_on_exit=True,
    )
    async with NodeAgent(config, sources=[MemorySource(pod)]) as agent:

        def is_ready() -> bool:
            return any(s.ready for p in agent.pods() for s in p.status.container_statuses)

        with anyio.fail_after(40), agent.journal.follower(10_000) as records:
            while not is_ready():
                with anyio.move_on_after(0.25):
                    await records.receive()
