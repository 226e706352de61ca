"""Results by container id, their way to the channels, and the heap of due times."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.channels import Channel
from nodeagent.model import PodUID, ProbeKind, ProbeResult, ProbeUpdate
from nodeagent.probes.results import Outbox, ResultStore, Subject
from nodeagent.probes.schedule import Schedule

pytestmark = pytest.mark.anyio

SUCCESS, FAILURE, UNKNOWN = ProbeResult.SUCCESS, ProbeResult.FAILURE, ProbeResult.UNKNOWN
UID = PodUID("u1")


def subject(kind: ProbeKind, name: str = "main", uid: str = UID) -> Subject:
    return (PodUID(uid), name, kind)


@pytest.mark.parametrize(
    ("kind", "initial"),
    [
        (ProbeKind.READINESS, FAILURE),
        (ProbeKind.LIVENESS, SUCCESS),
        (ProbeKind.STARTUP, UNKNOWN),
    ],
)
def test_br1_nothing_is_told_of_the_initial_result(kind: ProbeKind, initial: ProbeResult) -> None:
    told: list[ProbeUpdate] = []
    store = ResultStore(told.append)
    store.note(subject(kind), "c1", initial)
    assert told == []
    other = FAILURE if initial is not FAILURE else SUCCESS
    assert store.note(subject(kind), "c1", other)
    assert not store.note(subject(kind), "c1", other)
    assert told == [ProbeUpdate(UID, "c1", kind, other)]


def test_br4_another_id_drops_the_result() -> None:
    store = ResultStore(lambda _update: None)
    for kind in ProbeKind:
        store.note(subject(kind), "c1", FAILURE)
    store.begin(subject(ProbeKind.LIVENESS), "c2")
    assert store.get(ProbeKind.LIVENESS, "c1") is None
    assert store.get(ProbeKind.STARTUP, "c1") is FAILURE
    store.begin(subject(ProbeKind.STARTUP), "c1")
    assert store.get(ProbeKind.STARTUP, "c1") is FAILURE
    assert store.view.readiness == {"c1": FAILURE}
    store.forget_pod(UID)
    assert (store.view.readiness, store.view.startup, store.pods()) == ({}, {}, frozenset())


def test_br5_a_snapshot_brings_everything_back() -> None:
    store = ResultStore(lambda _update: None)
    store.note(subject(ProbeKind.LIVENESS), "c1", FAILURE)
    store.note(subject(ProbeKind.READINESS), "c1", SUCCESS)
    store.note(subject(ProbeKind.STARTUP, "side", "u2"), "c2", SUCCESS)
    store.begin(subject(ProbeKind.STARTUP), "c1")
    told: list[ProbeUpdate] = []
    again = ResultStore(told.append)
    again.restore(store.snapshot())
    assert again.view == store.view
    assert again.snapshot() == store.snapshot()
    assert told == []


def update(cid: str, result: ProbeResult = FAILURE) -> ProbeUpdate:
    return ProbeUpdate(UID, cid, ProbeKind.READINESS, result)


async def test_br3_while_the_channel_is_full_the_newest_result_of_each_waits() -> None:
    channel = Channel[ProbeUpdate]("readiness", 2)
    outbox = Outbox(channel)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.run)
        for cid in ("c1", "c2", "c3", "c4", "c5"):
            outbox.post(update(cid))
            await anyio.sleep(0.01)
        # Two lie in the channel, and one stands at its door.
        outbox.post(update("c4", SUCCESS))
        found = []
        for _ in range(5):
            found.append(await channel.receive())
        assert found == [
            *(update(c) for c in ("c1", "c2", "c3", "c5")),
            update("c4", SUCCESS),
        ]
        await anyio.sleep(1)
        assert channel.depth == 0
        outbox.post(update("c9"))
        assert await channel.receive() == update("c9")
        tasks.cancel_scope.cancel()
    channel.dispose()


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | st.integers(0, 20)), max_size=200))
def test_bd5_the_schedule_gives_what_is_due_in_order(plan: list[tuple[str, int | None]]) -> None:
    schedule: Schedule[str] = Schedule()
    wanted: dict[str, tuple[int, int]] = {}
    for n, (item, due) in enumerate(plan):
        if due is None:
            schedule.discard(item)
            wanted.pop(item, None)
        else:
            schedule.set(item, due)
            wanted[item] = (due, n)
    assert len(schedule) == len(wanted)
    for now in range(0, 21, 5):
        due_now = sorted((w, item) for item, w in wanted.items() if w[0] <= now)
        assert schedule.pop_due(now) == [(w[0], item) for w, item in due_now]
        for _, item in due_now:
            del wanted[item]
    assert len(schedule) == 0


async def test_bd5_the_schedule_wakes_for_what_is_set_meanwhile() -> None:
    schedule: Schedule[str] = Schedule()
    start = anyio.current_time()
    woken: list[tuple[float, str]] = []

    async def sleeper() -> None:
        while len(woken) < 3:
            await schedule.wait()
            now = anyio.current_time()
            woken.extend((now - start, item) for _, item in schedule.pop_due(now))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleeper)
        await anyio.sleep(1)
        schedule.set("late", start + 50)
        schedule.set("gone", start + 20)
        await anyio.sleep(1)
        schedule.set("early", start + 10)
        schedule.discard("gone")
        await anyio.sleep(30)
        schedule.set("past", start)
    assert [(round(at, 3), item) for at, item in woken] == [
        (10, "early"),
        (32, "past"),
        (50, "late"),
    ]
