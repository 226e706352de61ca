"""docs/behaviour/pleg.md, "Event feeds": who tells of changes, and whether to believe it."""

from __future__ import annotations

from collections import Counter

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
from tests.unit.pleg.pleg_feeds import ScriptedFeed, following
from tests.unit.pleg.pleg_ring import Ring

from nodeagent.cri.events import Effect
from nodeagent.model import PodLifecycleEventType, PodUID, RuntimePod

pytestmark = pytest.mark.anyio

STARTED = PodLifecycleEventType.CONTAINER_STARTED
DIED = PodLifecycleEventType.CONTAINER_DIED
SYNC = PodLifecycleEventType.POD_SYNC

U = PodUID("u")


def web(uid: str = "u") -> RuntimePod:
    return make_pod(uid, container(f"c-{uid}", RUNNING), sandbox(f"s-{uid}"))


def relists(ring: Ring) -> int:
    return ring.lister.calls["list_pods"]


async def relists_in(ring: Ring, seconds: float) -> int:
    before = relists(ring)
    await anyio.sleep(seconds)
    return relists(ring) - before


async def test_the_first_feed_that_exists_is_followed() -> None:
    """docs/behaviour/pleg.md, "Event feeds", order."""
    ring = Ring()
    cri, own = ScriptedFeed("cri", missing=True), ScriptedFeed("containerd")
    async with following(ring, cri, own):
        assert own.followed
        assert ring.pleg.healthy().events == "events from containerd"
        assert ring.sample("nodeagent_pleg_events_trusted") == 1
        assert ring.sample("kubelet_evented_pleg_connection_success_count") == 1
        assert ring.sample("kubelet_evented_pleg_connection_error_count") == 0
        assert ring.recorded().count("FeedOpened") == 1
        await anyio.sleep(3600)
        assert cri.runs == 1


async def test_a_runtime_without_feeds_is_asked_again_now_and_then() -> None:
    """docs/behaviour/pleg.md, "Event feeds", order: a newer runtime may have one."""
    ring = Ring()
    feed = ScriptedFeed(missing=True)
    async with following(ring, feed):
        assert ring.pleg.healthy().events == "no events, the relist finds every change"
        assert ring.sample("nodeagent_pleg_events_trusted") == 0
        await anyio.sleep(599)
        assert feed.runs == 1 + 1
        feed.missing = False
        await anyio.sleep(601)
        assert feed.followed
        assert ring.pleg.healthy().events == "events from cri"


async def test_a_feed_that_breaks_in_ways_of_its_own_harms_nothing() -> None:
    """docs/behaviour/pleg.md, "Event feeds", order: a broken feed is none."""
    ring = Ring()
    feed = ScriptedFeed()
    feed.fault = ZeroDivisionError("of an embedder")
    async with following(ring, feed):
        ring.lister.put(web())
        await anyio.sleep(1.1)
        assert ring.heard() == [("u", "c-u", STARTED), ("u", "s-u", STARTED)]
        assert "FeedFailed" in ring.recorded()


async def test_an_event_has_its_pod_looked_at_at_once() -> None:
    """docs/behaviour/pleg.md, "Event feeds", hint."""
    ring = Ring(period=1000.0, evented_period=1000.0)
    ring.lister.put(web())
    feed = ScriptedFeed()
    async with following(ring, feed):
        ring.heard()
        ring.lister.set_state("u", "c-u", EXITED)
        feed.say("u", "c-u", Effect.ENDED)
        await anyio.sleep(0.01)
        assert ring.heard() == [("u", "c-u", DIED)]
        assert ring.sample("nodeagent_pleg_events_total", feed="cri") == 1


async def test_an_event_that_names_no_pod_finds_it_by_the_container() -> None:
    """docs/behaviour/pleg.md, "Event feeds", hint: containerd names only ids."""
    ring = Ring(period=1000.0, evented_period=1000.0)
    ring.lister.put(web("u"), web("v"))
    feed = ScriptedFeed()
    async with following(ring, feed):
        ring.heard()
        ring.lister.set_state("v", "c-v", EXITED)
        feed.say("", "c-v", Effect.ENDED)
        await anyio.sleep(0.01)
        assert ring.heard() == [("v", "c-v", DIED)]
        ring.lister.put(make_pod("v", container("c-v", EXITED), sandbox("s-v", NOT_READY)))
        feed.say("", "s-v", Effect.ENDED)
        await anyio.sleep(0.01)
        assert ring.heard() == [("v", "s-v", DIED)]


