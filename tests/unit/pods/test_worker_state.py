"""docs/behaviour/workers.md, "Updates" and "Queries": every row, and what merging may not lose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.pods.worker_fakes import make_pod, mirror_pod, runtime_pod, static_pod, tell

from nodeagent.api import Pod, PodStatus
from nodeagent.model import PodUID, UpdateType
from nodeagent.pods.worker_state import (
    Decision,
    Verdict,
    WorkerPhase,
    WorkerState,
    apply_update,
    effective_grace,
    view,
)
from nodeagent.pods.worker_updates import KillOptions, UpdatePodOptions, Work, remember_work

CREATE, UPDATE, SYNC, KILL = UpdateType


@dataclass
class Bell:
    """Someone who waits for the end."""

    rung: int = 0

    def __call__(self) -> None:
        self.rung += 1


def state_of(decision: Decision) -> WorkerState:
    assert decision.state is not None
    return decision.state


def started(pod: Pod | None = None, now: float = 0.0) -> WorkerState:
    return state_of(apply_update(None, tell(CREATE, pod or make_pod()), now))


def killed(pod: Pod | None = None, grace: int | None = None) -> WorkerState:
    options = UpdatePodOptions(KILL, pod or make_pod(), kill=KillOptions(grace=grace))
    return state_of(apply_update(started(pod), options, 1.0))


def terminated() -> WorkerState:
    return replace(killed(), terminated_at=2.0, pending=None)


def finished() -> WorkerState:
    return replace(terminated(), finished_at=3.0)


def runtime_kill(uid: str = "u1", bell: Bell | None = None) -> UpdatePodOptions:
    return UpdatePodOptions(
        KILL, running=runtime_pod(uid), kill=KillOptions(completed=bell, grace=1)
    )


def test_an_update_about_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="an update needs a pod"):
        UpdatePodOptions(SYNC)


def test_a_first_update_starts_a_state_that_remembers_when_and_for_whom() -> None:
    state = started(static_pod("u9", "shop"), now=7.0)
    assert (state.uid, state.full_name, state.static) == ("u9", "shop_default", True)
    assert (state.synced_at, state.phase) == (7.0, WorkerPhase.SYNC)
    assert state.pending == Work(CREATE, 7.0, static_pod("u9", "shop"))


@pytest.mark.parametrize("kind", [CREATE, UPDATE, SYNC])
def test_u1_only_the_runtimes_view_without_a_kill_is_ignored(kind: UpdateType) -> None:
    options = UpdatePodOptions(kind, running=runtime_pod())
    assert apply_update(None, options, 0.0) == Decision(None, Verdict.IGNORED)
    state = started()
    assert apply_update(state, options, 0.0) == Decision(state, Verdict.IGNORED)


def test_u2_with_a_pod_the_runtimes_view_is_dropped() -> None:
    options = UpdatePodOptions(KILL, make_pod(), running=runtime_pod())
    state = state_of(apply_update(None, options, 0.0))
    assert state.pending == Work(KILL, 0.0, make_pod())
    assert not state.observed_runtime


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_u3_a_pod_that_was_over_before_the_agent_started_starts_as_terminated(phase: str) -> None:
    decision = apply_update(None, tell(CREATE, make_pod(phase=phase)), 4.0, runs_nothing=True)
    state = state_of(decision)
    assert state.phase is WorkerPhase.TERMINATED
    assert state.started_terminating
    assert decision.wake


def test_u3_one_that_still_runs_has_to_be_stopped_first() -> None:
    state = state_of(apply_update(None, tell(CREATE, make_pod(phase="Failed")), 4.0))
    assert state.phase is WorkerPhase.TERMINATING


def test_u3_a_pod_that_is_not_over_starts_normally() -> None:
    state = state_of(apply_update(None, tell(CREATE, make_pod()), 4.0, runs_nothing=True))
    assert state.phase is WorkerPhase.SYNC


@pytest.mark.parametrize("make", [killed, terminated, finished])
def test_u4_a_create_for_an_ending_uid_asks_for_a_restart_and_nothing_else(
    make: Callable[[], WorkerState],
) -> None:
    state = make()
    decision = apply_update(state, tell(CREATE, make_pod(image="new")), 9.0)
    assert decision.verdict is Verdict.RESTART_REQUESTED
    assert not decision.wake
    after = state_of(decision)
    assert after.restart_requested
    assert after.pending == state.pending


def test_u4_a_create_for_a_uid_at_work_is_an_ordinary_update() -> None:
    assert apply_update(started(), tell(CREATE, make_pod()), 1.0).verdict is Verdict.COALESCED


def test_u5_a_pod_known_only_from_the_runtime_is_terminating_and_deleted() -> None:
    state = state_of(apply_update(None, runtime_kill(), 1.0))
    assert state.phase is WorkerPhase.TERMINATING
    assert (state.deleted, state.observed_runtime, state.static) == (True, True, None)
    assert (state.full_name, state.grace) == ("web_default", 1)
    assert state.pending is not None
    assert state.pending.running == runtime_pod()


def test_u5_the_last_known_pod_is_used_when_there_is_one() -> None:
    state = state_of(apply_update(started(), runtime_kill(), 1.0))
    assert state.pending == Work(KILL, 0.0, make_pod())
    assert state.observed_runtime
    assert state.deleted


def test_u6_a_deletion_timestamp_makes_it_terminating_and_deleted() -> None:
    decision = apply_update(started(), tell(UPDATE, make_pod(deleting=True)), 1.0)
    assert state_of(decision).terminating_at == 1.0
    assert state_of(decision).deleted


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_u7_a_terminal_phase_makes_it_terminating(phase: str) -> None:
    state = state_of(apply_update(started(), tell(UPDATE, make_pod(phase=phase)), 1.0))
    assert state.phase is WorkerPhase.TERMINATING
    assert not state.deleted


def test_u8_a_kill_makes_it_terminating_and_evicted_if_it_says_so() -> None:
    assert not killed().evicted
    options = UpdatePodOptions(KILL, make_pod(), kill=KillOptions(evict=True))
    assert state_of(apply_update(started(), options, 1.0)).evicted


def test_u9_a_finished_pod_takes_no_more_updates() -> None:
    state = finished()
    for kind in (UPDATE, SYNC, KILL):
        decision = apply_update(state, tell(kind, make_pod()), 9.0)
        assert decision == Decision(state, Verdict.IGNORED)


def test_u10_the_runtimes_old_view_of_a_terminated_pod_is_ignored() -> None:
    bell = Bell()
    decision = apply_update(terminated(), runtime_kill(bell=bell), 9.0)
    assert decision.verdict is Verdict.IGNORED
    assert decision.signal == (bell,)


def test_u11_a_terminated_pod_takes_updates_and_tells_who_waits_at_once() -> None:
    bell = Bell()
    options = UpdatePodOptions(KILL, make_pod(), kill=KillOptions(completed=bell, grace=5))
    decision = apply_update(terminated(), options, 9.0)
    assert decision.signal == (bell,)
    assert decision.wake
    assert state_of(decision).grace == terminated().grace
    assert not decision.cancel


def test_u12_a_terminating_pod_notes_who_waits_and_which_status_they_want() -> None:
    def mark(status: PodStatus) -> PodStatus:
        return status

    first, second = Bell(), Bell()
    state = started()
    for bell in (first, second):
        options = UpdatePodOptions(KILL, make_pod(), kill=KillOptions(bell, status_fn=mark))
        decision = apply_update(state, options, 1.0)
        assert decision.signal == ()
        state = state_of(decision)
    assert state.waiters == (first, second)
    assert state.status_fns == (mark, mark)


def test_u13_kill_options_of_a_pod_that_is_not_killed_are_dropped() -> None:
    bell = Bell()
    options = UpdatePodOptions(SYNC, make_pod(), kill=KillOptions(bell, evict=True, grace=1))
    decision = apply_update(started(), options, 1.0)
    assert decision.signal == (bell,)
    assert state_of(decision).grace == 0
    assert not state_of(decision).evicted


def test_u14_becoming_terminating_cancels_the_running_call_once() -> None:
    first = apply_update(started(), tell(KILL, make_pod()), 1.0)
    assert first.cancel
    assert not apply_update(state_of(first), tell(KILL, make_pod()), 2.0).cancel


def test_u14_a_shorter_grace_cancels_the_running_call_and_a_longer_one_does_not() -> None:
    state = killed(grace=20)
    shorter = UpdatePodOptions(KILL, make_pod(), kill=KillOptions(grace=5))
    longer = UpdatePodOptions(KILL, make_pod(), kill=KillOptions(grace=25))
    assert apply_update(state, shorter, 2.0).cancel
    assert not apply_update(state, longer, 2.0).cancel
    assert state_of(apply_update(state, longer, 2.0)).grace == 20


def test_u15_whoever_waits_on_an_ignored_update_is_told() -> None:
    bell = Bell()
    kill = KillOptions(completed=bell)
    ignored = UpdatePodOptions(SYNC, running=runtime_pod(), kill=kill)
    assert apply_update(None, ignored, 0.0).signal == (bell,)
    assert apply_update(finished(), UpdatePodOptions(KILL, make_pod(), kill=kill), 9.0).signal == (
        bell,
    )
    again = UpdatePodOptions(CREATE, make_pod(), kill=kill)
    assert apply_update(killed(), again, 9.0).signal == (bell,)


@pytest.mark.parametrize(
    ("stored", "deletion", "override", "spec", "effective"),
    [
        (0, None, None, 30, 30),
        (0, 10, None, 30, 10),
        (0, 10, 5, 30, 5),
        (0, 5, 10, 30, 5),
        (0, 60, None, 30, 60),
        (20, None, None, 30, 20),
        (20, 30, None, 30, 20),
        (20, None, 3, 30, 3),
        (20, 0, None, 30, 1),
        (0, 0, 30, 30, 1),
        (0, None, 0, 30, 1),
        (0, None, None, 0, 1),
        (0, None, None, None, 1),
    ],
)
def test_the_smallest_grace_period_counts_and_the_pods_own_only_without_another(
    stored: int, deletion: int | None, override: int | None, spec: int | None, effective: int
) -> None:
    pod = make_pod(deletion_grace=deletion, grace=spec)
    assert effective_grace(stored, pod, override) == effective


def test_the_grace_of_a_pod_that_nobody_describes_is_one_second() -> None:
    assert effective_grace(0, None, None) == 1
    assert effective_grace(0, None, 7) == 7


def test_m1_merging_keeps_the_newest_pod_the_oldest_time_and_the_strongest_type() -> None:
    old, new = make_pod(image="old"), make_pod(image="new")
    mirror = mirror_pod("m")
    state = started(old, now=3.0)
    state = state_of(apply_update(state, tell(SYNC, new, mirror), 5.0))
    assert state.pending == Work(CREATE, 3.0, new, mirror)
    state = state_of(apply_update(state, tell(UPDATE, new), 6.0))
    assert state.pending == Work(CREATE, 3.0, new)
    state = state_of(apply_update(state, tell(KILL, new), 7.0))
    assert state.pending is not None
    assert state.pending.update_type is KILL


def test_m1_a_cause_noticed_earlier_counts_even_if_it_is_said_later() -> None:
    state = started(now=3.0)
    early = UpdatePodOptions(SYNC, make_pod(), started_at=1.0)
    state = state_of(apply_update(state, early, 5.0))
    assert state.pending is not None
    assert state.pending.started_at == 1.0


def test_what_is_replayed_remembers_the_last_mirror_and_the_last_pod() -> None:
    mirror = mirror_pod("m")
    first = Work(SYNC, 0.0, make_pod(), mirror)
    active = remember_work(first, Work(KILL, 2.0, make_pod(image="new")))
    assert active == Work(KILL, 2.0, make_pod(image="new"), mirror)
    assert remember_work(None, first) is first
    assert remember_work(active, Work(KILL, 3.0, running=runtime_pod())).pod == active.pod


# -- the property -------------------------------------------------------------------------


@dataclass
class Ledger:
    """What a sequence of updates asked for, kept without any merging."""

    kill_asked: bool = False
    bells: list[Bell] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    graces: list[int] = field(default_factory=list)
    status_fns: int = 0


graces = st.one_of(st.none(), st.integers(0, 90))


@st.composite
def updates(draw: st.DrawFn) -> UpdatePodOptions:
    kind = draw(st.sampled_from([UPDATE, SYNC, KILL]))
    if draw(st.booleans()) and kind is KILL and draw(st.booleans()):
        return runtime_kill(bell=Bell())
    kill = None
    if kind is KILL and draw(st.booleans()):
        kill = KillOptions(
            completed=Bell() if draw(st.booleans()) else None,
            evict=draw(st.booleans()),
            grace=draw(graces),
            status_fn=(lambda status: status) if draw(st.booleans()) else None,
        )
    pod = make_pod(
        deleting=draw(st.booleans()) and draw(st.booleans()),
        deletion_grace=draw(graces),
        phase=draw(st.sampled_from(["Pending", "Running", "Running", "Failed"])),
    )
    started_at = draw(st.one_of(st.none(), st.floats(0, 100)))
    return UpdatePodOptions(kind, pod, kill=kill, started_at=started_at)


def note(ledger: Ledger, options: UpdatePodOptions, now: float) -> None:
    pod = options.pod
    ends = options.update_type is KILL or (
        pod is not None
        and (pod.metadata.deletion_timestamp is not None or pod.status.phase == "Failed")
    )
    ledger.kill_asked = ledger.kill_asked or ends
    ledger.times.append(now if options.started_at is None else options.started_at)
    if options.kill is not None and options.kill.completed is not None:
        assert isinstance(options.kill.completed, Bell)
        ledger.bells.append(options.kill.completed)
    if ledger.kill_asked:
        if options.kill is not None and options.kill.grace is not None:
            ledger.graces.append(options.kill.grace)
        if pod is not None and pod.metadata.deletion_grace_period_seconds is not None:
            ledger.graces.append(pod.metadata.deletion_grace_period_seconds)
        if options.kill is not None and options.kill.status_fn is not None:
            ledger.status_fns += 1


@given(st.lists(updates(), min_size=1, max_size=12))
def test_m1_no_kill_waiter_start_time_or_shorter_grace_is_ever_lost_by_merging(
    sequence: list[UpdatePodOptions],
) -> None:
    ledger = Ledger()
    decision = apply_update(None, tell(CREATE, make_pod()), 50.0)
    ledger.times.append(50.0)
    state = state_of(decision)
    told: list[object] = []
    cancels = 0
    for step, options in enumerate(sequence):
        before = state
        decision = apply_update(state, options, 51.0 + step)
        note(ledger, options, 51.0 + step)
        told.extend(decision.signal)
        cancels += decision.cancel
        state = state_of(decision)
        assert not before.grace or state.grace <= before.grace
    assert state.pending is not None
    assert state.pending.pod is not None
    assert state.termination_requested == ledger.kill_asked
    assert state.pending.started_at == min(ledger.times)
    assert sorted(map(id, [*told, *state.waiters])) == sorted(map(id, ledger.bells))
    assert len(state.status_fns) == ledger.status_fns
    if ledger.kill_asked:
        assert cancels >= 1
        assert state.grace <= max(min(ledger.graces, default=30), 1)
        assert state.grace >= 1


@given(st.lists(updates(), max_size=12), st.integers(0, 1))
def test_states_never_go_back(sequence: list[UpdatePodOptions], early: int) -> None:
    order = list(WorkerPhase)
    state: WorkerState | None = None
    for step, options in enumerate(sequence):
        decision = apply_update(state, options, float(step), runs_nothing=bool(early))
        if state is not None and decision.state is not None:
            assert order.index(decision.state.phase) >= order.index(state.phase)
        state = decision.state


# -- queries ------------------------------------------------------------------------------


def test_q_unknown_uids_may_be_wanted_until_all_pods_are_known_and_are_nobodys_after() -> None:
    """workers.md, Q1, Q2, Q3, Q4, Q5, Q6, Q7, for unknown UIDs."""
    before, after = view(None, synced=False), view(None, synced=True)
    assert not before.known_terminated  # Q1
    assert not after.known_terminated
    assert not before.termination_requested  # Q2
    assert not after.termination_requested
    assert before.could_have_running_containers  # Q3
    assert not after.could_have_running_containers
    for name in ("finished", "containers_terminating", "runtime_removed", "content_removed"):
        assert not getattr(before, name)  # Q4, Q5, Q6, Q7
        assert getattr(after, name)


def test_q_the_answers_follow_a_pod_through_its_states() -> None:
    """workers.md, Q1, Q2, Q3, Q4, Q5, Q6, for known UIDs."""
    sync = started()
    asked = killed()
    seen_by_worker = replace(asked, started_terminating=True)
    over, done = terminated(), finished()
    rows = [
        # known_terminated, termination_requested, could_run, finished, terminating, removed
        (sync, (False, False, True, False, False, False)),
        (asked, (False, True, True, False, False, False)),
        (seen_by_worker, (False, True, True, False, True, False)),
        (replace(over, started_terminating=True), (True, True, False, False, True, True)),
        (replace(done, started_terminating=True), (True, True, False, True, True, True)),
    ]
    for state, expected in rows:
        answer = view(state, synced=True)
        assert (
            answer.known_terminated,
            answer.termination_requested,
            answer.could_have_running_containers,
            answer.finished,
            answer.containers_terminating,
            answer.runtime_removed,
        ) == expected


def test_q7_content_may_go_when_evicted_or_when_deleted_and_terminated() -> None:
    over = terminated()
    assert not view(over, synced=True).content_removed
    assert view(replace(over, deleted=True), synced=True).content_removed
    assert not view(replace(killed(), deleted=True), synced=True).content_removed
    assert not view(replace(killed(), evicted=True), synced=True).content_removed
    assert view(replace(over, evicted=True), synced=True).content_removed


def test_a_uid_is_a_pod_uid() -> None:
    assert runtime_kill("u7").uid == PodUID("u7")
