"""Rules for network and cloud volumes; part of ``volumes``."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from nodeagent.api import volumes as v
from nodeagent.api import volumes_legacy as legacy
from nodeagent.api.base import json_name
from nodeagent.api.meta import LocalObjectReference
from nodeagent.api.validation.errors import FieldError, invalid, required
from nodeagent.api.validation.names import (
    backstep_fault,
    check,
    check_if_set,
    check_one_of_if_set,
    check_range,
    check_set,
    inner_path_fault,
    label_fault,
)

_MAX_PARTITION: Final = 255


def check_secret_ref(path: str, reference: LocalObjectReference | None) -> Iterator[FieldError]:
    """Require that a reference to a Secret, if given, names one."""
    if reference is not None:
        yield from check_set(f"{path}.name", reference.name)


def check_iscsi(path: str, source: v.ISCSIVolumeSource) -> Iterator[FieldError]:
    """Judge an iSCSI disk."""
    yield from check_set(f"{path}.targetPortal", source.target_portal)
    for name, value in (("iqn", source.iqn), ("initiatorName", source.initiator_name)):
        if value or name == "iqn":
            yield from check(f"{path}.{name}", value or "", _iscsi_name_fault)
    yield from check_range(f"{path}.lun", source.lun, 0, 255)
    if (source.chap_auth_discovery or source.chap_auth_session) and source.secret_ref is None:
        yield required(f"{path}.secretRef", "CHAP authentication needs it")
    yield from check_secret_ref(f"{path}.secretRef", source.secret_ref)


def _iscsi_name_fault(name: str) -> str | None:
    return None if name.startswith(("iqn.", "eui.", "naa.")) else "must start with iqn, eui or naa"


def _check_given(path: str, source: Any, *, needs: tuple[str, ...]) -> Iterator[FieldError]:
    """Require some fields to be set, a partition to be a byte, and a secret to have a name."""
    for attribute in needs:
        if not getattr(source, attribute):
            yield required(f"{path}.{json_name(attribute)}")
    partition = getattr(source, "partition", 0)
    yield from check_range(f"{path}.partition", partition, 0, _MAX_PARTITION)
    yield from check_secret_ref(f"{path}.secretRef", getattr(source, "secret_ref", None))


def _check_nfs(path: str, source: v.NFSVolumeSource) -> Iterator[FieldError]:
    yield from check_set(f"{path}.server", source.server)
    yield from check(f"{path}.path", source.path, _absolute_fault)


def _absolute_fault(path: str) -> str | None:
    return None if path.startswith("/") else "must be an absolute path"


def _check_fc(path: str, source: v.FCVolumeSource) -> Iterator[FieldError]:
    if not source.target_wwns and not source.wwids:
        yield required(f"{path}.targetWWNs", "one of targetWWNs, wwids")
    elif source.target_wwns and source.wwids:
        yield invalid(f"{path}.targetWWNs", source.target_wwns[0], "may not be set with wwids")
    elif source.target_wwns and source.lun is None:
        yield required(f"{path}.lun", "targetWWNs need it")
    if source.lun is not None and source.target_wwns:
        yield from check_range(f"{path}.lun", source.lun, 0, 255)


def _check_git_repo(path: str, source: legacy.GitRepoVolumeSource) -> Iterator[FieldError]:
    yield from check_set(f"{path}.repository", source.repository)
    yield from check_if_set(f"{path}.directory", source.directory, inner_path_fault)


def _check_flocker(path: str, source: legacy.FlockerVolumeSource) -> Iterator[FieldError]:
    if not source.dataset_name and not source.dataset_uuid:
        yield required(path, "one of datasetName, datasetUUID")
    elif source.dataset_name and source.dataset_uuid:
        yield invalid(path, source.dataset_name, "may not have both datasetName and datasetUUID")
    if "/" in source.dataset_name:
        yield invalid(f"{path}.datasetName", source.dataset_name, "must not contain '/'")


def _check_quobyte(path: str, source: legacy.QuobyteVolumeSource) -> Iterator[FieldError]:
    yield from check_set(f"{path}.registry", source.registry)
    yield from check_set(f"{path}.volume", source.volume)
    for registry in filter(None, source.registry.split(",")):
        host, colon, _ = registry.rpartition(":")
        if not (host and colon):
            yield invalid(f"{path}.registry", registry, "must be host:port, joined by commas")


def _check_azure_disk(path: str, source: legacy.AzureDiskVolumeSource) -> Iterator[FieldError]:
    yield from check_set(f"{path}.diskName", source.disk_name)
    yield from check_set(f"{path}.diskURI", source.disk_uri)
    yield from check_one_of_if_set(
        f"{path}.cachingMode", source.caching_mode, ("None", "ReadOnly", "ReadWrite")
    )
    kinds = ("Shared", "Dedicated", "Managed")
    yield from check_one_of_if_set(f"{path}.kind", source.kind, kinds)


def _check_storageos(path: str, source: legacy.StorageOSVolumeSource) -> Iterator[FieldError]:
    yield from check(f"{path}.volumeName", source.volume_name, label_fault)
    yield from check_if_set(f"{path}.volumeNamespace", source.volume_namespace, label_fault)
    yield from check_secret_ref(f"{path}.secretRef", source.secret_ref)


def _check_glusterfs(path: str, source: legacy.GlusterfsVolumeSource) -> Iterator[FieldError]:
    yield from check_set(f"{path}.endpoints", source.endpoints)
    yield from check(f"{path}.path", source.path, backstep_fault)


LEGACY_CHECKS: Final[Mapping[str, Callable[[str, Any], Iterator[FieldError]]]] = {
    "aws_elastic_block_store": partial(_check_given, needs=("volume_id",)),
    "azure_disk": _check_azure_disk,
    "azure_file": partial(_check_given, needs=("secret_name", "share_name")),
    "cephfs": partial(_check_given, needs=("monitors",)),
    "cinder": partial(_check_given, needs=("volume_id",)),
    "fc": _check_fc,
    "flex_volume": partial(_check_given, needs=("driver",)),
    "flocker": _check_flocker,
    "gce_persistent_disk": partial(_check_given, needs=("pd_name",)),
    "git_repo": _check_git_repo,
    "glusterfs": _check_glusterfs,
    "nfs": _check_nfs,
    "photon_persistent_disk": partial(_check_given, needs=("pd_id",)),
    "portworx_volume": partial(_check_given, needs=("volume_id",)),
    "quobyte": _check_quobyte,
    "rbd": partial(_check_given, needs=("monitors", "image")),
    "scale_io": partial(_check_given, needs=("gateway", "system", "volume_name")),
    "storageos": _check_storageos,
    "vsphere_volume": partial(_check_given, needs=("volume_path",)),
}
