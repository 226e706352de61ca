"""Static pods of a node of a cluster, and their mirrors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from cluster_ring import NODE, ClusterRing, cluster_ring, static_pod, writes

from nodeagent.model.annotations import CONFIG_MIRROR

pytestmark = pytest.mark.anyio

NAME = f"static-{NODE}"


def hash_of(node: ClusterRing) -> str:
    mirror = node.api_pod(NAME)
    return "" if mirror is None else str(mirror["metadata"]["annotations"].get(CONFIG_MIRROR))


async def test_a_static_pod_has_a_mirror_that_shows_its_status(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, static=(static_pod(),)) as node:
        await node.api_running(NAME)
        mirror = node.store.get("pods", NAME)
        assert mirror["metadata"]["uid"] != "uid-static-1"
        (owner,) = mirror["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("Node", NODE, True)
        assert hash_of(node) == "uid-static-1"


async def test_a_mirror_that_is_deleted_comes_back_and_the_pod_runs_on(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, static=(static_pod(),)) as node:
        await node.api_running(NAME)
        ids, uid = node.ids(NAME), node.store.get("pods", NAME)["metadata"]["uid"]
        node.store.delete("pods", NAME, grace=30)
        await node.until(
            lambda: (node.api_pod(NAME) or {"metadata": {"uid": uid}})["metadata"]["uid"] != uid
        )
        await node.api_running(NAME)
        node.store.delete("pods", NAME, grace=0)
        await node.api_running(NAME)
        assert node.ids(NAME) == ids


async def test_a_mirror_follows_its_manifest(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, static=(static_pod(),)) as node:
        await node.api_running(NAME)
        node.source.set(static_pod(uid="uid-static-2", labels={"edition": "2"}))
        await node.until(lambda: hash_of(node) == "uid-static-2")
        await node.api_running(NAME)
        assert node.store.get("pods", NAME)["metadata"]["labels"] == {"edition": "2"}
        node.source.set()
        await node.api_gone(NAME)
        await node.until(lambda: not node.runtime.core.state.sandboxes)


async def test_an_edit_of_a_mirror_changes_nothing_that_runs(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, static=(static_pod(),)) as node:
        await node.api_running(NAME)
        ids = node.ids(NAME)

        def edit(pod: dict[str, Any]) -> None:
            pod["spec"]["containers"][0]["image"] = "evil:1"
            pod["metadata"]["labels"] = {"edited": "yes"}

        node.store.edit("pods", NAME, edit)
        await anyio.sleep(60)
        assert node.ids(NAME) == ids


async def test_a_mirror_without_a_manifest_goes(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, static=(static_pod(),)) as node:
        await node.api_running(NAME)
        orphan = node.store.get("pods", NAME)
        for field in ("uid", "resourceVersion", "creationTimestamp"):
            del orphan["metadata"][field]
        orphan["metadata"]["name"] = f"gone-{NODE}"
        node.store.create(orphan)
        await node.api_gone(f"gone-{NODE}")
        assert node.api_pod(NAME) is not None


async def test_at_rest_a_mirror_is_not_written(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, static=(static_pod(),)) as node:
        await node.api_running(NAME)
        await anyio.sleep(30)
        before = len(node.store.requests)
        await anyio.sleep(60)
        made = writes(node.store.requests[before:])
        assert not {kind for kind in made if "pods" in kind}, made


async def test_a_server_that_changes_what_it_stores_causes_no_churn(tmp_path: Path) -> None:
    def mutate(plural: str, item: dict[str, Any]) -> None:
        if plural == "pods":
            item["spec"]["futureField"] = "set by an admission webhook"
            item["metadata"].setdefault("labels", {})["injected"] = "yes"

    async with cluster_ring(tmp_path) as node:
        node.store.mutators.append(mutate)
        node.source.set(static_pod())
        await node.api_running(NAME)
        await anyio.sleep(30)
        before, uid = len(node.store.requests), node.store.get("pods", NAME)["metadata"]["uid"]
        await anyio.sleep(60)
        made = writes(node.store.requests[before:])
        assert not {kind for kind in made if "pods" in kind}, made
        shown = node.store.get("pods", NAME)
        assert shown["metadata"]["uid"] == uid
        assert shown["spec"]["futureField"] == "set by an admission webhook"


async def test_a_pod_of_the_api_that_has_a_static_pods_name_is_left_to_people(
    tmp_path: Path,
) -> None:
    pod = static_pod()
    async with cluster_ring(tmp_path) as node:
        body = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": NAME}}
        spec = {"nodeName": "node2", "containers": [{"name": "main", "image": "busybox"}]}
        uid = node.store.create({**body, "spec": spec})["metadata"]["uid"]
        node.source.set(pod)
        await node.running(NAME)
        await anyio.sleep(60)
        assert node.store.get("pods", NAME)["metadata"]["uid"] == uid
        assert len(node.ids(NAME)) == 1
