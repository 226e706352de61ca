"""docs/behaviour/merge.md: storage and mux around the pure merge."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.api import Container, ObjectMeta, Pod, PodSpec, PodStatus
from nodeagent.api.times import rfc3339_nano
from nodeagent.channels import Channel
from nodeagent.journal import Journal
from nodeagent.model import PodOp, PodUID, PodUpdate, Snapshot
from nodeagent.model.annotations import CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE
from nodeagent.sources import PodMux, PodStorage
from nodeagent.sources.merge import merge_snapshot

pytestmark = pytest.mark.anyio

NOW_NS = 1_767_225_600_000_000_007


class Stopped:
    """A wall clock that stands."""

    def time_ns(self) -> int:
        return NOW_NS

    def now(self) -> datetime:
        return datetime.fromtimestamp(NOW_NS // 10**9, UTC)


def pod(name: str, uid: str = "", image: str = "img") -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=uid or f"u-{name}"),
        spec=PodSpec(containers=(Container(name="c", image=image),)),
    )


def make_storage() -> tuple[PodStorage, Journal]:
    journal = Journal()
    return PodStorage(Stopped(), journal), journal


def ops(updates: tuple[PodUpdate, ...]) -> list[tuple[str, str, list[str]]]:
    return [(u.op.value, u.source, [p.metadata.name for p in u.pods]) for u in updates]


def test_the_time_a_pod_was_first_seen_has_nine_digits() -> None:
    assert rfc3339_nano(NOW_NS) == "2026-01-01T00:00:00.000000007Z"
    assert rfc3339_nano(0) == "1970-01-01T00:00:00.000000000Z"
    assert rfc3339_nano(1_999_999_999_999_999_999) == "2033-05-18T03:33:19.999999999Z"


def test_each_source_has_pods_of_its_own() -> None:
    """merge.md: pods of different sources never meet in the merge."""
    storage, _ = make_storage()
    assert ops(storage.merge(Snapshot("file", (pod("web"),)))) == [("ADD", "file", ["web"])]
    assert ops(storage.merge(Snapshot("api", (pod("web"),)))) == [("ADD", "api", ["web"])]
    assert ops(storage.merge(Snapshot("file", ()))) == [("REMOVE", "file", ["web"])]
    assert list(storage.pods("file")) == []
    assert list(storage.pods("api")) == [PodUID("u-web")]
    assert list(storage.pods("http")) == []


def test_a_new_pod_is_stamped_with_source_and_time_once() -> None:
    """merge.md, M1."""
    storage, _ = make_storage()
    storage.merge(Snapshot("file", (pod("web"),)))
    kept = storage.pods("file")[PodUID("u-web")]
    assert kept.metadata.annotations == {
        CONFIG_SOURCE: "file",
        CONFIG_SEEN: "2026-01-01T00:00:00.000000007Z",
    }


def test_a_source_is_seen_after_its_first_snapshot_also_when_empty() -> None:
    """merge.md, M11: the sync loop must learn that the source has spoken."""
    storage, _ = make_storage()
    assert storage.seen_sources == frozenset()
    assert ops(storage.merge(Snapshot("file", ()))) == [("ADD", "file", [])]
    assert storage.seen_sources == {"file"}
    assert storage.merge(Snapshot("file", ())) == ()


def heard(updates: Iterable[PodUpdate]) -> list[tuple[str, bool]]:
    return [(update.op.value, update.heard) for update in updates]


def test_what_is_remembered_adds_pods_but_is_no_word_of_the_source() -> None:
    """workers.md, A4."""
    storage, _ = make_storage()
    memory = Snapshot("api", (pod("kept"), pod("gone"), pod("changed")), remembered=True)
    assert heard(storage.merge(memory)) == [("ADD", False)]
    assert storage.seen_sources == frozenset()
    changed = replace(pod("changed"), metadata=replace(pod("changed").metadata, labels={"a": "b"}))
    said = storage.merge(Snapshot("api", (pod("kept"), pod("new"), changed)))
    assert heard(said) == [("REMOVE", False), ("ADD", False), ("UPDATE", True)]
    assert storage.seen_sources == {"api"}
    assert heard(storage.merge(Snapshot("api", ()))) == [("REMOVE", True)]


def test_a_source_that_confirms_what_it_remembered_is_heard() -> None:
    """workers.md, A4; merge.md, M11."""
    storage, _ = make_storage()
    storage.merge(Snapshot("api", (pod("kept"),), remembered=True))
    assert heard(storage.merge(Snapshot("api", (pod("kept"),)))) == [("ADD", True)]
    assert storage.merge(Snapshot("api", (pod("kept"),))) == ()


def test_the_empty_addition_stands_before_a_reconcile() -> None:
    """merge.md, M11: a first snapshot that leads to neither ADD nor UPDATE nor DELETE."""
    known = merge_snapshot("api", {}, [pod("web")], first=False, seen_at="t").pods
    changed = replace(pod("web"), status=PodStatus(phase="Failed"))
    result = merge_snapshot("api", known, [changed], first=True, seen_at="t")
    assert ops(result.updates) == [("ADD", "api", []), ("RECONCILE", "api", ["web"])]
    result = merge_snapshot("api", known, [], first=True, seen_at="t")
    assert ops(result.updates) == [("REMOVE", "api", ["web"]), ("ADD", "api", [])]


def test_update_and_delete_copy_generation_and_status_and_keep_the_rest() -> None:
    """merge.md, M2, M3: what a difference copies and what stays."""
    storage, _ = make_storage()
    storage.merge(Snapshot("api", (pod("web"),)))
    meta = replace(
        pod("web").metadata,
        generation=4,
        resource_version="9",
        labels={"a": "b"},
        finalizers=("f",),
    )
    changed = replace(pod("web"), metadata=meta, status=PodStatus(phase="Running"))
    assert ops(storage.merge(Snapshot("api", (changed,)))) == [("UPDATE", "api", ["web"])]
    kept = storage.pods("api")[PodUID("u-web")]
    assert (kept.metadata.generation, kept.metadata.labels) == (4, {"a": "b"})
    assert kept.status.phase == "Running"
    assert (kept.metadata.resource_version, kept.metadata.finalizers) == ("", ())
    gone = replace(
        changed, metadata=replace(meta, generation=5, deletion_timestamp=Stopped().now())
    )
    assert ops(storage.merge(Snapshot("api", (gone,)))) == [("DELETE", "api", ["web"])]
    assert storage.pods("api")[PodUID("u-web")].metadata.generation == 5


def test_known_local_annotations_stay_when_the_rest_changes() -> None:
    """merge.md, M8: the known values stay."""
    storage, _ = make_storage()
    first = replace(
        pod("web"), metadata=replace(pod("web").metadata, annotations={CONFIG_MIRROR: "m"})
    )
    storage.merge(Snapshot("api", (first,)))
    before = dict(storage.pods("api")[PodUID("u-web")].metadata.annotations)
    notes = {CONFIG_SOURCE: "x", CONFIG_SEEN: "y", CONFIG_MIRROR: "z", "mine": "1"}
    changed = replace(pod("web"), metadata=replace(pod("web").metadata, annotations=notes))
    assert ops(storage.merge(Snapshot("api", (changed,)))) == [("UPDATE", "api", ["web"])]
    assert storage.pods("api")[PodUID("u-web")].metadata.annotations == {**before, "mine": "1"}


def test_a_duplicate_is_reported_once_and_again_when_it_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """merge.md, M9: reported once, in the log and in the journal."""
    storage, journal = make_storage()
    both = Snapshot("file", (pod("web", "one"), pod("web", "two")))
    for _ in range(3):
        storage.merge(both)
    (record,) = journal.select()
    assert (record.component, record.what, record.pod) == ("config", "FailedValidation", "two")
    assert record.why == (
        'Error validating pod web_default(two) from file due to duplicate pod name "web", ignoring'
    )
    assert [r.getMessage() for r in caplog.records] == ["duplicate_pod"]
    storage.merge(Snapshot("file", (pod("web", "one"),)))
    storage.merge(both)
    assert len(journal.select()) == 2


def test_the_same_duplicate_of_two_sources_is_reported_for_each() -> None:
    """merge.md, M9."""
    storage, journal = make_storage()
    pods = (pod("web", "one"), pod("web", "two"))
    storage.merge(Snapshot("file", pods))
    storage.merge(Snapshot("http", pods))
    assert len(journal.select()) == 2


class Ring:
    """A mux with a channel of one slot."""

    def __init__(self) -> None:
        self.storage, _ = make_storage()
        self.channel = Channel[PodUpdate]("config", 1)
        self.mux = PodMux(self.storage, self.channel)

    async def receive(self) -> tuple[str, str, list[str]]:
        (found,) = ops((await self.channel.receive(),))
        return found


async def test_updates_reach_the_channel_in_order() -> None:
    """merge.md, M14: updates reach the config channel in order."""
    ring = Ring()
    async with anyio.create_task_group() as tg:
        tg.start_soon(ring.mux.publish, Snapshot("file", (pod("a"), pod("b"))))
        assert await ring.receive() == ("ADD", "file", ["a", "b"])
        tg.start_soon(ring.mux.publish, Snapshot("file", (pod("b", image="x"), pod("c"))))
        await anyio.wait_all_tasks_blocked()
        assert await ring.receive() == ("REMOVE", "file", ["a"])
        assert await ring.receive() == ("ADD", "file", ["c"])
        assert await ring.receive() == ("UPDATE", "file", ["b"])
    ring.channel.dispose()


async def test_snapshots_of_several_sources_do_not_mix() -> None:
    """merge.md, M14: one snapshot's updates after the other's."""
    ring, got = Ring(), list[tuple[str, str, list[str]]]()
    await ring.mux.publish(Snapshot("file", (pod("a"),)))
    async with anyio.create_task_group() as tg:
        tg.start_soon(ring.mux.publish, Snapshot("file", (pod("b"),)))
        tg.start_soon(ring.mux.publish, Snapshot("api", (pod("x"),)))
        await anyio.wait_all_tasks_blocked()
        # The second source waits its turn: nothing of it is merged yet.
        assert ring.storage.seen_sources == {"file"}
        got += [await ring.receive() for _ in range(4)]
    assert got == [
        ("ADD", "file", ["a"]),
        ("REMOVE", "file", ["a"]),
        ("ADD", "file", ["b"]),
        ("ADD", "api", ["x"]),
    ]
    ring.channel.dispose()


async def test_a_source_cancelled_while_it_waits_for_room_loses_nothing() -> None:
    """merge.md, M14: also when the source is cancelled while it waits for room."""
    ring = Ring()
    await ring.mux.publish(Snapshot("file", (pod("a"),)))
    with anyio.move_on_after(5) as scope:
        await ring.mux.publish(Snapshot("file", (pod("b"),)))
    assert scope.cancelled_caught
    got = []
    async with anyio.create_task_group() as tg:
        tg.start_soon(ring.mux.publish, Snapshot("api", (pod("x"),)))
        got += [await ring.receive() for _ in range(4)]
    assert got == [
        ("ADD", "file", ["a"]),
        ("REMOVE", "file", ["a"]),
        ("ADD", "file", ["b"]),
        ("ADD", "api", ["x"]),
    ]
    ring.channel.dispose()


async def test_an_update_taken_while_its_source_is_cancelled_is_not_sent_twice() -> None:
    """merge.md, M14: a pod added twice might run twice."""
    ring, scope = Ring(), anyio.CancelScope()
    await ring.mux.publish(Snapshot("file", (pod("a"),)))

    async def publish() -> None:
        with scope:
            await ring.mux.publish(Snapshot("file", (pod("a"), pod("b"))))

    async with anyio.create_task_group() as tg:
        tg.start_soon(publish)
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
        got = list(ops((ring.channel.receive_nowait(),)))
        await anyio.wait_all_tasks_blocked()
        tg.start_soon(ring.mux.publish, Snapshot("api", ()))
        got += [await ring.receive() for _ in range(2)]
        await anyio.wait_all_tasks_blocked()
    assert got == [("ADD", "file", ["a"]), ("ADD", "file", ["b"]), ("ADD", "api", [])]
    assert ring.channel.depth == 0
    ring.channel.dispose()


async def test_the_same_snapshot_again_sends_nothing() -> None:
    """merge.md, M12: merging the same snapshot twice changes nothing."""
    ring = Ring()
    for _ in range(3):
        await ring.mux.publish(Snapshot("file", (pod("a"),)))
    assert ring.channel.stats.sent == 1
    assert ring.channel.receive_nowait().op is PodOp.ADD
    ring.channel.dispose()
