"""docs/behaviour/pleg.md, "Requests": own actions and event feeds are seen at once."""

from __future__ import annotations

import anyio
import pytest
from tests.unit.pleg.pleg_builders import CREATED, EXITED, RUNNING, container, make_pod, sandbox
from tests.unit.pleg.pleg_ring import Ring, running

from nodeagent.model import (
    PodLifecycleEventType,
    PodRuntimeStatus,
    PodUID,
    RuntimePod,
    SandboxID,
    SandboxRuntimeStatus,
    SandboxState,
)
from nodeagent.rpc import Unavailable

pytestmark = pytest.mark.anyio

STARTED = PodLifecycleEventType.CONTAINER_STARTED
DIED = PodLifecycleEventType.CONTAINER_DIED
REMOVED = PodLifecycleEventType.CONTAINER_REMOVED
SYNC = PodLifecycleEventType.POD_SYNC

U = PodUID("u")


def web(uid: str = "u") -> RuntimePod:
    return make_pod(uid, container(f"c-{uid}", RUNNING), sandbox(f"s-{uid}"))


async def test_own_actions_are_in_the_cache_within_milliseconds() -> None:
    """docs/behaviour/pleg.md, "Requests", freshness."""
    ring = Ring()
    async with running(ring):
        ring.lister.put(web())
        acted = anyio.current_time()
        ring.pleg.request_relist(U, "StartContainer")
        status = await ring.cache.get_newer_than(U, acted)
        assert anyio.current_time() - acted < 0.02
        assert status.containers[0].state is RUNNING
        assert ring.heard() == [("u", "c-u", STARTED), ("u", "s-u", STARTED)]
        assert ring.lister.calls["list_pods"] == 1


def made(id_: str) -> SandboxRuntimeStatus:
    return SandboxRuntimeStatus(SandboxID(id_), 0, SandboxState.READY, ips=("10.0.0.7",))


async def test_a_sandbox_of_our_own_is_in_the_record_at_once() -> None:
    """docs/behaviour/pleg.md, "Requests", own sandbox; "Cache", show."""
    ring = Ring()
    async with running(ring):
        acted = anyio.current_time()
        ring.lister.put(make_pod("u", sandbox("s-u")))
        ring.pleg.sandbox_made(U, made("s-u"))
        status = ring.cache.get(U)
        assert (status.sandboxes, status.ips) == ((made("s-u"),), ("10.0.0.7",))
        assert ring.lister.calls["get_pod"] == 0
        assert ring.heard() == []
        with anyio.move_on_after(0.4):
            await ring.cache.get_newer_than(U, acted)
        assert ring.heard() == [("u", "s-u", STARTED)]


async def test_a_sandbox_of_our_own_that_is_gone_before_any_look_leaves_nothing() -> None:
    """docs/behaviour/pleg.md, "Requests", own sandbox."""
    ring = Ring()
    async with running(ring):
        ring.pleg.sandbox_made(U, made("s-u"))
        await anyio.sleep(3.0)
        assert ring.cache.get(U) == PodRuntimeStatus(U)
        assert len(ring.cache) == 0
        assert ring.heard() == [("u", "", SYNC)]
        assert ring.pleg.tracked == 0


async def test_a_replaced_sandbox_stays_behind_the_one_that_we_made() -> None:
    """docs/behaviour/pleg.md, "Requests", own sandbox."""
    ring = Ring()
    ring.lister.put(web())
    async with running(ring):
        before = ring.cache.get(U)
        ring.pleg.sandbox_made(U, made("s-2"))
        after = ring.cache.get(U)
        assert after.sandboxes == (made("s-2"), *before.sandboxes)
        assert after.containers == before.containers


async def test_an_action_that_changed_nothing_is_fresh_too() -> None:
    """docs/behaviour/pleg.md, "Requests", freshness."""
    ring = Ring()
    ring.lister.put(web())
    async with running(ring):
        acted = anyio.current_time()
        ring.pleg.request_relist(U, "StopContainer")
        await ring.cache.get_newer_than(U, acted)
        assert anyio.current_time() - acted < 0.02
        assert ring.lister.calls["inspect"] == 1


async def test_removing_the_last_of_a_pod_is_seen_at_once() -> None:
    """docs/behaviour/pleg.md, "Requests", gone; "Differences", seen gone."""
    ring = Ring()
    ring.lister.put(web())
    async with running(ring):
        ring.heard()
        ring.lister.remove("u")
        acted = anyio.current_time()
        ring.pleg.request_relist(U, "RemovePodSandbox")
        assert await ring.cache.get_newer_than(U, acted) == PodRuntimeStatus(U)
        assert anyio.current_time() - acted < 0.02
        assert [event[2] for event in ring.heard()] == [DIED, REMOVED, DIED, REMOVED]
        await anyio.sleep(2.5)
        assert ring.heard() == []
        assert ring.pleg.tracked == 0
        assert len(ring.cache) == 0


