"""docs/behaviour/pleg.md, "Hung pods", "Sending": one bad pod or a full channel harms no other."""

from __future__ import annotations

import anyio
import pytest
from tests.unit.pleg.pleg_builders import (
    EXITED,
    NOT_READY,
    RUNNING,
    UNKNOWN,
    container,
    make_pod,
    sandbox,
)
from tests.unit.pleg.pleg_ring import Ring, running

from nodeagent.model import PodLifecycleEventType, PodUID, RuntimePod
from nodeagent.pleg import InspectionError

pytestmark = pytest.mark.anyio

STARTED = PodLifecycleEventType.CONTAINER_STARTED
DIED = PodLifecycleEventType.CONTAINER_DIED
REMOVED = PodLifecycleEventType.CONTAINER_REMOVED
SYNC = PodLifecycleEventType.POD_SYNC

U = PodUID("u")


def web(uid: str) -> RuntimePod:
    return make_pod(uid, container(f"c-{uid}", RUNNING), sandbox(f"s-{uid}"))


async def test_nineteen_pods_are_seen_while_the_inspection_of_one_hangs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """docs/behaviour/pleg.md, "Hung pods", named: nobody waits.

    "Differences", side by side.
    """
    ring = Ring()
    uids = [f"u{n:02}" for n in range(20)]
    ring.lister.put(*(web(uid) for uid in uids))
    async with running(ring):
        ring.heard()
        ring.lister.hang("u00")
        for uid in uids:
            ring.lister.set_state(uid, f"c-{uid}", EXITED)
        await anyio.sleep(1.5)  # one relist
        assert sorted(ring.heard()) == [(uid, f"c-{uid}", DIED) for uid in uids[1:]]
        await anyio.sleep(6.0)
        health = ring.pleg.healthy()
        assert health.ok
        assert health.cause.startswith(
            "cannot inspect pod default/pod-u00: ContainerStatus has not answered for 6"
        )
        assert (health.pod, health.rpc) == ("u00", "ContainerStatus")
        assert health.since == pytest.approx(1.0, abs=0.01)
        assert ring.sample("nodeagent_pleg_degraded_pods") == 1
        for uid in uids[1:]:
            ring.lister.set_state(uid, f"c-{uid}", RUNNING)
        await anyio.sleep(1.0)
        assert sorted(ring.heard()) == [(uid, f"c-{uid}", STARTED) for uid in uids[1:]]
    warned = [r for r in caplog.records if r.getMessage() == "pod_degraded"]
    assert len(warned) == 1
    assert "Degraded" in ring.recorded("u00")


async def test_a_hung_pod_is_seen_as_soon_as_its_inspection_ends() -> None:
    """docs/behaviour/pleg.md, "Hung pods", recovery."""
    ring = Ring()
    ring.lister.put(web("u"))
    async with running(ring):
        ring.heard()
        gate = ring.lister.hang("u")
        ring.lister.set_state("u", "c-u", EXITED)
        await anyio.sleep(10.0)
        assert ring.heard() == []
        gate.set()
        await anyio.sleep(0.1)
        assert ring.heard() == [("u", "c-u", DIED)]
        await anyio.sleep(1.0)
        assert ring.pleg.healthy().cause == ""
        assert ring.lister.most_per_pod == 1
        assert "Recovered" in ring.recorded("u")


async def test_no_worker_takes_the_record_of_a_hung_pod_for_a_fresh_one() -> None:
    """docs/behaviour/pleg.md, "Hung pods", waiters: an error at the deadline, nothing before."""
    ring = Ring(inspect_timeout=30.0)
    ring.lister.put(web("u"), web("v"))
    async with running(ring):
        ring.lister.hang("u")
        ring.lister.set_state("u", "c-u", EXITED)
        asked = anyio.current_time()
        await anyio.sleep(5.0)
        with anyio.fail_after(1.0):
            await ring.cache.get_newer_than(PodUID("v"), asked + 4.0)
        with anyio.move_on_after(20.0) as patience:
            await ring.cache.get_newer_than(U, asked)
        assert patience.cancelled_caught
        with pytest.raises(InspectionError, match="ContainerStatus: no answer within 30s"):
            await ring.cache.get_newer_than(U, asked)
        assert anyio.current_time() - asked < 32.0
        assert ring.cache.get(U).containers[0].state is RUNNING


