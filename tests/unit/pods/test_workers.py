"""docs/behaviour/workers.md: the workers as tasks, under virtual time."""

from __future__ import annotations

import asyncio

import anyio
import pytest
from tests.unit.pods.worker_fakes import (
    FakeSyncer,
    Rig,
    make_pod,
    mirror_pod,
    running,
    runtime_pod,
    seen,
    static_pod,
)

from nodeagent.api import PodStatus
from nodeagent.model import (
    BackOffError,
    ContainerState,
    NetworkNotReadyError,
    PodUID,
    SyncError,
    UpdateType,
)
from nodeagent.pleg.cache import PodCache
from nodeagent.pods.worker_state import WorkerPhase, WorkerState
from nodeagent.pods.worker_updates import KillOptions, UpdatePodOptions
from nodeagent.rpc import Unavailable

pytestmark = pytest.mark.anyio

CREATE, UPDATE, SYNC, KILL = UpdateType
U1 = PodUID("u1")


def state(rig: Rig, uid: str = "u1") -> WorkerState:
    found = rig.workers.state(PodUID(uid))
    assert found is not None
    return found


def kill(rig: Rig, uid: str = "u1", **options: int) -> anyio.Event:
    """Kill a pod; the event is set when nothing of it runs."""
    done = anyio.Event()
    kill = KillOptions(done.set, grace=options.get("grace"))
    rig.workers.update_pod(UpdatePodOptions(KILL, make_pod(uid, uid), kill=kill))
    return done


def orphan_kill(uid: str = "u1") -> UpdatePodOptions:
    return UpdatePodOptions(KILL, running=runtime_pod(uid), kill=KillOptions(grace=1))


async def test_s_a_pod_goes_through_its_states_and_waits_for_its_resync() -> None:
    """workers.md, S1, S2, S3, S4."""
    async with running() as rig:
        rig.tell(CREATE, make_pod(), mirror_pod("m"))
        await rig.settle()
        made = rig.syncer.last("sync")
        assert (made.update_type, made.mirror) == (CREATE, mirror_pod("m"))
        assert state(rig).phase is WorkerPhase.SYNC  # S1
        assert rig.due_in() == 60.0
        hold = rig.syncer.hold("terminating")
        done = kill(rig)
        await rig.settle()
        assert state(rig).phase is WorkerPhase.TERMINATING  # S2
        hold_release = rig.syncer.hold("terminated")
        hold.set()
        await rig.settle()
        assert done.is_set()
        assert state(rig).phase is WorkerPhase.TERMINATED  # S3
        hold_release.set()
        await rig.settle()
        assert state(rig).phase is WorkerPhase.FINISHED  # S4
        assert rig.due_in() is None
        assert rig.syncer.kinds() == ["sync", "terminating", "terminated"]


async def test_an_update_never_blocks_and_one_before_the_start_is_worked_on_after_it() -> None:
    rig = Rig()
    rig.tell(CREATE, make_pod())
    assert rig.syncer.calls == []
    async with running(rig):
        await rig.settle()
        assert rig.syncer.kinds() == ["sync"]


async def test_m1_what_arrives_during_a_call_becomes_one_more_call() -> None:
    async with running() as rig:
        gate = rig.syncer.hold("sync")
        rig.tell(CREATE, make_pod())
        await rig.settle()
        for image in ("a", "b", "c"):
            rig.tell(UPDATE, make_pod(image=image))
        gate.set()
        await rig.settle()
        assert rig.syncer.kinds() == ["sync", "sync"]
        assert rig.syncer.last("sync").pod == make_pod(image="c")


async def test_u3_a_pod_that_was_over_only_releases_what_it_held() -> None:
    async with running() as rig:
        rig.tell(CREATE, make_pod(phase="Succeeded"))
        assert rig.workers.view(U1).known_terminated
        await rig.settle()
        assert rig.syncer.kinds() == ["terminated"]


