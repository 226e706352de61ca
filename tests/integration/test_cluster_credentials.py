"""A whole agent that gets to its API server by a kubeconfig, over TLS, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio
import pytest
from cluster_ring import NODE, ClusterRing, Line, bound, static_pod
from ring import simulated
from tests.unit.kube.cluster_lab import Clock, TlsCluster, tls_cluster

from nodeagent.agent import NodeAgent
from nodeagent.api import Pod
from nodeagent.config import AgentConfig
from nodeagent.node.facts import FoundAddresses
from nodeagent.testing import MemorySource
from nodeagent.wiring import node as node_wiring

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def agent_of(
    cluster: TlsCluster, tmp_path: Path, *static: Pod, **settings: Any
) -> AsyncIterator[ClusterRing]:
    """An agent with a bootstrap kubeconfig and no other."""
    cluster.known |= {f"system:node:{NODE}"}
    async with simulated(tmp_path) as (runtime, endpoint):
        config = AgentConfig(
            container_runtime_endpoint=endpoint,
            root_dir=tmp_path / "root",
            pod_logs_dir=tmp_path / "logs",
            node_name=NODE,
            node_ip="10.0.0.1",
            make_iptables_util_chains=False,
            image_gc_high_threshold_percent=100,
            kubeconfig=tmp_path / "kubeconfig",
            bootstrap_kubeconfig=cluster.bootstrap(),
            **settings,
        )
        source = MemorySource(*static, name="file")
        agent = NodeAgent(config, sources=[source], clock=Clock())
        with patch.object(
            node_wiring, "find_addresses", lambda ips, _name: FoundAddresses(ips=tuple(ips))
        ):
            async with agent:
                yield ClusterRing(agent, runtime, source, Line(cluster.store))


def is_ready(node: ClusterRing) -> bool:
    nodes = node.store.all("nodes")
    conditions = nodes[0]["status"].get("conditions", ()) if nodes else ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


async def test_static_pods_run_before_the_machine_may_join(tmp_path: Path) -> None:
    async with (
        tls_cluster(tmp_path) as cluster,
        agent_of(cluster, tmp_path, static_pod("static")) as node,
    ):
        await node.until(lambda: bool(cluster.requests))
        await node.until(lambda: bool(node.ids(f"static-{NODE}")))
        await node.until(lambda: "is not approved yet" in node.health("credentials"))
        await node.until(lambda: "is not approved yet" in node.health("apiserver"))
        assert node.store.all("nodes") == []
        cluster.store.create(bound("web"))
        await cluster.sign()
        await node.until(lambda: is_ready(node))
        await node.api_running("web")
        await node.until(lambda: node.api_phase(f"static-{NODE}") == "Running")
        await node.until(lambda: node.health("apiserver") == node.health("credentials") == "")


async def test_pods_run_on_through_rotations(tmp_path: Path) -> None:
    async with (
        tls_cluster(tmp_path) as cluster,
        agent_of(cluster, tmp_path, rotate_certificates=True) as node,
        anyio.create_task_group() as tasks,
    ):
        cluster.life = timedelta(seconds=120)
        tasks.start_soon(cluster.keep_signing)
        cluster.store.create(bound("web"))
        await node.until(lambda: is_ready(node))
        await node.api_running("web")
        ids = node.ids("web")
        await node.until(lambda: len(cluster.requests) >= 4, 900)
        cluster.store.create(bound("later"))
        await node.api_running("later")
        assert node.ids("web") == ids
        assert is_ready(node)
        await node.until(lambda: node.health("credentials") == "")
        tasks.cancel_scope.cancel()
