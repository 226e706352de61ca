"""Volumes of a pod and the sources that nodes still serve themselves."""

from msgspec import field

from nodeagent.api import volumes_legacy as legacy
from nodeagent.api.base import ApiObject, always
from nodeagent.api.env import ObjectFieldSelector, ResourceFieldSelector
from nodeagent.api.meta import (
    LabelSelector,
    LocalObjectReference,
    ObjectMeta,
    TypedLocalObjectReference,
    TypedObjectReference,
)
from nodeagent.api.quantity import Quantity
from nodeagent.api.resources import VolumeResourceRequirements


class HostPathVolumeSource(ApiObject):
    """A file or directory of the host."""

    path: str = ""
    type: str | None = None


class EmptyDirVolumeSource(ApiObject):
    """A directory that lives as long as the pod, on disk or in memory."""

    medium: str = ""
    size_limit: Quantity | None = None


class KeyToPath(ApiObject):
    """The file that one key is written to, and its mode."""

    key: str = ""
    path: str = ""
    mode: int | None = None


class SecretVolumeSource(ApiObject):
    """The keys of a Secret as files."""

    secret_name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool | None = None


class ConfigMapVolumeSource(ApiObject):
    """The keys of a ConfigMap as files."""

    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool | None = None


class DownwardAPIVolumeFile(ApiObject):
    """A file with a field or a resource of the pod in it."""

    path: str = ""
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    mode: int | None = None


class DownwardAPIVolumeSource(ApiObject):
    """Fields of the pod as files."""

    items: tuple[DownwardAPIVolumeFile, ...] = ()
    default_mode: int | None = None


class SecretProjection(ApiObject):
    """The keys of a Secret as part of a projected volume."""

    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    optional: bool | None = None


class ConfigMapProjection(ApiObject):
    """The keys of a ConfigMap as part of a projected volume."""

    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    optional: bool | None = None


class DownwardAPIProjection(ApiObject):
    """Fields of the pod as part of a projected volume."""

    items: tuple[DownwardAPIVolumeFile, ...] = ()


class ServiceAccountTokenProjection(ApiObject):
    """A service account token that is renewed before it expires."""

    audience: str = ""
    expiration_seconds: int | None = None
    path: str = ""


class ClusterTrustBundleProjection(ApiObject):
    """Trust anchors of one bundle, or of all that a signer and selector match."""

    name: str | None = None
    signer_name: str | None = None
    label_selector: LabelSelector | None = None
    optional: bool | None = None
    path: str = ""


class PodCertificateProjection(ApiObject):
    """A key and a certificate issued to the pod by a signer."""

    signer_name: str = ""
    key_type: str = ""
    max_expiration_seconds: int | None = None
    credential_bundle_path: str = ""
    key_path: str = ""
    certificate_chain_path: str = ""
    user_annotations: dict[str, str] = field(default_factory=dict)


class VolumeProjection(ApiObject):
    """One part of a projected volume; exactly one field is set."""

    secret: SecretProjection | None = None
    downward_api: DownwardAPIProjection | None = None
    config_map: ConfigMapProjection | None = None
    service_account_token: ServiceAccountTokenProjection | None = None
    cluster_trust_bundle: ClusterTrustBundleProjection | None = None
    pod_certificate: PodCertificateProjection | None = None


class ProjectedVolumeSource(ApiObject):
    """Several sources as files of one directory."""

    sources: tuple[VolumeProjection, ...] = ()
    default_mode: int | None = None


class PersistentVolumeClaimVolumeSource(ApiObject):
    """The volume that a claim of the same namespace is bound to."""

    claim_name: str = ""
    read_only: bool = False


class PersistentVolumeClaimSpec(ApiObject):
    """What a volume claim asks for."""

    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: VolumeResourceRequirements = VolumeResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    data_source: TypedLocalObjectReference | None = None
    data_source_ref: TypedObjectReference | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimTemplate(ApiObject):
    """A volume claim to be made for the pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class EphemeralVolumeSource(ApiObject):
    """A volume claim that lives as long as the pod."""

    volume_claim_template: PersistentVolumeClaimTemplate | None = None


class CSIVolumeSource(ApiObject):
    """A volume that a CSI driver makes for this pod alone."""

    driver: str = ""
    read_only: bool | None = None
    fs_type: str | None = None
    volume_attributes: dict[str, str] = field(default_factory=dict)
    node_publish_secret_ref: LocalObjectReference | None = None


class ImageVolumeSource(ApiObject):
    """The contents of an OCI image or artifact, read-only."""

    reference: str = ""
    pull_policy: str = ""


class NFSVolumeSource(ApiObject):
    """A directory of an NFS server."""

    server: str = ""
    path: str = ""
    read_only: bool = False


class ISCSIVolumeSource(ApiObject):
    """A disk of an iSCSI target."""

    target_portal: str = ""
    iqn: str = ""
    lun: int = always(0)
    iscsi_interface: str = ""
    fs_type: str = ""
    read_only: bool = False
    portals: tuple[str, ...] = ()
    chap_auth_discovery: bool = False
    chap_auth_session: bool = False
    secret_ref: LocalObjectReference | None = None
    initiator_name: str | None = None


class FCVolumeSource(ApiObject):
    """A Fibre Channel disk."""

    target_wwns: tuple[str, ...] = ()
    lun: int | None = None
    fs_type: str = ""
    read_only: bool = False
    wwids: tuple[str, ...] = ()


class Volume(ApiObject):
    """A named volume of the pod; exactly one source is set."""

    name: str = ""
    host_path: HostPathVolumeSource | None = None
    empty_dir: EmptyDirVolumeSource | None = None
    gce_persistent_disk: legacy.GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: legacy.AWSElasticBlockStoreVolumeSource | None = None
    git_repo: legacy.GitRepoVolumeSource | None = None
    secret: SecretVolumeSource | None = None
    nfs: NFSVolumeSource | None = None
    iscsi: ISCSIVolumeSource | None = None
    glusterfs: legacy.GlusterfsVolumeSource | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    rbd: legacy.RBDVolumeSource | None = None
    flex_volume: legacy.FlexVolumeSource | None = None
    cinder: legacy.CinderVolumeSource | None = None
    cephfs: legacy.CephFSVolumeSource | None = None
    flocker: legacy.FlockerVolumeSource | None = None
    downward_api: DownwardAPIVolumeSource | None = None
    fc: FCVolumeSource | None = None
    azure_file: legacy.AzureFileVolumeSource | None = None
    config_map: ConfigMapVolumeSource | None = None
    vsphere_volume: legacy.VsphereVirtualDiskVolumeSource | None = None
    quobyte: legacy.QuobyteVolumeSource | None = None
    azure_disk: legacy.AzureDiskVolumeSource | None = None
    photon_persistent_disk: legacy.PhotonPersistentDiskVolumeSource | None = None
    projected: ProjectedVolumeSource | None = None
    portworx_volume: legacy.PortworxVolumeSource | None = None
    scale_io: legacy.ScaleIOVolumeSource | None = None
    storageos: legacy.StorageOSVolumeSource | None = None
    csi: CSIVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    image: ImageVolumeSource | None = None
