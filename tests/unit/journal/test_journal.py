"""The flight recorder: records, index by pod, followers."""

from __future__ import annotations

import contextlib
import tracemalloc
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.journal import Journal, JournalRecord

pytestmark = pytest.mark.anyio


class Hands:
    """Wall and monotonic time that a test moves."""

    def __init__(self) -> None:
        self.at = 100.0
        self.wall_ns = 1_700_000_000_000_000_000

    def time_ns(self) -> int:
        return self.wall_ns

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.wall_ns / 1e9, UTC)

    def monotonic(self) -> float:
        return self.at


def make_journal(
    hands: Hands | None = None, *, size: int = 100, per_pod: int = 10, pods: int = 5
) -> Journal:
    hands = hands or Hands()
    return Journal(size, per_pod=per_pod, pods=pods, clock=hands, monotonic=hands.monotonic)


BUSY = [f"busy{number}" for number in range(10)]


def whats(records: list[JournalRecord]) -> list[str]:
    return [record.what for record in records]


def test_a_record_says_who_did_what_to_which_pod_when_and_why() -> None:
    hands = Hands()
    journal = make_journal(hands)
    journal.record("pleg", "ContainerDied", "u1", "exit code 3", 0.25, container="web")
    (record,) = journal.select()
    assert record == JournalRecord(
        seq=1,
        at=100.0,
        wall_ns=hands.wall_ns,
        component="pleg",
        what="ContainerDied",
        pod="u1",
        why="exit code 3",
        duration=0.25,
        fields={"container": "web"},
    )


def test_only_what_is_known_is_described_and_zero_is_known() -> None:
    journal = make_journal()
    journal.record("loop", "Turned", duration=0.0)
    (record,) = journal.select()
    assert journal.describe(record) == {
        "seq": 1,
        "at": 100.0,
        "wall_ns": record.wall_ns,
        "component": "loop",
        "what": "Turned",
        "duration": 0.0,
    }
    assert msgspec.json.decode(msgspec.json.encode(journal.describe(record)))["what"] == "Turned"


def test_the_ring_forgets_the_oldest_and_the_numbers_go_on() -> None:
    journal = make_journal(size=3)
    for number in range(5):
        journal.record("t", f"w{number}")
    assert whats(journal.select()) == ["w2", "w3", "w4"]
    assert [r.seq for r in journal.select()] == [3, 4, 5]


def test_the_index_of_a_pod_outlives_its_records_in_the_ring() -> None:
    journal = make_journal(size=3)
    journal.record("t", "first", "u1")
    for _ in range(10):
        journal.record("t", "noise")
    assert whats(journal.select("u1")) == ["first"]


def test_each_pod_keeps_its_newest_records() -> None:
    journal = make_journal(per_pod=2)
    for number in range(4):
        journal.record("t", f"a{number}", "a")
    journal.record("t", "b0", "b")
    assert whats(journal.select("a")) == ["a2", "a3"]
    assert whats(journal.select("b")) == ["b0"]


def test_the_pod_longest_without_a_record_goes_first_and_its_name_with_it() -> None:
    journal = make_journal(pods=2)
    journal.name_pod("a", "default/web")
    journal.record("t", "a0", "a")
    journal.record("t", "b0", "b")
    journal.record("t", "a1", "a")
    journal.record("t", "c0", "c")
    assert whats(journal.select("b")) == []
    assert whats(journal.select("web")) == ["a0", "a1"]
    journal.record("t", "d0", "d")
    journal.record("t", "e0", "e")
    assert journal.select("web") == []
    assert "name" not in journal.describe(JournalRecord(1, 0.0, 0, "t", "w", "a"))


@pytest.mark.parametrize("asked", ["u1", "default/web", "web"])
def test_a_pod_is_found_by_uid_and_by_name(asked: str) -> None:
    journal = make_journal()
    journal.record("t", "before the name", "u1")
    journal.name_pod("u1", "default/web")
    journal.record("t", "other", "u2")
    journal.record("t", "after", "u1")
    found = journal.select(asked)
    assert whats(found) == ["before the name", "after"]
    assert journal.describe(found[0])["name"] == "default/web"