async def test_a_new_pod_whose_inspection_hangs_is_not_taken_for_absent() -> None:
    """docs/behaviour/pleg.md, "Hung pods", waiters."""
    ring = Ring()
    async with running(ring):
        ring.lister.hang("u")
        ring.lister.put(web("u"))
        await anyio.sleep(3.0)
        with anyio.move_on_after(5.0) as patience:
            await ring.cache.get_newer_than(U, 0.0)
        assert patience.cancelled_caught


async def test_a_hung_inspection_is_tried_again_and_since_when_is_kept() -> None:
    """docs/behaviour/pleg.md, "Hung pods", deadline."""
    ring = Ring(inspect_timeout=30.0)
    ring.lister.put(web("u"))
    async with running(ring):
        ring.lister.hang("u")
        ring.lister.set_state("u", "c-u", EXITED)
        await anyio.sleep(100.0)
        assert ring.lister.inspected.count("u") == 1 + 4
        assert ring.lister.most_per_pod == 1
        health = ring.pleg.healthy()
        assert health.since == pytest.approx(1.0, abs=0.01)
        assert "ContainerStatus has been failing for 1m39.4" in health.cause
        assert health.cause.endswith(": no answer within 30s")


async def test_each_call_that_answers_gives_the_inspection_more_time() -> None:
    """docs/behaviour/pleg.md, "Hung pods", deadline: progress is not a hang."""
    ring = Ring(inspect_timeout=3.0)
    ring.lister.rounds = 10
    ring.lister.latency = 1.0
    ring.lister.put(web("u"))
    async with running(ring):
        await anyio.sleep(20.0)
        assert ring.heard() == [("u", "c-u", STARTED), ("u", "s-u", STARTED)]
        assert ring.cache.error(U) is None


async def test_forty_hung_inspections_starve_nobody() -> None:
    """docs/behaviour/pleg.md, "Hung pods", slots."""
    ring = Ring()
    hung = [f"h{n:02}" for n in range(40)]
    ring.lister.put(*(web(uid) for uid in hung), web("z"))
    async with running(ring):
        ring.heard()
        for uid in hung:
            ring.lister.hang(uid)
            ring.lister.set_state(uid, f"c-{uid}", EXITED)
        ring.lister.set_state("z", "c-z", EXITED)
        await anyio.sleep(17.0)
        assert ring.heard() == [("z", "c-z", DIED)]
        # Now that they are known to hang they are out of the way altogether.
        await anyio.sleep(30.0)
        ring.lister.set_state("z", "c-z", RUNNING)
        await anyio.sleep(1.1)
        assert ring.heard() == [("z", "c-z", STARTED)]
        assert len(ring.pleg.healthy().degraded) == 40


async def test_inspections_are_bounded_and_side_by_side() -> None:
    """docs/behaviour/pleg.md, "Relist", concurrency."""
    ring = Ring(concurrency=16)
    ring.lister.latency = 0.1
    ring.lister.put(*(web(f"u{n}") for n in range(64)))
    async with running(ring):
        await ring.pleg.settled()
        assert ring.lister.most_at_once == 16
        assert ring.lister.most_per_pod == 1
        assert anyio.current_time() < 1.0  # 64 one after another take 6.4 s
        assert ring.lister.calls["inspect"] == 64


async def test_a_pod_that_vanishes_while_its_inspection_hangs_is_let_go() -> None:
    """docs/behaviour/pleg.md, "Hung pods", gone."""
    ring = Ring()
    ring.lister.put(web("u"))
    async with running(ring):
        ring.heard()
        ring.lister.hang("u")
        ring.lister.set_state("u", "c-u", EXITED)
        await anyio.sleep(8.0)
        ring.lister.remove("u")
        await anyio.sleep(1.1)
        assert ring.heard() == [
            ("u", "c-u", DIED),
            ("u", "c-u", REMOVED),
            ("u", "s-u", DIED),
            ("u", "s-u", REMOVED),
        ]
        assert ring.pleg.healthy().degraded == ()
        await anyio.sleep(1.1)
        assert ring.pleg.tracked == 0
        assert len(ring.cache) == 0


