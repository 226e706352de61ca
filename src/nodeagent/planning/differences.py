"""In which fields two versions of a pod differ. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from nodeagent.api import Pod
from nodeagent.api.codec import to_builtins
from nodeagent.model.annotations import CONFIG_HASH
from nodeagent.sources.merge import LOCAL_ANNOTATIONS

_NAMED_BY: Final = ("name", "mountPath", "devicePath", "containerPort", "key", "ip")
"""What tells the items of a list apart, the first that all of them have."""
_NOT_SHOWN: Final = frozenset({CONFIG_HASH, *LOCAL_ANNOTATIONS})


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs; a value that is not there is None."""

    path: str
    before: Any
    after: Any


def pod_changes(old: Pod, new: Pod) -> Iterator[Change]:
    """The fields in which two versions of a pod differ; not those that the agent sets."""
    yield from differences(_shown(old), _shown(new))


def _shown(pod: Pod) -> dict[str, Any]:
    annotations = {k: v for k, v in pod.metadata.annotations.items() if k not in _NOT_SHOWN}
    metadata: dict[str, Any] = {"labels": dict(pod.metadata.labels), "annotations": annotations}
    return {"metadata": metadata, "spec": to_builtins(pod.spec)}


def differences(before: Any, after: Any, path: str = "") -> Iterator[Change]:
    """Fields that differ; items of a list are told apart by their names where they have any."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            inner = f"{path}.{key}" if path and _plain(key) else f"{path}[{key}]" if path else key
            yield from differences(before.get(key), after.get(key), inner)
        return
    if isinstance(before, list) and isinstance(after, list):
        yield from _of_lists(before, after, path)
        return
    if before != after:
        yield Change(path, before, after)


def _plain(key: str) -> bool:
    return key.isidentifier()


def _of_lists(before: list[Any], after: list[Any], path: str) -> Iterator[Change]:
    named = _by_name(before, after)
    if named is None:
        if before != after:
            yield Change(path, before, after)
        return
    old, new = named
    for name in dict.fromkeys((*old, *new)):
        yield from differences(old.get(name), new.get(name), f"{path}[{name}]")
    common = [name for name in old if name in new]
    if common != [name for name in new if name in old]:
        yield Change(f"{path} (order)", list(old), list(new))


def _by_name(before: list[Any], after: list[Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    items = [*before, *after]
    if not all(isinstance(item, dict) for item in items):
        return None
    for key in _NAMED_BY:
        if all(key in item for item in items):
            old, new = ({str(i[key]): i for i in side} for side in (before, after))
            if len(old) == len(before) and len(new) == len(after):
                return old, new
    return None