@pytest.mark.parametrize("asked", ["we", "default", "default/", "/web", "kube-system/web", "u"])
def test_part_of_a_name_finds_nothing(asked: str) -> None:
    journal = make_journal()
    journal.name_pod("u1", "default/web")
    journal.record("t", "w", "u1")
    assert journal.select(asked) == []


def test_one_name_may_stand_for_several_uids_in_order_of_writing() -> None:
    journal = make_journal()
    for uid in ("old", "new"):
        journal.name_pod(uid, "default/web")
    journal.record("t", "1", "old")
    journal.record("t", "2", "new")
    journal.record("t", "3", "old")
    assert whats(journal.select("default/web")) == ["1", "2", "3"]


def test_since_takes_records_at_or_after_that_time() -> None:
    hands = Hands()
    journal = make_journal(hands)
    for at in (1.0, 2.0, 3.0):
        hands.at = at
        journal.record("t", f"at {at}", "u1")
    assert whats(journal.select(since=2.0)) == ["at 2.0", "at 3.0"]
    assert whats(journal.select("u1", since=2.5)) == ["at 3.0"]
    assert journal.now == 3.0


def test_many_pods_together_keep_a_bounded_number_and_the_quietest_lose_their_oldest() -> None:
    journal = make_journal(size=200, per_pod=256, pods=2048)
    journal.name_pod("quiet", "default/quiet")
    for number in range(100):
        journal.record("t", f"q{number}", "quiet")
    for number in range(2000):
        journal.record("t", f"w{number}", f"busy{number % 10}")
        assert sum(len(journal.select(pod)) for pod in ("quiet", *BUSY)) <= 400
    assert whats(journal.select("default/quiet")) == [f"q{n}" for n in range(84, 100)]
    assert all(len(journal.select(pod)) >= 16 for pod in BUSY)
    assert whats(journal.select("busy9"))[-1] == "w1999"


def test_very_many_pods_keep_a_few_records_each() -> None:
    journal = make_journal(size=10, per_pod=256, pods=2048)
    for number in range(2000):
        journal.record("t", f"w{number}", f"busy{number % 10}")
    assert all(16 <= len(journal.select(pod)) <= 200 for pod in BUSY)
    assert sum(len(journal.select(pod)) for pod in BUSY) <= 320


@given(
    st.lists(st.sampled_from(["", "a", "b", "c"]), max_size=60),
    st.integers(1, 20),
    st.integers(1, 5),
    st.integers(1, 3),
)
def test_the_bounds_hold_and_the_newest_stay(
    written: list[str], size: int, per_pod: int, pods: int
) -> None:
    journal = make_journal(size=size, per_pod=per_pod, pods=pods)
    kept: dict[str, list[int]] = {}
    for seq, pod in enumerate(written, 1):
        journal.record("t", "w", pod)
        if pod:
            kept[pod] = [*kept.pop(pod, []), seq][-per_pod:]
            kept = dict(list(kept.items())[-pods:])
    assert [r.pod for r in journal.select()] == written[-size:]
    for pod in ("a", "b", "c"):
        assert [r.seq for r in journal.select(pod)] == kept.get(pod, [])


async def test_a_follower_sees_what_is_written_from_now_on() -> None:
    journal = make_journal()
    journal.record("t", "before")
    with journal.follower() as records:
        journal.record("t", "a")
        journal.record("t", "b")
        assert [(await records.receive()).what for _ in range(2)] == ["a", "b"]
    journal.record("t", "after")
    assert journal.missed == 0


async def test_every_follower_sees_everything() -> None:
    journal = make_journal()
    with journal.follower() as one, journal.follower() as two:
        journal.record("t", "a")
        assert (await one.receive()).what == "a"
        assert (await two.receive()).what == "a"


async def test_a_slow_follower_misses_records_and_holds_nobody_up() -> None:
    journal = make_journal()
    with journal.follower(backlog=2) as slow, journal.follower() as quick:
        for number in range(5):
            journal.record("t", f"w{number}")
        assert journal.missed == 3
        assert [slow.receive_nowait().what for _ in range(2)] == ["w0", "w1"]
        assert [quick.receive_nowait().what for _ in range(5)][-1] == "w4"


