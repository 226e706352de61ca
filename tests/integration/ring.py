"""A whole agent on a simulated runtime, for the integration tests.

Time is virtual: a crash back-off of minutes passes at once, and nothing here sleeps.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from nodeagent.agent import NodeAgent
from nodeagent.api import ContainerStatus, Pod
from nodeagent.config import AgentConfig
from nodeagent.cri import CRIClient
from nodeagent.embedded import Embedded, SimulatedBackend, serve_embedded
from nodeagent.embedded.records import ContainerRecord, RunState
from nodeagent.journal import JournalRecord
from nodeagent.testing import FaultPlan, MemorySource, RuntimeServer, serve_faulty


class Ring:
    """One agent, its runtime, and questions about both."""

    def __init__(self, agent: NodeAgent, runtime: Embedded, source: MemorySource) -> None:
        self.agent = agent
        self.runtime = runtime
        self.source = source

    def pod(self, name: str) -> Pod | None:
        return next((p for p in self.agent.pods() if p.metadata.name == name), None)

    def status(self, name: str, container: str = "main") -> ContainerStatus:
        pod = self.pod(name)
        assert pod is not None, f"no pod {name}"
        return next(s for s in pod.status.container_statuses if s.name == container)

    def containers(self, pod: str = "", *, running: bool = False) -> list[ContainerRecord]:
        found = []
        for record in self.runtime.core.state.containers.values():
            labels = record.config.labels
            if pod in ("", labels["io.kubernetes.pod.name"]):
                found.append(record)
        return [r for r in found if r.state is RunState.RUNNING or not running]

    def ids(self, pod: str = "", *, running: bool = True) -> list[str]:
        return sorted(r.id for r in self.containers(pod, running=running))

    async def until(self, check: Callable[[], object], seconds: float = 120.0) -> None:
        """Wait (in virtual time) until ``check`` holds; looks again after every record."""
        with anyio.fail_after(seconds), self.agent.journal.follower(10_000) as records:
            while not check():
                with anyio.move_on_after(0.25):
                    await records.receive()

    async def running(self, name: str) -> None:
        await self.until(lambda: phase(self.pod(name)) == "Running")


def phase(pod: Pod | None) -> str:
    return pod.status.phase if pod is not None else ""


@asynccontextmanager
async def simulated(
    tmp_path: Path, backend: SimulatedBackend | None = None, **options: Any
) -> AsyncIterator[tuple[Embedded, str]]:
    """A simulated runtime on a socket, and its endpoint."""
    socket = tmp_path / "cri.sock"
    async with serve_embedded(socket, backend or SimulatedBackend(), **options) as runtime:
        yield runtime, f"unix://{socket}"


@asynccontextmanager
async def agent_on(
    runtime: Embedded, endpoint: str, tmp_path: Path, source: MemorySource, **settings: Any
) -> AsyncIterator[Ring]:
    """An agent on that runtime; it may be entered again on the same directories."""
    # How full this machine's disk is must not matter.
    settings.setdefault("image_gc_high_threshold_percent", 100)
    config = AgentConfig(
        container_runtime_endpoint=endpoint,
        root_dir=tmp_path / "root",
        pod_logs_dir=tmp_path / "logs",
        node_name="node1",
        node_ip="10.0.0.1",
        **settings,
    )
    async with NodeAgent(config, sources=[source]) as agent:
        yield Ring(agent, runtime, source)


@asynccontextmanager
async def ring(
    tmp_path: Path,
    *pods: Pod,
    backend: SimulatedBackend | None = None,
    source: MemorySource | None = None,
    **settings: Any,
) -> AsyncIterator[Ring]:
    """A simulated runtime and an agent on it that wants these pods."""
    async with (
        simulated(tmp_path, backend) as (runtime, endpoint),
        agent_on(runtime, endpoint, tmp_path, source or MemorySource(*pods), **settings) as running,
    ):
        yield running


def client(endpoint: str) -> CRIClient:
    """A CRI client of the test's own."""
    return CRIClient(endpoint)


class FaultyRing(Ring):
    """A ring whose runtime has faults, dies and comes back."""

    def __init__(self, agent: NodeAgent, server: RuntimeServer, source: MemorySource) -> None:
        super().__init__(agent, server.embedded, source)
        self.server = server
        self.plan = server.plan

    def calls(self, method: str) -> int:
        """How often the runtime was asked to."""
        return self.server.core.calls.get(method, 0)

    def health(self, check: str) -> str:
        """What a health check complains about."""
        ((_, result),) = self.agent._running_parts().checks.one(check)
        return result.cause

    def recorded(self, what: str, pod: str = "") -> list[JournalRecord]:
        """Records of the journal, of one pod (by name) or of all."""
        return [r for r in self.agent.journal.select(pod and f"default/{pod}") if r.what == what]


@asynccontextmanager
async def faulty_ring(
    tmp_path: Path,
    *pods: Pod,
    plan: FaultPlan | None = None,
    backend: SimulatedBackend | None = None,
    max_send: int | None = None,
    **settings: Any,
) -> AsyncIterator[FaultyRing]:
    """A simulated runtime with faults, and an agent on it that wants these pods."""
    socket, source = tmp_path / "cri.sock", MemorySource(*pods)
    serving = serve_faulty(socket, backend or SimulatedBackend(), plan=plan, max_send=max_send)
    async with (
        serving as server,
        agent_on(server.embedded, f"unix://{socket}", tmp_path, source, **settings) as found,
    ):
        yield FaultyRing(found.agent, server, source)
