"""Rules for volumes."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from nodeagent.api import volumes as v
from nodeagent.api.validation.env import check_field_ref, check_resource_ref
from nodeagent.api.validation.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    required,
)
from nodeagent.api.validation.metadata import check_label_selector
from nodeagent.api.validation.names import (
    backstep_fault,
    check,
    check_annotations,
    check_if_set,
    check_labels,
    check_one_of,
    check_one_of_if_set,
    check_range,
    check_set,
    config_key_fault,
    inner_path_fault,
    label_fault,
    qualified_name_fault,
    subdomain_fault,
)
from nodeagent.api.validation.volumes_legacy import LEGACY_CHECKS, check_iscsi, check_secret_ref

HOST_PATH_TYPES: Final = (
    "",
    "DirectoryOrCreate",
    "Directory",
    "FileOrCreate",
    "File",
    "Socket",
    "CharDevice",
    "BlockDevice",
)
_ACCESS_MODES: Final = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_KEY_TYPES: Final = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
_SOURCES: Final = {
    name: json
    for name, json in zip(
        v.Volume.__struct_fields__, v.Volume.__struct_encode_fields__, strict=True
    )
    if name != "name"
}


def check_volumes(path: str, volumes: tuple[v.Volume, ...]) -> Iterator[FieldError]:
    """Judge the volumes of a pod, one by one and together."""
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        here = f"{path}[{index}]"
        yield from check(f"{here}.name", volume.name, label_fault)
        if volume.name and volume.name in seen:
            yield duplicate(f"{here}.name", volume.name)
        seen.add(volume.name)
        yield from _check_volume(here, volume)


def _check_volume(path: str, volume: v.Volume) -> Iterator[FieldError]:
    given = [name for name in _SOURCES if getattr(volume, name) is not None]
    if not given:
        yield required(path, "must have a volume type")
    for name in given[1:]:
        yield forbidden(f"{path}.{_SOURCES[name]}", "may not have more than one volume type")
    for name in given:
        judge = _CHECKS.get(name)
        if judge is not None:
            yield from judge(f"{path}.{_SOURCES[name]}", getattr(volume, name))


def _check_host_path(path: str, source: v.HostPathVolumeSource) -> Iterator[FieldError]:
    yield from check(f"{path}.path", source.path, backstep_fault)
    yield from check_one_of_if_set(f"{path}.type", source.type, HOST_PATH_TYPES)


def _check_empty_dir(path: str, source: v.EmptyDirVolumeSource) -> Iterator[FieldError]:
    if source.size_limit is not None and source.size_limit.nanos < 0:
        yield invalid(f"{path}.sizeLimit", source.size_limit, "must not be negative")


def _check_secret(path: str, source: v.SecretVolumeSource) -> Iterator[FieldError]:
    yield from check(f"{path}.secretName", source.secret_name, subdomain_fault)
    yield from _check_mode(f"{path}.defaultMode", source.default_mode)
    yield from _check_items(f"{path}.items", source.items)


def _check_config_map(path: str, source: v.ConfigMapVolumeSource) -> Iterator[FieldError]:
    yield from check(f"{path}.name", source.name, subdomain_fault)
    yield from _check_mode(f"{path}.defaultMode", source.default_mode)
    yield from _check_items(f"{path}.items", source.items)


def _check_downward_api(path: str, source: v.DownwardAPIVolumeSource) -> Iterator[FieldError]:
    yield from _check_mode(f"{path}.defaultMode", source.default_mode)
    yield from _check_downward_items(f"{path}.items", source.items)


def _check_mode(path: str, mode: int | None) -> Iterator[FieldError]:
    if mode is not None and not 0 <= mode <= 0o777:
        yield invalid(path, mode, "must be a file mode between 0 and 0777 (octal), 511 in decimal")


def _check_items(path: str, items: tuple[v.KeyToPath, ...]) -> Iterator[FieldError]:
    for index, item in enumerate(items):
        here = f"{path}[{index}]"
        yield from check(f"{here}.key", item.key, config_key_fault)
        yield from check(f"{here}.path", item.path, _file_path_fault)
        yield from _check_mode(f"{here}.mode", item.mode)


def _file_path_fault(path: str) -> str | None:
    """Judge where a projected file goes; names in '..' belong to the writer's own links."""
    if path.startswith(".."):
        return "must not start with '..'"
    return inner_path_fault(path)