async def test_a_hung_inspection_of_a_state_that_is_past_is_given_up_for_the_new_one() -> None:
    """docs/behaviour/pleg.md, "Hung pods", outdated."""
    ring = Ring(inspect_timeout=1000.0)
    ring.lister.put(web("u"))
    async with running(ring):
        ring.heard()
        ring.lister.hang("u")
        ring.lister.set_state("u", "c-u", EXITED)
        await anyio.sleep(8.0)
        del ring.lister.hanging["u"]
        ring.lister.put(make_pod("u", container("d", RUNNING), sandbox("s-u")))
        await anyio.sleep(1.1)
        assert ring.heard() == [("u", "c-u", DIED), ("u", "c-u", REMOVED), ("u", "d", STARTED)]


async def test_a_state_that_changes_while_it_is_inspected_is_looked_at_again() -> None:
    """docs/behaviour/pleg.md, "Hung pods", waiters: nobody gets the older state as the newer."""
    ring = Ring()
    ring.lister.put(web("u"))
    async with running(ring):
        ring.heard()
        gate = ring.lister.hang("u")
        ring.lister.set_state("u", "c-u", EXITED)
        await anyio.sleep(2.0)
        ring.lister.set_state("u", "c-u", RUNNING)
        await anyio.sleep(1.0)
        asked = anyio.current_time() - 1.0
        gate.set()
        status = await ring.cache.get_newer_than(U, asked)
        assert status.containers[0].state is RUNNING
        assert ring.heard() == [("u", "c-u", DIED), ("u", "c-u", STARTED)]


async def test_two_deaths_and_a_channel_for_one_are_told_within_two_relists() -> None:
    """docs/behaviour/pleg.md, "Sending", full channel; "Differences", never lost."""
    ring = Ring(capacity=1)
    ring.lister.put(
        make_pod("u", container("c-u", RUNNING)), make_pod("v", container("c-v", RUNNING))
    )
    async with running(ring):
        heard = []
        for _ in range(3):
            heard += ring.heard()
            await anyio.sleep(1.0)
        assert sorted(heard) == [("u", "c-u", STARTED), ("v", "c-v", STARTED)]
        ring.lister.set_state("u", "c-u", EXITED)
        ring.lister.set_state("v", "c-v", EXITED)
        await anyio.sleep(1.0)
        heard = ring.heard()
        assert len(heard) == 1
        await anyio.sleep(1.0)
        heard += ring.heard()
        assert sorted(heard) == [("u", "c-u", DIED), ("v", "c-v", DIED)]
        await anyio.sleep(5.0)
        assert ring.heard() == []
        assert (ring.sample("kubelet_pleg_discard_events") or 0) >= 1
        assert "EventsPutOff" in ring.recorded()


async def test_a_channel_for_one_takes_a_pods_many_events_one_by_one() -> None:
    """docs/behaviour/pleg.md, "Sending", full channel: what was said is not said again."""
    ring = Ring(capacity=1)
    ring.lister.put(make_pod("u", *(container(f"c{n}", RUNNING) for n in range(3))))
    async with running(ring):
        heard = ring.heard()
        for _ in range(4):
            await anyio.sleep(1.0)
            heard += ring.heard()
        assert heard == [("u", f"c{n}", STARTED) for n in range(3)]
        inspected = ring.lister.calls["inspect"]
        assert inspected == 1