@pytest.mark.parametrize("what", ["container", "sandbox"])
async def test_u3_what_the_runtime_still_has_of_it_is_stopped_first(what: str) -> None:
    async with running() as rig:
        containers = [("c", "main", ContainerState.RUNNING)] if what == "container" else []
        rig.cache.statuses["u1"] = seen("u1", *containers, sandbox=what == "sandbox")
        rig.tell(CREATE, make_pod(phase="Failed"))
        rig.cache.statuses.clear()
        await rig.settle()
        assert rig.syncer.kinds() == ["terminating", "terminated"]


async def test_u14_a_kill_cancels_a_hanging_sync_and_stops_the_pod() -> None:
    async with running() as rig:
        rig.syncer.hold("sync")
        rig.tell(CREATE, make_pod())
        await rig.settle()
        kill(rig)
        await rig.settle()
        assert rig.syncer.calls[0].ended == "CancelledError"
        assert rig.syncer.kinds() == ["sync", "terminating", "terminated"]
        assert anyio.current_time() == 0.0


async def test_u14_a_shorter_grace_overtakes_the_running_stop() -> None:
    async with running() as rig:
        gate = rig.syncer.hold("terminating")
        rig.tell(CREATE, make_pod())
        kill(rig, grace=20)
        await rig.settle()
        assert rig.syncer.last("terminating").grace == 20
        kill(rig, grace=25)
        await rig.settle()
        assert rig.syncer.kinds().count("terminating") == 1
        kill(rig, grace=2)
        await rig.settle()
        assert [c.grace for c in rig.syncer.calls if c.kind == "terminating"] == [20, 2]
        gate.set()
        await rig.settle()
        assert state(rig).phase is WorkerPhase.FINISHED


async def test_c2_the_last_status_change_counts() -> None:
    def first(status: PodStatus) -> PodStatus:
        return status

    def last(status: PodStatus) -> PodStatus:
        return status

    async with running() as rig:
        for change in (first, last):
            options = KillOptions(status_fn=change)
            rig.workers.update_pod(UpdatePodOptions(KILL, make_pod(), kill=options))
        await rig.settle()
        assert rig.syncer.last("terminating").status_fn is last


async def test_c3_o2_what_only_the_runtime_knows_is_stopped_and_forgotten() -> None:
    async with running() as rig:
        rig.workers.update_pod(orphan_kill())
        await rig.settle()
        assert rig.syncer.kinds() == ["runtime"]
        assert not rig.workers.is_known(U1)
        assert rig.due_in() is None


async def test_c5_a_container_that_runs_in_a_terminated_pod_is_stopped_before_its_volumes_go() -> (
    None
):
    async with running() as rig:
        rig.tell(CREATE, make_pod(phase="Succeeded"))
        rig.cache.statuses["u1"] = seen("u1", ("c", "main", ContainerState.RUNNING))
        gate = rig.syncer.hold("terminating")
        await rig.settle()
        rig.cache.statuses.clear()
        gate.set()
        await rig.settle()
        assert rig.syncer.kinds() == ["terminating", "terminated"]


async def test_c6_workers_hold_back_while_the_runtime_is_down_and_go_on_when_it_returns() -> None:
    async with running() as rig:
        rig.gate.down()
        for uid in ("u1", "u2", "u3"):
            rig.tell(CREATE, make_pod(uid, uid))
        await anyio.sleep(30)
        assert rig.syncer.calls == []
        assert rig.cache.asked == []
        kill(rig, "u3")
        await rig.settle()
        assert rig.syncer.calls == []
        rig.gate.up()
        await rig.settle()
        assert anyio.current_time() == 30.0
        assert rig.syncer.kinds("u1") == ["sync"]
        assert rig.syncer.kinds("u3") == ["terminating", "terminated"]
        held = [r for r in rig.journal.select("u1") if r.what == "HeldBack"]
        assert [r.why for r in held] == ["container runtime is down"]


