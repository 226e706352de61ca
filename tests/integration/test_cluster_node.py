"""The Node object of a whole agent: registered, true, and made again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from cluster_ring import NODE, ClusterRing, bound, cluster_ring

from nodeagent.kube import ApiError

pytestmark = pytest.mark.anyio


def node_condition(node: ClusterRing, kind: str) -> dict[str, Any]:
    try:
        found = node.node()["status"].get("conditions", ())
    except ApiError:
        return {}
    return next((c for c in found if c["type"] == kind), {})


def is_ready(node: ClusterRing) -> bool:
    return bool(node_condition(node, "Ready").get("status") == "True")


def has_node(node: ClusterRing) -> bool:
    return any(n["metadata"]["name"] == NODE for n in node.store.all("nodes"))


async def test_a_machine_becomes_a_node_that_is_ready(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path) as node:
        await node.until(lambda: is_ready(node))
        shown = node.node()
        assert shown["metadata"]["labels"]["kubernetes.io/hostname"] == NODE
        status = shown["status"]
        assert {"type": "InternalIP", "address": "10.0.0.1"} in status["addresses"]
        assert status["capacity"]["pods"] == "110"
        assert status["nodeInfo"]["containerRuntimeVersion"].count("://") == 1
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure"):
            assert node_condition(node, kind)["status"] == "False"
        await node.until(lambda: bool(node.store.all("leases")))
        (lease,) = node.store.all("leases")
        assert lease["metadata"]["ownerReferences"][0]["uid"] == shown["metadata"]["uid"]
        assert node.health("apiserver") == ""
        assert node.health("node") == ""


async def test_a_node_that_somebody_deletes_is_made_again_and_its_pods_run_on(
    tmp_path: Path,
) -> None:
    async with cluster_ring(tmp_path, bound("web")) as node:
        await node.until(lambda: is_ready(node))
        await node.api_running("web")
        ids, uid = node.ids("web"), node.node()["metadata"]["uid"]
        node.store.delete("nodes", NODE)
        await node.until(lambda: has_node(node) and is_ready(node))
        assert node.node()["metadata"]["uid"] != uid
        await anyio.sleep(60)
        assert node.ids("web") == ids
        (lease,) = node.store.all("leases")
        owner = lease["metadata"]["ownerReferences"][0]["uid"]
        assert owner == node.node()["metadata"]["uid"]


async def test_what_people_change_on_a_node_stays_and_what_is_ours_comes_back(
    tmp_path: Path,
) -> None:
    async with cluster_ring(tmp_path) as node:
        await node.until(lambda: is_ready(node))

        def edit(item: dict[str, Any]) -> None:
            item["metadata"]["labels"]["example.com/rack"] = "7"
            item["spec"]["unschedulable"] = True
            del item["metadata"]["labels"]["kubernetes.io/arch"]

        def lie(item: dict[str, Any]) -> None:
            for condition in item["status"]["conditions"]:
                if condition["type"] == "Ready":
                    condition["status"], condition["reason"] = "Unknown", "NodeStatusUnknown"
            foreign = {"type": "example.com/Disk", "status": "True"}
            item["status"]["conditions"] = [*item["status"]["conditions"], foreign]

        node.store.edit("nodes", NODE, edit, namespace="")
        node.store.edit("nodes", NODE, lie, namespace="", status=True)
        await node.until(lambda: is_ready(node))
        await node.until(lambda: "kubernetes.io/arch" in node.node()["metadata"]["labels"])
        shown = node.node()
        assert shown["metadata"]["labels"]["example.com/rack"] == "7"
        assert shown["spec"]["unschedulable"] is True
        assert node_condition(node, "example.com/Disk")["status"] == "True"


async def test_a_node_that_somebody_else_is_to_make_is_waited_for(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, bound("web"), register_node=False) as node:
        await node.running("web")
        await anyio.sleep(30)
        assert not has_node(node)
        assert "--register-node=false" in node.health("node")
        node.store.create({"kind": "Node", "apiVersion": "v1", "metadata": {"name": NODE}})
        await node.until(lambda: is_ready(node))
        assert node.health("node") == ""


async def test_a_missing_permission_is_named_and_pods_run_all_the_same(tmp_path: Path) -> None:
    text = 'nodes is forbidden: User "x" cannot create resource "nodes" at the cluster scope'
    async with cluster_ring(tmp_path, bound("web")) as node:
        node.store.refuse("POST", "nodes$", ApiError(403, "Forbidden", text), 1000)
        node.store.refuse("GET", "nodes/", ApiError(403, "Forbidden", text), 1000)
        await node.running("web")


async def test_addresses_of_pods_go_to_the_runtime(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path) as node:
        await node.until(lambda: is_ready(node))

        def give(item: dict[str, Any]) -> None:
            item["spec"]["podCIDR"], item["spec"]["podCIDRs"] = "10.7.0.0/24", ["10.7.0.0/24"]

        node.store.edit("nodes", NODE, give, namespace="")
        await node.until(
            lambda: any(r.what == "PodCIDRChanged" for r in node.agent.journal.select())
        )
