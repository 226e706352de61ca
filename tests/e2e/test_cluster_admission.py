"""Pods that a node of a cluster does not take, and what kubectl shows of them.

docs/behaviour/admission.md.
"""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import Json, container, pod
from tests.e2e.lab.waiting import stays, until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


@pytest.fixture
def node(lab: Lab, plane: ControlPlane, tmp_path: Path) -> Iterator[ClusterNode]:
    with closing(ClusterNode(tmp_path, lab.endpoint, plane, "choosy", "--max-pods=3")) as node:
        node.start()
        node.wait_ready()
        yield node


def create(node: ClusterNode, name: str, main: Json, **spec: Any) -> None:
    """Create a pod that is bound to the node."""
    settings = {"nodeName": node.name, "terminationGracePeriodSeconds": 2, **spec}
    node.plane.kubectl("create", "-f", "-", said=pod(name, main, **settings))


def phase(node: ClusterNode, name: str) -> str:
    """As the API server shows it."""
    found = node.plane.api.find(f"/api/v1/namespaces/default/pods/{name}") or {}
    return str(found.get("status", {}).get("phase", ""))


def wait_running(node: ClusterNode, name: str) -> None:
    until(f"{name} runs", lambda: phase(node, name) == "Running")


def wait_failed(node: ClusterNode, name: str, reason: str) -> str:
    """Wait until the pod has failed; returns what ``kubectl describe`` says of it."""
    until(f"{name} failed for {reason}", lambda: phase(node, name) == "Failed")
    kubectl = node.plane.kubectl
    until(f"an event {reason}", lambda: reason in _events(kubectl("describe", "pod", name)))
    return kubectl("describe", "pod", name)


def _events(described: str) -> str:
    return described.split("\nEvents:")[1]


def test_a_pod_that_is_too_large_is_rejected(node: ClusterNode) -> None:
    create(node, "large", container(resources={"requests": {"cpu": "1000"}}))
    said = wait_failed(node, "large", "OutOfcpu")
    assert node.plane.kubectl.row("get", "pod", "large")["STATUS"] == "OutOfcpu"
    text = r"Node didn't have enough resource: cpu, requested: 1000000, used: \d+, capacity: \d+"
    assert re.search(rf"^Message: +Pod was rejected: {text}", said, re.MULTILINE)
    assert re.search(rf"^  Warning +OutOfcpu .*{text}", _events(said), re.MULTILINE)
    node.plane.kubectl("delete", "pod", "large")


def test_labels_of_the_node_decide_as_they_are_now(node: ClusterNode) -> None:
    node.plane.kubectl("label", "node", node.name, "disk=ssd")
    create(node, "wanted", container(), nodeSelector={"disk": "ssd"})
    wait_running(node, "wanted")
    create(node, "elsewhere", container(), nodeSelector={"disk": "hdd"})
    said = wait_failed(node, "elsewhere", "NodeAffinity")
    text = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    assert text in _events(said)
    node.plane.kubectl("label", "node", node.name, "disk-")
    node.restart()
    node.wait_ready()
    stays("wanted runs on", lambda: phase(node, "wanted") == "Running", seconds=5)


def test_a_static_pod_takes_the_place_of_another(lab: Lab, node: ClusterNode) -> None:
    for name in ("a", "b", "c"):
        create(node, name, container())
        wait_running(node, name)
    node.put("system", pod("system", container()))
    wait_running(node, node.full_name("system"))
    failed = [name for name in "abc" if phase(node, name) == "Failed"]
    assert len(failed) == 1
    said = wait_failed(node, failed[0], "Preempting")
    assert re.search(r"^Reason: +Preempting$", said, re.MULTILINE)
    shown = node.plane.kubectl.row("get", "pod", failed[0])
    assert shown["STATUS"] != "ContainerStatusUnknown", "how its container ended is known"
    assert "Preempted in order to admit critical pod" in _events(said)
    assert re.search(r"^  DisruptionTarget +True", said, re.MULTILINE)
    assert lab.cri.running(failed[0]) == []
