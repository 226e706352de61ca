"""docs/behaviour/pleg.md, "Relist": what is not looked at, and what is not listed twice."""

from __future__ import annotations

import math
from dataclasses import replace

import anyio
import pytest
from tests.unit.pleg.pleg_builders import (
    CREATED,
    EXITED,
    NOT_READY,
    RUNNING,
    container,
    make_pod,
    sandbox,
    status_of,
)
from tests.unit.pleg.pleg_ring import Ring, running

from nodeagent.model import PodLifecycleEventType, PodRuntimeStatus, PodUID, RuntimePod
from nodeagent.rpc import Unavailable

pytestmark = pytest.mark.anyio

DIED = PodLifecycleEventType.CONTAINER_DIED
REMOVED = PodLifecycleEventType.CONTAINER_REMOVED


def dead(uid: str) -> RuntimePod:
    return make_pod(uid, container(f"c-{uid}", EXITED), sandbox(f"s-{uid}", NOT_READY))


def live(uid: str) -> RuntimePod:
    return make_pod(uid, container(f"c-{uid}", RUNNING), sandbox(f"s-{uid}"))


async def test_dead_pods_that_nobody_wants_are_not_inspected() -> None:
    """docs/behaviour/pleg.md, "Relist", nobody's dead."""
    ring = Ring()
    ring.wanted = {PodUID("mine")}
    ring.lister.put(dead("mine"), live("theirs"), *(dead(f"d{n}") for n in range(300)))
    async with running(ring):
        assert sorted(ring.lister.inspected) == ["mine", "theirs"]
        assert ("d7", "c-d7", DIED) in ring.heard()
        ring.lister.remove("d7")
        await anyio.sleep(3.0)
        assert ring.heard() == [("d7", "c-d7", REMOVED), ("d7", "s-d7", REMOVED)]
        assert ring.pleg.tracked == 301
        assert sorted(ring.lister.inspected) == ["mine", "theirs"]


async def test_a_dead_pod_is_inspected_when_somebody_asks() -> None:
    """docs/behaviour/pleg.md, "Relist", nobody's dead: no empty record passes for its state."""
    ring = Ring()
    ring.wanted = set()
    ring.lister.put(dead("d"))
    async with running(ring):
        await anyio.sleep(5.0)
        assert ring.lister.inspected == []
        with anyio.fail_after(0.1):
            status = await ring.cache.get_newer_than(PodUID("d"), 0.0)
        assert [c.state for c in status.containers] == [EXITED]
        assert ring.lister.inspected == ["d"]


async def test_a_pod_that_dies_unwanted_is_inspected_once() -> None:
    """docs/behaviour/pleg.md, "Relist", nobody's dead: how it ended is known."""
    ring = Ring()
    ring.wanted = set()
    ring.lister.put(live("u"))
    async with running(ring):
        ring.lister.put(dead("u"))
        await anyio.sleep(1.1)
        assert ring.cache.get(PodUID("u")).containers[0].state is EXITED
        ring.lister.put(make_pod("u", sandbox("s-u", NOT_READY)))
        await anyio.sleep(3.0)
        assert ring.lister.inspected == ["u", "u"]


async def test_a_pod_whose_look_was_put_off_is_looked_at_also_for_a_new_worker() -> None:
    """docs/behaviour/pleg.md, "Relist", nobody's dead, and "Cache", held pods."""
    ring = Ring()
    ring.wanted = set()
    uid = PodUID("u")
    ring.lister.put(dead("u"), live("v"))
    async with running(ring):
        with anyio.fail_after(1):
            assert (await ring.cache.get_newer_than(uid, -math.inf)).containers
        # What is known of it is old, and then wrong: its container is removed.
        ring.lister.put(make_pod("u", sandbox("s-u", NOT_READY)))
        await anyio.sleep(3.0)
        assert ring.lister.inspected.count("u") == 1
        assert ring.cache.get(uid).containers
        with anyio.fail_after(1):
            assert not (await ring.cache.get_newer_than(uid, -math.inf)).containers


@pytest.mark.parametrize(
    "odd",
    [
        PodRuntimeStatus(PodUID("u")),
        status_of(make_pod("u", container("c-u", CREATED), sandbox("s-u"))),
        status_of(make_pod("u", container("c-u", RUNNING), sandbox("s-u", NOT_READY))),
    ],
    ids=["nothing", "another state", "another sandbox state"],
)
async def test_what_the_list_goes_on_showing_is_looked_at_again(odd: PodRuntimeStatus) -> None:
    """docs/behaviour/pleg.md, "Relist", disagreement."""
    ring = Ring()
    ring.lister.put(live("u"))
    ring.lister.odd["u"] = odd
    async with running(ring):
        assert ring.cache.get(PodUID("u")) == odd
        await anyio.sleep(3.0)
        assert ring.cache.get(PodUID("u")) == status_of(live("u"))
        assert ring.lister.inspected == ["u", "u"]


async def test_a_container_with_another_name_is_looked_at() -> None:
    """docs/behaviour/pleg.md, "Relist", disagreement."""
    ring = Ring()
    good = live("u")
    (web,) = good.containers
    ring.lister.put(replace(good, containers=(replace(web, name="", attempt=7),)))
    async with running(ring):
        ring.lister.put(good)
        await anyio.sleep(3.0)
        assert ring.cache.get(PodUID("u")) == status_of(good)
        assert ring.lister.inspected == ["u", "u"]


async def test_others_may_use_the_last_listing_while_it_is_fresh() -> None:
    """docs/behaviour/pleg.md, "Relist", shared."""
    ring = Ring()
    ring.lister.put(live("u"), dead("v"))
    async with running(ring):
        await anyio.sleep(1.0)
        before = ring.lister.calls["list_pods"]
        assert await ring.pleg.list_pods() == ring.lister.pods
        assert ring.lister.calls["list_pods"] == before


async def test_what_single_looks_have_seen_is_part_of_it() -> None:
    """docs/behaviour/pleg.md, "Relist", shared: never older than our own changes."""
    ring = Ring(period=100.0)
    ring.lister.put(live("u"))
    async with running(ring):
        ring.lister.put(dead("u"), live("v"))
        ring.pleg.request_relist(PodUID("u"), "container stopped")
        listed = ring.lister.calls["list_pods"]
        assert await ring.pleg.list_pods() == ring.lister.pods
        assert ring.lister.calls["list_pods"] == listed + 1


async def test_a_listing_that_failed_or_is_old_is_not_used() -> None:
    """docs/behaviour/pleg.md, "Relist", shared: nothing is concluded from silence."""
    ring = Ring()
    ring.lister.put(live("u"))
    async with running(ring):
        ring.lister.failing["list_pods"] = Unavailable("away")
        await anyio.sleep(2.0)
        with pytest.raises(Unavailable):
            await ring.pleg.list_pods()
        ring.lister.failing.clear()
        await anyio.sleep(1.1)
        ring.lister.held_lists = anyio.Event()
        await anyio.sleep(3.0)
        ring.lister.held_lists.set()
        ring.lister.held_lists = None
        before = ring.lister.calls["list_pods"]
        assert await ring.pleg.list_pods() == ring.lister.pods
        assert ring.lister.calls["list_pods"] == before + 1
