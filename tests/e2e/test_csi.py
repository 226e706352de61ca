"""Volumes of a storage driver, on a real API server and a real containerd.

docs/behaviour/csi.md. Nothing here binds or attaches: the tests do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.csi import DRIVER, LabDriver
from tests.e2e.lab.manifests import Json, container
from tests.e2e.lab.views import PodView
from tests.e2e.lab.waiting import stays, until

from nodeagent.csi.client import Abilities, NodeInfo
from nodeagent.volumes.csi_names import attachment_name, unique_name

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(300)]

NODE = "stores"
HANDLE = "h-data"
ATTACHED = unique_name(DRIVER, HANDLE)
ATTACHMENT = f"/apis/storage.k8s.io/v1/volumeattachments/{attachment_name(DRIVER, HANDLE, NODE)}"
CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/data"
VOLUME = "/api/v1/persistentvolumes/pv-data"
DRIVERS = "/apis/storage.k8s.io/v1/csidrivers"
LIFE = ("NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume")
USES = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
MOUNTED = {"volumeMounts": [{"name": "v", "mountPath": "/data"}]}
DEVICE = {"volumeDevices": [{"name": "v", "devicePath": "/dev/xvda"}]}


@pytest.fixture
def node(lab: Lab, plane: ControlPlane, tmp_path: Path) -> Iterator[ClusterNode]:
    with closing(ClusterNode(tmp_path, lab.endpoint, plane, NODE, "--sync-frequency=5s")) as node:
        node.start()
        node.wait_ready()
        yield node
        _forget(plane)


def _forget(plane: ControlPlane) -> None:
    """Remove what is protected by controllers that nobody runs here."""
    for path in (CLAIM, VOLUME, ATTACHMENT):
        plane.api.delete(path)
        if plane.api.find(path) is not None:
            plane.api.patch(path, {"metadata": {"finalizers": None}})
        until(f"{path} is gone", partial(_is_gone, plane, path))
    plane.api.delete(f"{DRIVERS}/{DRIVER}")
    plane.api.delete("/api/v1/namespaces/default/secrets/login")


def _is_gone(plane: ControlPlane, path: str) -> bool:
    return plane.api.find(path) is None


@contextmanager
def driver_on(node: ClusterNode, tmp_path: Path, **fields: Any) -> Iterator[LabDriver]:
    with LabDriver(tmp_path, node.root_dir / "plugins_registry", **fields) as driver:
        yield driver


def say_how(plane: ControlPlane, **spec: Any) -> None:
    """Make the CSIDriver."""
    body = {"metadata": {"name": DRIVER}, "spec": {"attachRequired": False, **spec}}
    plane.api.create(DRIVERS, body)


def bind(plane: ControlPlane, *, mode: str = "Filesystem", **csi: Any) -> None:
    """Make a claim and a volume, and bind them."""
    modes = ["ReadWriteOnce"]
    claim = plane.api.create(
        CLAIM.rpartition("/")[0],
        {
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": modes,
                "volumeMode": mode,
                "volumeName": "pv-data",
                "storageClassName": "",
                "resources": {"requests": {"storage": "4Mi"}},
            },
        },
    )
    ref = {"namespace": "default", "name": "data", "uid": claim["metadata"]["uid"]}
    source = {"driver": DRIVER, "volumeHandle": HANDLE, **csi}
    plane.api.create(
        VOLUME.rpartition("/")[0],
        {
            "metadata": {"name": "pv-data"},
            "spec": {
                "accessModes": modes,
                "volumeMode": mode,
                "capacity": {"storage": "4Mi"},
                "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **ref},
                "csi": source,
            },
        },
    )
    status = {"phase": "Bound", "accessModes": modes, "capacity": {"storage": "4Mi"}}
    plane.api.patch(f"{CLAIM}/status", {"status": status})


def attach(node: ClusterNode) -> None:
    """Attach the volume to the node, as controllers would."""
    api = node.plane.api
    spec = {
        "attacher": DRIVER,
        "nodeName": NODE,
        "source": {"persistentVolumeName": "pv-data"},
    }
    name = ATTACHMENT.rpartition("/")[2]
    api.create(ATTACHMENT.rpartition("/")[0], {"metadata": {"name": name}, "spec": spec})
    status = {"attached": True, "attachmentMetadata": {"lun": "3"}}
    api.patch(f"{ATTACHMENT}/status", {"status": status})
    one = {"name": ATTACHED, "devicePath": ""}
    api.patch(f"{node.path}/status", {"status": {"volumesAttached": [one]}})


def in_use(node: ClusterNode) -> list[str]:
    status = node.plane.api.get(node.path)["status"]
    return list(status.get("volumesInUse") or [])


def shell(lab: Lab, view: PodView, line: str) -> str:
    done = lab.cri.exec(view.container().id, "sh", "-c", line)
    return (done.stdout + done.stderr).strip()


def delete(node: ClusterNode, name: str) -> None:
    node.plane.kubectl("delete", "pod", name, "--wait=false")


def mounts_of(node: ClusterNode) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if f"{node.root_dir}/" in line and "kubernetes.io" in line]


def main(**more: Any) -> Json:
    return container(**more)


def test_a_volume_is_read_and_written_in_the_container_and_outlives_its_pod(
    lab: Lab, node: ClusterNode, tmp_path: Path
) -> None:
    say_how(node.plane, fsGroupPolicy="File")
    bind(node.plane, fsType="ext4")
    place = {"topology.d.io/rack": "r1"}
    with driver_on(node, tmp_path, info=NodeInfo("here", 5, place)) as it:
        (shown,) = node.plane.api.get(f"/apis/storage.k8s.io/v1/csinodes/{NODE}")["spec"]["drivers"]
        assert shown["nodeID"] == "here"
        assert shown["allocatable"] == {"count": 5}
        assert shown["topologyKeys"] == ["topology.d.io/rack"]
        labels = node.plane.api.get(node.path)["metadata"]["labels"]
        assert labels["topology.d.io/rack"] == "r1"
        data = it.driver.volume(HANDLE)
        data.mkdir(parents=True)
        (data / "old").write_text("before")
        view = node.run("writer", main(**MOUNTED), securityContext={"fsGroup": 3000}, **USES)
        assert shell(lab, view, "cat /data/old; echo after >/data/new") == "before"
        assert (data / "new").read_text() == "after\n"
        assert shell(lab, view, "stat -c '%g %a' /data/old /data") == "3000 664\n3000 2775"
        node.restart()
        again = node.wait_api_pod("writer")
        assert again.container().id == view.container().id
        assert shell(lab, again, "cat /data/new") == "after"
        delete(node, "writer")
        node.wait_no_api_pod("writer")
        it.wait_calls(*LIFE[2:])
        until("no mounts", lambda: mounts_of(node) == [])
        assert (data / "new").read_text() == "after\n"
        assert not (node.root_dir / "pods" / view.uid).exists()


def test_a_volume_is_attached_first_and_detached_last(
    lab: Lab, node: ClusterNode, tmp_path: Path
) -> None:
    bind(node.plane)
    with driver_on(node, tmp_path) as it:
        node.create("waiter", main(**MOUNTED), **USES)
        until("the volume is in use", lambda: in_use(node) == [ATTACHED])
        stays("it waits", lambda: it.driver.names() == [], seconds=3)
        attach(node)
        node.wait_api_pod("waiter")
        assert it.driver.last("NodeStageVolume").publish_context == {"lun": "3"}
        node.kill9()
        node.start()
        node.wait_ready()
        assert in_use(node) == [ATTACHED]
        delete(node, "waiter")
        node.wait_no_api_pod("waiter")
        until("the volume is not in use", lambda: in_use(node) == [])
        it.wait_calls(*LIFE[2:])


def test_a_device_is_read_and_written_in_the_container(
    lab: Lab, node: ClusterNode, tmp_path: Path
) -> None:
    say_how(node.plane)
    bind(node.plane, mode="Block")
    with driver_on(node, tmp_path) as it:
        view = node.run("raw", main(**DEVICE), **USES)
        write = "echo written | dd of=/dev/xvda bs=512 conv=sync,fsync 2>/dev/null"
        assert shell(lab, view, write) == ""
        assert shell(lab, view, "dd if=/dev/xvda bs=8 count=1 2>/dev/null") == "written"
        assert shell(lab, view, "test -b /dev/xvda && echo yes") == "yes"
        with (it.driver.data / f"{HANDLE}.img").open("rb") as image:
            assert image.read(8) == b"written\n"
        node.restart()
        again = node.wait_api_pod("raw")
        assert shell(lab, again, "dd if=/dev/xvda bs=8 count=1 2>/dev/null") == "written"
        delete(node, "raw")
        node.wait_no_api_pod("raw")
        it.wait_calls(*LIFE[2:])
        until("no mounts", lambda: mounts_of(node) == [])
        left = node.root_dir / "plugins" / "kubernetes.io" / "csi" / "volumeDevices"
        until("nothing is left", lambda: not list(left.rglob("vol_data.json")))


@pytest.mark.parametrize("step", LIFE)
def test_an_agent_that_is_killed_between_any_two_steps(
    lab: Lab, node: ClusterNode, tmp_path: Path, step: str
) -> None:
    killed: list[str] = []

    async def before(method: str) -> None:
        if method == step and not killed:
            killed.append(method)
            node.kill9()

    say_how(node.plane)
    bind(node.plane)
    with driver_on(node, tmp_path, before=before) as it:
        node.create("survivor", main(**MOUNTED), **USES)
        if step in LIFE[2:]:
            node.wait_api_pod("survivor")
            delete(node, "survivor")
        until("the agent is killed", lambda: killed and not node.alive)
        node.start()
        if step in LIFE[:2]:
            view = node.wait_api_pod("survivor")
            assert shell(lab, view, "echo x >/data/x && cat /data/x") == "x"
            delete(node, "survivor")
        node.wait_no_api_pod("survivor")
        it.wait_calls("NodeUnstageVolume")
        until("no mounts", lambda: mounts_of(node) == [])


def test_a_driver_that_dies_and_comes_back_serves_on(
    lab: Lab, node: ClusterNode, tmp_path: Path
) -> None:
    say_how(node.plane)
    bind(node.plane)
    with driver_on(node, tmp_path) as it:
        view = node.run("user", main(**MOUNTED), **USES)
        it.stop()
        path = f"/apis/storage.k8s.io/v1/csinodes/{NODE}"
        until("it is gone", lambda: not node.plane.api.get(path)["spec"]["drivers"])
        assert shell(lab, view, "echo y >/data/y && cat /data/y") == "y"
        delete(node, "user")
        node.wait_log("volume_step_failed", "not found in the list of registered CSI drivers")
        it.start()
        node.wait_no_api_pod("user")
        it.wait_calls(*LIFE[2:])


def test_a_volume_grows_and_its_driver_knows_the_pod(
    lab: Lab, node: ClusterNode, tmp_path: Path
) -> None:
    # This API server is too old to keep what a CSIDriver says of tokens and republishing.
    say_how(node.plane, podInfoOnMount=True)
    bind(node.plane, nodeStageSecretRef={"namespace": "default", "name": "login"})
    node.plane.kubectl("create", "secret", "generic", "login", "--from-literal=user=root")
    with driver_on(node, tmp_path, abilities=Abilities(stage=True, expand=True)) as it:
        view = node.run("grower", main(**MOUNTED), **USES)
        told = it.driver.last("NodePublishVolume").volume_context
        assert told["csi.storage.k8s.io/pod.uid"] == view.uid
        assert it.driver.last("NodeStageVolume").secrets == {"user": "root"}
        node.plane.api.patch(VOLUME, {"spec": {"capacity": {"storage": "8Mi"}}})

        def size() -> str:
            return str(node.plane.api.get(CLAIM)["status"]["capacity"]["storage"])

        until("the claim has grown", lambda: size() == "8Mi")
        assert it.driver.last("NodeExpandVolume").capacity_range.required_bytes == 8 * 2**20
        assert shell(lab, view, "echo z >/data/z && cat /data/z") == "z"
        assert "root" not in it.driver.last("NodePublishVolume").secrets
        delete(node, "grower")
        node.wait_no_api_pod("grower")


def test_an_inline_volume_lives_as_long_as_its_pod(
    lab: Lab, node: ClusterNode, tmp_path: Path
) -> None:
    say_how(node.plane, volumeLifecycleModes=["Ephemeral"])
    inline = {"volumes": [{"name": "v", "csi": {"driver": DRIVER, "readOnly": True}}]}
    with driver_on(node, tmp_path) as it:
        view = node.run("inline", main(**MOUNTED), **inline)
        assert "Read-only file system" in shell(lab, view, "echo x >/data/x")
        assert it.driver.names() == ["NodePublishVolume"]
        delete(node, "inline")
        node.wait_no_api_pod("inline")
        assert it.driver.names() == ["NodePublishVolume", "NodeUnpublishVolume"]