async def test_whoever_waits_for_a_pod_has_it_looked_at() -> None:
    """docs/behaviour/pleg.md, "Requests", waiting."""
    ring = Ring()
    ring.lister.put(web())
    async with running(ring):
        ring.heard()
        asked = anyio.current_time()
        await ring.cache.get_newer_than(U, asked)
        assert anyio.current_time() - asked < 0.02
        await anyio.sleep(3.0)
        assert ring.heard() == []  # waiting is no hint that something changed


async def test_waiting_for_a_pod_that_does_not_exist_ends_soon() -> None:
    """docs/behaviour/pleg.md, "Requests", waiting."""
    ring = Ring()
    async with running(ring):
        asked = anyio.current_time()
        assert await ring.cache.get_newer_than(U, asked) == PodRuntimeStatus(U)
        assert anyio.current_time() - asked < 0.02
        await anyio.sleep(2.0)
        assert ring.pleg.tracked == 0


async def test_a_burst_of_requests_is_one_look() -> None:
    """docs/behaviour/pleg.md, "Requests", merged."""
    ring = Ring()
    ring.lister.put(web())
    async with running(ring):
        for _ in range(50):
            ring.pleg.request_relist(U, "event")
        await anyio.sleep(0.1)
        assert ring.lister.calls["get_pod"] == 1
        assert ring.recorded("u").count("LookRequested") == 1


async def test_a_request_during_a_look_is_answered_by_another_look() -> None:
    """docs/behaviour/pleg.md, "Requests", merged: a look that began before does not count."""
    ring = Ring()
    ring.lister.latency = 0.01
    ring.lister.put(make_pod("u", sandbox("s-u")))
    async with running(ring):
        ring.heard()
        ring.pleg.request_relist(U, "CreateContainer")
        await anyio.sleep(0.005)  # the look is under way and will not see what comes now
        ring.lister.put(web())
        acted = anyio.current_time()
        ring.pleg.request_relist(U, "StartContainer")
        status = await ring.cache.get_newer_than(U, acted)
        assert status.containers[0].state is RUNNING
        assert ring.lister.calls["get_pod"] == 2
        assert anyio.current_time() - acted < 0.05


async def test_requests_hold_up_no_relist() -> None:
    """docs/behaviour/pleg.md, "Requests", the relist comes first."""
    ring = Ring(concurrency=1)
    ring.lister.latency = 0.05
    ring.lister.put(*(web(f"u{n}") for n in range(30)))
    async with running(ring), anyio.create_task_group() as tg:

        async def pester(uid: PodUID) -> None:
            while True:
                ring.pleg.request_relist(uid, "event")
                await anyio.sleep(0.01)

        for n in range(30):
            tg.start_soon(pester, PodUID(f"u{n}"))
        before = ring.lister.calls["list_pods"]
        await anyio.sleep(10.5)
        assert ring.lister.calls["list_pods"] - before == 10
        assert ring.pleg.healthy().cause == ""
        tg.cancel_scope.cancel()


async def test_a_request_that_a_relist_has_answered_costs_no_look() -> None:
    """docs/behaviour/pleg.md, "Requests", answered by a relist."""
    ring = Ring(concurrency=1)
    ring.lister.put(web(), web("v"))
    async with running(ring):
        gate = ring.lister.hang("v")
        ring.lister.set_state("v", "c-v", EXITED)
        await anyio.sleep(1.0)  # the only slot is taken
        ring.pleg.request_relist(U, "event")
        await anyio.sleep(1.1)
        gate.set()
        await anyio.sleep(0.2)
        assert ring.lister.calls["get_pod"] == 0


async def test_too_many_requests_are_left_to_the_relist() -> None:
    """docs/behaviour/pleg.md, "Requests", bounded."""
    ring = Ring(max_requests=10)
    async with running(ring):
        for n in range(100):
            ring.pleg.request_relist(PodUID(f"u{n}"), "event")
        assert ring.sample("nodeagent_pleg_dropped_requests_total") == 90
        acted = anyio.current_time()
        await ring.cache.get_newer_than(PodUID("u99"), acted)
        assert anyio.current_time() - acted < 1.1


async def test_a_look_that_fails_is_made_good_by_the_relist() -> None:
    """docs/behaviour/pleg.md, "Requests", failing."""
    ring = Ring()
    async with running(ring):
        ring.lister.failing["get_pod"] = Unavailable("connection refused")
        ring.lister.put(web())
        acted = anyio.current_time()
        ring.pleg.request_relist(U, "StartContainer")
        status = await ring.cache.get_newer_than(U, acted)
        assert status.containers[0].state is RUNNING
        assert "LookFailed" in ring.recorded("u")


