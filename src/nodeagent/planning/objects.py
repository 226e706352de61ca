"""What a change of manifests would do to ConfigMaps and Secrets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodeagent.api.documents import Identity
from nodeagent.api.objects import ConfigMap, Secret
from nodeagent.objects.refs import ObjectRef, pod_references
from nodeagent.sources.object_selection import ObjectInForce, ObjectSelection
from nodeagent.sources.origin import origin_name
from nodeagent.sources.selection import InForce


@dataclass(frozen=True, slots=True)
class ObjectPlan:
    """What becomes of one ConfigMap or Secret.

    Attributes:
        kind: ``ConfigMap`` or ``Secret``.
        namespace: of the object.
        name: of the object.
        origin: the file that gives it, or gave it.
        what: what becomes of it; keys are named, values never.
        used_by: the pods that refer to it, ``namespace/name``.
    """

    kind: str
    namespace: str
    name: str
    origin: str
    what: str
    used_by: tuple[str, ...] = ()

    @property
    def effect(self) -> str:
        """What pods that use it notice."""
        return "volumes change while they run, environment variables when a container starts next"


def plan_objects(
    before: Mapping[Identity, ObjectInForce],
    after: ObjectSelection,
    pods: Mapping[Identity, InForce],
) -> tuple[ObjectPlan, ...]:
    """Say which ConfigMaps and Secrets would come, change and go.

    Args:
        before: those in force, as far as they are known: what is secret is never on disk.
        after: what would be in force.
        pods: the pods that would be in force.
    """
    users: dict[ObjectRef, list[str]] = {}
    for document in pods.values():
        for ref in pod_references(document.pod):
            meta = document.pod.metadata
            users.setdefault(ref, []).append(f"{meta.namespace}/{meta.name}")
    found = []
    for identity in dict.fromkeys((*after.objects, *before)):
        old, new = before.get(identity), after.objects.get(identity)
        what = _object_change(old, new)
        held = new or old
        if not what or held is None:
            continue
        ref = ObjectRef(identity.kind, identity.namespace, identity.name)
        used_by = tuple(sorted(users.get(ref, ())))
        found.append(
            ObjectPlan(
                identity.kind,
                identity.namespace,
                identity.name,
                origin_name(held.origin),
                what,
                used_by,
            )
        )
    return tuple(found)


def _object_change(old: ObjectInForce | None, new: ObjectInForce | None) -> str:
    if new is None:
        return "remove"
    if old is None:
        if isinstance(new.value, Secret):
            return ""
        return "create"
    if old.written == new.written or not (
        isinstance(old.value, ConfigMap) and isinstance(new.value, ConfigMap)
    ):
        return ""
    before = {**old.value.data, **old.value.binary_data}
    now = {**new.value.data, **new.value.binary_data}
    keys = [k for k in dict.fromkeys((*before, *now)) if before.get(k) != now.get(k)]
    return f"update: {', '.join(keys)}" if keys else "update: its metadata"
