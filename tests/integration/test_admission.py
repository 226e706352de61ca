"""Admission on a node that stands alone (docs/behaviour/admission.md)."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from ring import Ring, phase, ring

from nodeagent.api import ContainerPort, Pod, PodOS, Quantity, ResourceRequirements
from nodeagent.testing import make_container, make_pod

pytestmark = pytest.mark.anyio


async def reason(node: Ring, name: str) -> str:
    """Why the pod has failed."""
    await node.until(lambda: phase(node.pod(name)) == "Failed")
    pod = node.pod(name)
    assert pod is not None
    return pod.status.reason


def with_port(name: str, address: str = "") -> Pod:
    port = ContainerPort(container_port=80, host_port=8080, protocol="TCP", host_ip=address)
    return make_pod(name, make_container(ports=(port,)))


async def test_the_machine_is_the_measure(tmp_path: Path) -> None:
    requests = {"memory": Quantity("1Pi")}
    large = make_pod("large", make_container(resources=ResourceRequirements(requests=requests)))
    async with ring(tmp_path, make_pod("web"), large) as node:
        await node.running("web")
        # A manifest's pod is critical, so others would go for it if that were enough.
        assert await reason(node, "large") == "UnexpectedAdmissionError"
        pod = node.pod("large")
        assert pod is not None
        assert "no set of running pods found to reclaim resources: [(res: memory" in (
            pod.status.message
        )
        assert phase(node.pod("web")) == "Running"


async def test_more_pods_than_the_node_takes(tmp_path: Path) -> None:
    async with ring(tmp_path, make_pod("a"), make_pod("b"), max_pods=2) as node:
        await node.running("a")
        await node.running("b")
        node.source.add(make_pod("c"))
        assert await reason(node, "c") == "UnexpectedAdmissionError"
        node.source.remove("uid-a", "uid-c")
        await node.until(lambda: not node.containers("a"))
        node.source.add(make_pod("d"))
        await node.running("d")


async def test_a_port_of_the_host_is_one_pods(tmp_path: Path) -> None:
    pods = (with_port("web", "10.0.0.1"), with_port("other", "10.0.0.2"), with_port("all"))
    async with ring(tmp_path, *pods) as node:
        await node.running("web")
        await node.running("other")
        assert await reason(node, "all") == "NodePorts"
        node.source.set(with_port("again"))
        await node.running("again")


async def test_a_pod_for_another_system_or_node(tmp_path: Path) -> None:
    pods = (
        make_pod("windows", os=PodOS(name="windows")),
        make_pod("there", node_name="node2"),
        make_pod("disk", node_selector={"disk": "ssd"}),
        make_pod("here", node_name="node1", node_selector={"kubernetes.io/os": "linux"}),
    )
    async with ring(tmp_path, *pods) as node:
        await node.running("here")
        assert await reason(node, "windows") == "PodOSNotSupported"
        assert await reason(node, "there") == "NodeName"
        assert await reason(node, "disk") == "NodeAffinity"
        await anyio.sleep(60)
        assert node.ids() == node.ids("here"), "nothing of them ever starts"


async def test_labels_of_the_configuration_are_those_of_the_node(tmp_path: Path) -> None:
    pod = make_pod("disk", node_selector={"disk": "ssd"})
    async with ring(tmp_path, pod, node_labels={"disk": "ssd"}) as node:
        await node.running("disk")
