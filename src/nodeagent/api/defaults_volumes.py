"""Defaults of volumes; part of ``defaults``."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from nodeagent.api import volumes as v
from nodeagent.api import volumes_legacy as legacy
from nodeagent.api.aggregate import Amounts
from nodeagent.api.env import ObjectFieldSelector
from nodeagent.api.images import default_pull_policy
from nodeagent.api.quantity import Quantity

T = TypeVar("T")

DEFAULT_FILE_MODE: Final = 0o644
DEFAULT_TOKEN_SECONDS: Final = 3600

_SOURCES: Final = tuple(name for name in v.Volume.__struct_fields__ if name != "name")


def default_volume(volume: v.Volume) -> v.Volume:
    """Fill in one volume; without any source it becomes an emptyDir."""
    given = {name: source for name in _SOURCES if (source := getattr(volume, name)) is not None}
    if not given:
        return replace(volume, empty_dir=v.EmptyDirVolumeSource())
    changed: dict[str, Any] = {
        name: _DEFAULTERS[name](source) for name, source in given.items() if name in _DEFAULTERS
    }
    return replace(volume, **changed)


def with_api_version(selector: ObjectFieldSelector) -> ObjectFieldSelector:
    """Return the selector with an API version, ``v1`` unless it has one."""
    return replace(selector, api_version=selector.api_version or "v1")


def round_to_milli(amounts: Mapping[str, Quantity]) -> Amounts:
    """Round up what is finer than a thousandth."""
    return {name: amount.ceil_milli() for name, amount in amounts.items()}


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def _host_path(source: v.HostPathVolumeSource) -> v.HostPathVolumeSource:
    return replace(source, type=_or(source.type, ""))


def _secret(source: v.SecretVolumeSource) -> v.SecretVolumeSource:
    return replace(source, default_mode=_or(source.default_mode, DEFAULT_FILE_MODE))


def _config_map(source: v.ConfigMapVolumeSource) -> v.ConfigMapVolumeSource:
    return replace(source, default_mode=_or(source.default_mode, DEFAULT_FILE_MODE))


def _downward_api(source: v.DownwardAPIVolumeSource) -> v.DownwardAPIVolumeSource:
    return replace(
        source,
        default_mode=_or(source.default_mode, DEFAULT_FILE_MODE),
        items=_downward_items(source.items),
    )


def _downward_items(
    items: tuple[v.DownwardAPIVolumeFile, ...],
) -> tuple[v.DownwardAPIVolumeFile, ...]:
    return tuple(
        item
        if item.field_ref is None
        else replace(item, field_ref=with_api_version(item.field_ref))
        for item in items
    )


def _projected(source: v.ProjectedVolumeSource) -> v.ProjectedVolumeSource:
    return replace(
        source,
        default_mode=_or(source.default_mode, DEFAULT_FILE_MODE),
        sources=tuple(map(_projection, source.sources)),
    )


def _projection(part: v.VolumeProjection) -> v.VolumeProjection:
    if part.downward_api is not None:
        items = _downward_items(part.downward_api.items)
        part = replace(part, downward_api=replace(part.downward_api, items=items))
    if part.service_account_token is not None:
        token = part.service_account_token
        seconds = _or(token.expiration_seconds, DEFAULT_TOKEN_SECONDS)
        part = replace(part, service_account_token=replace(token, expiration_seconds=seconds))
    return part


def _ephemeral(source: v.EphemeralVolumeSource) -> v.EphemeralVolumeSource:
    template = source.volume_claim_template
    if template is None:
        return source
    resources = template.spec.resources
    if resources.limits or resources.requests:
        resources = replace(
            resources,
            limits=round_to_milli(resources.limits),
            requests=round_to_milli(resources.requests),
        )
    volume_mode = _or(template.spec.volume_mode, "Filesystem")
    spec = replace(template.spec, volume_mode=volume_mode, resources=resources)
    return replace(source, volume_claim_template=replace(template, spec=spec))


def _image(source: v.ImageVolumeSource) -> v.ImageVolumeSource:
    return replace(source, pull_policy=source.pull_policy or default_pull_policy(source.reference))


def _iscsi(source: v.ISCSIVolumeSource) -> v.ISCSIVolumeSource:
    return replace(source, iscsi_interface=source.iscsi_interface or "default")


def _rbd(source: legacy.RBDVolumeSource) -> legacy.RBDVolumeSource:
    return replace(
        source,
        pool=source.pool or "rbd",
        user=source.user or "admin",
        keyring=source.keyring or "/etc/ceph/keyring",
    )


def _azure_disk(source: legacy.AzureDiskVolumeSource) -> legacy.AzureDiskVolumeSource:
    return replace(
        source,
        caching_mode=_or(source.caching_mode, "ReadWrite"),
        kind=_or(source.kind, "Shared"),
        fs_type=_or(source.fs_type, "ext4"),
        read_only=_or(source.read_only, default=False),
    )


def _scale_io(source: legacy.ScaleIOVolumeSource) -> legacy.ScaleIOVolumeSource:
    return replace(
        source,
        storage_mode=source.storage_mode or "ThinProvisioned",
        fs_type=source.fs_type or "xfs",
    )


_DEFAULTERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "host_path": _host_path,
    "secret": _secret,
    "config_map": _config_map,
    "downward_api": _downward_api,
    "projected": _projected,
    "ephemeral": _ephemeral,
    "image": _image,
    "iscsi": _iscsi,
    "rbd": _rbd,
    "azure_disk": _azure_disk,
    "scale_io": _scale_io,
}
