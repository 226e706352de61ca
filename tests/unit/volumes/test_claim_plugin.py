"""Volumes that pods claim, and volumes that grow (docs/behaviour/csi.md, "Claims", "Growing")."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from prometheus_client import CollectorRegistry

from nodeagent.aio import background
from nodeagent.api import (
    ObjectMeta,
    PersistentVolumeClaimVolumeSource,
    Pod,
    Volume,
    VolumeMount,
)
from nodeagent.api.node import Node
from nodeagent.csi.client import Abilities, VolumeFullness
from nodeagent.kube import ApiError
from nodeagent.model import PodUID
from nodeagent.rpc import Internal
from nodeagent.testing import make_container, make_pod
from nodeagent.volumes import VolumeManager
from nodeagent.volumes.claim_plugin import ClaimPlugin
from nodeagent.volumes.claims import Claims
from nodeagent.volumes.csi_names import DIRECTORY
from nodeagent.volumes.host_path import HostPathPlugin
from nodeagent.volumes.last_heard import LastHeard
from nodeagent.volumes.local import LocalPlugin
from nodeagent.volumes.metrics import ClaimMetrics
from nodeagent.volumes.plugin import PluginRegistry, Stage, TearDown, VolumeError

from .csi_lab import LIFE, NAME, Lab, until, working

pytestmark = pytest.mark.anyio

CAN_GROW = Abilities(stage=True, expand=True)


def claiming(*, read_only: bool = False) -> Pod:
    source = PersistentVolumeClaimVolumeSource(claim_name="data", read_only=read_only)
    mounted = make_container(volume_mounts=(VolumeMount(name="v", mount_path="/data"),))
    return make_pod("web", mounted, volumes=(Volume(name="v", persistent_volume_claim=source),))


def bind(lab: Lab, *, have: str = "1Gi", **spec: Any) -> None:
    """A claim that is bound to a volume of the driver, unless the volume says otherwise."""
    made = lab.store.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "default"},
            "spec": {"volumeName": "pv"},
        },
        status={
            "phase": "Bound",
            "capacity": {"storage": have},
            "conditions": [{"type": "FileSystemResizePending", "status": "True"}],
        },
    )
    if not spec.keys() & {"local", "hostPath", "iscsi"}:
        spec = {"csi": {"driver": NAME, "volumeHandle": "h"}, **spec}
    lab.store.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "pv", "annotations": {"pv.beta.kubernetes.io/gid": "55"}},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "claimRef": {"name": "data", "uid": made["metadata"]["uid"]},
                **spec,
            },
        }
    )


def plugin(lab: Lab) -> ClaimPlugin:
    return ClaimPlugin(
        Claims(LastHeard(lab.client)),
        lab.plugin,
        LocalPlugin(),
        PluginRegistry((HostPathPlugin(),)),
        lab.expander,
        lambda: lab.node,
    )


def end(lab: Lab) -> TearDown:
    return replace(lab.end(), name="v", directory=lab.root / "pods" / "uid-web" / "volumes" / "x")


def capacity(lab: Lab) -> str:
    status = lab.store.get("persistentvolumeclaims", "data")["status"]
    return str(status["capacity"]["storage"])


async def test_a_claim_is_served_by_its_driver_under_the_name_of_its_volume(
    tmp_path: Path,
) -> None:
    async with working(tmp_path) as lab, lab.driver() as driver:
        bind(lab)
        claims = plugin(lab)
        made = await claims.set_up(lab.request(claiming()))
        home = tmp_path / "pods" / "uid-web" / "volumes" / DIRECTORY / "pv"
        assert (made.name, made.host_path) == ("v", str(home / "mount"))
        assert made.groups == (55,)
        assert not await claims.refresh(lab.request(claiming()))
        await claims.tear_down(end(lab))
        await claims.tear_down(end(lab))
        await until(lambda: driver.names() == LIFE)


async def test_a_claim_that_is_read_only_is_published_so(tmp_path: Path) -> None:
    async with working(tmp_path) as lab, lab.driver() as driver:
        bind(lab)
        made = await plugin(lab).set_up(lab.request(claiming(read_only=True)))
        assert made.read_only
        assert driver.last("NodePublishVolume").readonly


async def test_yc7_a_volume_of_other_nodes_is_refused(tmp_path: Path) -> None:
    wanted = {"key": "zone", "operator": "In", "values": ["a"]}
    terms = {"required": {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}}
    async with working(tmp_path) as lab, lab.driver():
        bind(lab, nodeAffinity=terms)
        claims = plugin(lab)
        with pytest.raises(VolumeError, match="no matching NodeSelectorTerms") as caught:
            await claims.set_up(lab.request(claiming()))
        assert caught.value.stage is Stage.AFFINITY
        assert caught.value.stage.value == "MountVolume.NodeAffinity check"
        lab.node = None
        with pytest.raises(VolumeError, match="not known yet"):
            await claims.set_up(lab.request(claiming()))
        lab.node = Node(metadata=ObjectMeta(labels={"zone": "a"}))
        await claims.set_up(lab.request(claiming()))


async def test_yc8_a_directory_of_this_node_is_bound(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    async with working(tmp_path) as lab:
        bind(lab, local={"path": str(tmp_path / "disk")})
        claims = plugin(lab)
        made = await claims.set_up(lab.request(claiming()))
        where = tmp_path / "pods" / "uid-web" / "volumes" / "kubernetes.io~local-volume" / "pv"
        assert made.host_path == str(where)
        assert [point.source for point in lab.mounter.points] == [str(tmp_path / "disk")]
        await claims.tear_down(end(lab))
        assert lab.mounter.points == []
        assert (tmp_path / "disk").is_dir()


async def test_yc8_a_path_of_this_node_may_be_claimed(tmp_path: Path) -> None:
    async with working(tmp_path) as lab:
        bind(lab, hostPath={"path": str(tmp_path)})
        made = await plugin(lab).set_up(lab.request(claiming(read_only=True)))
        assert (made.name, made.host_path, made.read_only) == ("v", str(tmp_path), True)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            {"hostPath": {"path": "/"}, "mountOptions": ["ro"]},
            "mount options are not supported for this volume type",
        ),
        ({"iscsi": {"iqn": "x"}}, "PersistentVolume pv is of a kind that is not supported"),
    ],
)
async def test_yc8_what_nobody_serves_is_refused(
    tmp_path: Path, spec: dict[str, Any], says: str
) -> None:
    async with working(tmp_path) as lab:
        bind(lab, **spec)
        with pytest.raises(VolumeError, match=says):
            await plugin(lab).set_up(lab.request(claiming()))


async def test_yg1_a_volume_grows_and_its_claim_says_so(tmp_path: Path) -> None:
    async with working(tmp_path) as lab, lab.driver(abilities=CAN_GROW) as driver:
        bind(lab)
        claims, request = plugin(lab), lab.request(claiming())
        await claims.set_up(request)
        assert driver.count()["NodeExpandVolume"] == 0

        def larger(pv: dict[str, Any]) -> None:
            pv["spec"]["capacity"]["storage"] = "2Gi"

        lab.store.edit("persistentvolumes", "pv", larger)
        assert await claims.refresh(request)
        asked = driver.last("NodeExpandVolume")
        assert asked.capacity_range.required_bytes == 2 * 2**30
        assert asked.volume_path.endswith("/pv/mount")
        assert asked.staging_target_path.endswith("/globalmount")
        assert capacity(lab) == "2Gi"
        status = lab.store.get("persistentvolumeclaims", "data")["status"]
        assert not status.get("conditions")
        assert lab.notes == [
            (
                "Normal FileSystemResizeSuccessful "
                'MountVolume.NodeExpandVolume succeeded for volume "pv" n1'
            )
        ]
        assert not await claims.refresh(request)
        assert driver.count()["NodeExpandVolume"] == 1


async def test_yg1_a_volume_that_is_too_small_grows_when_it_is_made(tmp_path: Path) -> None:
    async with working(tmp_path) as lab, lab.driver(abilities=CAN_GROW) as driver:
        bind(lab, have="512Mi")
        await plugin(lab).set_up(lab.request(claiming()))
        assert driver.count()["NodeExpandVolume"] == 1
        assert capacity(lab) == "1Gi"


async def test_yg1_a_claim_that_could_not_be_told_is_told_later(tmp_path: Path) -> None:
    async with working(tmp_path) as lab, lab.driver(abilities=CAN_GROW) as driver:
        bind(lab, have="512Mi")
        claims, request = plugin(lab), lab.request(claiming())
        lab.store.refuse("PATCH", ".*status", ApiError(500, "", "broken"))
        await claims.set_up(request)
        assert capacity(lab) == "512Mi"
        await claims.refresh(request)
        assert capacity(lab) == "1Gi"
        assert driver.count()["NodeExpandVolume"] == 1


async def test_yg2_a_volume_that_cannot_grow_now_stays_usable(tmp_path: Path) -> None:
    async def before(method: str) -> None:
        if method == "NodeExpandVolume":
            raise Internal("no space")

    async with working(tmp_path) as lab, lab.driver(abilities=CAN_GROW, before=before):
        bind(lab, have="512Mi")
        made = await plugin(lab).set_up(lab.request(claiming()))
        assert made.host_path
        assert lab.notes == [
            (
                "Warning FileSystemResizeFailed MountVolume.NodeExpandVolume failed for volume "
                '"pv" : rpc error: code = Internal desc = no space'
            )
        ]


@pytest.mark.parametrize(("can", "read_only"), [(False, False), (True, True)])
async def test_yg3_what_cannot_or_may_not_grow_stays(
    tmp_path: Path, can: bool, read_only: bool
) -> None:
    abilities = CAN_GROW if can else Abilities(stage=True)
    async with working(tmp_path) as lab, lab.driver(abilities=abilities) as driver:
        bind(lab, have="512Mi")
        await plugin(lab).set_up(lab.request(claiming(read_only=read_only)))
        assert driver.count()["NodeExpandVolume"] == 0
        assert lab.notes == []


async def test_yo5_nothing_grows_while_nobody_could_be_told(tmp_path: Path) -> None:
    async with working(tmp_path) as lab, lab.driver(abilities=CAN_GROW) as driver:
        bind(lab)
        claims, request = plugin(lab), lab.request(claiming())
        await claims.set_up(request)
        lab.store.edit("persistentvolumes", "pv", _larger)
        await claims._claims.resolve(request.pod, request.volume)
        lab.client.cut()
        assert not await claims.refresh(request)
        assert (await claims.set_up(request)).host_path
        assert driver.count()["NodeExpandVolume"] == 0
        lab.client.heal()
        assert await claims.refresh(request)
        assert driver.count()["NodeExpandVolume"] == 1


def _larger(found: dict[str, Any]) -> None:
    found["spec"]["capacity"] = {"storage": "2Gi"}


# -- how full they are ------------------------------------------------------------------------


@asynccontextmanager
async def managed(lab: Lab) -> AsyncIterator[VolumeManager]:
    plugins = PluginRegistry((plugin(lab),))
    manager = VolumeManager(lab.root, plugins=plugins, mounter=lab.mounter)
    async with background() as tasks:
        await tasks.start(manager.run)
        yield manager


async def test_yf1_yf2_a_driver_says_how_full_a_volume_is(tmp_path: Path) -> None:
    told = VolumeFullness(bytes=(100, 60, 40), inodes=(10, 7, 3), abnormal=True)
    can = Abilities(stage=True, stats=True, condition=True)
    async with working(tmp_path) as lab, lab.driver(abilities=can, fullness=told) as driver:
        bind(lab)
        async with managed(lab) as manager:
            made = await manager.mount(claiming())
            [found] = await manager.stats.of_pod(PodUID("uid-web"))
            asked = driver.last("NodeGetVolumeStats")
            assert (asked.volume_id, asked.volume_path) == ("h", made["v"].host_path)
            assert (found.name, found.claim, found.local) == ("v", ("default", "data"), False)
            usage = found.usage
            assert (usage.capacity, usage.available, usage.used) == (100, 60, 40)
            assert (usage.inodes, usage.inodes_free, usage.inodes_used) == (10, 7, 3)
            assert usage.abnormal is True


async def test_yf1_a_driver_that_cannot_or_does_not_say(tmp_path: Path) -> None:
    async def fails(call: str) -> None:
        if call == "NodeGetVolumeStats":
            raise Internal("no idea")

    async with working(tmp_path) as lab, lab.driver() as driver:
        bind(lab)
        async with managed(lab) as manager:
            await manager.mount(claiming())
            assert await manager.stats.of_pod(PodUID("uid-web")) == ()
            assert driver.count()["NodeGetVolumeStats"] == 0
    can = Abilities(stage=True, stats=True)
    (tmp_path / "2").mkdir()
    async with working(tmp_path / "2") as lab, lab.driver(abilities=can, before=fails):
        bind(lab)
        async with managed(lab) as manager:
            await manager.mount(claiming())
            assert await manager.stats.of_pod(PodUID("uid-web")) == ()


async def test_yf1_a_directory_of_the_node_has_the_figures_of_its_file_system(
    tmp_path: Path,
) -> None:
    async with working(tmp_path) as lab:
        (tmp_path / "disk").mkdir()
        bind(lab, local={"path": str(tmp_path / "disk")})
        async with managed(lab) as manager:
            await manager.mount(claiming())
            [found] = await manager.stats.of_pod(PodUID("uid-web"))
            assert found.claim == ("default", "data")
            assert found.usage.capacity is not None


async def test_yf3_metrics_show_what_was_measured_and_have_it_measured_again(
    tmp_path: Path,
) -> None:
    told = VolumeFullness(bytes=(100, 60, 40))
    can = Abilities(stage=True, stats=True, condition=True)
    async with working(tmp_path) as lab, lab.driver(abilities=can, fullness=told) as driver:
        bind(lab)
        registry = CollectorRegistry()
        labels = {"namespace": "default", "persistentvolumeclaim": "data"}

        def sample(name: str) -> float | None:
            return registry.get_sample_value(f"kubelet_volume_stats_{name}", labels)

        async with managed(lab) as manager, background() as tasks:
            registry.register(metrics := ClaimMetrics(manager.stats))
            tasks.start_soon(metrics.run)
            await manager.mount(claiming())
            assert sample("used_bytes") is None
            await until(manager.stats.known)
            assert sample("used_bytes") == 40
            assert sample("capacity_bytes") == 100
            assert sample("available_bytes") == 60
            assert sample("inodes") is None
            assert sample("health_status_abnormal") is None
            assert driver.count()["NodeGetVolumeStats"] == 1
            driver.fullness = VolumeFullness(bytes=(100, 10, 90), abnormal=True)
            await anyio.sleep(61)
            sample("used_bytes")
            await until(lambda: driver.count()["NodeGetVolumeStats"] == 2)
            await until(lambda: sample("used_bytes") == 90)
            assert sample("health_status_abnormal") == 1
            await manager.unmount(PodUID("uid-web"))
            assert sample("used_bytes") is None
