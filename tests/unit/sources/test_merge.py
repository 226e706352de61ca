"""docs/behaviour/merge.md: what a snapshot changes."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeagent.api import Container, ObjectMeta, Pod, PodSpec, PodStatus
from nodeagent.model import PodOp, PodUID
from nodeagent.model.annotations import CONFIG_SEEN, CONFIG_SOURCE
from nodeagent.sources.merge import MergeResult, merge_modified, merge_snapshot

SEEN = "2026-01-01T00:00:00.000000000Z"


def pod(name: str, uid: str = "", image: str = "img", **meta: object) -> Pod:
    metadata = ObjectMeta(name=name, namespace="default", uid=uid or f"uid-{name}")
    return Pod(
        metadata=replace(metadata, **meta),
        spec=PodSpec(containers=(Container(name="c", image=image),)),
    )


def merge(known: MergeResult | None, *pods: Pod, first: bool = False) -> MergeResult:
    before = known.pods if known else {}
    return merge_snapshot("file", before, pods, first=first, seen_at=SEEN)


def ops(result: MergeResult) -> list[tuple[str, list[str]]]:
    return [(u.op.value, [p.metadata.name for p in u.pods]) for u in result.updates]


def test_an_unknown_uid_is_added_and_stamped() -> None:
    """merge.md, M1."""
    result = merge(None, pod("a"))
    assert ops(result) == [("ADD", ["a"])]
    annotations = result.pods[PodUID("uid-a")].metadata.annotations
    assert annotations == {CONFIG_SOURCE: "file", CONFIG_SEEN: SEEN}


def test_a_changed_spec_is_an_update_that_keeps_the_stamp() -> None:
    """merge.md, M2."""
    before = merge(None, pod("a"))
    after = merge_snapshot(
        "file", before.pods, [pod("a", image="other")], first=False, seen_at="later"
    )
    assert ops(after) == [("UPDATE", ["a"])]
    merged = after.pods[PodUID("uid-a")]
    assert merged.spec.containers[0].image == "other"
    assert merged.metadata.annotations[CONFIG_SEEN] == SEEN


def test_changed_labels_annotations_and_grace_are_updates() -> None:
    """merge.md, M2: what counts as a difference."""
    before = merge(None, pod("a"))
    for changed in (
        pod("a", labels={"x": "y"}),
        pod("a", annotations={"x": "y"}),
        pod("a", deletion_grace_period_seconds=3),
    ):
        assert ops(merge(before, changed)) == [("UPDATE", ["a"])]


def test_a_deletion_timestamp_asks_for_graceful_deletion() -> None:
    """merge.md, M3."""
    before = merge(None, pod("a"))
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert ops(merge(before, pod("a", deletion_timestamp=now))) == [("DELETE", ["a"])]


def test_a_foreign_status_change_is_reconciled() -> None:
    """merge.md, M4."""
    before = merge(None, pod("a"))
    changed = replace(pod("a"), status=PodStatus(phase="Failed"))
    after = merge(before, changed)
    assert ops(after) == [("RECONCILE", ["a"])]
    assert after.pods[PodUID("uid-a")].status.phase == "Failed"


def test_nothing_new_is_nothing_and_copies_nothing() -> None:
    """merge.md, M5: resourceVersion and the like stay as they were."""
    before = merge(None, pod("a"))
    after = merge(before, pod("a", resource_version="7", finalizers=("f",)))
    assert ops(after) == []
    assert after.pods[PodUID("uid-a")] is before.pods[PodUID("uid-a")]


def test_a_pod_that_left_the_snapshot_is_removed() -> None:
    """merge.md, M7."""
    before = merge(None, pod("a"), pod("b"))
    assert ops(merge(before, pod("b"))) == [("REMOVE", ["a"])]


def test_another_name_under_a_known_uid_is_another_pod() -> None:
    """merge.md, M6."""
    before = merge(None, pod("a", uid="1"), pod("b", uid="2"))
    after = merge(before, pod("c", uid="1"))
    assert ops(after) == [("REMOVE", ["a", "b"]), ("ADD", ["c"])]
    assert after.pods.keys() == {PodUID("1")}


def test_local_annotations_of_the_new_version_do_not_count() -> None:
    """merge.md, M8."""
    before = merge(None, pod("a"))
    changed = pod("a", annotations={CONFIG_SOURCE: "api", CONFIG_SEEN: "never"})
    assert ops(merge(before, changed)) == []


def test_updates_come_in_their_order() -> None:
    """merge.md, M10."""
    before = merge(None, pod("gone"), pod("changed"), pod("deleted"), pod("status"))
    after = merge(
        before,
        replace(pod("status"), status=PodStatus(phase="Failed")),
        pod("deleted", deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC)),
        pod("changed", image="x"),
        pod("new"),
    )
    assert [op for op, _ in ops(after)] == ["REMOVE", "ADD", "UPDATE", "DELETE", "RECONCILE"]


def test_a_first_empty_snapshot_is_an_empty_add() -> None:
    """merge.md, M11: the loop must learn that the source has spoken."""
    assert ops(merge(None, first=True)) == [("ADD", [])]
    assert ops(merge(None, first=False)) == []
    assert ops(merge(None, pod("a"), first=True)) == [("ADD", ["a"])]


def test_a_repeated_full_name_is_ignored_and_reported() -> None:
    """merge.md, M9."""
    result = merge(None, pod("a", uid="one"), pod("a", uid="two"))
    assert ops(result) == [("ADD", ["a"])]
    assert [p.metadata.uid for p in result.duplicates] == ["two"]


names = st.sampled_from(["a", "b", "c"])
pods = st.builds(
    pod, names, uid=st.sampled_from(["1", "2", "3", "4"]), image=st.sampled_from(["x", "y"])
)
snapshots = st.lists(
    st.lists(pods, max_size=4, unique_by=lambda p: p.metadata.uid), min_size=1, max_size=6
)


def kept(snapshot: list[Pod]) -> dict[str, Pod]:
    seen: set[str] = set()
    out: dict[str, Pod] = {}
    for p in snapshot:
        if p.metadata.name not in seen:
            seen.add(p.metadata.name)
            out[p.metadata.uid] = p
    return out


@given(snapshots)
def test_replaying_the_updates_rebuilds_the_snapshot(history: list[list[Pod]]) -> None:
    """merge.md, M13: updates say everything that a snapshot changes, in order."""
    known: MergeResult | None = None
    world: dict[str, Pod] = {}
    for number, snapshot in enumerate(history):
        known = merge(known, *snapshot, first=number == 0)
        for update in known.updates:
            for p in update.pods:
                if update.op is PodOp.REMOVE:
                    assert world[p.metadata.uid].metadata.name == p.metadata.name
                    del world[p.metadata.uid]
                else:
                    world[p.metadata.uid] = p
        wanted = kept(snapshot)
        assert world.keys() == wanted.keys()
        assert all(world[u].spec == wanted[u].spec for u in wanted)
        assert all(world[u].metadata.name == wanted[u].metadata.name for u in wanted)


@given(snapshots)
def test_merging_the_same_snapshot_twice_changes_nothing(history: list[list[Pod]]) -> None:
    """merge.md, M12: the merge is idempotent."""
    once = merge(None, *history[0])
    twice = merge(once, *history[0])
    assert twice.updates == ()
    assert twice.pods == once.pods


@given(snapshots, st.lists(st.sampled_from(["replace", "swap", "same", "again"]), max_size=6))
def test_what_only_changed_is_merged_as_the_whole_would_be(
    history: list[list[Pod]], steps: list[str]
) -> None:
    """merge.md, M14: nothing is lost where only what has changed is looked at."""
    known, came = merge(None, *history[0]), history[0]
    for step, fallback in zip(steps, history[1:] + [history[0]] * 6, strict=False):
        now = list(came)
        match step:
            case "replace" if now:
                now[0] = replace(now[0], spec=PodSpec(node_name=step))
            case "swap" if now:
                now[-1] = replace(now[-1], metadata=replace(now[-1].metadata, uid="other"))
            case "again":
                now = list(fallback)
        whole = merge(known, *now)
        if not known.duplicates:
            quick = merge_modified("file", known.pods, {id(p): p for p in came}, now)
            if quick is not None:
                assert quick == whole
        known, came = whole, now


def test_a_pod_that_was_replaced_is_all_that_is_looked_at() -> None:
    """merge.md, M14."""
    before, pods = merge(None, pod("a"), pod("b")), [pod("a"), pod("b")]
    now = [pods[0], replace(pods[1], status=PodStatus(phase="Running"))]
    quick = merge_modified("file", before.pods, {id(p): p for p in pods}, now)
    assert quick is not None
    assert ops(quick) == [("RECONCILE", ["b"])]
    for more in ([*now, pod("c")], now[:1], [now[0], pod("b2", uid="uid-b")]):
        assert merge_modified("file", before.pods, {id(p): p for p in pods}, more) is None
