"""Volumes of a storage driver on a whole agent, whose binder and attacher is the test."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from cluster_ring import ClusterRing, Line, cluster_ring, node_on
from ring import simulated
from storage_lab import (
    DRIVER,
    attach,
    bind,
    claiming,
    csi_driver,
    driver_on,
    mounting,
)

from nodeagent.api import CSIVolumeSource, EmptyDirVolumeSource, Volume
from nodeagent.csi.client import Abilities, NodeInfo
from nodeagent.rpc import Internal
from nodeagent.testing import ApiStore
from nodeagent.volumes.csi_names import attachment_name, unique_name

pytestmark = pytest.mark.anyio

LIFE = ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"]


def messages(node: ClusterRing, name: str = "web") -> str:
    """What the containers of a pod wait for, as the API shows it."""
    pod = node.api_pod(name) or {}
    found = pod.get("status", {}).get("containerStatuses", ())
    return " ".join(s.get("state", {}).get("waiting", {}).get("message", "") for s in found)


def events(node: ClusterRing, name: str = "web") -> list[str]:
    """What warnings say about a pod."""
    found = [e for e in node.store.all("events") if e["involvedObject"]["name"] == name]
    return [e["message"] for e in found if e["type"] == "Warning"]


async def test_a_pod_gets_the_volume_of_its_claim_and_the_driver_sees_its_whole_life(
    tmp_path: Path,
) -> None:
    async with cluster_ring(tmp_path) as node:
        node.store.create(csi_driver())
        bind(node.store, csi={"fsType": "ext4", "volumeAttributes": {"pool": "fast"}})
        async with driver_on(node, tmp_path) as driver:
            created = node.store.create(claiming())
            await node.api_running("web")
            assert driver.names() == LIFE[:2]
            uid = created["metadata"]["uid"]
            published = driver.last("NodePublishVolume")
            home = tmp_path / "root" / "pods" / uid / "volumes" / "kubernetes.io~csi" / "pv-data"
            assert published.target_path == str(home / "mount")
            assert published.volume_id == "h-pv-data"
            assert published.volume_context == {"pool": "fast"}
            assert published.volume_capability.mount.fs_type == "ext4"
            data = json.loads((home / "vol_data.json").read_text())
            assert data["driverName"] == DRIVER
            assert data["volumeHandle"] == "h-pv-data"
            (container,) = node.containers("web")
            (mount,) = [m for m in container.config.mounts if m.container_path == "/data"]
            assert mount.host_path == published.target_path
            node.store.delete("pods", "web")
            await node.api_gone("web")
            await node.until(lambda: driver.names() == LIFE)
            assert not home.exists()
            plugins = tmp_path / "root" / "plugins"
            await node.until(lambda: not list(plugins.rglob("*.json")))


async def test_a_claim_that_is_bound_later_is_waited_for(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, claiming()) as node:
        node.store.create(csi_driver())
        async with driver_on(node, tmp_path) as driver:
            await node.until(lambda: "error processing PVC default/data" in messages(node))
            bind(node.store)
            await node.api_running("web")
            assert driver.names() == LIFE[:2]


async def test_a_driver_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, claiming()) as node:
        node.store.create(csi_driver())
        bind(node.store)
        missing = f"driver name {DRIVER} not found in the list of registered CSI drivers"
        await node.until(lambda: missing in messages(node))
        async with driver_on(node, tmp_path):
            await node.until(lambda: node.api_phase("web") == "Running", 5)


async def test_a_volume_is_attached_first_and_stays_so_until_it_is_unstaged(
    tmp_path: Path,
) -> None:
    async with cluster_ring(tmp_path, claiming()) as node:
        bind(node.store)
        name = unique_name(DRIVER, "h-pv-data")

        def in_use() -> list[str]:
            return list(node.node()["status"].get("volumesInUse", ()))

        async with driver_on(node, tmp_path) as driver:
            await node.until(lambda: in_use() == [name])
            await anyio.sleep(30)
            assert driver.names() == []
            assert events(node) == []
            attach(node.store, "h-pv-data", lun="7")
            await node.until(lambda: node.api_phase("web") == "Running", 5)
            for call in LIFE[:2]:
                assert driver.last(call).publish_context == {"lun": "7"}
            node.store.delete("pods", "web")
            await node.until(lambda: in_use() == [])
            assert driver.names() == LIFE


def full(node: ClusterRing) -> None:
    """Say that there is no room for one more volume, as an attacher would."""
    node.store.create(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttachment",
            "metadata": {"name": attachment_name(DRIVER, "h-pv-data", "node1")},
            "spec": {"attacher": DRIVER, "nodeName": "node1", "source": {}},
        },
        status={"attachError": {"message": "the node is full", "errorCode": 8}},
    )


async def test_ya6_a_pod_whose_volume_is_one_too_many_is_rejected(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, claiming()) as node:
        bind(node.store)
        async with driver_on(node, tmp_path) as driver:
            full(node)
            await node.until(lambda: node.api_phase("web") == "Failed")
            status = (node.api_pod("web") or {})["status"]
            assert status["reason"] == "VolumeAttachmentLimitExceeded"
            assert status["message"] == "Pod was rejected: the node is full"
            assert "the node is full" in events(node)
            await anyio.sleep(300)
            assert node.api_phase("web") == "Failed"
            assert driver.names() == []
            assert node.containers("web") == []


def limits(node: ClusterRing) -> list[int | None]:
    """What the CSINode says of how many volumes of each driver there may be."""
    found = [d for one in node.store.all("csinodes") for d in one["spec"]["drivers"]]
    return [d.get("allocatable", {}).get("count") for d in found]


async def test_yn7_a_limit_that_changes_is_shown_after_the_period(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path) as node:
        node.store.create(csi_driver(nodeAllocatableUpdatePeriodSeconds=60))
        async with driver_on(node, tmp_path, info=NodeInfo("node-1", 9, {})) as driver:
            await node.until(lambda: limits(node) == [9])
            driver.info = NodeInfo("node-1", 7, {})
            await anyio.sleep(50)
            assert limits(node) == [9]
            await node.until(lambda: limits(node) == [7], 30)
            before = len(node.store.requests)
            asked = driver.count()["NodeGetInfo"]
            await anyio.sleep(600)
            assert driver.count()["NodeGetInfo"] >= asked + 9
            assert not [r for r in node.store.requests[before:] if "csinodes" in r.path]


async def test_yn7_a_limit_is_read_again_when_there_was_no_room(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path) as node:
        node.store.create(
            csi_driver(attachRequired=True, nodeAllocatableUpdatePeriodSeconds=100_000)
        )
        bind(node.store)
        async with driver_on(node, tmp_path, info=NodeInfo("node-1", 9, {})) as driver:
            await node.until(lambda: limits(node) == [9])
            driver.info = NodeInfo("node-1", 1, {})
            full(node)
            node.store.create(claiming())
            await node.until(lambda: node.api_phase("web") == "Failed")
            await node.until(lambda: limits(node) == [1], 30)


async def test_yn7_a_driver_that_does_not_want_it_is_asked_once(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path) as node:
        node.store.create(csi_driver())
        async with driver_on(node, tmp_path) as driver:
            asked = driver.count()["NodeGetInfo"]
            await anyio.sleep(1000)
            assert driver.count()["NodeGetInfo"] == asked


async def test_two_pods_share_one_staged_volume(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path, claiming("one"), claiming("two")) as node:
        node.store.create(csi_driver())
        bind(node.store)
        async with driver_on(node, tmp_path) as driver:
            await node.api_running("one")
            await node.api_running("two")
            node.store.delete("pods", "one")
            await node.api_gone("one")
            await anyio.sleep(60)
            assert driver.count()["NodeStageVolume"] == 1
            assert driver.count()["NodePublishVolume"] == 2
            assert driver.count()["NodeUnstageVolume"] == 0
            node.store.delete("pods", "two")
            await node.until(lambda: driver.count()["NodeUnstageVolume"] == 1)


async def test_an_inline_volume_is_made_for_one_pod(tmp_path: Path) -> None:
    source = CSIVolumeSource(driver=DRIVER, volume_attributes={"size": "1"})
    pod = mounting(volumes=(Volume(name="v", csi=source),))
    async with cluster_ring(tmp_path) as node:
        node.store.create(csi_driver(podInfoOnMount=True, volumeLifecycleModes=["Ephemeral"]))
        async with driver_on(node, tmp_path) as driver:
            created = node.store.create(pod)
            await node.api_running("web")
            assert driver.names() == ["NodePublishVolume"]
            told = driver.last("NodePublishVolume").volume_context
            assert told["size"] == "1"
            assert told["csi.storage.k8s.io/pod.uid"] == created["metadata"]["uid"]
            assert told["csi.storage.k8s.io/ephemeral"] == "true"
            node.store.delete("pods", "web")
            await node.api_gone("web")
            assert driver.names() == ["NodePublishVolume", "NodeUnpublishVolume"]


async def test_a_driver_that_dies_while_it_stages_is_asked_again_when_it_is_back(
    tmp_path: Path,
) -> None:
    async with cluster_ring(tmp_path) as node:
        node.store.create(csi_driver())
        bind(node.store)
        hangs = anyio.Event()

        async def hang(method: str) -> None:
            if method == "NodeStageVolume":
                hangs.set()
                await anyio.sleep_forever()

        async with driver_on(node, tmp_path, before=hang):
            node.store.create(claiming())
            await hangs.wait()
        async with driver_on(node, tmp_path) as driver:
            await node.api_running("web")
            node.store.delete("pods", "web")
            await node.until(lambda: driver.names() == LIFE)


async def test_a_driver_that_does_not_answer_holds_up_nobody_else_and_is_undone(
    tmp_path: Path,
) -> None:
    async with cluster_ring(tmp_path) as node:
        node.store.create(csi_driver())
        bind(node.store)
        hanging = True

        async def hang(method: str) -> None:
            if method == "NodeStageVolume" and hanging:
                await anyio.sleep_forever()

        async with driver_on(node, tmp_path, before=hang) as driver:
            node.store.create(claiming())
            empty = (Volume(name="v", empty_dir=EmptyDirVolumeSource()),)
            node.store.create(mounting("plain", volumes=empty))
            await node.api_running("plain")
            text = "MountVolume.MountDevice failed"
            await node.until(lambda: any(text in e for e in events(node)), 200)
            hanging = False
            node.store.delete("pods", "web")
            await node.api_gone("web", 400)
            # It may have staged the volume all the same.
            await node.until(lambda: driver.count()["NodeUnstageVolume"] == 1)


async def test_staging_that_fails_is_said_and_tried_again(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path) as node:
        node.store.create(csi_driver())
        bind(node.store)
        broken = True

        async def fail(method: str) -> None:
            if method == "NodeStageVolume" and broken:
                raise Internal("no such pool")

        async with driver_on(node, tmp_path, before=fail) as driver:
            node.store.create(claiming())
            text = (
                'MountVolume.MountDevice failed for volume "v" : '
                "rpc error: code = Internal desc = no such pool"
            )
            await node.until(lambda: text in events(node))
            broken = False
            await node.api_running("web")
            assert driver.count()["NodePublishVolume"] == 1


async def test_the_next_agent_knows_what_is_staged_and_ends_it(tmp_path: Path) -> None:
    line = Line(ApiStore())
    line.store.create(csi_driver())
    bind(line.store)
    line.store.create(claiming())
    async with simulated(tmp_path) as (runtime, endpoint):
        async with (
            node_on(runtime, endpoint, tmp_path, line) as node,
            driver_on(node, tmp_path),
        ):
            await node.api_running("web")
        async with (
            node_on(runtime, endpoint, tmp_path, line) as node,
            driver_on(node, tmp_path) as driver,
        ):
            await node.until(lambda: driver.count()["NodePublishVolume"] == 1)
            node.store.delete("pods", "web")
            await node.until(lambda: driver.names()[-2:] == LIFE[-2:])


async def test_a_pod_that_ended_while_there_was_no_agent_is_unpublished_and_unstaged(
    tmp_path: Path,
) -> None:
    line = Line(ApiStore())
    line.store.create(csi_driver())
    bind(line.store)
    line.store.create(claiming())
    async with simulated(tmp_path) as (runtime, endpoint):
        async with (
            node_on(runtime, endpoint, tmp_path, line) as node,
            driver_on(node, tmp_path),
        ):
            await node.api_running("web")
        line.store.delete("pods", "web", grace=0)
        async with (
            node_on(runtime, endpoint, tmp_path, line) as node,
            driver_on(node, tmp_path) as driver,
        ):
            await node.until(lambda: driver.names() == LIFE[-2:], 300)


async def test_a_driver_that_does_not_stage_is_not_asked_to(tmp_path: Path) -> None:
    async with cluster_ring(tmp_path) as node:
        node.store.create(csi_driver())
        bind(node.store)
        async with driver_on(node, tmp_path, abilities=Abilities()) as driver:
            node.store.create(claiming())
            await node.api_running("web")
            assert driver.last("NodePublishVolume").staging_target_path == ""
            node.store.delete("pods", "web")
            await node.api_gone("web")
            assert driver.names() == ["NodePublishVolume", "NodeUnpublishVolume"]
            await node.until(lambda: "volumesInUse" not in node.node()["status"])
