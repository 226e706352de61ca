"""docs/behaviour/pleg.md, "Relist": the walk from a list to cache and events."""

from __future__ import annotations

import anyio
import pytest
from tests.unit.pleg.pleg_builders import (
    CREATED,
    EXITED,
    NOT_READY,
    RUNNING,
    UNKNOWN,
    container,
    make_pod,
    sandbox,
    status_of,
)
from tests.unit.pleg.pleg_ring import Ring, running

from nodeagent.model import PodLifecycleEventType, PodRuntimeStatus, PodUID
from nodeagent.pleg import InspectionError
from nodeagent.rpc import Unavailable

pytestmark = pytest.mark.anyio

STARTED = PodLifecycleEventType.CONTAINER_STARTED
DIED = PodLifecycleEventType.CONTAINER_DIED
REMOVED = PodLifecycleEventType.CONTAINER_REMOVED
SYNC = PodLifecycleEventType.POD_SYNC

U = PodUID("u")


async def test_the_first_relist_comes_at_once_and_tells_of_all_that_runs() -> None:
    """docs/behaviour/pleg.md, "Relist", first."""
    ring = Ring()
    ring.lister.put(make_pod("u", container("c", RUNNING), sandbox("s")))
    async with running(ring):
        assert ring.heard() == [("u", "c", STARTED), ("u", "s", STARTED)]
        assert ring.cache.get(U) == status_of(ring.lister.pods[U])


async def test_relists_come_one_period_after_the_end_of_the_last() -> None:
    """docs/behaviour/pleg.md, "Relist", period."""
    ring = Ring(period=1.0)
    ring.lister.latency = 0.25
    async with running(ring):
        assert ring.lister.calls["list_pods"] == 1
        await anyio.sleep(0.74)  # 1.24
        assert ring.lister.calls["list_pods"] == 1
        await anyio.sleep(0.02)
        assert ring.lister.calls["list_pods"] == 2


async def test_nothing_is_inspected_and_nothing_is_said_while_nothing_changes() -> None:
    """docs/behaviour/pleg.md, "Relist", at rest."""
    ring = Ring()
    ring.lister.put(*(make_pod(f"u{n}", container(f"c{n}", RUNNING)) for n in range(20)))
    async with running(ring):
        ring.heard()
        await anyio.sleep(60)
        assert ring.lister.calls["inspect"] == 20
        assert ring.heard() == []
        assert ring.cache.time >= 59


async def test_a_death_is_told_within_one_period_and_the_cache_knows_it_first() -> None:
    """docs/behaviour/pleg.md, "Relist", changed."""
    ring = Ring()
    ring.lister.put(make_pod("u", container("c", RUNNING), sandbox("s")))
    async with running(ring):
        ring.heard()
        ring.lister.set_state("u", "c", EXITED)
        await anyio.sleep(1.0)
        assert ring.heard() == [("u", "c", DIED)]
        assert ring.cache.get(U).containers[0].state is EXITED


async def test_a_created_container_only_refreshes_the_cache() -> None:
    """docs/behaviour/pleg.md, "Sending", ContainerChanged."""
    ring = Ring()
    ring.lister.put(make_pod("u", sandbox("s")))
    async with running(ring):
        ring.heard()
        ring.lister.put(make_pod("u", container("c", CREATED), sandbox("s")))
        await anyio.sleep(1.0)
        assert ring.heard() == []
        assert ring.cache.get(U).containers[0].state is CREATED
        assert "ContainerChanged" in ring.recorded("u")


async def test_a_container_that_turns_unknown_has_its_pod_looked_at() -> None:
    """docs/behaviour/pleg.md, "Differences", UNKNOWN."""
    ring = Ring()
    ring.lister.put(make_pod("u", container("c", RUNNING), sandbox("s")))
    async with running(ring):
        ring.heard()
        ring.lister.set_state("u", "c", UNKNOWN)
        await anyio.sleep(1.0)
        assert ring.heard() == [("u", "", SYNC)]


