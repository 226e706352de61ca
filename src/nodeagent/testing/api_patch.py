"""Patches as an API server applies them: strategic merge, JSON merge (RFC 7386), JSON (RFC 6902).

All functions are pure: neither the object nor the patch is changed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

from nodeagent.kube import ApiError, PatchKind

_MERGE_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "hostIPs": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "port"),
    "resourceClaims": ("name",),
    "resourceClaimStatuses": ("name",),
    "schedulingGates": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
"""Lists that merge element by element, and the field that tells elements apart.

Of several the first that the element has. Any other list of the patch replaces the old one.
"""

_MERGED_SCALARS: Final = frozenset({"finalizers", "podCIDRs"})
"""Lists of scalars that a patch adds to."""


def apply_patch(kind: PatchKind, original: dict[str, Any], patch: Any) -> dict[str, Any]:
    """The patched object.

    Raises:
        ApiError: the patch cannot be applied.
    """
    if kind is PatchKind.JSON:
        if not isinstance(patch, list):
            raise _refused("a JSON patch is a list")
        patched = json_patch(original, patch)
    elif not isinstance(patch, dict):
        raise _refused("the patch is no object")
    elif kind is PatchKind.MERGE:
        patched = merge_patch(original, patch)
    else:
        patched = strategic_patch(original, patch)
    if not isinstance(patched, dict):
        raise _refused("the patched object is no object")
    return patched


def merge_patch(original: Any, patch: Any) -> Any:
    """Apply a JSON merge patch: null removes, objects merge, all else replaces."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(original) if isinstance(original, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_patch(original: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a strategic merge patch, with its directives."""
    directive = patch.get("$patch")
    if directive == "delete":
        return {}
    if directive == "replace":
        return {k: copy.deepcopy(v) for k, v in patch.items() if k != "$patch"}
    result = dict(original)
    if isinstance(kept := patch.get("$retainKeys"), list):
        result = {k: v for k, v in result.items() if k in kept}
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            old = result.get(key)
            result[key] = strategic_patch(old if isinstance(old, dict) else {}, value)
        elif isinstance(value, list):
            result[key] = _patched_list(key, result.get(key), value)
        else:
            result[key] = value
    _follow_list_directives(result, patch)
    return result


def _patched_list(field: str, old: Any, patch: list[Any]) -> list[Any]:
    before = list(old) if isinstance(old, list) else []
    if field in _MERGED_SCALARS:
        return before + [item for item in patch if item not in before]
    keys = _MERGE_KEYS.get(field)
    if keys is None or not all(isinstance(item, dict) for item in patch):
        return copy.deepcopy(patch)
    if {"$patch": "replace"} in patch:
        return [copy.deepcopy(item) for item in patch if "$patch" not in item]
    for item in patch:
        before = _merge_element(before, item, keys)
    return before


def _merge_element(items: list[Any], patch: dict[str, Any], keys: tuple[str, ...]) -> list[Any]:
    key = next((k for k in keys if k in patch), None)
    if key is None:
        msg = f"map: {patch} does not contain declared merge key: {keys[0]}"
        raise _refused(msg)
    if patch.get("$patch") == "delete":
        return [item for item in items if item.get(key) != patch[key]]
    for index, item in enumerate(items):
        if item.get(key) == patch[key]:
            return [*items[:index], strategic_patch(item, patch), *items[index + 1 :]]
    return [*items, strategic_patch({}, patch)]


def _follow_list_directives(result: dict[str, Any], patch: Mapping[str, Any]) -> None:
    for key, value in patch.items():
        directive, _, field = key.partition("/")
        if not isinstance(result.get(field), list) or not isinstance(value, list):
            continue
        if directive == "$deleteFromPrimitiveList":
            result[field] = [item for item in result[field] if item not in value]
        elif directive == "$setElementOrder":
            result[field] = _ordered(field, result[field], value)


def _ordered(field: str, items: list[Any], order: list[Any]) -> list[Any]:
    """What the order names comes in its order, the rest after it."""
    keys = _MERGE_KEYS.get(field, ())

    def name(item: Any) -> Any:
        return next((item[k] for k in keys if k in item), None) if isinstance(item, dict) else item

    places = {name(item): place for place, item in enumerate(order)}
    return sorted(items, key=lambda item: places.get(name(item), len(places)))


def json_patch(original: Any, patch: list[Any]) -> Any:
    """Apply a JSON patch: add, remove, replace, move, copy and test."""
    result = copy.deepcopy(original)
    for step in patch:
        try:
            result = _step(result, step)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            msg = f"the server rejected our request due to an error in our request: {error!r}"
            raise ApiError(422, "Invalid", msg) from error
    return result


def _step(document: Any, step: Mapping[str, Any]) -> Any:
    path = _pointer(step["path"])
    match step["op"]:
        case "test":
            if _at(document, path) != step["value"]:
                msg = f"testing path {step['path']} failed"
                raise ValueError(msg)
            return document
        case "add":
            return _changed(document, path, lambda at, key: _insert(at, key, step["value"]))
        case "replace":
            _at(document, path)
            return _changed(document, path, lambda at, key: _put(at, key, step["value"]))
        case "remove":
            return _changed(document, path, _remove)
        case "copy" | "move" as op:
            source = _pointer(step["from"])
            value = copy.deepcopy(_at(document, source))
            if op == "move":
                document = _changed(document, source, _remove)
            return _changed(document, path, lambda at, key: _insert(at, key, value))
        case op:
            msg = f"unknown operation {op}"
            raise ValueError(msg)


def _pointer(text: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _at(document: Any, path: list[str]) -> Any:
    for part in path:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def _changed(document: Any, path: list[str], change: Callable[[Any, str], Any]) -> Any:
    if not path:
        holder = {"": document}
        change(holder, "")
        return holder.get("")
    change(_at(document, path[:-1]), path[-1])
    return document


def _insert(at: Any, key: str, value: Any) -> None:
    if isinstance(at, list):
        at.insert(len(at) if key == "-" else int(key), value)
    else:
        at[key] = value


def _put(at: Any, key: str, value: Any) -> None:
    at[int(key) if isinstance(at, list) else key] = value


def _remove(at: Any, key: str) -> None:
    del at[int(key) if isinstance(at, list) else key]


def _refused(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)
