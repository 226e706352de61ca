"""Pods of manifests, of a manifest URL and of the API server, all on one node.

docs/behaviour/merge.md and docs/behaviour/workers.md, "Sources".
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from cluster_ring import ClusterRing, Line, bound, cluster_ring, node_on, static_pod
from ring import simulated

from nodeagent.api import PodReadinessGate
from nodeagent.embedded import Script, SimulatedBackend
from nodeagent.testing import ApiStore, MemorySource, make_pod

pytestmark = pytest.mark.anyio

GATE = "example.com/in-balance"


async def test_three_sources_give_one_node_its_pods_and_take_them_back(tmp_path: Path) -> None:
    line, url = Line(ApiStore()), MemorySource(make_pod("page"), name="http")
    line.store.create(bound("web"))
    async with (
        simulated(tmp_path) as (runtime, endpoint),
        node_on(runtime, endpoint, tmp_path, line, static_pod("file"), others=(url,)) as node,
    ):
        for name in ("file-node1", "page", "web"):
            await node.running(name)
        await node.until(node.agent.parts.sources_ready.all_ready)
        url.set()
        await node.until(lambda: not node.containers("page"))
        line.store.delete("pods", "web", grace=0)
        await node.until(lambda: not node.containers("web"))
        node.source.set()
        await node.until(lambda: not node.containers("file-node1"))
        assert not node.agent.pods()


async def test_each_source_manages_its_own_pods_while_others_are_silent(tmp_path: Path) -> None:
    line, backend = Line(ApiStore()), SimulatedBackend({"main": Script()})
    line.store.create(bound("web"))
    page = MemorySource(make_pod("page"), name="http")
    async with simulated(tmp_path, backend) as (runtime, endpoint):
        async with node_on(
            runtime, endpoint, tmp_path, line, static_pod("file"), others=(page,)
        ) as node:
            for name in ("file-node1", "page", "web"):
                await node.running(name)
            kept = node.ids("page") + node.ids("web")
        line.cut()
        silent = MemorySource(name="http", silent=True)
        async with node_on(
            runtime, endpoint, tmp_path, line, static_pod("file"), others=(silent,)
        ) as node:
            await node.running("file-node1")
            node.source.set(static_pod("next", uid="uid-next"))
            await node.running("next-node1")
            await node.until(lambda: not node.containers("file-node1", running=True))
            await anyio.sleep(60)
            assert node.ids("page") + node.ids("web") == kept, "whose sources say nothing"
            silent.set()
            await anyio.sleep(60)
            assert node.ids("page") + node.ids("web") == kept, "nobody knows that all have spoken"
            line.heal()
            await node.until(lambda: not node.containers("page"))
            assert node.ids("web") == kept[1:]


def ready_is(node: ClusterRing, value: str) -> bool:
    return node.condition("web", "Ready") == value


async def test_a_gate_that_somebody_opens_and_shuts_is_seen_at_once(tmp_path: Path) -> None:
    """docs/behaviour/workers.md, "Handlers": a foreign change of the status."""

    def gate(value: str) -> Any:
        def change(pod: dict[str, Any]) -> None:
            others = [c for c in pod["status"].get("conditions", ()) if c["type"] != GATE]
            pod["status"]["conditions"] = [*others, {"type": GATE, "status": value}]

        return change

    gates = (PodReadinessGate(condition_type=GATE),)
    async with cluster_ring(tmp_path, bound("web", readiness_gates=gates)) as node:
        await node.until(lambda: node.condition("web", "ContainersReady") == "True")
        assert node.condition("web", "Ready") == "False"
        ready = next(
            c for c in node.store.get("pods", "web")["status"]["conditions"] if c["type"] == "Ready"
        )
        assert ready["reason"] == "ReadinessGatesNotReady"
        assert ready["message"] == (
            f'corresponding condition of pod readiness gate "{GATE}" does not exist.'
        )
        for value in ("True", "False", "True"):
            node.store.edit("pods", "web", gate(value), status=True)
            began = anyio.current_time()
            await node.until(partial(ready_is, node, value))
            assert anyio.current_time() - began < 5
            assert node.condition("web", GATE) == value, "whose it is"


async def test_what_others_make_of_our_status_is_put_right(tmp_path: Path) -> None:
    def lie(pod: dict[str, Any]) -> None:
        pod["status"]["phase"] = "Pending"
        for condition in pod["status"]["conditions"]:
            if condition["type"] == "Ready":
                condition["status"] = "False"

    async with cluster_ring(tmp_path, bound("web")) as node:
        await node.api_running("web")
        ids = node.ids("web")
        node.store.edit("pods", "web", lie, status=True)
        await node.api_running("web")
        assert node.ids("web") == ids


async def test_a_pod_that_has_been_active_for_too_long_ends(tmp_path: Path) -> None:
    backend = SimulatedBackend({"main": Script()})
    pod = bound("web", active_deadline_seconds=30)
    async with cluster_ring(tmp_path, pod, bound("other"), backend=backend) as node:
        await node.api_running("web")
        await node.until(lambda: node.api_phase("web") == "Failed")
        status = node.store.get("pods", "web")["status"]
        assert status["reason"] == "DeadlineExceeded"
        assert status["message"] == "Pod was active on the node longer than the specified deadline"
        assert node.ids("web") == []
        (told,) = [e for e in node.store.all("events") if e["reason"] == "DeadlineExceeded"]
        assert told["type"] == "Normal"
        assert node.ids("other")


async def test_all_conditions_are_there_and_right(tmp_path: Path) -> None:
    """docs/behaviour/phase.md, "Conditions"."""
    backend = SimulatedBackend({"main": Script(exits=[(30.0, 0)])})
    pod = bound("job", restart="Never")
    async with cluster_ring(tmp_path, pod, backend=backend) as node:
        await node.api_running("job")
        shown = node.store.get("pods", "job")
        generation = shown["metadata"].get("generation", 0)
        kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
        for kind in (*kinds, "PodScheduled"):
            assert node.condition("job", kind) == "True"
        for condition in shown["status"]["conditions"]:
            assert condition["lastTransitionTime"]
            assert condition.get("observedGeneration", 0) == generation
        await node.until(lambda: node.api_phase("job") == "Succeeded")
        found = {c["type"]: c for c in node.store.get("pods", "job")["status"]["conditions"]}
        for kind in ("Ready", "ContainersReady"):
            assert (found[kind]["status"], found[kind]["reason"]) == ("False", "PodCompleted")
        assert (found["Initialized"]["status"], found["Initialized"]["reason"]) == (
            "True",
            "PodCompleted",
        )
        assert found["PodReadyToStartContainers"]["status"] == "False"
        assert found["PodScheduled"]["status"] == "True"
