"""What of a computed status goes onto the API's copy of a pod. Pure.

docs/behaviour/status.md, "Merge" and "Patch".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from nodeagent.api import PodCondition, PodStatus
from nodeagent.api.codec import to_builtins
from nodeagent.pods.conditions import (
    CONTAINERS_READY,
    DISRUPTION_TARGET,
    FALSE,
    OWNED,
    READY,
    TRUE,
    find,
)
from nodeagent.pods.phase import FAILED, TERMINAL

OURS: Final = OWNED | {"PodResizePending", "PodResizeInProgress"}
"""Conditions that nobody but the agent writes."""

Plain: TypeAlias = Mapping[str, Any]
"""An object as dicts, lists and scalars."""

_DIRECTIVE: Final = "$patch"
# Older servers store this as an element of a list that is not there yet.
_REPLACE: Final = {_DIRECTIVE: "replace"}
_BY_KEY: Final = {"conditions": "type"}
"""Lists that the server merges and that others write into, too, with their key."""
_REPLACED: Final = frozenset({"podIPs", "hostIPs"})
"""Lists that the server would merge, but whose order means something."""


def merge_status(api: PodStatus, ours: PodStatus, *, may_run: bool) -> PodStatus:
    """The status that the API should have.

    Args:
        api: the status that it has.
        ours: the status as computed here.
        may_run: containers of the pod may still run. Until none can, nobody is told that the
            pod has ended: what waits for it (a Job, a volume's next user) would start too soon.
    """
    ends = api.phase not in TERMINAL and ours.phase in TERMINAL
    phase, reason, message = ours.phase, ours.reason, ours.message
    if (ends and may_run) or (api.phase in TERMINAL and phase not in TERMINAL):
        phase, reason, message = api.phase, api.reason, api.message
    conditions = _conditions(api.conditions, ours.conditions, disrupted=ends and not may_run)
    if phase in TERMINAL:
        conditions = _not_ready(conditions, "PodFailed" if phase == FAILED else "PodCompleted")
    return replace(
        ours,
        phase=phase,
        reason=reason,
        message=message,
        conditions=conditions,
        observed_generation=max(ours.observed_generation, api.observed_generation),
        nominated_node_name=api.nominated_node_name,
        resize=api.resize,
        resource_claim_statuses=api.resource_claim_statuses,
        extended_resource_claim_status=api.extended_resource_claim_status,
        node_allocatable_resource_claim_statuses=api.node_allocatable_resource_claim_statuses,
    )


def _conditions(
    api: Sequence[PodCondition], ours: Sequence[PodCondition], *, disrupted: bool
) -> tuple[PodCondition, ...]:
    wanted = OURS | {DISRUPTION_TARGET} if disrupted else OURS
    written = tuple(c for c in ours if c.type in wanted)
    types = OURS | {c.type for c in written}
    return (*(c for c in api if c.type not in types), *written)


def _not_ready(conditions: Sequence[PodCondition], reason: str) -> tuple[PodCondition, ...]:
    """Nothing of a pod that has ended is ready, whatever was computed."""
    found = [find(conditions, kind) for kind in (READY, CONTAINERS_READY)]
    if not any(c is not None and c.status == TRUE for c in found):
        return tuple(conditions)
    return tuple(
        replace(c, status=FALSE, reason=reason, message="")
        if c.type in (READY, CONTAINERS_READY)
        else c
        for c in conditions
    )


def status_patch(before: PodStatus, after: PodStatus) -> dict[str, Any] | None:
    """The smallest strategic merge patch that turns one status into the other.

    Returns:
        The value of ``status`` in the patch; None when there is nothing to change. Fields that
        neither status knows, and conditions that ``before`` has not, are not touched by it.
    """
    if before == after:
        return None
    return _changes(to_builtins(before), to_builtins(after)) or None


def _changes(before: Plain, after: Plain) -> dict[str, Any]:
    patch: dict[str, Any] = {}
    for name in (*after, *(name for name in before if name not in after)):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if (key := _BY_KEY.get(name)) is not None:
            patch.update(_changed_list(name, key, old or [], new or []))
        elif name in _REPLACED and old and new is not None:
            patch[name] = [_REPLACE, *new]
        elif isinstance(old, Mapping) and isinstance(new, Mapping):
            patch[name] = _changes(old, new)
        else:
            patch[name] = new
    return patch


def _changed_list(
    name: str, key: str, before: Sequence[Plain], after: Sequence[Plain]
) -> dict[str, Any]:
    old, new = _by_key(key, before), _by_key(key, after)
    if len(old) < len(before) or len(new) < len(after):
        # What has a key twice cannot be changed by key.
        return {name: [_REPLACE, *new.values()] if old else [*new.values()]}
    items = [*_changed_items(key, old, new)]
    items += [{_DIRECTIVE: "delete", key: gone} for gone in old if gone not in new]
    if not items:
        return {}
    order = {f"$setElementOrder/{name}": [{key: each} for each in new]} if new else {}
    return {name: items, **order}


def _by_key(key: str, items: Sequence[Plain]) -> dict[str, Plain]:
    # A server lets others write a condition without a type; its key is the empty one.
    return {item.get(key, ""): {key: "", **item} for item in items}


def _changed_items(
    key: str, old: Mapping[str, Plain], new: Mapping[str, Plain]
) -> Iterator[dict[str, Any]]:
    for name, item in new.items():
        if name not in old:
            yield dict(item)
        elif old[name] != item:
            yield {key: name, **_changes(old[name], item)}


def is_part_of(part: Plain, patch: Plain) -> bool:
    """Whether one status patch asks for nothing that another one does not ask for."""
    for name, value in part.items():
        if name.startswith("$setElementOrder/"):
            continue
        asked = patch.get(name)
        if (key := _BY_KEY.get(name)) is not None and asked:
            items = {item.get(key): item for item in asked}
            if not all(_is_within(item, items.get(item.get(key), {})) for item in value):
                return False
        elif name not in patch or value != asked:
            return False
    return True


def _is_within(part: Plain, whole: Plain) -> bool:
    return all(name in whole and whole[name] == value for name, value in part.items())