async def test_c7_a_look_that_fails_is_told_and_tried_again_and_the_work_is_kept() -> None:
    """events.md, EV58."""
    async with running() as rig:
        rig.cache.errors.append(SyncError("ContainerStatus: hangs"))
        rig.tell(CREATE, make_pod())
        await rig.settle()
        assert rig.syncer.calls == []
        event = rig.events[-1]
        assert (event.kind, event.reason) == ("Warning", "FailedSync")
        assert event.message == "error determining status: ContainerStatus: hangs"
        assert rig.due_in() == 10.0
        rig.tell(SYNC, make_pod())
        await rig.settle()
        assert rig.syncer.last("sync").update_type is CREATE


async def test_c7_a_look_that_does_not_come_is_given_up_after_a_minute() -> None:
    async with running() as rig:
        rig.cache.silence = anyio.Event()
        rig.tell(CREATE, make_pod())
        await anyio.sleep(59)
        await rig.settle()
        assert rig.events == []
        await anyio.sleep(1)
        await rig.settle()
        assert rig.events[-1].message == (
            "error determining status: no look at the pod within 60 s"
        )


async def test_what_arrives_while_a_worker_waits_for_a_look_is_part_of_the_same_turn() -> None:
    async with running() as rig:
        rig.cache.silence = anyio.Event()
        rig.tell(CREATE, make_pod())
        await rig.settle()
        kill(rig)
        rig.cache.silence.set()
        await rig.settle()
        assert rig.syncer.kinds() == ["terminating", "terminated"]


async def test_a_worker_never_acts_on_a_look_older_than_its_own_last_call() -> None:
    cache = PodCache()
    rig = Rig()
    rig.workers._calls._cache = cache
    async with running(rig):
        cache.update_time(anyio.current_time())
        rig.tell(CREATE, make_pod())
        await rig.settle()
        assert rig.syncer.kinds() == ["sync"]
        rig.tell(SYNC, make_pod())
        await anyio.sleep(5)
        cache.set(U1, seen("u1"), 0.0)
        await rig.settle()
        assert rig.syncer.kinds() == ["sync"]
        cache.set(U1, fresh := seen("u1", ("c", "main", ContainerState.RUNNING)), 5.0)
        await rig.settle()
        assert rig.syncer.kinds() == ["sync", "sync"]
        assert rig.syncer.last("sync").status is fresh


async def test_g12_a_pleg_that_is_not_healthy_closes_no_gate() -> None:
    cache = PodCache()
    rig = Rig()
    rig.workers._calls._cache = cache
    async with running(rig):
        await anyio.sleep(600)
        # No relist has succeeded for ten minutes; the pod has a look of its own.
        rig.tell(CREATE, make_pod())
        await rig.settle()
        assert rig.syncer.kinds() == []
        cache.set(U1, seen("u1"), anyio.current_time())
        await rig.settle()
        assert rig.syncer.kinds() == ["sync"]


async def test_o3_the_next_call_follows_at_once_and_its_failure_is_tried_again() -> None:
    async with running() as rig:
        rig.syncer.fail("terminated", SyncError("busy"))
        done = kill(rig)
        await rig.settle()
        assert done.is_set()
        assert rig.syncer.kinds() == ["terminating", "terminated"]
        assert rig.due_in() == 10.0
        rig.workers.replay(U1)
        await rig.settle()
        assert state(rig).phase is WorkerPhase.FINISHED


async def test_o4_a_pod_that_ended_by_itself_is_stopped_and_finished() -> None:
    async with running() as rig:
        rig.syncer.terminal.add("u1")
        rig.tell(CREATE, make_pod())
        await rig.settle()
        assert rig.syncer.kinds() == ["sync", "terminating", "terminated"]
        assert rig.syncer.last("terminating").grace is None


