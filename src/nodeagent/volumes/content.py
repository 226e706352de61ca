"""The files of ConfigMaps, Secrets and pod fields (docs/behaviour/volumes.md, "Content"). Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from nodeagent.api import DownwardAPIVolumeFile, KeyToPath, Pod
from nodeagent.api.objects import ConfigMap, Secret
from nodeagent.volumes.atomic_writer import PayloadError, ProjectedFile, clean_payload
from nodeagent.volumes.objects import PodValues

_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}

Files = dict[str, ProjectedFile]


def config_map_files(
    found: ConfigMap | None,
    name: str,
    items: tuple[KeyToPath, ...],
    default_mode: int,
    *,
    optional: bool,
) -> Files:
    """The files of a ConfigMap.

    Args:
        found: the object; None when there is none.
        name: its name.
        items: the keys that become files, and where; all keys by default.
        default_mode: of files that have no mode of their own.
        optional: whether the object, and keys of it, may be missing.

    Raises:
        PayloadError: something is missing.
    """
    if found is None:
        return _nothing("configmap", name, optional=optional)
    values: dict[str, bytes] = {key: text.encode() for key, text in found.data.items()}
    values.update(found.binary_data)
    says = "configmap references non-existent config key: {}"
    return _keyed(values, items, default_mode, says, optional=optional)


def secret_files(
    found: Secret | None,
    name: str,
    items: tuple[KeyToPath, ...],
    default_mode: int,
    *,
    optional: bool,
) -> Files:
    """The files of a Secret; the arguments are those of :func:`config_map_files`."""
    if found is None:
        return _nothing("secret", name, optional=optional)
    says = "references non-existent secret key: {}"
    return _keyed(found.data, items, default_mode, says, optional=optional)


def _nothing(kind: str, name: str, *, optional: bool) -> Files:
    if optional:
        return {}
    msg = f'{kind} "{name}" not found'
    raise PayloadError(msg)


def _keyed(
    values: Mapping[str, bytes],
    items: tuple[KeyToPath, ...],
    default_mode: int,
    says: str,
    *,
    optional: bool,
) -> Files:
    if not items:
        return {key: ProjectedFile(data, default_mode) for key, data in values.items()}
    files: Files = {}
    for item in items:
        if item.key in values:
            mode = default_mode if item.mode is None else item.mode
            files[item.path] = ProjectedFile(values[item.key], mode)
        elif not optional:
            raise PayloadError(says.format(item.key))
    return files


def downward_files(
    pod: Pod, items: tuple[DownwardAPIVolumeFile, ...], default_mode: int, values: PodValues
) -> Files:
    """The files with values of the pod itself.

    Raises:
        PayloadError: values do not exist; all of them are named.
    """
    files: Files = {}
    faults: list[str] = []
    for item in items:
        mode = default_mode if item.mode is None else item.mode
        try:
            text = _downward_value(pod, item, values)
        except ValueError as error:
            faults.append(str(error))
        else:
            files[item.path] = ProjectedFile(text.encode(errors="surrogateescape"), mode)
    if faults:
        raise PayloadError(aggregate_faults(faults))
    return files


def _downward_value(pod: Pod, item: DownwardAPIVolumeFile, values: PodValues) -> str:
    if item.field_ref is not None:
        path = item.field_ref.field_path
        if path == "metadata.labels":
            return format_map(pod.metadata.labels)
        if path == "metadata.annotations":
            return format_map(pod.metadata.annotations)
        return values.field(pod, path)
    if item.resource_field_ref is not None:
        return values.resource(pod, item.resource_field_ref)
    return ""


def format_map(pairs: Mapping[str, str]) -> str:
    """Labels or annotations as lines ``key="value"`` in order of their keys."""
    return "\n".join(f"{key}={quote(pairs[key])}" for key in sorted(pairs))


def quote(text: str) -> str:
    """A text in quotes, with all escaped that is not printable."""
    return '"' + "".join(map(_escape, text)) + '"'


def _escape(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def trust_anchor_file(
    found: str | None, path: str, default_mode: int, *, by_name: str | None, optional: bool
) -> Files:
    """The file of all certificates that were asked for.

    Each is there once, in an order that says nothing about where it came from.

    Raises:
        PayloadError: no bundle was found.
    """
    if found is None:
        if not optional:
            raise PayloadError(
                f'clustertrustbundle "{by_name}" not found'
                if by_name
                else "combination of signerName and labelSelector matched zero ClusterTrustBundles"
            )
        found = ""
    blocks = {_normal(block) for block in _PEM.findall(found)}
    ordered = sorted(blocks, key=lambda block: hashlib.sha256(block.encode()).digest())
    return {path: ProjectedFile("".join(ordered).encode(), default_mode)}


def _normal(block: str) -> str:
    lines = [line.strip() for line in block.splitlines()]
    return "\n".join(line for line in lines if line) + "\n"


def merge_sources(parts: Iterable[Callable[[], Files]]) -> Files:
    """The files of all sources of a projected volume; of one path the last source has it.

    Raises:
        PayloadError: sources cannot be had, or a path is not allowed; all of them are named.
    """
    merged: Files = {}
    faults: list[str] = []
    for part in parts:
        try:
            merged.update(clean_payload(part()))
        except ValueError as error:
            faults.append(str(error))
    if faults:
        raise PayloadError(aggregate_faults(faults))
    return merged


def aggregate_faults(faults: list[str]) -> str:
    """Several faults in one text; one is itself."""
    distinct = list(dict.fromkeys(faults))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"
