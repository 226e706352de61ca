"""What a storage driver is asked for. Pure.

docs/behaviour/csi.md, "Calls".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from nodeagent.api import Pod, Volume
from nodeagent.api.storage import CSIDriver, PersistentVolume, SecretReference
from nodeagent.csi.client import Abilities
from nodeagent.model.volumes import ServiceAccountToken
from nodeagent.volumes import csi_names as names

if TYPE_CHECKING:
    from nodeagent.proto.csi.v1 import VolumeCapability

READ_WRITE_ONCE: Final = "ReadWriteOnce"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
TOKENS: Final = "csi.storage.k8s.io/serviceAccount.tokens"
GROUP: Final = "pv.beta.kubernetes.io/gid"
_INFO: Final = "csi.storage.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiVolume:
    """One volume of a driver.

    Attributes:
        name: of the PersistentVolume; of an inline volume its name in the pod.
        driver: who serves it.
        handle: the driver's name of it.
        persistent: whether it outlives its pod.
        block: whether it is a device.
        read_only: whether the pod may only read.
        fs_type: its file system; "" leaves it to the driver.
        access_modes: who may use it at once.
        mount_options: for the driver.
        attributes: what the driver once said of it.
        stage_secret, publish_secret, expand_secret: credentials.
        capacity: bytes that it shall have; 0 when nobody says.
        groups: that processes need to use it.
    """

    name: str
    driver: str
    handle: str
    persistent: bool
    block: bool = False
    read_only: bool = False
    fs_type: str = ""
    access_modes: tuple[str, ...] = (READ_WRITE_ONCE,)
    mount_options: tuple[str, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    stage_secret: SecretReference | None = None
    publish_secret: SecretReference | None = None
    expand_secret: SecretReference | None = None
    capacity: int = 0
    groups: tuple[int, ...] = ()

    @property
    def unique_name(self) -> str:
        """How the Node lists it."""
        return names.unique_name(self.driver, self.handle)

    @property
    def one_pod(self) -> bool:
        """Whether only one pod may have it at a time."""
        return READ_WRITE_ONCE_POD in self.access_modes


def from_persistent(pv: PersistentVolume, *, read_only: bool) -> CsiVolume:
    """A persistent volume that a driver serves."""
    source = pv.spec.csi
    assert source is not None
    size = pv.spec.capacity.get("storage")
    return CsiVolume(
        name=pv.metadata.name,
        driver=source.driver,
        handle=source.volume_handle,
        persistent=True,
        block=pv.spec.volume_mode == "Block",
        read_only=read_only,
        fs_type=source.fs_type,
        access_modes=pv.spec.access_modes,
        mount_options=pv.spec.mount_options,
        attributes=source.volume_attributes,
        stage_secret=source.node_stage_secret_ref,
        publish_secret=source.node_publish_secret_ref,
        expand_secret=source.node_expand_secret_ref,
        capacity=size.value() if size is not None else 0,
        groups=group_of(pv),
    )


def group_of(pv: PersistentVolume) -> tuple[int, ...]:
    """The group that an annotation says is needed to use the volume."""
    text = pv.metadata.annotations.get(GROUP, "").strip()
    return (int(text),) if text.isascii() and text.isdigit() else ()


def from_inline(pod: Pod, volume: Volume) -> CsiVolume:
    """A volume that a driver makes for this pod alone."""
    source = volume.csi
    assert source is not None
    ref, namespace = source.node_publish_secret_ref, pod.metadata.namespace
    secret = None if ref is None else SecretReference(name=ref.name, namespace=namespace)
    return CsiVolume(
        name=volume.name,
        driver=source.driver,
        handle=names.inline_handle(pod.metadata.uid, volume.name),
        persistent=False,
        read_only=bool(source.read_only),
        fs_type=source.fs_type or "",
        attributes=source.volume_attributes,
        publish_secret=None
        if secret is None
        else SecretReference(name=secret.name, namespace=namespace),
    )


def capability(volume: CsiVolume, abilities: Abilities, group: int | None) -> VolumeCapability:
    """How the volume is to be used.

    Args:
        volume: the volume.
        abilities: of its driver.
        group: whom its files shall belong to, when the driver sees to that.
    """
    from nodeagent.proto.csi import v1

    mode = v1.VolumeCapabilityAccessMode(
        mode=v1.VolumeCapabilityAccessModeMode[access_mode(volume.access_modes, abilities)]
    )
    if volume.block:
        return v1.VolumeCapability(block=v1.VolumeCapabilityBlockVolume(), access_mode=mode)
    given = "" if group is None or not abilities.mount_group else str(group)
    mount = v1.VolumeCapabilityMountVolume(
        fs_type=volume.fs_type, mount_flags=list(volume.mount_options), volume_mount_group=given
    )
    return v1.VolumeCapability(mount=mount, access_mode=mode)


def access_mode(modes: tuple[str, ...], abilities: Abilities) -> str:
    """The driver's word for the first of the access modes."""
    exact = abilities.single_writer
    match modes[0] if modes else READ_WRITE_ONCE:
        case "ReadWriteOnce":
            return "SINGLE_NODE_MULTI_WRITER" if exact else "SINGLE_NODE_WRITER"
        case "ReadWriteOncePod":
            return "SINGLE_NODE_SINGLE_WRITER" if exact else "SINGLE_NODE_WRITER"
        case "ReadOnlyMany":
            return "MULTI_NODE_READER_ONLY"
        case "ReadWriteMany":
            return "MULTI_NODE_MULTI_WRITER"
    return "UNKNOWN"


def pod_info(pod: Pod, volume: CsiVolume) -> dict[str, str]:
    """What a driver that wants to know is told of the pod."""
    account = pod.spec.service_account_name or pod.spec.service_account or ""
    return {
        f"{_INFO}/pod.name": pod.metadata.name,
        f"{_INFO}/pod.namespace": pod.metadata.namespace,
        f"{_INFO}/pod.uid": pod.metadata.uid,
        f"{_INFO}/serviceAccount.name": account,
        f"{_INFO}/ephemeral": "false" if volume.persistent else "true",
    }


def tokens_text(tokens: Mapping[str, ServiceAccountToken]) -> str:
    """The pod's tokens by audience, as drivers read them."""
    return json.dumps(
        {
            audience: {
                "token": token.value,
                "expirationTimestamp": token.expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
            for audience, token in tokens.items()
        }
    )


def attach_required(driver: CSIDriver | None) -> bool:
    """Whether volumes of a driver have to be attached first."""
    return driver is None or driver.spec.attach_required is not False


def serves_inline(name: str, driver: CSIDriver | None) -> str:
    """Why a driver does not serve inline volumes; "" when it does."""
    what = f'volume mode "Ephemeral" not supported by driver {name}'
    if driver is None:
        return f"{what} (no CSIDriver object)"
    modes = driver.spec.volume_lifecycle_modes
    if "Ephemeral" in modes:
        return ""
    return f"{what} (only supports {list(modes or ('Persistent',))})".replace("'", '"')


def gives_group(volume: CsiVolume, driver: CSIDriver | None, group: int | None) -> bool:
    """Whether the agent gives the volume's files to the pod's group."""
    if group is None or volume.read_only or volume.block:
        return False
    policy = driver.spec.fs_group_policy if driver is not None else None
    if policy == "None":
        return False
    if policy == "File":
        return True
    if not volume.fs_type:
        return False
    once = {READ_WRITE_ONCE, READ_WRITE_ONCE_POD}
    return not volume.persistent or bool(once.intersection(volume.access_modes))