@pytest.mark.parametrize(
    ("error", "delay"),
    [
        (NetworkNotReadyError("cni plugin not initialized"), 1.0),  # O6
        (BackOffError("crash", until=33.0), 33.0),  # O7
        (Unavailable("connection refused"), 1.0),  # O8
        (SyncError("no image"), 10.0),  # O9
        (RuntimeError("a bug"), 10.0),  # O9
    ],
)
async def test_a_failed_sync_is_tried_again_after_its_delay(error: Exception, delay: float) -> None:
    async with running() as rig:
        rig.syncer.fail("sync", error)
        rig.tell(CREATE, make_pod())
        await rig.settle()
        assert rig.due_in() == delay
        rig.tell(SYNC, make_pod())
        await rig.settle()
        assert rig.syncer.kinds() == ["sync", "sync"]
        assert rig.due_in() == 60.0


async def test_o10_work_in_the_mailbox_runs_at_once_even_after_an_error() -> None:
    async with running() as rig:
        gate = rig.syncer.hold("sync")
        rig.syncer.fail("sync", SyncError("no"))
        rig.tell(CREATE, make_pod())
        await rig.settle()
        rig.tell(UPDATE, make_pod(image="new"))
        gate.set()
        await rig.settle()
        assert rig.syncer.kinds() == ["sync", "sync"]
        assert anyio.current_time() == 0.0


async def test_o11_what_failed_last_is_tried_again_when_the_runtime_returns() -> None:
    async with running() as rig:
        rig.syncer.fail("sync", SyncError("no"))
        rig.tell(CREATE, make_pod())
        rig.tell(CREATE, make_pod("u2", "well"))
        await rig.settle()
        rig.workers.runtime_returned()
        await rig.settle()
        assert rig.syncer.kinds("u1") == ["sync", "sync"]
        assert rig.syncer.kinds("u2") == ["sync"]


async def test_one_hanging_pod_holds_up_no_other() -> None:
    async with running() as rig:
        rig.syncer.hold("sync", "u0")
        for number in range(100):
            rig.tell(CREATE, make_pod(f"u{number}", f"pod-{number}"))
        await rig.settle()
        ended = [call for call in rig.syncer.calls if call.ended == "done"]
        assert len(ended) == 99


async def test_a_waiters_fault_does_not_keep_the_pod_from_ending() -> None:
    def broken() -> None:
        raise RuntimeError("a bug of someone else")

    async with running() as rig:
        kill_ = KillOptions(completed=broken)
        rig.workers.update_pod(UpdatePodOptions(KILL, make_pod(), kill=kill_))
        await rig.settle()
        assert state(rig).phase is WorkerPhase.FINISHED


async def test_a_fault_of_our_own_does_not_end_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as rig:
        with monkeypatch.context() as patch:
            patch.setattr("nodeagent.pods.worker_tasks.take", None)
            rig.tell(CREATE, make_pod())
            await rig.settle()
        assert rig.due_in() == 10.0
        rig.tell(SYNC, make_pod())
        await rig.settle()
        assert rig.syncer.kinds() == ["sync"]


# -- static pods --------------------------------------------------------------------------


async def test_n1_n3_an_edited_static_pod_starts_the_moment_the_old_one_has_ended() -> None:
    async with running() as rig:
        rig.tell(CREATE, static_pod("old"))
        await rig.settle()
        stop = rig.syncer.hold("terminating", "old")
        rig.tell(KILL, static_pod("old"))
        rig.tell(CREATE, static_pod("new"))
        await anyio.sleep(3)
        await rig.settle()
        assert rig.syncer.kinds("new") == []
        assert rig.due_in("new") == 7.0
        stop.set()
        await rig.settle()
        assert state(rig, "old").phase is WorkerPhase.FINISHED
        assert rig.syncer.last("sync", "new").update_type is CREATE
        assert anyio.current_time() == 3.0


async def test_n2_static_pods_of_one_name_start_in_order_of_arrival() -> None:
    async with running() as rig:
        for uid in ("a", "b", "c", "d"):
            rig.tell(CREATE, static_pod(uid))
        await rig.settle()
        rig.tell(KILL, static_pod("b"))
        await rig.settle()
        for uid in ("a", "c", "d"):
            assert [u for u in "acd" if rig.syncer.kinds(u) and state(rig, u).finished_at is None] \
                == [uid]  # fmt: skip
            rig.tell(KILL, static_pod(uid))
            await rig.settle()


