"""docs/behaviour/workers.md, "Calls", "Outcomes" and "Review", without a task or a clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.pods.worker_fakes import make_pod, mirror_pod, runtime_pod, seen, tell

from nodeagent.api import PodStatus
from nodeagent.model import (
    BackOffError,
    ContainerState,
    NetworkNotReadyError,
    PodRuntimeStatus,
    SyncError,
    UpdateType,
)
from nodeagent.pods.stop_failures import StopFailure, next_failure
from nodeagent.pods.worker_outcomes import (
    Call,
    CallKind,
    Result,
    Review,
    complete,
    finish_unstarted,
    replay,
    requeue_delay,
    review,
    take,
)
from nodeagent.pods.worker_state import WorkerPhase, WorkerState, apply_update
from nodeagent.pods.worker_updates import KillOptions, UpdatePodOptions, Work
from nodeagent.rpc import DeadlineExceeded, InvalidArgument, Unavailable, Unimplemented, Unknown

CREATE, UPDATE, SYNC, KILL = UpdateType
NOTHING = seen("u1")


def advance(state: WorkerState | None, options: UpdatePodOptions, now: float = 1.0) -> WorkerState:
    after = apply_update(state, options, now).state
    assert after is not None
    return after


def syncing() -> WorkerState:
    return replace(advance(None, tell(CREATE, make_pod(), mirror_pod("m"))), started_at=1.0)


def killed(grace: int | None = None, done: Callable[[], None] | None = None) -> WorkerState:
    kill = KillOptions(completed=done, grace=grace)
    return advance(syncing(), UpdatePodOptions(KILL, make_pod(), kill=kill))


def orphan() -> WorkerState:
    kill = KillOptions(grace=1)
    state = advance(None, UpdatePodOptions(KILL, running=runtime_pod(), kill=kill))
    return replace(state, started_at=1.0)


def taken(state: WorkerState, status: PodRuntimeStatus = NOTHING) -> tuple[WorkerState, Call]:
    return take(state, status)


# -- calls --------------------------------------------------------------------------------


def test_c1_a_pod_in_sync_is_synced_with_its_mirror() -> None:
    state, call = taken(syncing())
    assert call == Call(CallKind.SYNC, Work(CREATE, 1.0, make_pod(), mirror_pod("m")))
    assert state.pending is None
    assert state.active == call.work
    assert not state.started_terminating
    assert call.operation == "create"


def test_c2_a_terminating_pod_is_stopped_with_its_grace_and_the_last_status_change() -> None:
    def first(status: PodStatus) -> PodStatus:
        return status

    def last(status: PodStatus) -> PodStatus:
        return status

    state = killed(grace=7)
    for change in (first, last):
        kill = KillOptions(status_fn=change)
        state = advance(state, UpdatePodOptions(KILL, make_pod(), kill=kill))
    state, call = taken(state)
    assert (call.kind, call.grace, call.status_fn) == (CallKind.TERMINATING, 7, last)
    assert state.started_terminating
    assert call.operation == "kill"


def test_c3_what_only_the_runtime_knows_is_stopped_as_it_is() -> None:
    state, call = taken(orphan())
    assert call.kind is CallKind.TERMINATING_RUNTIME
    assert call.work.running == runtime_pod()
    assert state.started_terminating
    assert call.operation == "kill"


def test_c4_a_terminated_pod_releases_what_it_held() -> None:
    state = replace(killed(), terminated_at=3.0)
    _, call = taken(state)
    assert call.kind is CallKind.TERMINATED
    assert call.operation == "terminated"


def test_c5_what_runs_in_a_terminated_pod_is_stopped_first() -> None:
    state = replace(killed(), terminated_at=3.0)
    status = seen("u1", ("c1", "main", ContainerState.RUNNING))
    state, call = taken(state, status)
    assert call.kind is CallKind.TERMINATING
    after = complete(state, call, Result.DONE, 9.0).state
    assert after is not None
    assert after.terminated_at == 3.0
    assert taken(after)[1].kind is CallKind.TERMINATED


# -- outcomes -----------------------------------------------------------------------------


def test_o1_a_terminated_pod_that_has_released_all_is_finished() -> None:
    state, call = taken(replace(killed(), terminated_at=3.0))
    ended = complete(state, call, Result.DONE, 9.0)
    assert ended.exits
    assert ended.state is not None
    assert ended.state.finished_at == 9.0


def test_o1_what_came_in_meanwhile_is_dropped_with_it() -> None:
    state, call = taken(replace(killed(), terminated_at=3.0))
    state = advance(state, tell(SYNC, make_pod()))
    ended = complete(state, call, Result.DONE, 9.0)
    assert ended.state is not None
    assert ended.state.pending is None


def test_o2_a_uid_known_only_from_the_runtime_is_forgotten_when_stopped() -> None:
    told: list[int] = []

    def done() -> None:
        told.append(1)

    kill = KillOptions(completed=done)
    state = advance(orphan(), UpdatePodOptions(KILL, running=runtime_pod(), kill=kill))
    state, call = taken(state)
    ended = complete(state, call, Result.DONE, 9.0)
    assert (ended.state, ended.exits, ended.signal) == (None, True, (done,))


def test_o2_unless_a_source_described_it_meanwhile() -> None:
    state, call = taken(orphan())
    state = advance(state, tell(KILL, make_pod()))
    ended = complete(state, call, Result.DONE, 9.0)
    assert not ended.exits
    assert ended.state is not None
    assert ended.state.phase is WorkerPhase.TERMINATED
    assert taken(ended.state)[1].kind is CallKind.TERMINATED


def test_o3_a_stopped_pod_is_terminated_tells_who_waits_and_goes_on_at_once() -> None:
    def done() -> None:
        """Nobody listens."""

    state, call = taken(killed(done=done))
    ended = complete(state, call, Result.DONE, 9.0)
    assert ended.signal == (done,)
    assert ended.state is not None
    assert ended.state.terminated_at == 9.0
    assert (ended.state.waiters, ended.state.status_fns) == ((), ())
    assert ended.state.pending is not None


def test_o4_a_pod_that_ended_by_itself_is_stopped_with_its_own_grace() -> None:
    state, call = taken(syncing())
    ended = complete(state, call, Result.TERMINAL, 9.0)
    assert ended.state is not None
    assert ended.state.terminating_at == 9.0
    assert ended.state.started_terminating
    _, stop = taken(ended.state)
    assert (stop.kind, stop.grace) == (CallKind.TERMINATING, None)


def test_o4_a_kill_that_came_meanwhile_keeps_its_grace_and_its_time() -> None:
    state, call = taken(syncing())
    kill = KillOptions(grace=3)
    state = advance(state, UpdatePodOptions(KILL, make_pod(), kill=kill), 5.0)
    ended = complete(state, call, Result.TERMINAL, 9.0)
    assert ended.state is not None
    assert ended.state.terminating_at == 5.0
    assert taken(ended.state)[1].grace == 3


def test_o5_a_synced_pod_stays_in_sync() -> None:
    state, call = taken(syncing())
    ended = complete(state, call, Result.DONE, 9.0)
    assert (ended.state, ended.signal, ended.exits) == (state, (), False)


@pytest.mark.parametrize("result", [Result.FAILED, Result.CANCELLED])
def test_o9_a_failed_or_cancelled_call_changes_nothing(result: Result) -> None:
    for before in (syncing(), killed(), orphan(), replace(killed(), terminated_at=3.0)):
        state, call = taken(before)
        ended = complete(state, call, result, 9.0)
        assert (ended.state, ended.signal, ended.exits) == (state, (), False)


def test_o10_what_came_in_during_a_call_stays_in_the_mailbox() -> None:
    state, call = taken(syncing())
    state = advance(state, tell(UPDATE, make_pod(image="new")), 5.0)
    for result in (Result.DONE, Result.FAILED, Result.CANCELLED):
        after = complete(state, call, result, 9.0).state
        assert after is not None
        assert after.pending == Work(UPDATE, 5.0, make_pod(image="new"))


def test_a_replay_lies_under_what_is_newer() -> None:
    state, _ = taken(syncing())
    assert replay(state, 9.0).pending == Work(SYNC, 9.0, make_pod(), mirror_pod("m"))
    newer = replay(advance(state, tell(UPDATE, make_pod(image="new")), 5.0), 9.0).pending
    assert newer == Work(UPDATE, 5.0, make_pod(image="new"))


def test_a_worker_that_never_began_has_nothing_to_replay_and_ends_telling_who_waits() -> None:
    def done() -> None:
        """Nobody listens."""

    fresh = advance(None, tell(CREATE, make_pod()))
    assert replay(fresh, 9.0) is fresh
    kill = KillOptions(completed=done)
    ended = finish_unstarted(advance(fresh, UpdatePodOptions(KILL, make_pod(), kill=kill)), 9.0)
    assert ended.signal == (done,)
    assert ended.state is not None
    assert ended.state.phase is WorkerPhase.FINISHED


def outage() -> SyncError:
    error = SyncError("no sandbox", reason="CreatePodSandboxError")
    error.__cause__ = Unavailable("connection refused", "RunPodSandbox")
    return error


def waiting_and_outage() -> SyncError:
    error = BackOffError("crash, and a start that was cut", until=160.0, only=False)
    error.__cause__ = Unavailable("connection lost", "StartContainer")
    return error


@pytest.mark.parametrize(
    ("row", "error", "delay"),
    [
        ("O5", None, 60.0),
        ("O6", NetworkNotReadyError("cni"), 1.0),
        ("O6", ExceptionGroup("", [SyncError("x"), NetworkNotReadyError("cni")]), 1.0),
        ("O7", BackOffError("crash", until=120.0), 20.0),
        ("O7", BackOffError("crash", until=400.0), 60.0),
        ("O7", BackOffError("crash", until=50.0), 0.0),
        (
            "O7",
            ExceptionGroup("", [BackOffError("a", until=140.0), BackOffError("b", until=130.0)]),
            30.0,
        ),
        ("O7", BackOffError("crash, and a pull", until=160.0, only=False), 10.0),
        ("O7", BackOffError("crash, and a pull", until=104.0, only=False), 4.0),
        ("O8", Unavailable("gone"), 1.0),
        ("O8", outage(), 1.0),
        ("O8", waiting_and_outage(), 1.0),
        ("O9", SyncError("x"), 10.0),
        ("O9", DeadlineExceeded("slow"), 1.0),
        ("O9", InvalidArgument("never"), 10.0),
        ("O9", ExceptionGroup("", [BackOffError("a", until=101.0), SyncError("x")]), 10.0),
    ],
)
def test_each_outcome_has_its_delay(row: str, error: Exception | None, delay: float) -> None:
    result = Result.DONE if error is None else Result.FAILED
    assert requeue_delay(result, error, 100.0, lambda seconds: seconds) == delay, row


def test_o9_a_pod_that_cannot_be_stopped_waits_longer_each_time() -> None:
    def waits(error: Exception) -> list[float]:
        return [
            requeue_delay(
                Result.FAILED, error, 0.0, lambda seconds: seconds, tries=tries, stopping=True
            )
            for tries in (1, 2, 3, 4, 50)
        ]

    assert waits(SyncError("x")) == [10.0, 20.0, 40.0, 60.0, 60.0]
    assert waits(DeadlineExceeded("slow")) == [1.0, 2.0, 3.0, 3.0, 60.0]
    assert waits(Unavailable("gone")) == [1.0] * 5


def test_o9_what_the_runtime_could_not_do_is_tried_again_soon_and_then_less_often() -> None:
    def waits(error: Exception) -> list[float]:
        return [
            requeue_delay(Result.FAILED, error, 0.0, lambda seconds: seconds, tries=tries)
            for tries in range(1, 9)
        ]

    busy = SyncError("no sandbox")
    busy.__cause__ = Unknown("busy", "RunPodSandbox")
    assert waits(busy) == [1.0, 2.0, 3.0, 3.0, 3.0, 10.0, 10.0, 10.0]
    assert waits(Unimplemented("never")) == [10.0] * 8


def test_o9_failures_to_stop_are_counted_until_one_succeeds() -> None:
    def after(
        before: StopFailure | None, kind: CallKind, error: Exception | None, now: float
    ) -> StopFailure | None:
        return next_failure(
            before, "default/web", Call(kind, Work(KILL, 1.0, make_pod())), error, now
        )

    first = after(None, CallKind.TERMINATING, SyncError("busy"), 5.0)
    assert first == StopFailure("default/web", "busy", 5.0, 1)
    second = after(first, CallKind.TERMINATING_RUNTIME, SyncError("slow"), 9.0)
    assert second == StopFailure("default/web", "slow", 5.0, 2)
    assert after(second, CallKind.TERMINATING, None, 10.0) == second
    assert after(second, CallKind.TERMINATED, None, 10.0) is None
    assert after(None, CallKind.SYNC, SyncError("x"), 10.0) is None


def test_o9_a_cancelled_call_is_tried_again_after_ten_seconds() -> None:
    assert requeue_delay(Result.CANCELLED, None, 0.0, lambda seconds: seconds) == 10.0


def test_delays_are_spread_except_the_end_of_a_back_off() -> None:
    def double(seconds: float) -> float:
        return 2 * seconds

    assert requeue_delay(Result.DONE, None, 0.0, double) == 120.0
    assert requeue_delay(Result.DONE, None, 0.0, double, resync=5.0) == 10.0
    assert requeue_delay(Result.FAILED, SyncError("x"), 0.0, double) == 20.0
    assert requeue_delay(Result.FAILED, BackOffError("x", until=8.0), 0.0, double) == 8.0


# -- review -------------------------------------------------------------------------------


def test_r1_a_wanted_pod_is_kept_whatever_its_state() -> None:
    for state in (syncing(), killed(), replace(killed(), finished_at=9.0)):
        assert review(state, wanted=True) is Review.KEEP


def test_r2_a_finished_pod_is_forgotten_when_unwanted_or_to_restart() -> None:
    done = replace(killed(), finished_at=9.0)
    assert review(done, wanted=False) is Review.FORGET
    assert review(replace(done, restart_requested=True), wanted=True) is Review.FORGET
    assert review(done, wanted=False, all_sources=False) is Review.FORGET


def test_r3_a_pod_that_never_started_ends_like_any_other() -> None:
    fresh = advance(None, tell(CREATE, make_pod()))
    assert review(fresh, wanted=False) is Review.TERMINATE
    assert review(replace(fresh, observed_runtime=True), wanted=False) is Review.TERMINATE


def test_r4_an_unwanted_pod_at_work_is_terminated() -> None:
    assert review(syncing(), wanted=False) is Review.TERMINATE


def test_r5_an_ending_pod_is_looked_at_again() -> None:
    assert review(killed(), wanted=False) is Review.REPLAY
    assert review(replace(killed(), restart_requested=True), wanted=True) is Review.REPLAY


def test_r6_nothing_new_is_ended_until_all_sources_have_spoken() -> None:
    assert review(syncing(), wanted=False, all_sources=False) is Review.KEEP
    fresh = advance(None, tell(CREATE, make_pod()))
    assert review(fresh, wanted=False, all_sources=False) is Review.KEEP
    assert review(killed(), wanted=False, all_sources=False) is Review.REPLAY
