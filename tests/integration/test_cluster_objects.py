"""What pods of a whole agent learn of the cluster: services, runtime classes, the node's share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from cluster_ring import NODE, ClusterRing, bound, cluster_ring
from ring import ring

from nodeagent.api import Container, EnvVar, EnvVarSource, Quantity, ResourceFieldSelector
from nodeagent.errors import StartError
from nodeagent.node.conditions import TRUE
from nodeagent.testing import ApiStore, make_pod

pytestmark = pytest.mark.anyio


def service(name: str, address: str, namespace: str = "default") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterIP": address, "ports": [{"name": "http", "port": 80}]},
    }


def environment(node: ClusterRing, pod: str) -> dict[str, str]:
    (container,) = node.containers(pod, running=True)
    return {pair.key: pair.value.decode() for pair in container.config.envs}


def readiness(node: ClusterRing) -> tuple[str, str]:
    found = node.node()["status"]["conditions"]
    return next((c["status"], c["message"]) for c in found if c["type"] == "Ready")


async def test_containers_are_told_where_services_are(tmp_path: Path) -> None:
    store = ApiStore()
    store.create(service("kubernetes", "10.96.0.1"))
    store.create(service("my-db", "10.96.0.2"))
    store.create(service("headless", "None"))
    async with cluster_ring(
        tmp_path, bound("web"), bound("quiet", enable_service_links=False), store=store
    ) as node:
        await node.api_running("web")
        await node.api_running("quiet")
        web, quiet = environment(node, "web"), environment(node, "quiet")
        assert web["MY_DB_SERVICE_HOST"] == "10.96.0.2"
        assert web["MY_DB_SERVICE_PORT_HTTP"] == "80"
        assert web["KUBERNETES_SERVICE_HOST"] == quiet["KUBERNETES_SERVICE_HOST"] == "10.96.0.1"
        assert not [name for name in web if name.startswith("HEADLESS")]
        assert "MY_DB_SERVICE_HOST" not in quiet


async def test_a_pod_waits_for_its_runtime_class(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, bound("web", runtime_class_name="fast")) as node:
        await node.until(lambda: node.recorded("FailedCreatePodSandBox"))
        assert node.containers("web") == []
        runtime_class = {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "fast"},
            "handler": "",
        }
        node.store.create(runtime_class)
        await node.api_running("web")


async def test_a_limit_that_is_not_set_is_what_pods_may_have_of_the_node(tmp_path: Path) -> None:
    limit = EnvVar(
        name="MEMORY",
        value_from=EnvVarSource(resource_field_ref=ResourceFieldSelector(resource="limits.memory")),
    )
    container = Container(name="main", image="busybox:1.36", env=(limit,))
    async with cluster_ring(
        tmp_path, make_pod("web", container, node_name=NODE), system_reserved={"memory": "64Mi"}
    ) as node:
        await node.api_running("web")
        shown = node.node()["status"]
        assert environment(node, "web")["MEMORY"] == str(bytes_of(shown["allocatable"]["memory"]))
        assert bytes_of(shown["capacity"]["memory"]) > bytes_of(shown["allocatable"]["memory"])


def bytes_of(amount: str) -> int:
    return Quantity(amount).value()


async def test_the_node_says_that_its_runtime_is_down_and_when_it_is_back(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path) as node:
        await node.until(lambda: node.store.all("nodes") and readiness(node)[0] == TRUE)
        state = node.agent.parts.runtime_state
        well = state._poll

        async def refused() -> Any:
            raise OSError("connection refused")

        state._poll = refused
        await node.until(lambda: readiness(node)[0] != TRUE, 60)
        assert readiness(node)[1].startswith("[container runtime is down, ")
        patches = node.store.count("PATCH", f"nodes/{NODE}/status")
        await anyio.sleep(100)
        assert node.store.count("PATCH", f"nodes/{NODE}/status") == patches
        state._poll = well
        await node.until(lambda: readiness(node)[0] == TRUE, 5)
    assert "NodeNotReady" in [r.what for r in node.agent.journal.select()]


async def test_reservations_that_the_machine_does_not_have_end_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match='Resource "cpu" has a reservation of 1M'):
        async with cluster_ring(tmp_path, kube_reserved={"cpu": "1000000"}):
            pass


async def test_an_agent_that_stands_alone_tells_its_runtime_the_addresses_of_pods(
    tmp_path: Path,
) -> None:
    async with ring(tmp_path, pod_cidr="10.9.0.0/24") as alone:
        await alone.until(
            lambda: [r for r in alone.agent.journal.select() if r.what == "PodCIDRChanged"]
        )