async def test_an_event_about_something_unknown_has_all_pods_looked_at() -> None:
    """docs/behaviour/pleg.md, "Event feeds", unknown."""
    ring = Ring(period=1000.0, evented_period=1000.0)
    feed = ScriptedFeed()
    async with following(ring, feed):
        ring.lister.put(web())
        before = relists(ring)
        for _ in range(50):
            feed.say("", "s-u")
        await anyio.sleep(0.6)
        assert ring.heard() == [("u", "c-u", STARTED), ("u", "s-u", STARTED)]
        assert relists(ring) == before + 1
        for _ in range(50):
            feed.say("", "nobody's", Effect.ENDED)
        await anyio.sleep(0.1)
        assert relists(ring) == before + 2


@pytest.mark.parametrize("effect", [Effect.ENDING, Effect.ENDED])
async def test_an_end_that_the_runtime_does_not_show_yet_is_asked_for(effect: Effect) -> None:
    """docs/behaviour/pleg.md, "Event feeds", early end."""
    ring = Ring(period=1000.0, evented_period=1000.0)
    ring.lister.put(web())
    feed = ScriptedFeed()
    async with following(ring, feed):
        ring.heard()
        feed.say("u", "c-u", effect)
        await anyio.sleep(0.05)
        assert ring.heard() == []
        ring.lister.set_state("u", "c-u", EXITED)
        await anyio.sleep(0.05)
        assert ring.heard() == [("u", "c-u", DIED)]
        calls = dict(ring.lister.calls)
        await anyio.sleep(10)
        assert ring.lister.calls == calls


async def test_an_end_announced_again_is_asked_for_from_the_start() -> None:
    """docs/behaviour/pleg.md, "Event feeds", early end: exit, then delete."""
    ring = Ring(period=1000.0, evented_period=1000.0)
    ring.lister.put(web())
    feed = ScriptedFeed()
    async with following(ring, feed):
        ring.heard()
        feed.say("u", "c-u", Effect.ENDING)
        await anyio.sleep(0.3)
        feed.say("u", "c-u", Effect.ENDING)
        ring.lister.set_state("u", "c-u", EXITED)
        await anyio.sleep(0.02)
        assert ring.heard() == [("u", "c-u", DIED)]


async def test_an_end_that_shows_is_looked_at_without_a_pause() -> None:
    """docs/behaviour/pleg.md, "Event feeds", early end: the pod is looked at at once."""
    ring = Ring(period=1000.0, evented_period=1000.0, request_delay=5.0)
    ring.lister.put(web())
    feed = ScriptedFeed()
    async with following(ring, feed):
        ring.heard()
        ring.lister.set_state("u", "c-u", EXITED)
        feed.say("u", "c-u", Effect.ENDING)
        await anyio.sleep(0.1)
        assert ring.heard() == [("u", "c-u", DIED)]


async def test_an_event_that_is_wrong_costs_a_few_calls() -> None:
    """docs/behaviour/pleg.md, "Event feeds", early end: it is given up."""
    ring = Ring(period=1000.0, evented_period=1000.0)
    ring.lister.put(web())
    feed = ScriptedFeed()
    async with following(ring, feed):
        ring.heard()
        feed.say("u", "c-u", Effect.ENDED)
        await anyio.sleep(100)
        assert ring.lister.calls["get_pod"] == 1
        assert 5 <= ring.lister.calls["end_of"] <= 20
        assert ring.heard() == []
        assert ring.pleg.tracked == 1


