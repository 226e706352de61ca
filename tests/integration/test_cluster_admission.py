"""Which pods of the API server a node takes (docs/behaviour/admission.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from cluster_ring import NODE, Line, bound, cluster_ring, node_on, static_pod
from msgspec.structs import replace
from ring import simulated

from nodeagent.api import Container, ContainerPort, Pod, Quantity, ResourceRequirements
from nodeagent.embedded import Script, SimulatedBackend
from nodeagent.testing import ApiStore, make_container

pytestmark = pytest.mark.anyio


def needs(cpu: str) -> Container:
    return make_container(resources=ResourceRequirements(requests={"cpu": Quantity(cpu)}))


def taint(key: str) -> Any:
    def change(node: dict[str, Any]) -> None:
        node["spec"]["taints"] = [{"key": key, "effect": "NoExecute"}]

    return change


def without_resources(node: dict[str, Any]) -> None:
    node["status"]["allocatable"] = {"cpu": "0", "memory": "0", "pods": "0"}


def label(key: str, value: str) -> Any:
    def change(node: dict[str, Any]) -> None:
        node["metadata"].setdefault("labels", {})[key] = value

    return change


async def test_a_pod_that_does_not_fit_fails_and_says_why(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, bound("web")) as node:
        await node.api_running("web")
        node.store.create(_with(bound("big"), needs("1000")))
        await node.until(lambda: node.api_phase("big") == "Failed")
        status = node.store.get("pods", "big")["status"]
        assert status["reason"] == "OutOfcpu"
        assert status["message"].startswith(
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 1000000, used: 0"
        )
        events = [e for e in node.store.all("events") if e["reason"] == "OutOfcpu"]
        assert [e["type"] for e in events] == ["Warning"]
        await anyio.sleep(30)
        assert node.containers("big") == []
        node.store.delete("pods", "big")
        await node.api_gone("big")


def _with(pod: Pod, *containers: Container) -> Pod:
    return replace(pod, spec=replace(pod.spec, containers=containers))


async def test_a_label_that_somebody_has_just_given_the_node_counts(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, bound("first")) as node:
        await node.api_running("first")
        node.store.edit("nodes", NODE, label("disk", "ssd"), namespace="")
        node.store.create(bound("web", node_selector={"disk": "ssd"}))
        node.store.create(bound("other", node_selector={"disk": "hdd"}))
        await node.api_running("web")
        await node.until(lambda: node.api_phase("other") == "Failed")
        assert node.store.get("pods", "other")["status"]["reason"] == "NodeAffinity"


async def test_two_pods_do_not_get_one_port(tmp_path: Path) -> None:
    port = ContainerPort(container_port=80, host_port=8080, protocol="TCP")
    web, other = (_with(bound(name), make_container(ports=(port,))) for name in ("web", "other"))
    async with cluster_ring(tmp_path, web) as node:
        await node.api_running("web")
        node.store.create(other)
        await node.until(lambda: node.api_phase("other") == "Failed")
        assert node.store.get("pods", "other")["status"]["reason"] == "NodePorts"
        node.store.delete("pods", "web", grace=0)
        await node.until(lambda: not node.containers("web"))
        node.store.delete("pods", "other")
        await node.api_gone("other")
        node.store.create(other)
        await node.api_running("other")


async def test_a_static_pod_comes_before_those_of_the_api(tmp_path: Path) -> None:
    backend = SimulatedBackend({"main": Script(stop_after=3.0)})
    async with cluster_ring(tmp_path, max_pods=2, backend=backend) as node:
        for name in ("one", "two"):
            node.store.create(bound(name))
            await node.api_running(name)
        node.source.set(static_pod())
        await node.api_running(f"static-{NODE}")
        ended = [name for name in ("one", "two") if node.api_phase(name) == "Failed"]
        assert len(ended) == 1
        status = node.store.get("pods", ended[0])["status"]
        assert (status["reason"], status["message"]) == (
            "Preempting",
            "Preempted in order to admit critical pod",
        )
        assert node.condition(ended[0], "DisruptionTarget") == "True"
        events = [e for e in node.store.all("events") if e["reason"] == "Preempting"]
        assert [e["involvedObject"]["name"] for e in events] == ended
        await anyio.sleep(60)
        assert node.condition(ended[0], "DisruptionTarget") == "True", "it stays"


@pytest.mark.parametrize("away", [False, True], ids=["there", "away"])
async def test_a_restart_of_the_agent_loses_no_pod_whose_node_was_edited(
    tmp_path: Path, away: bool
) -> None:
    line, backend = Line(ApiStore()), SimulatedBackend({"main": Script()})
    async with simulated(tmp_path, backend) as (runtime, endpoint):
        async with node_on(runtime, endpoint, tmp_path, line) as node:
            await node.until(lambda: bool(node.store.all("nodes")))
            line.store.edit("nodes", NODE, label("disk", "ssd"), namespace="")
            line.store.create(bound("web", node_selector={"disk": "ssd"}))
            await node.api_running("web")
            ids = node.ids("web")
        line.store.edit("nodes", NODE, label("disk", "hdd"), namespace="")
        line.store.edit("nodes", NODE, taint("maintenance"), namespace="")
        line.store.edit("nodes", NODE, without_resources, namespace="")
        if away:
            line.cut()
        async with node_on(runtime, endpoint, tmp_path, line) as node:
            await anyio.sleep(120)
            line.heal()
            await anyio.sleep(120)
            assert node.ids("web") == ids
            assert node.api_phase("web") == "Running"


async def test_a_pod_that_asks_for_what_is_not_built_yet_waits_and_is_seen(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path) as node:
        spec = {
            "nodeName": NODE,
            "containers": [{"name": "main", "image": "busybox:1.36"}],
            "volumes": [{"name": "v", "iscsi": {"targetPortal": "t", "iqn": "i", "lun": 0}}],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}
        node.store.create(body)

        def waits() -> bool:
            pod = node.api_pod("web")
            statuses = (pod or {}).get("status", {}).get("containerStatuses", ())
            return any(s["state"]["waiting"]["reason"] == "UnsupportedField" for s in statuses)

        await node.until(waits)
        assert node.api_phase("web") == "Pending"
        await node.until(
            lambda: any(e["reason"] == "UnsupportedField" for e in node.store.all("events"))
        )
        assert node.containers("web") == []
        node.store.delete("pods", "web")
        await node.api_gone("web")
