"""Which volume a claim stands for (docs/behaviour/csi.md, "Claims")."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.api import (
    EphemeralVolumeSource,
    PersistentVolumeClaimVolumeSource,
    Pod,
    Volume,
    VolumeDevice,
    VolumeMount,
)
from nodeagent.kube import ApiError
from nodeagent.testing import ApiStore, StoreClient, make_container, make_pod
from nodeagent.volumes.claims import Claimed, Claims
from nodeagent.volumes.last_heard import LastHeard
from nodeagent.volumes.plugin import Stage, VolumeError

pytestmark = pytest.mark.anyio

MOUNTED = make_container(volume_mounts=(VolumeMount(name="v", mount_path="/data"),))
DEVICE = make_container(volume_devices=(VolumeDevice(name="v", device_path="/dev/x"),))
BY_CLAIM = PersistentVolumeClaimVolumeSource(claim_name="data", read_only=True)


def pod(container: Any = MOUNTED, volume: Volume | None = None) -> Pod:
    wanted = volume or Volume(name="v", persistent_volume_claim=BY_CLAIM)
    return make_pod("web", container, volumes=(wanted,))


def claim(
    store: ApiStore, name: str = "data", *, phase: str = "Bound", **metadata: Any
) -> dict[str, Any]:
    return store.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default", **metadata},
            "spec": {"volumeName": "pv"},
        },
        status={"phase": phase},
    )


def volume(store: ApiStore, claim_uid: str | None, **spec: Any) -> None:
    ref = {} if claim_uid is None else {"claimRef": {"name": "data", "uid": claim_uid}}
    store.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "pv"},
            "spec": {**ref, "csi": {"driver": "d", "volumeHandle": "h"}, **spec},
        }
    )


async def resolve(store: ApiStore, of: Pod | None = None) -> Claimed:
    of = of or pod()
    return await Claims(LastHeard(StoreClient(store))).resolve(of, of.spec.volumes[0])


async def refused(store: ApiStore, of: Pod | None = None) -> str:
    with pytest.raises(VolumeError) as caught:
        await resolve(store, of)
    assert caught.value.stage is Stage.PROCESS
    return str(caught.value)


async def test_a_bound_claim_leads_to_its_volume() -> None:
    store = ApiStore()
    volume(store, claim(store)["metadata"]["uid"])
    found = await resolve(store)
    assert found.volume.metadata.name == "pv"
    assert found.read_only


async def test_yc1_a_claim_or_volume_that_cannot_be_read_is_named() -> None:
    store = ApiStore()
    prefix = "error processing PVC default/data: "
    assert (await refused(store)).startswith(f"{prefix}failed to fetch PVC from API server: ")
    claim(store)
    assert (await refused(store)).startswith(f"{prefix}failed to get PV pv from API server: ")
    store.refuse("GET", ".*claims.*", ApiError(500, "", "broken"))
    assert await refused(store) == f"{prefix}failed to fetch PVC from API server: broken"


async def test_yc2_a_claim_that_is_not_bound_is_refused() -> None:
    store = ApiStore()
    claim(store, phase="Pending")
    assert await refused(store) == "error processing PVC default/data: PVC is not bound"


async def test_yc3_a_claim_that_goes_and_is_not_protected_is_refused() -> None:
    store = ApiStore()
    made = claim(store, finalizers=["other/finalizer"])
    volume(store, made["metadata"]["uid"])
    store.put(
        "persistentvolumeclaims",
        ("default", "data"),
        {**made, "metadata": {**made["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}},
    )
    assert await refused(store) == "error processing PVC default/data: PVC is being deleted"


async def test_yc3_a_claim_that_goes_may_be_used_as_long_as_it_is_protected() -> None:
    store = ApiStore()
    made = claim(store, finalizers=["kubernetes.io/pvc-protection"])
    volume(store, made["metadata"]["uid"])
    store.put(
        "persistentvolumeclaims",
        ("default", "data"),
        {**made, "metadata": {**made["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}},
    )
    assert (await resolve(store)).volume.metadata.name == "pv"


async def test_yc4_a_volume_of_another_claim_is_refused() -> None:
    store = ApiStore()
    uid = claim(store)["metadata"]["uid"]
    volume(store, "other")
    says = f"its pvc.spec.claimRef.UID other does not point to claim.UID {uid}"
    assert says in await refused(store)


async def test_yc4_a_volume_of_no_claim_is_refused() -> None:
    store = ApiStore()
    claim(store)
    volume(store, None)
    assert "found PV object pv but it has a nil pvc.spec.claimRef" in await refused(store)


async def test_yc5_a_device_is_no_file_system_and_the_other_way_round() -> None:
    store = ApiStore()
    volume(store, claim(store)["metadata"]["uid"], volumeMode="Block")
    says = "volume v has volumeMode Block, but is specified in volumeMounts"
    assert await refused(store) == says
    assert (await resolve(store, pod(DEVICE))).volume.spec.volume_mode == "Block"
    other = ApiStore()
    volume(other, claim(other)["metadata"]["uid"])
    says = "volume v has volumeMode Filesystem, but is specified in volumeDevices"
    assert await refused(other, pod(DEVICE)) == says


async def test_yc6_an_ephemeral_volume_has_a_claim_of_the_pods_own() -> None:
    of = pod(volume=Volume(name="v", ephemeral=EphemeralVolumeSource()))
    store = ApiStore()
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "web", "controller": True}
    made = claim(store, "web-v", ownerReferences=[{**owner, "uid": "uid-web"}])
    volume(store, made["metadata"]["uid"])
    assert not (await resolve(store, of)).read_only
    other = ApiStore()
    claim(other, "web-v", ownerReferences=[{**owner, "uid": "of-another"}])
    says = "PVC default/web-v was not created for pod default/web (pod is not owner)"
    assert await refused(other, of) == f"error processing PVC default/web-v: {says}"