async def test_how_a_container_ended_is_taken_in_without_another_call() -> None:
    """docs/behaviour/pleg.md, "Event feeds", early end: its own status tells all."""
    ring = Ring(period=1000.0, evented_period=1000.0)
    ring.lister.put(make_pod("u", container("c", RUNNING), container("d", RUNNING), sandbox("s")))
    ring.lister.tells_details = True
    feed = ScriptedFeed()
    async with following(ring, feed):
        ring.heard()
        before = Counter(ring.lister.calls)
        asked_at = anyio.current_time()
        ring.lister.set_state("u", "c", EXITED)
        feed.say("u", "c", Effect.ENDING)
        await anyio.sleep(0.1)
        assert ring.heard() == [("u", "c", DIED)]
        assert ring.lister.calls - before == {"end_of": 1}
        seen = await ring.cache.get_newer_than(U, asked_at)
        assert [(c.id, c.state) for c in seen.containers] == [
            ("c", EXITED),
            ("d", RUNNING),
        ]
        await ring.pleg.relist()
        await ring.pleg.settled()
        assert ring.heard() == []
        assert ring.lister.calls["inspect"] == before["inspect"]


async def test_what_may_not_be_all_that_happened_is_looked_at() -> None:
    """docs/behaviour/pleg.md, "Event feeds", early end: not while the pod is changed."""
    ring = Ring(period=1000.0, evented_period=1000.0)
    ring.lister.put(make_pod("u", container("c", RUNNING), sandbox("s")))
    ring.lister.tells_details = True
    feed = ScriptedFeed()
    async with following(ring, feed):
        ring.heard()
        ring.lister.set_state("u", "c", EXITED)
        feed.say("u", "c", Effect.ENDING)
        ring.at_work.add(U)
        feed.say("u", "e", Effect.CREATED)
        await anyio.sleep(0.1)
        assert ring.heard() == [("u", "c", DIED)]
        assert ring.lister.calls["get_pod"] == 1


async def test_a_runtime_that_cannot_be_asked_leaves_the_end_to_the_relist() -> None:
    """docs/behaviour/pleg.md, "Event feeds", early end: also when asking fails."""
    ring = Ring()
    ring.lister.put(web())
    ring.lister.failing["end_of"] = OSError("away")
    feed = ScriptedFeed()
    async with following(ring, feed):
        ring.heard()
        feed.say("u", "c-u", Effect.ENDING)
        await anyio.sleep(0.05)
        assert ring.lister.calls["end_of"] == 1
        ring.lister.set_state("u", "c-u", EXITED)
        await anyio.sleep(1.1)
        assert ring.heard() == [("u", "c-u", DIED)]


async def test_a_beginning_is_looked_at_with_our_own_call_that_caused_it() -> None:
    """docs/behaviour/pleg.md, "Event feeds", hint: one look, and no later than for the call."""
    ring = Ring(period=1000.0, evented_period=1000.0)
    feed = ScriptedFeed()
    async with following(ring, feed):
        ring.lister.put(web())
        feed.say("u", "c-u")
        await anyio.sleep(0.005)
        ring.pleg.request_relist(U, "container started")
        await anyio.sleep(0.006)
        assert ring.heard() == [("u", "c-u", STARTED), ("u", "s-u", STARTED)]
        await anyio.sleep(1.0)
        assert ring.lister.calls["get_pod"] == 1
        ring.lister.set_state("u", "c-u", EXITED)
        feed.say("u", "c-u")  # of somebody else's call there is nothing but the event
        await anyio.sleep(0.03)
        assert ring.heard() == [("u", "c-u", DIED)]


async def test_what_a_worker_begins_is_looked_at_when_it_says_so() -> None:
    """docs/behaviour/pleg.md, "Event feeds", at work."""
    ring = Ring(period=1000.0, evented_period=1000.0)
    feed = ScriptedFeed()
    async with following(ring, feed):
        ring.at_work = {U}
        ring.lister.put(web())
        feed.say("u", "s-u")
        feed.say("u", "c-u", Effect.CREATED)
        feed.say("u", "c-u")
        await anyio.sleep(0.5)
        assert ring.lister.calls["get_pod"] == 0
        ring.pleg.request_relist(U, "container started")
        await anyio.sleep(0.01)
        assert ring.heard() == [("u", "c-u", STARTED), ("u", "s-u", STARTED)]
        ring.lister.set_state("u", "c-u", EXITED)
        feed.say("u", "c-u", Effect.ENDED)
        await anyio.sleep(0.01)
        assert ring.heard() == [("u", "c-u", DIED)]