async def test_a_dead_loop_blocks_nothing_and_a_late_one_still_hears_it_all() -> None:
    """docs/behaviour/pleg.md, "Sending", full channel: the cache goes on."""
    ring = Ring(capacity=1)
    ring.lister.put(web("u"))
    async with running(ring):
        await anyio.sleep(10.0)
        ring.lister.remove("u")
        ring.lister.put(web("v"))
        await anyio.sleep(10.0)
        assert ring.cache.time > 19.0
        assert ring.cache.get(PodUID("v")).containers[0].state is RUNNING
        heard = []
        for _ in range(10):
            heard += ring.heard()
            await anyio.sleep(1.0)
        # Only the start of u was ever told, and it is moot: whoever heard it looks again.
        assert [event for event in heard if event[0] == "u"] == [
            ("u", "c-u", STARTED),
            ("u", "", SYNC),
        ]
        assert {("v", "c-v", STARTED), ("v", "s-v", STARTED)} <= set(heard)
        assert ring.pleg.tracked == 1


async def test_an_event_that_was_said_and_taken_back_ends_in_a_sync() -> None:
    """docs/behaviour/pleg.md, "Sending", taken back."""
    ring = Ring(capacity=1)
    ring.lister.put(make_pod("u", container("a", RUNNING), container("b", RUNNING)))
    async with running(ring):
        for _ in range(3):
            ring.heard()
            await anyio.sleep(1.0)
        ring.lister.put(make_pod("u", container("a", EXITED), container("b", EXITED)))
        await anyio.sleep(1.0)
        assert ring.channel.depth == 1  # a's death; b's did not fit
        ring.lister.put(make_pod("u", container("a", RUNNING), container("b", RUNNING)))
        heard = ring.heard()
        for _ in range(3):
            await anyio.sleep(1.0)
            heard += ring.heard()
        assert heard == [("u", "a", DIED), ("u", "", SYNC)]


async def test_a_closed_channel_is_a_full_one() -> None:
    """docs/behaviour/pleg.md, "Sending", full channel: going down raises nothing."""
    ring = Ring()
    ring.lister.put(web("u"))
    async with running(ring):
        ring.channel.dispose()
        ring.lister.set_state("u", "c-u", EXITED)
        await anyio.sleep(3.0)
        assert ring.cache.get(U).containers[0].state is EXITED


async def test_a_runtime_that_makes_no_sense_is_a_runtime_that_fails() -> None:
    """docs/behaviour/pleg.md, "Relist", inspection fails: whatever is raised is noted."""
    ring = Ring()
    ring.lister.put(web("u"))
    ring.lister.failing_pods["u"] = KeyError("no such thing")
    async with running(ring):
        assert ring.pleg.healthy().cause.endswith("KeyError('no such thing')")
        ring.lister.failing["list_pods"] = ZeroDivisionError()
        await anyio.sleep(2.0)
        assert "ZeroDivisionError" in ring.pleg.healthy().cause
        ring.lister.failing.clear()
        ring.lister.failing_pods.clear()
        await anyio.sleep(2.0)
        assert ring.heard() == [("u", "c-u", STARTED), ("u", "s-u", STARTED)]


async def test_flipping_to_unknown_starts_nothing_twice() -> None:
    """docs/behaviour/pleg.md, "Differences", UNKNOWN: each flip is told once."""
    ring = Ring()
    ring.lister.put(web("u"))
    async with running(ring):
        ring.heard()
        for _ in range(3):
            ring.lister.set_state("u", "c-u", UNKNOWN)
            await anyio.sleep(1.0)
            ring.lister.set_state("u", "c-u", RUNNING)
            await anyio.sleep(1.0)
        assert ring.heard() == [("u", "", SYNC), ("u", "c-u", STARTED)] * 3


async def test_a_sandbox_that_ends_is_told_like_a_container() -> None:
    """docs/behaviour/pleg.md, "Relist", changed."""
    ring = Ring()
    ring.lister.put(web("u"))
    async with running(ring):
        ring.heard()
        ring.lister.put(make_pod("u", container("c-u", RUNNING), sandbox("s-u", NOT_READY)))
        await anyio.sleep(1.0)
        assert ring.heard() == [("u", "s-u", DIED)]
        assert not ring.cache.get(U).has_ready_sandbox
