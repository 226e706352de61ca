"""Volume sources that Kubernetes dropped or moved to CSI drivers; still part of the pod API."""

from msgspec import field

from nodeagent.api.base import ApiObject
from nodeagent.api.meta import LocalObjectReference


class GCEPersistentDiskVolumeSource(ApiObject):
    """A Google Compute Engine disk."""

    pd_name: str = ""
    fs_type: str = ""
    partition: int = 0
    read_only: bool = False


class AWSElasticBlockStoreVolumeSource(ApiObject):
    """An AWS Elastic Block Store disk."""

    volume_id: str = ""
    fs_type: str = ""
    partition: int = 0
    read_only: bool = False


class AzureDiskVolumeSource(ApiObject):
    """An Azure data disk."""

    disk_name: str = ""
    disk_uri: str = ""
    caching_mode: str | None = None
    fs_type: str | None = None
    read_only: bool | None = None
    kind: str | None = None


class AzureFileVolumeSource(ApiObject):
    """An Azure file share."""

    secret_name: str = ""
    share_name: str = ""
    read_only: bool = False


class GitRepoVolumeSource(ApiObject):
    """A directory filled by cloning a repository."""

    repository: str = ""
    revision: str = ""
    directory: str = ""


class GlusterfsVolumeSource(ApiObject):
    """A Glusterfs volume, found through an Endpoints object."""

    endpoints: str = ""
    path: str = ""
    read_only: bool = False


class RBDVolumeSource(ApiObject):
    """A Ceph block device image."""

    monitors: tuple[str, ...] = ()
    image: str = ""
    fs_type: str = ""
    pool: str = ""
    user: str = ""
    keyring: str = ""
    secret_ref: LocalObjectReference | None = None
    read_only: bool = False


class FlexVolumeSource(ApiObject):
    """A volume made by an executable on the node."""

    driver: str = ""
    fs_type: str = ""
    secret_ref: LocalObjectReference | None = None
    read_only: bool = False
    options: dict[str, str] = field(default_factory=dict)


class CinderVolumeSource(ApiObject):
    """An OpenStack Cinder volume."""

    volume_id: str = ""
    fs_type: str = ""
    read_only: bool = False
    secret_ref: LocalObjectReference | None = None


class CephFSVolumeSource(ApiObject):
    """A directory of a Ceph file system."""

    monitors: tuple[str, ...] = ()
    path: str = ""
    user: str = ""
    secret_file: str = ""
    secret_ref: LocalObjectReference | None = None
    read_only: bool = False


class FlockerVolumeSource(ApiObject):
    """A Flocker dataset, by name or by UUID."""

    dataset_name: str = ""
    dataset_uuid: str = ""


class VsphereVirtualDiskVolumeSource(ApiObject):
    """A vSphere virtual disk."""

    volume_path: str = ""
    fs_type: str = ""
    storage_policy_name: str = ""
    storage_policy_id: str = ""


class QuobyteVolumeSource(ApiObject):
    """A Quobyte volume."""

    registry: str = ""
    volume: str = ""
    read_only: bool = False
    user: str = ""
    group: str = ""
    tenant: str = ""


class PhotonPersistentDiskVolumeSource(ApiObject):
    """A Photon Controller disk."""

    pd_id: str = ""
    fs_type: str = ""


class PortworxVolumeSource(ApiObject):
    """A Portworx volume."""

    volume_id: str = ""
    fs_type: str = ""
    read_only: bool = False


class ScaleIOVolumeSource(ApiObject):
    """A ScaleIO volume."""

    gateway: str = ""
    system: str = ""
    secret_ref: LocalObjectReference | None = None
    ssl_enabled: bool = False
    protection_domain: str = ""
    storage_pool: str = ""
    storage_mode: str = ""
    volume_name: str = ""
    fs_type: str = ""
    read_only: bool = False


class StorageOSVolumeSource(ApiObject):
    """A StorageOS volume."""

    volume_name: str = ""
    volume_namespace: str = ""
    fs_type: str = ""
    read_only: bool = False
    secret_ref: LocalObjectReference | None = None