async def test_an_unknown_state_is_believed_when_it_lasts() -> None:
    """docs/behaviour/pleg.md, "What a look sees", unknown."""
    ring = Ring()
    ring.lister.put(make_pod("u", container("c", RUNNING), sandbox("s")))
    async with running(ring):
        ring.lister.set_state("u", "c", UNKNOWN)
        await anyio.sleep(29.0)
        assert ring.cache.get(U).containers[0].state is RUNNING
        ring.heard()
        await anyio.sleep(3.0)
        assert ring.cache.get(U).containers[0].state is UNKNOWN
        assert ring.heard() == [("u", "", SYNC)]
        ring.lister.set_state("u", "c", RUNNING)
        await anyio.sleep(2.0)
        assert ring.cache.get(U).containers[0].state is RUNNING


async def test_an_unknown_state_of_what_was_never_seen_is_no_knowledge_for_a_time() -> None:
    """docs/behaviour/pleg.md, "What a look sees", unknown."""
    ring = Ring()
    ring.lister.put(make_pod("u", container("c", UNKNOWN), sandbox("s")))
    async with running(ring):
        await anyio.sleep(10.0)
        cause = "container name-c is in a state that the runtime does not know"
        with pytest.raises(InspectionError, match=cause):
            await ring.cache.get_newer_than(U, 5.0)
        assert cause in ring.pleg.healthy().cause
        await anyio.sleep(22.0)
        assert ring.cache.get(U).containers[0].state is UNKNOWN
        assert ring.pleg.healthy().cause == ""
        ring.lister.remove("u")
        await anyio.sleep(2.0)
        ring.lister.put(make_pod("u", container("c", UNKNOWN), sandbox("s")))
        ring.lister.set_state("u", "c", RUNNING)
        await anyio.sleep(2.0)
        assert ring.cache.get(U).containers[0].state is RUNNING


async def test_a_container_that_flips_to_unknown_each_second_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """docs/behaviour/pleg.md, "Differences", UNKNOWN."""
    ring = Ring()
    ring.lister.put(make_pod("u", container("c", RUNNING), sandbox("s")))
    async with running(ring):
        for _ in range(5):
            ring.lister.set_state("u", "c", UNKNOWN)
            await anyio.sleep(1.0)
            ring.lister.set_state("u", "c", RUNNING)
            await anyio.sleep(1.0)
    warned = [r for r in caplog.records if r.getMessage() == "container_state_unknown"]
    assert len(warned) == 1


async def test_a_pod_that_is_gone_leaves_the_cache_and_is_told() -> None:
    """docs/behaviour/pleg.md, "Relist", gone."""
    ring = Ring()
    ring.lister.put(make_pod("u", container("c", RUNNING), sandbox("s", NOT_READY)))
    async with running(ring):
        ring.heard()
        ring.lister.remove("u")
        await anyio.sleep(1.0)
        assert ring.heard() == [("u", "c", DIED), ("u", "c", REMOVED), ("u", "s", REMOVED)]
        assert ring.cache.get(U) == PodRuntimeStatus(U)
        assert len(ring.cache) == 0
        await anyio.sleep(2.0)
        assert ring.pleg.tracked == 0


async def test_a_pod_that_ends_keeps_its_addresses() -> None:
    """docs/behaviour/pleg.md, "Relist", addresses."""
    ring = Ring()
    ring.lister.put(make_pod("u", container("c", RUNNING), sandbox("s")))
    async with running(ring):
        ring.lister.put(make_pod("u", container("c", EXITED), sandbox("s", NOT_READY)))
        await anyio.sleep(1.0)
        assert ring.cache.get(U).ips == ("10.0.0.1",)