async def test_a_relist_that_began_before_a_look_does_not_undo_it() -> None:
    """docs/behaviour/pleg.md, "Requests", older relist."""
    ring = Ring()
    ring.lister.put(make_pod("u", container("c-u", CREATED), sandbox("s-u")))
    async with running(ring):
        ring.heard()
        ring.lister.held_lists = anyio.Event()
        await anyio.sleep(1.0)  # a relist is under way: it saw the container created
        ring.lister.put(web())
        ring.pleg.request_relist(U, "StartContainer")
        await anyio.sleep(0.1)
        assert ring.heard() == [("u", "c-u", STARTED)]
        ring.lister.held_lists.set()
        ring.lister.held_lists = None
        await anyio.sleep(3.0)
        assert ring.heard() == []
        assert ring.cache.get(U).containers[0].state is RUNNING


async def test_a_relist_that_began_before_a_pod_was_made_does_not_take_it_for_gone() -> None:
    """docs/behaviour/pleg.md, "Requests", older relist."""
    ring = Ring()
    async with running(ring):
        ring.lister.held_lists = anyio.Event()
        await anyio.sleep(1.0)  # a relist is under way: it saw nothing
        ring.lister.put(web())
        ring.pleg.request_relist(U, "StartContainer")
        await anyio.sleep(0.1)
        assert ring.heard() == [("u", "c-u", STARTED), ("u", "s-u", STARTED)]
        ring.lister.held_lists.set()
        ring.lister.held_lists = None
        await anyio.sleep(0.1)
        assert ring.heard() == []
        assert ring.cache.get(U).containers[0].state is RUNNING
        assert ring.lister.calls["inspect"] == 1


async def test_a_state_seen_in_between_is_not_kept_when_the_list_stays_the_same() -> None:
    """docs/behaviour/pleg.md, "Requests", older relist: even if the list is the same object."""
    ring = Ring()
    ring.lister.put(web())
    async with running(ring):
        ring.heard()
        usual = ring.lister.pods
        ring.lister.set_state("u", "c-u", EXITED)
        ring.pleg.request_relist(U, "event")
        await anyio.sleep(0.1)
        assert ring.heard() == [("u", "c-u", DIED)]
        ring.lister.pods = usual
        await anyio.sleep(1.0)
        assert ring.heard() == [("u", "c-u", STARTED)]


async def test_what_came_and_went_between_two_relists_is_noticed_at_the_next() -> None:
    """docs/behaviour/pleg.md, "Differences", come and gone."""
    ring = Ring()
    async with running(ring):
        ring.pleg.request_relist(U, "RunPodSandbox")  # which has died and is gone by now
        await anyio.sleep(1.1)
        assert ring.heard() == [("u", "", SYNC)]


async def test_a_change_explains_the_request() -> None:
    """docs/behaviour/pleg.md, "Differences", come and gone: no sync when there was an event."""
    ring = Ring()
    async with running(ring):
        ring.lister.put(web())
        ring.pleg.request_relist(U, "StartContainer")
        await anyio.sleep(5.0)
        assert ring.heard() == [("u", "c-u", STARTED), ("u", "s-u", STARTED)]


async def test_a_pod_that_cannot_be_made_is_not_synced_each_second() -> None:
    """docs/behaviour/pleg.md, "Differences", come and gone: once in a minute."""
    ring = Ring()
    async with running(ring):
        for _ in range(30):
            ring.pleg.request_relist(U, "RunPodSandbox")
            await anyio.sleep(1.0)
        assert ring.heard() == [("u", "", SYNC)]
        await anyio.sleep(31.0)
        ring.pleg.request_relist(U, "RunPodSandbox")
        await anyio.sleep(1.1)
        assert ring.heard() == [("u", "", SYNC)]


async def test_a_request_before_pleg_runs_is_answered_by_the_first_relist() -> None:
    """docs/behaviour/pleg.md, "Requests", before the start."""
    ring = Ring()
    ring.lister.put(web())
    ring.pleg.request_relist(U, "StartContainer")
    async with running(ring):
        assert ring.heard() == [("u", "c-u", STARTED), ("u", "s-u", STARTED)]
        assert ring.lister.calls["get_pod"] == 0


async def test_cancelling_pleg_in_the_middle_of_everything_leaves_nothing_running() -> None:
    """docs/behaviour/pleg.md, "Relist", stop."""
    ring = Ring()
    ring.lister.latency = 0.3
    ring.lister.put(*(web(f"u{n}") for n in range(40)))
    async with running(ring):
        ring.pleg.request_relist(PodUID("u1"), "event")
        await anyio.sleep(0.1)
    assert ring.lister.inspecting.total() == 0
    await ring.pleg.settled()