async def test_what_a_worker_begins_and_does_not_end_is_found_by_the_relist() -> None:
    """docs/behaviour/pleg.md, "Event feeds", at work."""
    ring = Ring()
    feed = ScriptedFeed()
    async with following(ring, feed):
        ring.at_work = {U}
        ring.lister.put(web())
        feed.say("u", "c-u")
        await anyio.sleep(1.1)
        assert ring.heard() == [("u", "c-u", STARTED), ("u", "s-u", STARTED)]


async def test_removals_are_collected() -> None:
    """docs/behaviour/pleg.md, "Event feeds", hint: garbage is one look."""
    ring = Ring(period=1000.0, evented_period=1000.0)
    dead = [container(f"c{n}", EXITED) for n in range(20)]
    ring.lister.put(make_pod("u", *dead))
    feed = ScriptedFeed()
    async with following(ring, feed):
        for n in range(20):
            ring.lister.put(make_pod("u", *dead[n + 1 :], sandbox("s")))
            feed.say("u", f"c{n}", Effect.GONE)
            await anyio.sleep(0.01)
        await anyio.sleep(1.0)
        assert 1 <= ring.lister.calls["get_pod"] <= 4
        assert ring.cache.get(U).containers == ()


async def test_an_event_of_what_is_known_anyway_wakes_nobody() -> None:
    """docs/behaviour/pleg.md, "Event feeds", hint: our own changes come back as events."""
    ring = Ring()
    ring.lister.put(web())
    feed = ScriptedFeed()
    async with following(ring, feed):
        ring.heard()
        feed.say("u", "c-u")
        await anyio.sleep(3.0)
        assert ring.heard() == []
        feed.say("u", "came-and-went")
        await anyio.sleep(3.0)
        assert ring.heard() == [("u", "", SYNC)]


async def test_each_new_stream_begins_with_a_look_at_all_pods() -> None:
    """docs/behaviour/pleg.md, "Event feeds", gap."""
    ring = Ring(period=1000.0, evented_period=1000.0)
    feed = ScriptedFeed()
    async with following(ring, feed):
        feed.cut()
        ring.lister.put(web())
        assert ring.pleg.healthy().events == (
            "events from cri are interrupted: the connection was lost"
        )
        assert ring.sample("nodeagent_pleg_events_trusted") == 0
        assert ring.sample("kubelet_evented_pleg_connection_error_count") == 1
        feed.reopen()
        feed.say("v", "c-v")
        await anyio.sleep(0.1)
        assert ring.heard() == [("u", "c-u", STARTED), ("u", "s-u", STARTED)]
        assert ring.sample("nodeagent_pleg_events_trusted") == 1
        assert "FeedInterrupted" in ring.recorded()


async def test_a_stream_that_ends_again_and_again_is_recorded_once() -> None:
    """docs/behaviour/pleg.md, "Event feeds", interrupted."""
    ring = Ring()
    feed = ScriptedFeed()
    async with following(ring, feed):
        for _ in range(20):
            feed.cut()
            feed.reopen()
            await anyio.sleep(0.01)
        assert ring.recorded().count("FeedInterrupted") == 1
        await anyio.sleep(3)
        feed.cut()
        assert ring.recorded().count("FeedInterrupted") == 2
        assert ring.sample("kubelet_evented_pleg_connection_error_count") == 21


async def test_a_stream_is_opened_at_once_when_the_runtime_answers_again() -> None:
    """docs/behaviour/pleg.md, "Event feeds", interrupted."""
    ring = Ring()
    feed = ScriptedFeed()
    async with following(ring, feed):
        ring.lister.failing["list_pods"] = OSError("away")
        await anyio.sleep(30)
        ring.lister.failing.clear()
        await anyio.sleep(1.1)
        assert feed.hurried == 1


async def test_a_feed_lets_the_relist_be_slow() -> None:
    """docs/behaviour/pleg.md, "Event feeds", pace: with a feed."""
    ring = Ring(evented_period=10.0)
    async with following(ring, ScriptedFeed(), seconds=30.0):
        assert 5 <= await relists_in(ring, 60) <= 6