async def test_n4_a_static_pod_killed_while_it_waits_finishes_without_any_call() -> None:
    async with running() as rig:
        rig.tell(CREATE, static_pod("a"))
        rig.tell(CREATE, static_pod("b"))
        await rig.settle()
        done = anyio.Event()
        options = KillOptions(completed=done.set)
        rig.workers.update_pod(UpdatePodOptions(KILL, static_pod("b"), kill=options))
        await rig.settle()
        assert done.is_set()
        assert rig.syncer.kinds("b") == []
        assert state(rig, "b").phase is WorkerPhase.FINISHED


async def test_n5_pods_from_the_api_do_not_wait_for_each_other() -> None:
    async with running() as rig:
        for uid in ("a", "b"):
            rig.tell(CREATE, make_pod(uid, "same-name"))
        await rig.settle()
        assert rig.syncer.kinds("a") == rig.syncer.kinds("b") == ["sync"]


async def test_n6_a_static_pod_killed_before_its_worker_began_is_stopped_properly() -> None:
    async with running() as rig:
        rig.tell(CREATE, static_pod("a"))
        rig.tell(KILL, static_pod("a"))
        await rig.settle()
        assert rig.syncer.kinds("a") == ["terminating", "terminated"]


# -- the full set -------------------------------------------------------------------------


async def test_r1_wanted_pods_are_kept_and_described() -> None:
    async with running() as rig:
        rig.tell(CREATE, static_pod())
        await rig.settle()
        known = rig.workers.sync_known_pods([static_pod()])
        assert known[U1].label == (WorkerPhase.SYNC, "desired", "true")
        assert rig.syncer.kinds() == ["sync"]


async def test_r2_finished_pods_are_forgotten_once_nobody_wants_them() -> None:
    async with running() as rig:
        kill(rig)
        await rig.settle()
        assert rig.workers.sync_known_pods([make_pod()]).keys() == {U1}
        assert rig.workers.sync_known_pods([]) == {}
        assert not rig.workers.is_known(U1)


async def test_r3_a_pod_that_waits_for_its_name_ends_without_a_call_and_lets_others_pass() -> None:
    async with running() as rig:
        for uid in ("a", "b", "c"):
            rig.tell(CREATE, static_pod(uid))
        await rig.settle()
        wanted = [static_pod("a"), static_pod("c")]
        assert rig.workers.sync_known_pods(wanted)[PodUID("b")].orphan
        await rig.settle()
        assert rig.workers.sync_known_pods(wanted).keys() == {"a", "c"}
        assert rig.syncer.kinds("b") == []
        rig.tell(KILL, static_pod("a"))
        await rig.settle()
        assert rig.syncer.kinds("c") == ["sync"]


async def test_r3_a_pod_whose_worker_has_not_run_yet_is_stopped_properly() -> None:
    async with running() as rig:
        rig.tell(CREATE, static_pod())
        rig.workers.sync_known_pods([])
        await rig.settle()
        assert rig.syncer.kinds() == ["terminating", "terminated"]


async def test_r4_an_unwanted_pod_is_terminated_with_its_own_grace() -> None:
    async with running() as rig:
        rig.tell(CREATE, make_pod(grace=17))
        await rig.settle()
        known = rig.workers.sync_known_pods([])
        assert known[U1].orphan
        assert state(rig).deleted
        await rig.settle()
        assert rig.syncer.last("terminating").grace == 17
        assert rig.workers.view(U1).content_removed


async def test_r5_an_ending_pod_keeps_its_back_off_and_a_lost_one_is_looked_at_again() -> None:
    async with running() as rig:
        rig.syncer.fail("terminating", SyncError("StopContainer: deadline exceeded"))
        kill(rig)
        await rig.settle()
        for _ in range(3):
            rig.workers.sync_known_pods([])
            await rig.settle()
        assert rig.syncer.kinds() == ["terminating"]
        assert rig.due_in() == 10.0
        rig.queue.discard(U1)
        rig.workers.sync_known_pods([])
        await rig.settle()
        assert rig.syncer.kinds() == ["terminating", "terminating", "terminated"]