async def test_a_follower_that_closed_its_stream_does_no_harm() -> None:
    journal = make_journal()
    with journal.follower() as closed, journal.follower() as other:
        closed.close()
        journal.record("t", "a")
        assert other.receive_nowait().what == "a"
    assert whats(journal.select()) == ["a"]


async def test_following_wakes_at_each_record_and_ends_with_its_reader() -> None:
    journal, seen = make_journal(), list[str]()

    async def read() -> None:
        async with aclosing(journal.follow()) as records:
            async for record in records:
                seen.append(record.what)
                if record.what == "stop":
                    break

    async with anyio.create_task_group() as tg:
        tg.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        journal.record("t", "a")
        await anyio.wait_all_tasks_blocked()
        assert seen == ["a"]
        journal.record("t", "stop")
    assert seen == ["a", "stop"]
    assert not journal._followers


async def test_a_cancelled_reader_follows_no_more() -> None:
    journal = make_journal()
    with anyio.move_on_after(5):
        async with aclosing(journal.follow()) as records:
            async for _ in records:
                pass
    assert not journal._followers
    with contextlib.suppress(ValueError), journal.follower():
        raise ValueError
    assert not journal._followers


async def test_the_real_clocks_are_the_default() -> None:
    journal = Journal()
    journal.record("t", "a")
    (record,) = journal.select()
    assert journal.now - record.at >= 0
    assert record.wall_ns > 1_600_000_000 * 10**9


async def test_a_reader_that_misses_records_is_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    journal = Journal()
    with journal.follower(1, name="mine") as mine, journal.follower(1, name="") as quiet:
        for number in range(5):
            journal.record("t", str(number))
        assert (mine.receive_nowait().what, quiet.receive_nowait().what) == ("0", "0")
    assert journal.missed == 8
    assert [(r.getMessage(), r.fields["follower"]) for r in caplog.records] == [  # type: ignore[attr-defined]
        ("follower_slow", "mine")
    ]


def test_long_texts_are_cut() -> None:
    journal = Journal()
    journal.record("t", "x", "u", "a" * 10_000_000, error="b" * 5000, count=3, fine="c" * 4096)
    (record,) = journal.select()
    assert record.why == "a" * 4096 + "... (10000000 characters)"
    assert record.fields == {
        "error": "b" * 4096 + "... (5000 characters)",
        "count": 3,
        "fine": "c" * 4096,
    }


def test_what_json_does_not_know_is_found_again_as_text_or_as_it_was() -> None:
    journal = Journal()
    journal.record("t", "x", path=Path("/a"), pair=(1, 2), odd="\udcff", large=1 << 80)
    journal.record("t", "y", path=Path("/a"), pair=(1, 2))
    kept, packed = journal.select()
    assert kept.fields == {"path": Path("/a"), "pair": (1, 2), "odd": "\udcff", "large": 1 << 80}
    assert packed.fields == {"path": "/a", "pair": [1, 2]}


def test_a_record_takes_few_bytes() -> None:
    tracemalloc.start()
    try:
        journal = Journal(10_000)
        before = tracemalloc.get_traced_memory()[0]
        for number in range(10_000):
            journal.record("pleg", "ContainerDied", f"uid-{number % 50}", id=f"{number:064}")
        size = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert size < 10_000 * 250


def test_its_memory_is_bounded_however_many_pods_come_and_go() -> None:
    journal = Journal(2048, pods=300)

    def churn(first: int) -> int:
        for pod in range(first, first + 800):
            uid = f"uid-{pod}"
            journal.name_pod(uid, f"default/pod-{pod}")
            for step in range(20):
                journal.record("test", "Step", uid, f"step {step} of {pod}", 0.1, number=step)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        sizes = [churn(800 * number) for number in range(1, 4)]
    finally:
        tracemalloc.stop()
    assert max(sizes) < 1.1 * min(sizes)
    assert len(journal.select()) == 2048