async def test_looks_that_cannot_be_taken_do_not_wait_for_a_rare_relist() -> None:
    """docs/behaviour/pleg.md, "Requests", bounded; "Requests", failing: a period at most."""
    ring = Ring(evented_period=600.0, max_requests=1)
    async with following(ring, ScriptedFeed(), seconds=700.0):
        ring.lister.put(web("u"), web("v"))
        ring.pleg.request_relist(U, "container started")
        ring.pleg.request_relist(PodUID("v"), "container started")
        await anyio.sleep(1.1)
        assert {event[0] for event in ring.heard()} == {"u", "v"}
        ring.lister.failing["get_pod"] = OSError("away")
        ring.lister.set_state("u", "c-u", EXITED)
        ring.pleg.request_relist(U, "container stopped")
        await anyio.sleep(1.1)
        assert ring.heard() == [("u", "c-u", DIED)]


async def test_a_relist_that_comes_rarely_is_not_late() -> None:
    """docs/behaviour/pleg.md, "Health", late: two periods."""
    ring = Ring(evented_period=600.0)
    async with following(ring, ScriptedFeed(), seconds=1000.0):
        assert ring.pleg.healthy().ok
        ring.lister.held_lists = anyio.Event()
        await anyio.sleep(1900.0)
        assert not ring.pleg.healthy().ok


async def test_without_a_feed_the_relist_is_quick_while_something_goes_on() -> None:
    """docs/behaviour/pleg.md, "Event feeds", pace: without one."""
    ring = Ring()
    async with following(ring, ScriptedFeed(missing=True), seconds=30.0):
        assert await relists_in(ring, 10) == 10
        ring.pleg.request_relist(U, "container started")
        assert 23 <= await relists_in(ring, 5) <= 26
        assert await relists_in(ring, 10) <= 11
        ring.lister.put(web())
        assert await relists_in(ring, 5) >= 15


async def test_an_open_but_silent_feed_is_noticed_and_believed_again_when_it_speaks() -> None:
    """docs/behaviour/pleg.md, "Event feeds", missed.

    "Event feeds", distrust; "Event feeds", recovery; "Differences", events.
    """
    ring = Ring(evented_period=10.0)
    ring.lister.put(web())
    feed = ScriptedFeed()
    async with following(ring, feed, seconds=30.0):
        ring.lister.set_state("u", "c-u", EXITED)
        await anyio.sleep(21)  # the relist that finds it, and the grace
        assert ring.heard()[-1] == ("u", "c-u", DIED)
        assert ring.sample("nodeagent_pleg_missed_events_total") == 1
        assert ring.sample("nodeagent_pleg_events_trusted") == 0
        assert {"EventMissed", "FeedDistrusted"} <= {*ring.recorded("u"), *ring.recorded()}
        assert "quick relists instead" in ring.pleg.healthy().events
        assert feed.runs == 2  # a stream that is silent may be a dead one
        assert await relists_in(ring, 10) >= 40
        ring.lister.set_state("u", "c-u", RUNNING)
        feed.say("u", "c-u")
        await anyio.sleep(0.01)
        assert ring.pleg.healthy().events == "events from cri"
        assert "FeedRecovered" in ring.recorded()
        await anyio.sleep(20)
        assert await relists_in(ring, 60) <= 6
        assert ring.sample("nodeagent_pleg_missed_events_total") == 1


async def test_the_next_feed_is_tried_when_one_is_not_believed() -> None:
    """docs/behaviour/pleg.md, "Event feeds", distrust: another feed may do better."""
    ring = Ring()
    ring.lister.put(web())
    cri, own = ScriptedFeed("cri"), ScriptedFeed("containerd")
    async with following(ring, cri, own):
        ring.lister.set_state("u", "c-u", EXITED)
        await anyio.sleep(3.0)
        assert (cri.followed, own.followed) == (False, True)
        await anyio.sleep(31)  # it does not speak either
        assert (cri.followed, own.followed) == (True, False)
        ring.lister.set_state("u", "c-u", RUNNING)
        cri.say("u", "c-u")
        assert ring.pleg.healthy().events == "events from cri"


async def test_a_feed_that_does_not_exist_does_not_whitewash_the_one_before() -> None:
    """docs/behaviour/pleg.md, "Event feeds", distrust: it lasts until a feed speaks."""
    ring = Ring()
    ring.lister.put(web())
    cri, own = ScriptedFeed("cri"), ScriptedFeed("containerd", missing=True)
    async with following(ring, cri, own):
        ring.lister.set_state("u", "c-u", EXITED)
        await anyio.sleep(5.0)
        assert cri.followed
        assert "quick relists instead" in ring.pleg.healthy().events
        assert await relists_in(ring, 10) >= 40


