"""What the API server shows of pods' statuses, and how little it takes to show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from cluster_ring import NODE, ClusterRing, Line, bound, cluster_ring, node_on, static_pod, writes
from ring import simulated

from nodeagent.api import ObjectMeta, PodSecurityContext, PodSpec, Sysctl
from nodeagent.embedded import Script, SimulatedBackend
from nodeagent.testing import ApiStore

pytestmark = pytest.mark.anyio

MIRROR = f"static-{NODE}"
FORBIDDEN = PodSecurityContext(sysctls=(Sysctl(name="kernel.msgmax", value="1"),))


def pod_writes(node: ClusterRing, since: int) -> dict[str, int]:
    made = writes(node.store.requests[since:])
    return {kind: count for kind, count in made.items() if "pods" in kind}


def conditions(node: ClusterRing, name: str) -> dict[str, dict[str, Any]]:
    return {c["type"]: c for c in node.store.get("pods", name)["status"]["conditions"]}


async def test_a_rejected_pod_has_exactly_the_status_of_a_rejection(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path) as node:
        node.store.create(bound("web", security_context=FORBIDDEN))
        await node.until(lambda: node.api_phase("web") == "Failed")
        status = node.store.get("pods", "web")["status"]
        assert status.pop("message").startswith("Pod was rejected: forbidden sysctl: ")
        assert status.pop("startTime")
        assert status == {
            "phase": "Failed",
            "reason": "SysctlForbidden",
            "qosClass": "BestEffort",
            "observedGeneration": 1,
        }
        node.store.delete("pods", "web")
        await node.api_gone("web")


async def test_a_rejection_is_told_also_when_the_agent_has_just_started(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, bound("web", security_context=FORBIDDEN)) as node:
        await node.until(lambda: node.api_phase("web") == "Failed", 10.0)


async def test_conditions_say_of_which_generation_they_are(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, bound("web")) as node:
        await node.api_running("web")

        def change(pod: dict[str, Any]) -> None:
            pod["spec"]["containers"][0]["image"] = "busybox:1.37"

        node.store.edit("pods", "web", change)

        def observed() -> bool:
            shown = conditions(node, "web")
            status = node.store.get("pods", "web")["status"]
            return {status["observedGeneration"], shown["Ready"]["observedGeneration"]} == {2}

        await node.until(observed)
        assert list(conditions(node, "web")) == [
            "PodReadyToStartContainers",
            "Initialized",
            "Ready",
            "ContainersReady",
            "PodScheduled",
        ]


async def test_a_pod_at_rest_is_not_written(tmp_path: Path) -> None:
    pods = [bound(f"web-{n}") for n in range(5)]
    async with cluster_ring(tmp_path, *pods, static=(static_pod(),)) as node:
        for name in (*(p.metadata.name for p in pods), MIRROR):
            await node.api_running(name)
        await anyio.sleep(30)
        before = len(node.store.requests)
        await anyio.sleep(1800)
        assert pod_writes(node, before) == {}
        asked = {r.path for r in node.store.requests[before:] if r.method == "GET"}
        assert not {path for path in asked if "/pods" in path}


async def test_a_start_takes_few_requests(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path) as node:
        node.store.create(bound("web"))
        await node.api_running("web")
        await anyio.sleep(30)
        assert node.store.count("GET", "/pods/web") == 0
        assert node.store.count("PATCH", "/pods/web") <= 4


async def test_a_restart_of_the_agent_is_no_reason_to_write(tmp_path: Path) -> None:
    line = Line(ApiStore())
    line.store.create(bound("web"))
    async with simulated(tmp_path) as (runtime, endpoint):
        async with node_on(runtime, endpoint, tmp_path, line, static_pod()) as node:
            await node.api_running("web")
            await node.api_running(MIRROR)
            await anyio.sleep(30)
        shown = [line.store.get("pods", name)["status"] for name in ("web", MIRROR)]
        before = len(line.store.requests)
        async with node_on(runtime, endpoint, tmp_path, line, static_pod()) as node:
            await anyio.sleep(60)
            assert pod_writes(node, before) == {}
        assert [line.store.get("pods", name)["status"] for name in ("web", MIRROR)] == shown


async def test_a_deleted_pod_is_never_shown_as_ended_while_it_runs(tmp_path: Path) -> None:
    backend = SimulatedBackend({"main": Script(stop_after=20.0)})
    async with cluster_ring(tmp_path, bound("web", grace=60), backend=backend) as node:
        await node.api_running("web")
        node.store.delete("pods", "web")
        while node.api_pod("web") is not None:
            assert node.api_phase("web") == "Running" or node.ids("web") == []
            await anyio.sleep(0.5)


async def test_the_hosts_addresses_are_those_of_the_node(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, bound("web"), bound("host", host_network=True)) as node:
        for name in ("web", "host"):
            await node.api_running(name)
            status = node.store.get("pods", name)["status"]
            assert (status["hostIP"], status["hostIPs"]) == ("10.0.0.1", [{"ip": "10.0.0.1"}])
        assert status["podIPs"] == [{"ip": "10.0.0.1"}]


async def test_a_rejected_static_pod_runs_nowhere(tmp_path: Path) -> None:
    pod = static_pod()
    refused = type(pod)(
        metadata=pod.metadata,
        spec=PodSpec(node_name=NODE, containers=pod.spec.containers, security_context=FORBIDDEN),
    )
    assert isinstance(refused.metadata, ObjectMeta)
    async with cluster_ring(tmp_path, static=(refused,)) as node:
        await node.until(lambda: (found := node.pod(MIRROR)) and found.status.phase == "Failed")
        found = node.pod(MIRROR)
        assert found is not None
        assert found.status.qos_class == "BestEffort"
        assert node.ids(MIRROR) == []
