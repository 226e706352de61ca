"""Rules for ConfigMaps and Secrets. No message repeats a value."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from nodeagent.api.objects import ConfigMap, Secret
from nodeagent.api.validation.errors import (
    FieldError,
    Reason,
    forbidden,
    invalid,
    required,
    too_long,
)
from nodeagent.api.validation.metadata import check_metadata
from nodeagent.api.validation.names import check_if_set, config_key_fault

MAX_BYTES: Final = 1024 * 1024
"""Of all values of one object together."""
OPAQUE: Final = "Opaque"
ACCOUNT_ANNOTATION: Final = "kubernetes.io/service-account.name"

_NEEDED_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_JSON_KEYS: Final = (".dockercfg", ".dockerconfigjson")
_LOGIN_KEYS: Final = ("username", "password")


def validate_config_map(found: ConfigMap) -> Iterator[FieldError]:
    """Judge a ConfigMap that has its namespace."""
    yield from check_metadata("metadata", found.metadata)
    yield from _check_keys("data", found.data)
    yield from _check_keys("binaryData", found.binary_data)
    for key in found.data.keys() & found.binary_data.keys():
        yield invalid(f"data[{key}]", key, "is a key of binaryData, too")
    texts = (len(text.encode(errors="replace")) for text in found.data.values())
    yield from _check_size("data", (*texts, *map(len, found.binary_data.values())))


def validate_secret(found: Secret) -> Iterator[FieldError]:
    """Judge a Secret that has its namespace and type, and all its values in ``data``."""
    yield from check_metadata("metadata", found.metadata)
    yield from _check_keys("data", found.data)
    yield from _check_size("data", map(len, found.data.values()))
    for key in _NEEDED_KEYS.get(found.type, ()):
        if key not in found.data:
            yield required(f"data[{key}]", f"a Secret of type {found.type} has it")
        elif key in _JSON_KEYS and not _is_json(found.data[key]):
            yield FieldError(f"data[{key}]", Reason.INVALID, detail="is no JSON object")
    if found.type == "kubernetes.io/basic-auth" and not any(k in found.data for k in _LOGIN_KEYS):
        yield required("data[username]", "or data[password]")
    if found.type == "kubernetes.io/service-account-token":
        path = f"metadata.annotations[{ACCOUNT_ANNOTATION}]"
        if not found.metadata.annotations.get(ACCOUNT_ANNOTATION):
            yield required(path)


def validate_change(old: ConfigMap | Secret, new: ConfigMap | Secret) -> Iterator[FieldError]:
    """Judge an edit as the API does: some fields never change."""
    if isinstance(old, Secret) and isinstance(new, Secret) and old.type != new.type:
        detail = "never changes; remove the Secret first, or give it another name"
        yield invalid("type", new.type, detail)
    if not old.immutable:
        return
    detail = "never changes when `immutable` is set; remove the object first"
    if not new.immutable:
        yield forbidden("immutable", detail)
    if old.data != new.data:
        yield forbidden("data", detail)
    binary = [each.binary_data for each in (old, new) if isinstance(each, ConfigMap)]
    if binary and binary[0] != binary[-1]:
        yield forbidden("binaryData", detail)


def _check_keys(path: str, keys: Iterable[str]) -> Iterator[FieldError]:
    for key in keys:
        if not key:
            yield required(f"{path}[]", "a key has at least one character")
        yield from check_if_set(f"{path}[{key}]", key, config_key_fault)


def _check_size(path: str, sizes: Iterable[int]) -> Iterator[FieldError]:
    if sum(sizes) > MAX_BYTES:
        yield too_long(path, MAX_BYTES)


def _is_json(data: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(data), dict)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
