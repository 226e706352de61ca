"""What pods of a whole agent use, with the embedded runtime (docs/behaviour/stats.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from ring import ring

from nodeagent import AgentConfig, NodeAgent
from nodeagent.embedded import Script, SimulatedBackend
from nodeagent.embedded.backend import Usage
from nodeagent.stats.collector import STALE
from nodeagent.stats.records import Snapshot
from nodeagent.stats.summary import encode_summary
from nodeagent.testing import make_pod

pytestmark = pytest.mark.anyio

MIB = 1 << 20
BUSY = """apiVersion: v1
kind: Pod
metadata: {name: busy}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: any
    command: [sh, -c, "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; echo done; sleep 1000"]
"""


def pod_of(found: Snapshot, name: str) -> dict[str, Any]:
    pods = json.loads(encode_summary(found))["pods"]
    shown: dict[str, Any] = next(one for one in pods if one["podRef"]["name"] == name)
    return shown


async def test_figures_of_a_simulated_runtime_are_as_the_script_has_them(tmp_path: Path) -> None:
    usage = Usage(memory_bytes=5 * MIB, processes=3, layer_bytes=7000, layer_inodes=4, cpu_ns=10**9)
    backend = SimulatedBackend(default=Script(usage=usage, cores=0.5))
    async with ring(tmp_path, make_pod("web"), backend=backend) as alone:
        await alone.running("web")
        collector = alone.agent.parts.stats
        assert collector.collections == 0, "nobody has asked"
        first = pod_of(await collector.snapshot(), "web")
        assert "usageNanoCores" not in first["cpu"]
        await anyio.sleep(60)
        shown = pod_of(await collector.snapshot(), "web")
    (main,) = shown["containers"]
    assert main["memory"]["workingSetBytes"] == 5 * MIB
    assert (main["rootfs"]["usedBytes"], main["rootfs"]["inodesUsed"]) == (7000, 4)
    assert shown["process_stats"] == {"process_count": 3}
    for one in (main, shown):
        assert one["cpu"]["usageCoreNanoSeconds"] >= 10**9 + 30 * 10**9


async def test_a_pod_that_is_gone_has_no_figures(tmp_path: Path) -> None:
    async with ring(tmp_path, make_pod("web")) as alone:
        await alone.running("web")
        collector = alone.agent.parts.stats
        assert (await collector.snapshot()).pods
        alone.source.set()
        await alone.until(lambda: not alone.containers("web", running=True))
        await anyio.sleep(STALE + 1)
        assert not (await collector.snapshot()).pods


@pytest.mark.realtime
async def test_figures_of_processes_are_real(tmp_path: Path) -> None:
    manifests = tmp_path / "m"
    manifests.mkdir()
    (manifests / "busy.yaml").write_text(BUSY)
    config = AgentConfig(
        container_runtime_endpoint="embedded:process",
        static_pod_path=manifests,
        root_dir=tmp_path / "root",
        pod_logs_dir=tmp_path / "logs",
        node_name="n1",
        node_ip="10.0.0.1",
        image_gc_high_threshold_percent=100,
        stop_pods_on_exit=True,
    )
    async with NodeAgent(config) as agent:
        shown: dict[str, Any] = {}
        with anyio.fail_after(120):
            while not shown.get("logs", {}).get("usedBytes"):
                await anyio.sleep(0.1)
                found = await agent.parts.stats.snapshot()
                if found.pods:
                    (shown,) = pod_of(found, "busy-n1")["containers"]
            while not shown["cpu"]["usageCoreNanoSeconds"]:
                await anyio.sleep(0.1)
                found = await agent.parts.stats.snapshot()
                (shown,) = pod_of(found, "busy-n1")["containers"]
        node = json.loads(encode_summary(found))["node"]
    assert shown["memory"]["workingSetBytes"] > 0
    assert shown["rootfs"]["usedBytes"] >= 0
    assert node["memory"]["workingSetBytes"] > shown["memory"]["workingSetBytes"]
    assert [one["name"] for one in node["systemContainers"]] == ["kubelet", "pods"]
