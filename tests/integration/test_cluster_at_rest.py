"""What a node costs the API server when nothing happens, and what it leaves behind: nothing."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest
from cluster_ring import (
    ClusterRing,
    bound,
    cluster_ring,
    kubeconfig_of,
    served_ring,
    static_pod,
    writes,
)

pytestmark = pytest.mark.anyio

LIGHT = """
import asyncio, json, sys
from nodeagent import AgentConfig, NodeAgent

async def main(home):
    config = AgentConfig(
        static_pod_path=home + "/m", container_runtime_endpoint="embedded:simulated",
        root_dir=home + "/root", pod_logs_dir=home + "/logs", node_name="n1",
        kubeconfig=home + "/kubeconfig", make_iptables_util_chains=False,
    )
    async with NodeAgent(config) as agent:
        await asyncio.sleep(1)
        names = [n for n in sys.modules if n.startswith("kubernetes_asyncio.")]
        print(json.dumps({"models": [n for n in names if ".models" in n], "all": len(names)}))

asyncio.run(main(sys.argv[1]))
"""


def is_ready(node: ClusterRing) -> bool:
    (found,) = node.store.all("nodes") or [{"status": {}}]
    conditions = found["status"].get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


async def test_at_rest_nothing_is_written_but_signs_of_life(tmp_path: Path) -> None:
    pods = [bound(f"web-{number}") for number in range(5)]
    async with cluster_ring(tmp_path, *pods, static=(static_pod(),)) as node:
        for pod in pods:
            await node.api_running(pod.metadata.name)
        await node.api_running("static-node1")
        await node.until(lambda: is_ready(node))
        await anyio.sleep(400)
        before = len(node.store.requests)
        await anyio.sleep(1200)
        made = node.store.requests[before:]
        written = writes(made)
        leases, nodes = written.pop("PUT leases", 0), written.pop("PATCH nodes/status", 0)
        assert written == Counter()
        assert 110 <= leases <= 120
        assert 2 <= nodes <= 5
        reads = Counter(r.method for r in made if r.method in ("GET", "WATCH"))
        assert reads["GET"] == 0
        assert reads["WATCH"] <= 5 * 1200 / 30 + 5


async def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """No task and no connection; an unclosed one would be an error too."""
    before = asyncio.all_tasks()
    async with served_ring(tmp_path, bound("web"), static=(static_pod(),)) as (node, server):
        await node.api_running("web")
        await node.api_running("static-node1")
        assert server.connections > 0
        server.freeze()
        await anyio.sleep(60)
    await anyio.sleep(1)
    assert asyncio.all_tasks() == before
    gc.collect()


async def test_many_ends_and_beginnings_of_the_connection_leave_nothing_behind(
    tmp_path: Path,
) -> None:
    async with cluster_ring(tmp_path, bound("web")) as node:
        await node.api_running("web")
        await anyio.sleep(60)
        before = len(asyncio.all_tasks())
        for _ in range(8):
            node.line.fall_silent()
            await anyio.sleep(60)
            node.line.heal()
            await anyio.sleep(40)
        assert len(asyncio.all_tasks()) <= before
        assert node.store.watching == 5
        assert node.health("apiserver") == ""


@pytest.mark.realtime
async def test_a_node_of_a_cluster_loads_no_models(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig_of("http://127.0.0.1:1")))
    with anyio.fail_after(60):
        command = [sys.executable, "-c", LIGHT, str(tmp_path)]
        done = await anyio.run_process(command, stderr=subprocess.PIPE)
    found = json.loads(done.stdout)
    assert found["models"] == []
    assert found["all"] < 30