def _check_downward_items(
    path: str, items: tuple[v.DownwardAPIVolumeFile, ...]
) -> Iterator[FieldError]:
    for index, item in enumerate(items):
        here = f"{path}[{index}]"
        yield from check(f"{here}.path", item.path, _file_path_fault)
        yield from _check_mode(f"{here}.mode", item.mode)
        if item.field_ref is not None:
            yield from check_field_ref(f"{here}.fieldRef", item.field_ref, in_volume=True)
            if item.resource_field_ref is not None:
                yield invalid(here, item.path, "may not have both fieldRef and resourceFieldRef")
        elif item.resource_field_ref is None:
            yield required(here, "one of fieldRef, resourceFieldRef")
        if item.resource_field_ref is not None:
            yield from check_resource_ref(
                f"{here}.resourceFieldRef", item.resource_field_ref, in_volume=True
            )


def _check_projected(path: str, source: v.ProjectedVolumeSource) -> Iterator[FieldError]:
    yield from _check_mode(f"{path}.defaultMode", source.default_mode)
    for index, part in enumerate(source.sources):
        here = f"{path}.sources[{index}]"
        fields = dict(zip(part.__struct_fields__, part.__struct_encode_fields__, strict=True))
        given = [name for name in fields if getattr(part, name) is not None]
        if not given:
            yield required(here, f"one of {', '.join(fields.values())}")
        for name in given[1:]:
            yield forbidden(f"{here}.{fields[name]}", "may not have more than one source")
        for name in given:
            yield from _PROJECTIONS[name](f"{here}.{fields[name]}", getattr(part, name))
    yield from _check_projected_paths(path, source)


def _check_projected_paths(path: str, source: v.ProjectedVolumeSource) -> Iterator[FieldError]:
    """Refuse two parts that write one file."""
    seen: set[str] = set()
    for index, part in enumerate(source.sources):
        for written in _paths_of(part):
            if written and written in seen:
                yield duplicate(f"{path}.sources[{index}]", written)
            seen.add(written)


def _paths_of(part: v.VolumeProjection) -> Iterator[str]:
    for keyed in (part.secret, part.config_map, part.downward_api):
        if keyed is not None:
            yield from (item.path for item in keyed.items)
    for single in (part.service_account_token, part.cluster_trust_bundle):
        if single is not None:
            yield single.path
    if part.pod_certificate is not None:
        yield part.pod_certificate.credential_bundle_path
        yield part.pod_certificate.key_path
        yield part.pod_certificate.certificate_chain_path


def _check_keyed_projection(
    path: str, part: v.SecretProjection | v.ConfigMapProjection
) -> Iterator[FieldError]:
    yield from check(f"{path}.name", part.name, subdomain_fault)
    yield from _check_items(f"{path}.items", part.items)


def _check_downward_projection(path: str, part: v.DownwardAPIProjection) -> Iterator[FieldError]:
    yield from _check_downward_items(f"{path}.items", part.items)


def _check_token(path: str, part: v.ServiceAccountTokenProjection) -> Iterator[FieldError]:
    yield from check(f"{path}.path", part.path, _file_path_fault)
    if part.expiration_seconds is None:
        yield required(f"{path}.expirationSeconds")
    else:
        yield from check_range(f"{path}.expirationSeconds", part.expiration_seconds, 600, 2**32)


def _check_trust_bundle(path: str, part: v.ClusterTrustBundleProjection) -> Iterator[FieldError]:
    yield from check(f"{path}.path", part.path, _file_path_fault)
    if (part.name is None) == (part.signer_name is None):
        yield required(path, "exactly one of name, signerName")
    if part.label_selector is not None and part.signer_name is None:
        yield invalid(f"{path}.labelSelector", "", "needs signerName")
    yield from check_if_set(f"{path}.signerName", part.signer_name, qualified_name_fault)
    yield from check_label_selector(f"{path}.labelSelector", part.label_selector)