async def test_a_ready_sandbox_without_an_address_has_none() -> None:
    """docs/behaviour/pleg.md, "Relist", addresses."""
    ring = Ring()
    ring.lister.put(make_pod("u", sandbox("s")))
    async with running(ring):
        ring.lister.put(make_pod("u", sandbox("s"), sandbox("t")))
        ring.lister.address = ""
        await anyio.sleep(1.0)
        assert ring.cache.get(U).ips == ()


async def test_a_listing_that_fails_does_not_advance_time_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """docs/behaviour/pleg.md, "Relist", listing fails."""
    ring = Ring()
    async with running(ring):
        ring.lister.failing["list_pods"] = Unavailable("connection refused", "ListPodSandbox")
        before = ring.cache.time
        await anyio.sleep(10.0)
        assert ring.cache.time == before
        health = ring.pleg.healthy()
        assert health.ok
        assert health.cause.startswith("cannot list pods: ListPodSandbox has been failing for 9")
        assert health.cause.endswith("unavailable: connection refused")
        ring.lister.failing.clear()
        await anyio.sleep(1.0)
        assert ring.cache.time > before
        assert ring.pleg.healthy().cause == ""
    failures = [r for r in caplog.records if r.getMessage() == "relist_failed"]
    assert len(failures) == 1
    assert ring.recorded().count("RelistFailed") == 1
    assert ring.recorded().count("RelistRecovered") == 1


async def test_a_listing_that_hangs_is_given_up_and_shows_in_health() -> None:
    """docs/behaviour/pleg.md, "Health", late."""
    ring = Ring(list_timeout=600.0)
    async with running(ring):
        ring.lister.held_lists = anyio.Event()
        await anyio.sleep(190.0)
        health = ring.pleg.healthy()
        assert not health.ok
        assert health.cause.startswith("pleg was last seen active 3m10.5s ago; threshold is 3m0s (")
        assert health.rpc == "ListPodSandbox"
        ring.lister.held_lists.set()
        await anyio.sleep(1.1)  # time is that of the start, so the next relist makes it good
        assert ring.pleg.healthy().ok


async def test_a_listing_without_an_answer_ends_at_its_deadline() -> None:
    """docs/behaviour/pleg.md, "Relist", listing fails."""
    ring = Ring(list_timeout=5.0)
    async with running(ring):
        ring.lister.held_lists = anyio.Event()
        await anyio.sleep(6.0)
        assert "RelistFailed" in ring.recorded()
        ring.lister.held_lists = None
        await anyio.sleep(6.0)
        assert ring.pleg.healthy() == ring.pleg.healthy(anyio.current_time())
        assert ring.pleg.healthy().cause == ""


async def test_before_the_first_relist_pleg_is_not_healthy() -> None:
    """docs/behaviour/pleg.md, "Health", never."""
    ring = Ring()
    assert ring.pleg.healthy().cause == "pleg has yet to be successful"
    ring.channel.dispose()


async def test_an_inspection_that_fails_is_repeated_and_ends_in_a_sync() -> None:
    """docs/behaviour/pleg.md, "Relist", inspection fails."""
    ring = Ring()
    ring.lister.put(make_pod("u", container("c", RUNNING), sandbox("s")))
    async with running(ring):
        ring.heard()
        ring.lister.failing_pods["u"] = Unavailable("shim is gone", "ContainerStatus")
        ring.lister.set_state("u", "c", EXITED)
        await anyio.sleep(1.0)
        assert ring.heard() == []
        assert ring.cache.get(U).containers[0].state is RUNNING
        error = ring.cache.error(U)
        assert error is not None
        assert str(error) == "ContainerStatus: unavailable: shim is gone"
        health = ring.pleg.healthy()
        assert health.ok
        assert [(pod.uid, pod.trouble.rpc) for pod in health.degraded] == [("u", "ContainerStatus")]
        ring.lister.set_state("u", "c", RUNNING)
        ring.lister.failing_pods.clear()
        await anyio.sleep(1.0)
        assert ring.heard() == [("u", "", SYNC)]
        assert ring.pleg.healthy().degraded == ()
    recorded = ring.recorded("u")
    assert recorded.count("Degraded") == 1
    assert recorded.count("Recovered") == 1


