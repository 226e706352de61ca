"""The life of a pod that the API server has bound to this node, as the API server shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from cluster_ring import NODE, bound, cluster_ring, writes

from nodeagent.embedded import Script, SimulatedBackend

pytestmark = pytest.mark.anyio

SLOW_TO_STOP = Script(stop_after=20.0)
DEAF = Script(stop_after=float("inf"))


def set_image(pod: dict[str, Any]) -> None:
    pod["spec"]["containers"][0]["image"] = "busybox:1.37"


async def test_a_pod_that_is_bound_to_the_node_runs_and_the_api_shows_it(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path) as node:
        node.store.create(bound("web"))
        await node.api_running("web")
        shown = node.store.get("pods", "web")
        status = shown["status"]
        assert status["podIP"]
        assert status["hostIP"] == "10.0.0.1"
        assert status["qosClass"] == "BestEffort"
        (container,) = status["containerStatuses"]
        assert container["ready"]
        assert container["containerID"].endswith(node.ids("web")[0])
        kinds = [c["type"] for c in status["conditions"]]
        assert {"PodScheduled", "Initialized", "ContainersReady", "Ready"} <= set(kinds)
        assert len(kinds) == len(set(kinds))


async def test_pods_of_other_nodes_are_left_alone(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, bound("web")) as node:
        other = bound("other")
        body = {"metadata": {"name": "other"}, "kind": "Pod", "apiVersion": "v1"}
        spec = {"nodeName": "node2", "containers": [{"name": "main", "image": "busybox"}]}
        node.store.create({**body, "spec": spec})
        await node.api_running("web")
        await anyio.sleep(30)
        assert node.pod(other.metadata.name) is None
        assert node.api_phase("other") == "Pending"


async def test_a_pod_that_has_done_its_work_is_shown_so(tmp_path: Path) -> None:
    backend = SimulatedBackend({"main": Script(exits=[(3.0, 0)])})
    async with cluster_ring(tmp_path, bound("job", restart="Never"), backend=backend) as node:
        await node.until(lambda: node.api_phase("job") == "Succeeded")
        assert node.condition("job", "Ready") == "False"
        await anyio.sleep(60)
        assert node.api_pod("job") is not None, "only its owner deletes it"


async def test_another_image_restarts_the_container_only(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, bound("web")) as node:
        await node.api_running("web")
        (before,) = node.ids("web")
        uid = node.store.get("pods", "web")["metadata"]["uid"]
        node.store.edit("pods", "web", set_image)

        def restarted() -> bool:
            (status,) = node.store.get("pods", "web")["status"]["containerStatuses"]
            return bool(status["ready"]) and status["restartCount"] == 1

        await node.until(restarted)
        assert node.ids("web") != [before]
        assert node.store.get("pods", "web")["metadata"]["uid"] == uid
        assert len(node.runtime.core.state.sandboxes) == 1


async def test_a_pod_ends_within_its_grace_and_then_its_object_goes(tmp_path: Path) -> None:
    backend = SimulatedBackend({"main": SLOW_TO_STOP})
    async with cluster_ring(tmp_path, bound("web", grace=60), backend=backend) as node:
        await node.api_running("web")
        began = anyio.current_time()
        node.store.delete("pods", "web")
        await anyio.sleep(10)
        assert node.ids("web"), "it has its grace"
        assert node.api_pod("web") is not None
        await node.api_gone("web")
        assert 20 <= anyio.current_time() - began < 25
        assert node.ids("web") == []
        assert writes(node.store.requests)["DELETE pods"] == 1


async def test_a_shorter_grace_counts_from_when_it_is_given(tmp_path: Path) -> None:
    backend = SimulatedBackend({"main": DEAF})
    async with cluster_ring(tmp_path, bound("web", grace=600), backend=backend) as node:
        await node.api_running("web")
        node.store.delete("pods", "web")
        await anyio.sleep(30)
        assert node.ids("web")
        began = anyio.current_time()
        node.store.delete("pods", "web", grace=3)
        await node.api_gone("web")
        assert anyio.current_time() - began < 10


async def test_a_pod_that_is_deleted_by_force_is_stopped_all_the_same(tmp_path: Path) -> None:
    backend = SimulatedBackend({"main": Script(stop_after=4.0)})
    async with cluster_ring(tmp_path, bound("web", grace=30), backend=backend) as node:
        await node.api_running("web")
        node.store.delete("pods", "web", grace=0)
        assert node.api_pod("web") is None
        await node.until(lambda: not node.runtime.core.state.sandboxes)
        assert node.pod("web") is None


async def test_a_new_pod_of_the_same_name_waits_for_nobody_and_is_not_taken_for_the_old_one(
    tmp_path: Path,
) -> None:
    backend = SimulatedBackend({"main": Script(stop_after=5.0)})
    async with cluster_ring(tmp_path, bound("web", grace=30), backend=backend) as node:
        await node.api_running("web")
        old = node.store.get("pods", "web")["metadata"]["uid"]
        (first,) = node.ids("web")
        node.store.delete("pods", "web", grace=0)
        new = node.store.create(bound("web", grace=30))["metadata"]["uid"]
        assert new != old
        await node.api_running("web")
        await node.until(lambda: first not in node.ids("web"))
        assert node.is_ready("web")
        await anyio.sleep(30)
        assert len(node.ids("web")) == 1
        assert node.api_phase("web") == "Running"
        assert node.store.get("pods", "web")["metadata"]["uid"] == new


async def test_a_pod_that_is_deleted_before_it_ran_goes_at_once(tmp_path: Path) -> None:
    backend = SimulatedBackend({"main": Script(start_error="no")})
    async with cluster_ring(tmp_path, bound("web"), backend=backend) as node:
        await node.until(lambda: node.api_phase("web") == "Pending" and node.containers("web"))
        node.store.delete("pods", "web")
        await node.api_gone("web")


async def test_what_others_write_into_a_status_stays(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, bound("web")) as node:
        await node.api_running("web")

        def foreign(pod: dict[str, Any]) -> None:
            pod["status"]["conditions"].append(
                {"type": "example.com/Scanned", "status": "True", "reason": "Clean"}
            )
            pod["status"]["phase"] = "Pending"

        node.store.edit("pods", "web", foreign, status=True)
        await node.until(lambda: node.api_phase("web") == "Running")
        assert node.condition("web", "example.com/Scanned") == "True"


async def test_a_deletion_before_the_creation_is_a_deletion(tmp_path: Path) -> None:
    def born_late(plural: str, item: dict[str, Any]) -> None:
        if plural == "pods":
            item["metadata"]["creationTimestamp"] = "2099-01-01T00:00:00Z"

    async with cluster_ring(tmp_path, bound("web", grace=2)) as node:
        node.store.mutators.append(born_late)
        node.store.create(bound("late", grace=2))
        await node.api_running("late")
        node.store.delete("pods", "late")
        deleted = node.store.get("pods", "late")["metadata"]
        assert deleted["deletionTimestamp"] < deleted["creationTimestamp"]
        await node.api_gone("late")
        await node.until(lambda: not node.ids("late"))
        await node.api_running("web")


async def test_a_huge_annotation_harms_nobody(tmp_path: Path) -> None:
    pod = bound("web", annotations={"example.com/blob": "x" * (2 * 1024**2)})
    async with cluster_ring(tmp_path, pod, bound("other")) as node:
        await node.api_running("web")
        await node.api_running("other")
        node.store.delete("pods", "web")
        await node.api_gone("web")


async def test_fields_that_nobody_knows_yet_are_no_reason_not_to_run(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path) as node:
        spec = {
            "nodeName": NODE,
            "containers": [{"name": "main", "image": "busybox:1.36", "quantumPolicy": "Entangled"}],
            "futureField": {"deep": [1, 2, 3]},
        }
        body = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web"}, "spec": spec}
        node.store.create(body)
        await node.api_running("web")
        shown = node.store.get("pods", "web")
        assert shown["spec"]["futureField"] == {"deep": [1, 2, 3]}
        assert shown["spec"]["containers"][0]["quantumPolicy"] == "Entangled"


async def test_a_crash_is_shown_with_its_count(tmp_path: Path) -> None:
    backend = SimulatedBackend({"main": Script(exits=[(5.0, 3)])})
    async with cluster_ring(tmp_path, bound("web"), backend=backend) as node:

        def restarts() -> int:
            pod = node.api_pod("web") or {"status": {}}
            statuses = pod["status"].get("containerStatuses") or [{}]
            return int(statuses[0].get("restartCount", 0))

        await node.until(lambda: restarts() == 1 and node.is_ready("web"))
        (status,) = node.store.get("pods", "web")["status"]["containerStatuses"]
        assert status["lastState"]["terminated"]["exitCode"] == 3


async def test_many_pods_at_once(tmp_path: Path) -> None:
    pods = [bound(f"web-{n}") for n in range(20)]
    async with cluster_ring(tmp_path, *pods) as node:
        for pod in pods:
            await node.api_running(pod.metadata.name)
        for pod in pods:
            node.store.delete("pods", pod.metadata.name)
        await node.until(lambda: not node.store.all("pods"))
        await node.until(lambda: not node.runtime.core.state.sandboxes)