def _check_certificate(path: str, part: v.PodCertificateProjection) -> Iterator[FieldError]:
    yield from check(f"{path}.signerName", part.signer_name, qualified_name_fault)
    yield from check_one_of(f"{path}.keyType", part.key_type, _KEY_TYPES)
    if part.max_expiration_seconds is not None:
        most = 91 * 86400
        yield from check_range(
            f"{path}.maxExpirationSeconds", part.max_expiration_seconds, 3600, most
        )
    paths = {
        "credentialBundlePath": part.credential_bundle_path,
        "keyPath": part.key_path,
        "certificateChainPath": part.certificate_chain_path,
    }
    if not any(paths.values()):
        yield required(path, f"one of {', '.join(paths)}")
    for name, value in paths.items():
        yield from check_if_set(f"{path}.{name}", value, _file_path_fault)
    for key in part.user_annotations:
        yield from check(f"{path}.userAnnotations[{key}]", key, qualified_name_fault)


_PROJECTIONS: Final[Mapping[str, Callable[[str, Any], Iterator[FieldError]]]] = {
    "secret": _check_keyed_projection,
    "config_map": _check_keyed_projection,
    "downward_api": _check_downward_projection,
    "service_account_token": _check_token,
    "cluster_trust_bundle": _check_trust_bundle,
    "pod_certificate": _check_certificate,
}


def _check_claim(path: str, source: v.PersistentVolumeClaimVolumeSource) -> Iterator[FieldError]:
    yield from check_set(f"{path}.claimName", source.claim_name)


def _check_ephemeral(path: str, source: v.EphemeralVolumeSource) -> Iterator[FieldError]:
    template = source.volume_claim_template
    if template is None:
        yield required(f"{path}.volumeClaimTemplate")
        return
    here = f"{path}.volumeClaimTemplate"
    yield from check_labels(f"{here}.metadata.labels", template.metadata.labels)
    yield from check_annotations(f"{here}.metadata.annotations", template.metadata.annotations)
    spec = template.spec
    if not spec.access_modes:
        yield required(f"{here}.spec.accessModes", "at least one")
    for index, mode in enumerate(spec.access_modes):
        yield from check_one_of(f"{here}.spec.accessModes[{index}]", mode, _ACCESS_MODES)
    storage = spec.resources.requests.get("storage")
    if storage is None:
        yield required(f"{here}.spec.resources.requests[storage]")
    elif storage.nanos <= 0:
        yield invalid(f"{here}.spec.resources.requests[storage]", storage, "must be more than zero")
    yield from check_one_of_if_set(
        f"{here}.spec.volumeMode", spec.volume_mode, ("Filesystem", "Block")
    )
    yield from check_if_set(
        f"{here}.spec.storageClassName", spec.storage_class_name, subdomain_fault
    )
    yield from check_label_selector(f"{here}.spec.selector", spec.selector)


def _check_csi(path: str, source: v.CSIVolumeSource) -> Iterator[FieldError]:
    yield from check(f"{path}.driver", source.driver.lower(), subdomain_fault)
    yield from check_secret_ref(f"{path}.nodePublishSecretRef", source.node_publish_secret_ref)


def _check_image(path: str, source: v.ImageVolumeSource) -> Iterator[FieldError]:
    yield from check_set(f"{path}.reference", source.reference)
    policies = ("Always", "IfNotPresent", "Never")
    yield from check_one_of_if_set(f"{path}.pullPolicy", source.pull_policy or None, policies)


_CHECKS: Final[Mapping[str, Callable[[str, Any], Iterator[FieldError]]]] = {
    **LEGACY_CHECKS,
    "host_path": _check_host_path,
    "empty_dir": _check_empty_dir,
    "secret": _check_secret,
    "config_map": _check_config_map,
    "downward_api": _check_downward_api,
    "projected": _check_projected,
    "persistent_volume_claim": _check_claim,
    "ephemeral": _check_ephemeral,
    "csi": _check_csi,
    "image": _check_image,
    "iscsi": check_iscsi,
}
