"""A whole agent that gets to its API server by a kubeconfig, over TLS, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from cluster_ring import NODE, ClusterRing, any_address, bound, node_config, static_pod
from ring import simulated
from tests.unit.kube.cluster_lab import Clock, TlsCluster, tls_cluster

from nodeagent.agent import NodeAgent
from nodeagent.api import Pod
from nodeagent.testing import MemorySource

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def agent_of(
    cluster: TlsCluster, tmp_path: Path, *static: Pod, **settings: Any
) -> AsyncIterator[ClusterRing]:
    """An agent with a bootstrap kubeconfig and no other."""
    cluster.known |= {f"system:node:{NODE}"}
    async with simulated(tmp_path) as (runtime, endpoint):
        config = node_config(
            endpoint,
            tmp_path,
            kubeconfig=tmp_path / "kubeconfig",
            bootstrap_kubeconfig=cluster.bootstrap(),
            **settings,
        )
        source = MemorySource(*static, name="file")
        agent = NodeAgent(config, sources=[source], clock=Clock())
        with any_address():
            async with agent:
                yield ClusterRing(agent, runtime, source, cluster.store)


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