async def test_a_transition_seen_while_inspections_fail_is_told_afterwards() -> None:
    """docs/behaviour/pleg.md, "Relist", inspection fails."""
    ring = Ring()
    ring.lister.put(make_pod("u", container("c", RUNNING), sandbox("s")))
    async with running(ring):
        ring.heard()
        ring.lister.failing_pods["u"] = Unavailable("shim is gone")
        ring.lister.set_state("u", "c", EXITED)
        await anyio.sleep(3.0)
        ring.lister.failing_pods.clear()
        await anyio.sleep(1.0)
        assert ring.heard() == [("u", "c", DIED)]


async def test_a_worker_gets_the_error_of_an_inspection_that_failed_since() -> None:
    """docs/behaviour/pleg.md, "Cache", errors."""
    ring = Ring()
    ring.lister.put(make_pod("u", container("c", RUNNING), sandbox("s")))
    async with running(ring):
        asked = anyio.current_time()
        ring.lister.failing_pods["u"] = Unavailable("shim is gone")
        ring.lister.set_state("u", "c", EXITED)
        with pytest.raises(InspectionError, match="shim is gone"), anyio.fail_after(1.5):
            await ring.cache.get_newer_than(U, asked)


async def test_living_and_wanted_pods_are_looked_at_first() -> None:
    """docs/behaviour/pleg.md, "Relist", order."""
    ring = Ring(concurrency=1)
    ring.lister.put(*(make_pod(f"dead{n}", container(f"d{n}", EXITED)) for n in range(20)))
    ring.lister.put(make_pod("z-live", container("l", RUNNING)), make_pod("y-want", sandbox("w")))
    ring.wanted = {PodUID("y-want")}
    async with running(ring):
        assert ring.lister.inspected[:2] == ["y-want", "z-live"]


async def test_the_gauges_count_and_a_vanished_state_is_zero() -> None:
    """docs/behaviour/pleg.md, "Metrics"."""
    ring = Ring()
    ring.lister.put(
        make_pod("u", container("c", RUNNING), container("d", EXITED), sandbox("s")),
        make_pod("v", container("e", RUNNING), sandbox("t", NOT_READY)),
    )
    async with running(ring):
        assert ring.sample("kubelet_running_pods") == 1
        assert ring.sample("kubelet_running_containers", container_state="running") == 2
        assert ring.sample("kubelet_running_containers", container_state="exited") == 1
        ring.lister.set_state("u", "d", RUNNING)
        await anyio.sleep(1.0)
        assert ring.sample("kubelet_running_containers", container_state="running") == 3
        assert ring.sample("kubelet_running_containers", container_state="exited") == 0
        assert (ring.sample("kubelet_pleg_relist_duration_seconds_count") or 0) >= 2
        assert (ring.sample("kubelet_pleg_relist_interval_seconds_count") or 0) >= 1
        assert (ring.sample("kubelet_pleg_pod_relist_duration_seconds_count") or 0) >= 3
        assert (ring.sample("kubelet_pleg_last_seen_seconds") or 0) > 1e9
        assert ring.sample("kubelet_pleg_discard_events") == 0


async def test_every_step_is_in_the_journal_under_the_pods_name() -> None:
    """docs/behaviour/pleg.md, "Sending", journal."""
    ring = Ring()
    ring.lister.put(make_pod("u", container("c", RUNNING), sandbox("s")))
    async with running(ring):
        ring.lister.set_state("u", "c", EXITED)
        await anyio.sleep(1.0)
    records = ring.journal.select("default/pod-u")
    assert [record.what for record in records] == [
        "ContainerStarted",
        "ContainerStarted",
        "ContainerDied",
    ]
    assert records[-1].fields == {"id": "c", "container": "name-c", "state": "exited"}
