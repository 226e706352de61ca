"""Volumes of a cluster: what claims them, what they are, and who serves them on a node."""

from msgspec import field

from nodeagent.api.base import ApiObject, Time, always
from nodeagent.api.meta import ListMeta, ObjectMeta
from nodeagent.api.quantity import Quantity
from nodeagent.api.scheduling import NodeSelector
from nodeagent.api.volumes import (
    FCVolumeSource,
    HostPathVolumeSource,
    ISCSIVolumeSource,
    NFSVolumeSource,
    PersistentVolumeClaimSpec,
)


class ObjectReference(ApiObject):
    """An object of any kind."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class SecretReference(ApiObject):
    """A Secret of any namespace."""

    name: str = ""
    namespace: str = ""


class CSIPersistentVolumeSource(ApiObject):
    """A volume that a CSI driver serves."""

    driver: str = ""
    volume_handle: str = ""
    read_only: bool = False
    fs_type: str = ""
    volume_attributes: dict[str, str] = field(default_factory=dict)
    controller_publish_secret_ref: SecretReference | None = None
    node_stage_secret_ref: SecretReference | None = None
    node_publish_secret_ref: SecretReference | None = None
    controller_expand_secret_ref: SecretReference | None = None
    node_expand_secret_ref: SecretReference | None = None


class LocalVolumeSource(ApiObject):
    """A directory, or a device, of one node."""

    path: str = ""
    fs_type: str | None = None


class VolumeNodeAffinity(ApiObject):
    """The nodes on which a volume can be used."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(ApiObject):
    """What a volume is; sources that nobody serves any more are left out."""

    capacity: dict[str, Quantity] = field(default_factory=dict)
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    persistent_volume_reclaim_policy: str = ""
    storage_class_name: str = ""
    mount_options: tuple[str, ...] = ()
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    volume_attributes_class_name: str | None = None
    csi: CSIPersistentVolumeSource | None = None
    local: LocalVolumeSource | None = None
    host_path: HostPathVolumeSource | None = None
    nfs: NFSVolumeSource | None = None
    iscsi: ISCSIVolumeSource | None = None
    fc: FCVolumeSource | None = None


class PersistentVolumeStatus(ApiObject):
    """Where a volume is in its life."""

    phase: str = ""
    message: str = ""
    reason: str = ""


class PersistentVolume(ApiObject):
    """A volume of the cluster."""

    api_version: str = always("v1")
    kind: str = always("PersistentVolume")
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class PersistentVolumeClaimCondition(ApiObject):
    """Something that is going on with a claim, such as FileSystemResizePending."""

    type: str = ""
    status: str = ""
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class PersistentVolumeClaimStatus(ApiObject):
    """What a claim got."""

    phase: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: dict[str, Quantity] = field(default_factory=dict)
    conditions: tuple[PersistentVolumeClaimCondition, ...] = ()
    allocated_resources: dict[str, Quantity] = field(default_factory=dict)
    allocated_resource_statuses: dict[str, str] = field(default_factory=dict)


class PersistentVolumeClaim(ApiObject):
    """A user's claim to a volume."""

    api_version: str = always("v1")
    kind: str = always("PersistentVolumeClaim")
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class VolumeAttachmentSource(ApiObject):
    """What is attached."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(ApiObject):
    """That a volume shall be attached to a node."""

    attacher: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()
    node_name: str = ""


class VolumeProblem(ApiObject):
    """Why a volume could not be attached or detached."""

    time: Time | None = None
    message: str = ""
    error_code: int | None = None


class VolumeAttachmentStatus(ApiObject):
    """Whether it is."""

    attached: bool = False
    attachment_metadata: dict[str, str] = field(default_factory=dict)
    attach_error: VolumeProblem | None = None
    detach_error: VolumeProblem | None = None


class VolumeAttachment(ApiObject):
    """A volume on its way to a node, or there."""

    api_version: str = always("storage.k8s.io/v1")
    kind: str = always("VolumeAttachment")
    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()


class TokenRequestSpec(ApiObject):
    """A token that a driver wants for each pod."""

    audience: str = always("")
    expiration_seconds: int | None = None


class CSIDriverSpec(ApiObject):
    """How a driver wants to be treated."""

    attach_required: bool | None = None
    pod_info_on_mount: bool | None = None
    volume_lifecycle_modes: tuple[str, ...] = ()
    storage_capacity: bool | None = None
    fs_group_policy: str | None = None
    token_requests: tuple[TokenRequestSpec, ...] = ()
    requires_republish: bool | None = None
    se_linux_mount: bool | None = None
    node_allocatable_update_period_seconds: int | None = None
    service_account_token_in_secrets: bool | None = None


class CSIDriver(ApiObject):
    """A storage driver of the cluster."""

    api_version: str = always("storage.k8s.io/v1")
    kind: str = always("CSIDriver")
    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class VolumeNodeResources(ApiObject):
    """How many volumes of a driver a node can have."""

    count: int | None = None


class CSINodeDriver(ApiObject):
    """A driver on a node."""

    name: str = always("")
    node_id: str = always("")
    topology_keys: tuple[str, ...] | None = None
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(ApiObject):
    """The drivers of a node."""

    drivers: tuple[CSINodeDriver, ...] = always(())


class CSINode(ApiObject):
    """What storage drivers say of a node."""

    api_version: str = always("storage.k8s.io/v1")
    kind: str = always("CSINode")
    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = always(CSINodeSpec())


class CSIDriverList(ApiObject):
    """Drivers, as a server lists them."""

    api_version: str = always("storage.k8s.io/v1")
    kind: str = always("CSIDriverList")
    metadata: ListMeta = ListMeta()
    items: tuple[CSIDriver, ...] = ()
