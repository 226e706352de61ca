"""The second stage of the merge: what one snapshot changes. Pure (docs/behaviour/merge.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from nodeagent.api import Pod
from nodeagent.model import FullName, PodOp, PodUID, PodUpdate, full_name
from nodeagent.model.annotations import CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE

LOCAL_ANNOTATIONS: Final = frozenset({CONFIG_SOURCE, CONFIG_MIRROR, CONFIG_SEEN})
"""Set by the agent, so a difference in them means nothing and the known value stays."""


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What a snapshot comes to.

    Attributes:
        updates: in the order in which they must be handled.
        pods: the source's pods afterwards.
        duplicates: entries ignored because an earlier one has the same full name.
    """

    updates: tuple[PodUpdate, ...]
    pods: Mapping[PodUID, Pod]
    duplicates: tuple[Pod, ...]


def merge_snapshot(
    source: str,
    known: Mapping[PodUID, Pod],
    snapshot: Sequence[Pod],
    *,
    first: bool,
    seen_at: str,
) -> MergeResult:
    """Compare a snapshot with what is known of its source.

    Args:
        source: the source's name.
        known: its pods after the last snapshot.
        snapshot: its pods now; every pod has a UID.
        first: no snapshot of this source was merged before.
        seen_at: RFC 3339 time with nanoseconds, stamped on new pods.
    """
    ops: dict[PodOp, list[Pod]] = {op: [] for op in PodOp}
    pods: dict[PodUID, Pod] = {}
    taken: set[FullName] = set()
    duplicates: list[Pod] = []
    for pod in snapshot:
        name = full_name(pod.metadata.name, pod.metadata.namespace)
        if name in taken:
            duplicates.append(pod)
            continue
        taken.add(name)
        uid = PodUID(pod.metadata.uid)
        old = known.get(uid)
        if old is not None and _renamed(old, pod):
            # Another name under the same UID is another pod: the old one ends first.
            ops[PodOp.REMOVE].append(old)
            old = None
        op, merged = _new(source, pod, seen_at) if old is None else _compare(old, pod)
        pods[uid] = merged
        if op is not None:
            ops[op].append(merged)
    ops[PodOp.REMOVE] += [pod for uid, pod in known.items() if uid not in pods]
    return MergeResult(_ordered(source, ops, first=first), pods, tuple(duplicates))


def merge_modified(
    source: str, known: Mapping[PodUID, Pod], came: Mapping[int, Pod], snapshot: Sequence[Pod]
) -> MergeResult | None:
    """What ``merge_snapshot`` says, at the cost of what has changed; None when it must be asked.

    A source passes pods on that have not changed as the objects they were. Where some have only
    been replaced, each by one of the same UID and name, nothing else need be looked at.

    Args:
        source: the source's name.
        known: its pods after the last snapshot, which had no duplicates.
        came: the pods of the last snapshot as they came, by ``id``.
        snapshot: its pods now.
    """
    ids = frozenset(map(id, snapshot))
    if not len(ids) == len(snapshot) == len(came) == len(known):
        return None
    fresh_ids, gone_ids = ids - came.keys(), came.keys() - ids
    fresh = {PodUID(p.metadata.uid): p for p in snapshot if id(p) in fresh_ids}
    if fresh.keys() != {came[gone].metadata.uid for gone in gone_ids}:
        return None
    ops: dict[PodOp, list[Pod]] = {op: [] for op in PodOp}
    pods = dict(known)
    for uid, pod in fresh.items():
        old = known[uid]
        if _renamed(old, pod):
            return None
        op, pods[uid] = _compare(old, pod)
        if op is not None:
            ops[op].append(pods[uid])
    return MergeResult(_ordered(source, ops, first=False), pods, ())


def _ordered(
    source: str, ops: Mapping[PodOp, Sequence[Pod]], *, first: bool
) -> tuple[PodUpdate, ...]:
    order = [PodOp.REMOVE, PodOp.ADD, PodOp.UPDATE, PodOp.DELETE]
    updates = [PodUpdate(op, tuple(ops[op]), source) for op in order if ops[op]]
    if first and not any(ops[op] for op in (PodOp.ADD, PodOp.UPDATE, PodOp.DELETE)):
        # Nothing to do, but the loop must learn that the source has spoken.
        updates.append(PodUpdate(PodOp.ADD, (), source))
    if ops[PodOp.RECONCILE]:
        updates.append(PodUpdate(PodOp.RECONCILE, tuple(ops[PodOp.RECONCILE]), source))
    return tuple(updates)


def _renamed(old: Pod, new: Pod) -> bool:
    before, after = old.metadata, new.metadata
    return (before.name, before.namespace) != (after.name, after.namespace)


def _new(source: str, pod: Pod, seen_at: str) -> tuple[PodOp, Pod]:
    annotations = {**pod.metadata.annotations, CONFIG_SOURCE: source, CONFIG_SEEN: seen_at}
    return PodOp.ADD, replace(pod, metadata=replace(pod.metadata, annotations=annotations))


def _compare(old: Pod, new: Pod) -> tuple[PodOp | None, Pod]:
    if semantic_difference(old, new):
        op = PodOp.UPDATE if new.metadata.deletion_timestamp is None else PodOp.DELETE
        return op, _copied(old, new)
    if old.status != new.status:
        return PodOp.RECONCILE, replace(old, status=new.status)
    return None, old


def semantic_difference(old: Pod, new: Pod) -> bool:
    """Whether two versions of a pod differ in what the agent acts on."""
    before, after = old.metadata, new.metadata
    return (
        before.deletion_timestamp != after.deletion_timestamp
        or before.deletion_grace_period_seconds != after.deletion_grace_period_seconds
        or before.labels != after.labels
        or _foreign(before.annotations) != _foreign(after.annotations)
        or (old.spec is not new.spec and old.spec != new.spec)
    )


def _foreign(annotations: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in annotations.items() if k not in LOCAL_ANNOTATIONS}


def _copied(old: Pod, new: Pod) -> Pod:
    local = {k: v for k, v in old.metadata.annotations.items() if k in LOCAL_ANNOTATIONS}
    metadata = replace(
        old.metadata,
        labels=new.metadata.labels,
        annotations={**_foreign(new.metadata.annotations), **local},
        deletion_timestamp=new.metadata.deletion_timestamp,
        deletion_grace_period_seconds=new.metadata.deletion_grace_period_seconds,
        generation=new.metadata.generation,
    )
    return replace(old, metadata=metadata, spec=new.spec, status=new.status)