async def test_r6_nothing_is_ended_before_all_sources_have_spoken() -> None:
    async with running() as rig:
        rig.tell(CREATE, make_pod())
        await rig.settle()
        rig.workers.sync_known_pods([], all_sources=False)
        await rig.settle()
        assert rig.syncer.kinds() == ["sync"]
        assert rig.workers.view(PodUID("stranger")).could_have_running_containers
        rig.workers.sync_known_pods([make_pod()])
        assert not rig.workers.view(PodUID("stranger")).could_have_running_containers


async def test_a_uid_wanted_again_ends_first_and_then_starts_anew() -> None:
    """U4, R2: a manifest is removed and put back while its pod terminates, with a fixed UID."""
    async with running() as rig:
        ended: list[str] = []
        rig.workers.on_restart = ended.append
        rig.tell(CREATE, static_pod(image="old"))
        stop = rig.syncer.hold("terminating")
        rig.tell(KILL, static_pod(image="old"))
        await rig.settle()
        rig.tell(CREATE, static_pod(image="new"))
        await rig.settle()
        assert state(rig).restart_requested
        stop.set()
        await rig.settle()
        assert ended == ["u1"]
        assert rig.syncer.kinds() == ["terminating", "terminated"]
        assert rig.workers.sync_known_pods([static_pod(image="new")]) == {}
        rig.workers.start_over(static_pod(image="new"), None)
        await rig.settle()
        assert rig.syncer.last("sync").pod == static_pod(image="new")
        assert rig.cache.asked[-1] == ("u1", 0.0)


async def test_a_uid_wanted_again_after_it_has_finished_says_so_at_once() -> None:
    async with running() as rig:
        ended: list[str] = []
        rig.workers.on_restart = ended.append
        kill(rig)
        await rig.settle()
        rig.tell(CREATE, make_pod())
        assert ended == ["u1"]


# -- ending -------------------------------------------------------------------------------


async def test_e1_killing_now_waits_until_nothing_runs() -> None:
    async with running() as rig:
        rig.tell(CREATE, make_pod())
        await rig.workers.kill_pod_now(make_pod(), evict=True, grace=3)
        assert rig.syncer.last("terminating").grace == 3
        assert state(rig).evicted


@pytest.mark.parametrize(("grace", "limit"), [(2, 10.0), (40, 60.0), (None, 45.0)])
async def test_e1_a_pod_that_does_not_end_is_given_up_after_one_and_a_half_times_its_grace(
    grace: int | None, limit: float
) -> None:
    """events.md, EV57."""
    async with running() as rig:
        rig.syncer.hold("terminating")
        with pytest.raises(SyncError, match="the pod still runs") as caught:
            await rig.workers.kill_pod_now(make_pod(), grace=grace)
        assert anyio.current_time() == limit
        assert caught.value.reason == rig.events[-1].reason == "ExceededGracePeriod"
        assert rig.events[-1].message == (
            "Container runtime did not kill the pod within specified grace period."
        )


async def test_e2_stopping_all_ends_every_pod_and_names_those_that_do_not() -> None:
    async with running() as rig:
        for uid in ("a", "b"):
            rig.tell(CREATE, static_pod(uid, "same"))
        rig.tell(CREATE, make_pod("c", "c"))
        rig.workers.update_pod(orphan_kill("d"))
        rig.syncer.hold("terminating", "c")
        rig.syncer.fail("terminating", SyncError("no"), uid="a")
        await rig.settle()
        assert await rig.workers.stop_all(30.0, grace=5) == ("c",)
        assert state(rig, "a").phase is WorkerPhase.FINISHED
        assert state(rig, "b").phase is WorkerPhase.FINISHED
        assert rig.syncer.last("terminating", "c").grace == 5
        assert anyio.current_time() == 30.0


