"""Which patch turns one Node into another, and whether it is worth sending. Pure.

Rows and their tests: docs/behaviour/node.md, "Reporting".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from nodeagent.api.codec import to_builtins
from nodeagent.api.node import Node, NodeStatus


def node_patch(old: Node, new: Node) -> dict[str, Any]:
    """The strategic merge patch for the status subresource; empty when nothing differs.

    Labels and annotations are part of it, the spec never is. Conditions of others stay: only
    those that differ are in it. Addresses are replaced as a whole when they differ, because the
    server takes two of one type for the same.
    """
    patch: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    for name in ("labels", "annotations"):
        if changed := _map_patch(getattr(old.metadata, name), getattr(new.metadata, name)):
            metadata[name] = changed
    if metadata:
        patch["metadata"] = metadata
    if status := _status_patch(to_builtins(old.status), to_builtins(new.status)):
        patch["status"] = status
    return patch


def _status_patch(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    conditions = _conditions_patch(old.pop("conditions", []), new.pop("conditions", []))
    before, after = old.pop("addresses", []), new.pop("addresses", [])
    patch = _map_patch(old, new)
    if conditions:
        patch["conditions"] = conditions
    if before != after:
        patch["addresses"] = [*after, {"$patch": "replace"}]
    return patch


def _map_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if inner := _map_patch(before, value):
                patch[key] = inner
        elif before != value:
            patch[key] = value
    return patch


def _conditions_patch(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # A server lets others write a condition without a type; its key is the empty one.
    before = {condition.get("type", ""): condition for condition in old}
    changed = []
    for condition in new:
        kind = condition.get("type", "")
        if difference := _map_patch(before.get(kind, {}), condition):
            changed.append({"type": kind, **difference})
    return changed


def differs(old: Node, new: Node) -> bool:
    """Whether there is something to tell beside the time."""
    return (
        _timeless(old.status) != _timeless(new.status)
        or old.metadata.labels != new.metadata.labels
        or old.metadata.annotations != new.metadata.annotations
    )


def _timeless(status: NodeStatus) -> NodeStatus:
    conditions = sorted(
        (replace(c, last_heartbeat_time=None) for c in status.conditions), key=lambda c: c.type
    )
    return replace(status, conditions=tuple(conditions))
