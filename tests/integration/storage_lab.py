"""Objects of persistent volumes, and a driver on a whole agent, for tests that bind and attach."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from cluster_ring import NODE, ClusterRing

from nodeagent.api import (
    Container,
    PersistentVolumeClaimVolumeSource,
    Pod,
    Volume,
    VolumeDevice,
    VolumeMount,
)
from nodeagent.testing import ApiStore, RecordedMounter, make_container, make_pod
from nodeagent.testing.csi_driver import CsiDriver
from nodeagent.volumes.csi_names import attachment_name, unique_name

DRIVER = "d.io"
STORAGE = "storage.k8s.io/v1"


def csi_driver(**spec: Any) -> dict[str, Any]:
    """The CSIDriver object; nothing has to be attached unless it says so."""
    return {
        "apiVersion": STORAGE,
        "kind": "CSIDriver",
        "metadata": {"name": DRIVER},
        "spec": {"attachRequired": False, **spec},
    }


def volume(name: str, *, claim_uid: str, **spec: Any) -> dict[str, Any]:
    """A persistent volume that the driver serves, bound to the claim of that UID."""
    csi = {"driver": DRIVER, "volumeHandle": f"h-{name}", **spec.pop("csi", {})}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": "default", "name": "data", "uid": claim_uid},
            "csi": csi,
            **spec,
        },
    }


def claim(name: str = "data", *, volume_name: str = "", **spec: Any) -> dict[str, Any]:
    """A claim; it is bound by :func:`bind`."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": volume_name,
            **spec,
        },
    }


def bind(store: ApiStore, name: str = "data", **spec: Any) -> None:
    """Make a claim and its volume ``pv-<name>``, and bind them."""
    made = store.create(claim(name, volume_name=f"pv-{name}", **_claim_part(spec)))
    store.create(volume(f"pv-{name}", claim_uid=made["metadata"]["uid"], **spec))

    def set_bound(found: dict[str, Any]) -> None:
        found["status"] = {"phase": "Bound", "capacity": {"storage": "1Gi"}}

    store.edit("persistentvolumeclaims", name, set_bound, status=True)


def _claim_part(spec: dict[str, Any]) -> dict[str, Any]:
    return {key: spec[key] for key in ("volumeMode", "accessModes") if key in spec}


def attach(store: ApiStore, handle: str, **metadata: str) -> None:
    """Attach a volume to the node, as its driver's controller would."""
    name = attachment_name(DRIVER, handle, NODE)
    store.create(
        {
            "apiVersion": STORAGE,
            "kind": "VolumeAttachment",
            "metadata": {"name": name},
            "spec": {"attacher": DRIVER, "nodeName": NODE, "source": {}},
        },
        status={"attached": True, "attachmentMetadata": metadata},
    )

    def tell(node: dict[str, Any]) -> None:
        one = {"name": unique_name(DRIVER, handle), "devicePath": ""}
        node["status"].setdefault("volumesAttached", []).append(one)

    store.edit("nodes", NODE, tell, status=True)


def claiming(
    name: str = "web", *containers: Container, claim_name: str = "data", **fields: Any
) -> Pod:
    """A pod that mounts a claim at ``/data``."""
    source = PersistentVolumeClaimVolumeSource(claim_name=claim_name)
    volumes = (Volume(name="v", persistent_volume_claim=source),)
    return mounting(name, *containers, volumes=volumes, **fields)


def mounting(name: str = "web", *containers: Container, **fields: Any) -> Pod:
    """A pod that mounts its volume ``v`` at ``/data``, or does with it what its containers say."""
    mounted = make_container(volume_mounts=(VolumeMount(name="v", mount_path="/data"),))
    return make_pod(name, *(containers or (mounted,)), node_name=NODE, **fields)


def with_device(name: str = "main") -> Container:
    """A container that has the volume as a device."""
    return make_container(name, volume_devices=(VolumeDevice(name="v", device_path="/dev/xvda"),))


@asynccontextmanager
async def driver_on(ring: ClusterRing, tmp_path: Path, **fields: Any) -> AsyncIterator[CsiDriver]:
    """A driver that is registered at the agent."""
    driver = CsiDriver(DRIVER, tmp_path / "data", RecordedMounter(), **fields)
    async with driver.serving(tmp_path / "root" / "plugins_registry"):
        with anyio.fail_after(60):
            while not driver.told:
                await anyio.sleep(0.05)
        assert driver.told[-1].registered, driver.told[-1].error
        yield driver
