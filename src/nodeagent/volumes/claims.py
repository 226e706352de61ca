"""Which volume a pod's claim stands for.

docs/behaviour/csi.md, "Claims".
"""

from __future__ import annotations

from dataclasses import dataclass

from nodeagent.api import Pod, Volume
from nodeagent.api.storage import PersistentVolume, PersistentVolumeClaim
from nodeagent.kube.errors import KubeError
from nodeagent.kube.paths import claim as claim_path
from nodeagent.kube.paths import persistent_volume
from nodeagent.model import PodUID
from nodeagent.volumes.last_heard import Heard, LastHeard
from nodeagent.volumes.plugin import Stage, VolumeError

_PROTECTION = "kubernetes.io/pvc-protection"


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claim, and the volume that it is bound to.

    Attributes:
        claim: what the pod refers to.
        volume: what that stands for.
        read_only: whether the pod may only read.
        fresh: whether the API server has just said so; else it is what it said last.
    """

    claim: PersistentVolumeClaim
    volume: PersistentVolume
    read_only: bool
    fresh: bool = True


class Claims:
    """Reads claims and volumes.

    Args:
        heard: asks the API server, and knows what it said last.
    """

    def __init__(self, heard: LastHeard) -> None:
        self._heard = heard

    async def resolve(self, pod: Pod, volume: Volume) -> Claimed:
        """The volume that a claim of the pod stands for.

        Raises:
            VolumeError: there is none that the pod may use; of ``Stage.PROCESS``.
        """
        namespace, name = pod.metadata.namespace, claim_name(pod, volume)
        uid = PodUID(pod.metadata.uid)
        source = volume.persistent_volume_claim
        try:
            claim = await self._claim(namespace, name, uid)
            if volume.ephemeral is not None:
                _of_pod(claim.item, pod)
            found = await self._volume(claim.item, uid)
        except _ClaimError as error:
            text = f"error processing PVC {namespace}/{name}: {error}"
            raise VolumeError(text, stage=Stage.PROCESS) from error
        check_mode(pod, volume, found.item)
        read_only = source is not None and source.read_only
        return Claimed(claim.item, found.item, read_only, claim.fresh and found.fresh)

    async def _claim(self, namespace: str, name: str, uid: PodUID) -> Heard[PersistentVolumeClaim]:
        try:
            heard = await self._heard.get(claim_path(namespace, name), PersistentVolumeClaim, uid)
        except KubeError as error:
            msg = f"failed to fetch PVC from API server: {error}"
            raise _ClaimError(msg) from error
        claim = heard.item
        metadata = claim.metadata
        if metadata.deletion_timestamp is not None and _PROTECTION not in metadata.finalizers:
            raise _ClaimError("PVC is being deleted")
        if claim.status.phase != "Bound" or not claim.spec.volume_name:
            raise _ClaimError("PVC is not bound")
        return heard

    async def _volume(self, claim: PersistentVolumeClaim, pod: PodUID) -> Heard[PersistentVolume]:
        name, uid = claim.spec.volume_name, claim.metadata.uid
        try:
            heard = await self._heard.get(persistent_volume(name), PersistentVolume, pod)
        except KubeError as error:
            msg = f"failed to get PV {name} from API server: {error}"
            raise _ClaimError(msg) from error
        ref = heard.item.spec.claim_ref
        if ref is None:
            msg = (
                f"found PV object {name} but it has a nil pvc.spec.claimRef indicating it is "
                "not yet bound to the claim"
            )
            raise _ClaimError(msg)
        if ref.uid != uid:
            msg = (
                f"found PV object {name} but its pvc.spec.claimRef.UID {ref.uid} does not point "
                f"to claim.UID {uid}"
            )
            raise _ClaimError(msg)
        return heard


class _ClaimError(Exception):
    """A claim cannot be used."""


def claim_name(pod: Pod, volume: Volume) -> str:
    """The claim that a volume refers to, or that is made for it. Pure."""
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.metadata.name}-{volume.name}"


def _of_pod(claim: PersistentVolumeClaim, pod: Pod) -> None:
    if any(o.controller and o.uid == pod.metadata.uid for o in claim.metadata.owner_references):
        return
    space, name = claim.metadata.namespace, claim.metadata.name
    msg = (
        f"PVC {space}/{name} was not created for pod {pod.metadata.namespace}/"
        f"{pod.metadata.name} (pod is not owner)"
    )
    raise _ClaimError(msg)


def check_mode(pod: Pod, volume: Volume, found: PersistentVolume) -> None:
    """Make sure that containers use a file system as one, and a device as one. Pure.

    Raises:
        VolumeError: one does not; of ``Stage.PROCESS``.
    """
    mode = found.spec.volume_mode or "Filesystem"
    spec = pod.spec
    for container in (*spec.init_containers, *spec.containers, *spec.ephemeral_containers):
        mounted = any(mount.name == volume.name for mount in container.volume_mounts)
        device = any(device.name == volume.name for device in container.volume_devices)
        wrong = ""
        if mounted and mode != "Filesystem":
            wrong = "volumeMounts"
        elif device and mode != "Block":
            wrong = "volumeDevices"
        if wrong:
            text = f"volume {volume.name} has volumeMode {mode}, but is specified in {wrong}"
            raise VolumeError(text, stage=Stage.PROCESS)
