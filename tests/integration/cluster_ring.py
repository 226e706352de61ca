"""A whole agent on a simulated runtime and an API server in memory, in virtual time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ring import Ring, simulated

from nodeagent.agent import NodeAgent
from nodeagent.api import Pod
from nodeagent.clock import Clock
from nodeagent.config import AgentConfig
from nodeagent.embedded import Embedded, SimulatedBackend
from nodeagent.kube import ApiError, KubeClients
from nodeagent.model.annotations import CONFIG_HASH
from nodeagent.node.facts import FoundAddresses
from nodeagent.testing import ApiStore, MemorySource, StoreClient, make_pod
from nodeagent.testing.api_server import FakeApiServer, serving_api
from nodeagent.testing.api_store import Request
from nodeagent.wiring import node as node_wiring

NODE = "node1"


@dataclass(slots=True)
class Line:
    """The line between one agent and the API server."""

    store: ApiStore
    main: StoreClient = field(init=False)
    events: StoreClient = field(init=False)
    heartbeat: StoreClient = field(init=False)

    def __post_init__(self) -> None:
        self.main, self.events, self.heartbeat = (StoreClient(self.store) for _ in range(3))

    @property
    def clients(self) -> KubeClients:
        return KubeClients(main=self.main, events=self.events, heartbeat=self.heartbeat)

    def cut(self) -> None:
        """The server refuses connections."""
        for client in (self.main, self.events, self.heartbeat):
            client.cut()

    def fall_silent(self) -> None:
        """Nothing comes through any more, and nobody is told."""
        for client in (self.main, self.events, self.heartbeat):
            client.fall_silent()

    def heal(self) -> None:
        """The server can be reached again."""
        for client in (self.main, self.events, self.heartbeat):
            client.heal()


class ClusterRing(Ring):
    """One agent that is a node of a cluster, and questions about what the API server shows."""

    def __init__(
        self,
        agent: NodeAgent,
        runtime: Embedded,
        static: MemorySource,
        store: ApiStore,
        line: Line | None = None,
    ) -> None:
        super().__init__(agent, runtime, static)
        self.store = store
        self._line = line

    @property
    def line(self) -> Line:
        """The line to the store, when there is no HTTP between."""
        assert self._line is not None
        return self._line

    def api_pod(self, name: str) -> dict[str, Any] | None:
        """The pod as the API shows it; None when there is none."""
        try:
            return self.store.get("pods", name)
        except ApiError:
            return None

    def api_phase(self, name: str) -> str:
        pod = self.api_pod(name)
        return "" if pod is None else str(pod["status"].get("phase", ""))

    def node(self) -> dict[str, Any]:
        return self.store.get("nodes", NODE)

    def condition(self, name: str, kind: str) -> str:
        """The status of a condition of a pod as the API shows it."""
        pod = self.api_pod(name)
        found = (pod or {}).get("status", {}).get("conditions", ())
        return next((str(c["status"]) for c in found if c["type"] == kind), "")

    async def api_running(self, name: str) -> None:
        """Wait until the API shows the pod running and ready."""
        await self.until(lambda: self.api_phase(name) == "Running" and self.is_ready(name))

    def is_ready(self, name: str) -> bool:
        return self.condition(name, "Ready") == "True"

    async def api_gone(self, name: str, seconds: float = 120.0) -> None:
        await self.until(lambda: self.api_pod(name) is None, seconds)

    def health(self, check: str) -> str:
        """What a health check complains about."""
        ((_, result),) = self.agent.parts.checks.one(check)
        return result.cause

    def recorded(self, what: str, pod: str = "") -> list[str]:
        """Why each record of that kind was written."""
        records = self.agent.journal.select(pod and f"default/{pod}")
        return [r.why for r in records if r.what == what]


def bound(name: str = "web", *, node: str = NODE, **fields: Any) -> Pod:
    """A pod that is bound to this node, or to another one."""
    return make_pod(name, node_name=node, **fields)


def static_pod(name: str = "static", uid: str = "uid-static-1", **fields: Any) -> Pod:
    """A pod as a manifest of this node gives it; another text gives another UID."""
    return make_pod(
        f"{name}-{NODE}", uid=uid, annotations={CONFIG_HASH: uid}, node_name=NODE, **fields
    )


def writes(requests: list[Request]) -> Counter[str]:
    """What was written, by verb and kind of object."""
    found: Counter[str] = Counter()
    for request in requests:
        if request.method not in ("GET", "WATCH"):
            parts = request.path.strip("/").split("/")
            rest = parts[2 if parts[0] == "api" else 3 :]
            if rest[0] == "namespaces" and len(rest) > 2:
                rest = rest[2:]
            found[f"{request.method} {'/'.join(rest[::2])}"] += 1
    return found


@asynccontextmanager
async def node_on(
    runtime: Embedded,
    endpoint: str,
    tmp_path: Path,
    line: Line,
    *static: Pod,
    clock: Clock | None = None,
    name: str = NODE,
    others: tuple[MemorySource, ...] = (),
    **settings: Any,
) -> AsyncIterator[ClusterRing]:
    """An agent on that runtime and that line; it may be entered again on the same directories.

    ``others`` are sources beside that of the static pods.
    """
    source = MemorySource(*static, name="file")
    config = node_config(endpoint, tmp_path, name, **settings)
    agent = NodeAgent(config, sources=[source, *others], cluster=line.clients, clock=clock)
    with any_address():
        async with agent:
            yield ClusterRing(agent, runtime, source, line.store, line)


@asynccontextmanager
async def cluster_ring(
    tmp_path: Path,
    *pods: Pod,
    store: ApiStore | None = None,
    static: tuple[Pod, ...] = (),
    backend: SimulatedBackend | None = None,
    **settings: Any,
) -> AsyncIterator[ClusterRing]:
    """A simulated runtime, an API server with these pods, and an agent between them."""
    line = Line(store or ApiStore())
    for pod in pods:
        line.store.create(pod)
    async with (
        simulated(tmp_path, backend) as (runtime, endpoint),
        node_on(runtime, endpoint, tmp_path, line, *static, **settings) as ring,
    ):
        yield ring


@asynccontextmanager
async def served_ring(
    tmp_path: Path,
    *pods: Pod,
    static: tuple[Pod, ...] = (),
    backend: SimulatedBackend | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[ClusterRing, FakeApiServer]]:
    """The same over HTTP, with a kubeconfig."""
    source, kubeconfig = MemorySource(*static, name="file"), tmp_path / "kubeconfig"
    async with (
        serving_api() as server,
        simulated(tmp_path, backend) as (runtime, endpoint),
    ):
        for pod in pods:
            server.store.create(pod)
        kubeconfig.write_text(json.dumps(kubeconfig_of(server.url)))
        config = node_config(endpoint, tmp_path, kubeconfig=kubeconfig, **settings)
        with any_address():
            async with NodeAgent(config, sources=[source]) as agent:
                yield ClusterRing(agent, runtime, source, server.store), server


def kubeconfig_of(url: str, **user: Any) -> dict[str, Any]:
    """A kubeconfig that leads to a server."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "here", "user": "node"}}],
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [{"name": "node", "user": user}],
    }


def node_config(endpoint: str, tmp_path: Path, name: str = NODE, **settings: Any) -> AgentConfig:
    """Settings of an agent on these directories."""
    # How full this machine's disk is must not matter.
    settings.setdefault("image_gc_high_threshold_percent", 100)
    settings.setdefault("node_ip", "10.0.0.1")
    return AgentConfig(
        container_runtime_endpoint=endpoint,
        root_dir=tmp_path / "root",
        pod_logs_dir=tmp_path / "logs",
        node_name=name,
        make_iptables_util_chains=False,
        **settings,
    )


@contextmanager
def any_address() -> Iterator[None]:
    """The node's address need not be one of this machine."""

    def as_given(ips: Sequence[str], _name: str) -> FoundAddresses:
        return FoundAddresses(ips=tuple(ips))

    with patch.object(node_wiring, "find_addresses", as_given):
        yield