async def test_a_feed_that_loses_many_events_is_not_believed_although_it_speaks() -> None:
    """docs/behaviour/pleg.md, "Event feeds", distrust: three in a minute."""
    ring = Ring()
    uids = [f"u{n}" for n in range(4)]
    ring.lister.put(*(web(uid) for uid in uids))
    feed = ScriptedFeed()
    async with following(ring, feed):
        for n, uid in enumerate(uids[:3]):
            assert ring.sample("nodeagent_pleg_events_trusted") == 1
            assert ring.sample("nodeagent_pleg_missed_events_total") == n
            ring.lister.set_state(uid, f"c-{uid}", EXITED)
            for _ in range(6):
                await anyio.sleep(0.5)
                feed.say("u3", "c-u3")
        assert ring.sample("nodeagent_pleg_missed_events_total") == 3
        assert ring.sample("nodeagent_pleg_events_trusted") == 0
        await anyio.sleep(61)
        feed.say("u3", "c-u3")
        assert ring.sample("nodeagent_pleg_events_trusted") == 1


async def test_events_that_come_late_do_not_cost_the_feed_its_credit() -> None:
    """docs/behaviour/pleg.md, "Event feeds", missed: a miss is taken back."""
    ring = Ring()
    uids = [f"u{n}" for n in range(6)]
    ring.lister.put(*(web(uid) for uid in uids))
    feed = ScriptedFeed()
    async with following(ring, feed):
        for uid in uids[:5]:
            ring.lister.set_state(uid, f"c-{uid}", EXITED)
            for _ in range(6):
                await anyio.sleep(0.5)
                feed.say("u5", "c-u5")
            feed.say(uid, f"c-{uid}")
        assert ring.sample("nodeagent_pleg_missed_events_total") == 5
        assert ring.sample("nodeagent_pleg_events_trusted") == 1


@pytest.mark.parametrize("late", [-0.4, 0.4])
async def test_an_event_that_is_a_little_early_or_late_is_not_missed(late: float) -> None:
    """docs/behaviour/pleg.md, "Event feeds", missed: within the grace."""
    ring = Ring()
    ring.lister.put(web())
    feed = ScriptedFeed()
    async with following(ring, feed):
        if late < 0:
            feed.say("u", "c-u")
            await anyio.sleep(-late)
        ring.heard()
        ring.lister.set_state("u", "c-u", EXITED)
        while not ring.heard():
            await anyio.sleep(0.01)
        if late > 0:
            await anyio.sleep(late)
            feed.say("u", "c-u")
        await anyio.sleep(10)
        assert ring.sample("nodeagent_pleg_missed_events_total") == 0


async def test_what_has_no_event_is_not_missed() -> None:
    """docs/behaviour/pleg.md, "Event feeds", missed: own looks, UNKNOWN, what was before."""
    ring = Ring()
    ring.lister.put(web())
    feed = ScriptedFeed()
    async with following(ring, feed):
        ring.lister.set_state("u", "c-u", UNKNOWN)
        await anyio.sleep(3)
        ring.lister.set_state("u", "c-u", RUNNING)
        await anyio.sleep(3)
        ring.lister.put(web("v"))
        ring.pleg.request_relist(PodUID("v"), "container started")
        await anyio.sleep(3)
        feed.cut()
        ring.lister.set_state("u", "c-u", EXITED)
        feed.reopen()
        await anyio.sleep(10)
        assert ring.sample("nodeagent_pleg_missed_events_total") == 0
        assert ring.sample("nodeagent_pleg_events_trusted") == 1


async def test_the_delay_of_events_is_measured() -> None:
    """docs/behaviour/pleg.md, "Event feeds", delay."""
    ring = Ring()
    feed = ScriptedFeed()
    async with following(ring, feed):
        feed.say("u", "c-u", at=1)
        feed.say("u", "c-u", at=0)
        feed.say("u", "c-u", at=2**62)
        name = "kubelet_evented_pleg_connection_latency_seconds"
        assert ring.sample(f"{name}_count") == 2
        assert (ring.sample(f"{name}_bucket", le="0.005") or 0) == 1