@pytest.mark.parametrize(("own", "grace"), [(0, 1), (3, 3), (60, 30), (None, 30)])
async def test_e2_a_pod_gets_no_longer_to_stop_than_it_asked_for(
    own: int | None, grace: int
) -> None:
    async with running() as rig:
        rig.tell(CREATE, make_pod("a", grace=own))
        await rig.settle()
        assert await rig.workers.stop_all(40.0, grace=30) == ()
        assert rig.syncer.last("terminating", "a").grace == grace


async def test_e2_stopping_nothing_takes_no_time() -> None:
    async with running() as rig:
        assert await rig.workers.stop_all(30.0) == ()
        assert anyio.current_time() == 0.0


async def test_e3_drained_returns_when_nobody_has_anything_to_do() -> None:
    async with running() as rig:
        await rig.workers.drained()
        gate = rig.syncer.hold("sync")
        rig.tell(CREATE, make_pod())
        with anyio.move_on_after(5) as scope:
            await rig.workers.drained()
        assert scope.cancelled_caught
        gate.set()
        await rig.workers.drained()
        assert rig.syncer.last("sync").ended == "done"


class SlowSyncer(FakeSyncer):
    """Every call awaits a few times, so that a cancellation can come at each of them."""

    async def _make(self, made: object) -> None:
        await super()._make(made)  # type: ignore[arg-type]
        for _ in range(3):
            await anyio.lowlevel.checkpoint()


async def drive(rig: Rig) -> None:
    async with anyio.create_task_group() as tg:
        await tg.start(rig.workers.run)
        for uid in ("a", "b"):
            rig.tell(CREATE, static_pod(uid))
        rig.workers.update_pod(orphan_kill("d"))
        await anyio.lowlevel.checkpoint()
        rig.tell(KILL, static_pod("a"))
        await rig.workers.kill_pod_now(static_pod("b"), grace=1)
        rig.workers.sync_known_pods([])
        await rig.workers.drained()
        tg.cancel_scope.cancel()


async def test_e4_cancelled_at_any_await_no_task_and_no_call_is_left_behind() -> None:
    before = asyncio.all_tasks()
    steps = 0
    finished = False
    while not finished:
        rig = Rig(syncer=SlowSyncer())
        finished = True
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tg:
                tg.start_soon(drive, rig)
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                if len(asyncio.all_tasks()) > len(before):
                    finished = False
                    scope.cancel()
        assert rig.syncer.inside == set()
        assert asyncio.all_tasks() == before
        # The tables are whole: the agent could go on with them.
        rig.tell(UPDATE, static_pod("a"))
        async with running(rig):
            await rig.settle()
            assert all(not w.busy for w in rig.workers._workers.values())
        steps += 1
    assert steps > 15


# -- figures ------------------------------------------------------------------------------


async def test_durations_are_observed_by_operation() -> None:
    async with running() as rig:
        gate = rig.syncer.hold("sync")
        rig.tell(CREATE, make_pod())
        await anyio.sleep(2)
        gate.set()
        kill(rig)
        await rig.settle()
        name = "kubelet_pod_worker_duration_seconds"
        assert rig.figure(f"{name}_sum", operation_type="create") == 2.0
        for operation in ("kill", "terminated"):
            assert rig.figure(f"{name}_count", operation_type=operation) == 1.0
        assert rig.figure("kubelet_pod_worker_start_duration_seconds_count") == 1.0


async def test_every_step_is_in_the_journal_under_the_pods_name() -> None:
    async with running() as rig:
        rig.tell(CREATE, make_pod())
        kill(rig)
        await rig.settle()
        steps = [record.what for record in rig.journal.select("default/web")]
        assert steps == [
            "UpdatePod",
            "UpdatePod",
            "WorkerTerminating",
            "SyncTerminatingPod",
            "WorkerTerminated",
            "SyncTerminatedPod",
            "WorkerFinished",
        ]
