"""The state of one pod's worker, and what an update does to it.

Pure: no clock, no runtime, no await. Rows and their tests: docs/behaviour/workers.md,
"States", "Updates" and "Queries".
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from nodeagent.api import Pod
from nodeagent.model import FullName, PodUID, UpdateType
from nodeagent.pods.manager import is_terminal
from nodeagent.pods.protocols import StatusFn
from nodeagent.pods.worker_updates import (
    Completion,
    KillOptions,
    UpdatePodOptions,
    Work,
    merge_work,
)


class WorkerPhase(enum.Enum):
    """Where a worker stands. It only ever moves forward."""

    SYNC = "sync"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class WorkerState:
    """Everything that is known about the work on one pod UID.

    Times are loop time, None while the thing has not happened.

    Attributes:
        uid: whose.
        full_name: what no two static pods may run under at once.
        static: whether it takes part in that; None when only the runtime knows the pod.
        synced_at: first heard of.
        started_at: the worker was let to begin.
        terminating_at: the pod must end.
        started_terminating: the worker has seen that; no container starts any more.
        terminated_at: no container runs any more.
        finished_at: everything is released.
        deleted: gone from its source, or asked to go there.
        evicted: killed by the node.
        restart_requested: the same UID is wanted again once this one has ended.
        observed_runtime: the runtime was seen to run something under this UID.
        grace: seconds the containers get to stop; 0 while not decided.
        pending: the mailbox.
        active: the last work taken, to be replayed.
        waiters: called when the pod no longer runs.
        status_fns: registered status changes; the last one counts.
    """

    uid: PodUID
    full_name: FullName
    static: bool | None
    synced_at: float
    started_at: float | None = None
    terminating_at: float | None = None
    started_terminating: bool = False
    terminated_at: float | None = None
    finished_at: float | None = None
    deleted: bool = False
    evicted: bool = False
    restart_requested: bool = False
    observed_runtime: bool = False
    grace: int = 0
    pending: Work | None = None
    active: Work | None = None
    waiters: tuple[Completion, ...] = ()
    status_fns: tuple[StatusFn, ...] = ()

    @property
    def phase(self) -> WorkerPhase:
        """The furthest step reached."""
        if self.finished_at is not None:
            return WorkerPhase.FINISHED
        if self.terminated_at is not None:
            return WorkerPhase.TERMINATED
        if self.terminating_at is not None:
            return WorkerPhase.TERMINATING
        return WorkerPhase.SYNC

    @property
    def termination_requested(self) -> bool:
        """Whether the pod must end, or has ended."""
        return self.terminating_at is not None

    @property
    def last_pod(self) -> Pod | None:
        """The newest description of the pod that reached the worker."""
        for work in (self.pending, self.active):
            if work is not None and work.pod is not None:
                return work.pod
        return None


class Verdict(enum.Enum):
    """What became of an update."""

    IGNORED = "ignored"
    ACCEPTED = "accepted"
    COALESCED = "coalesced"
    RESTART_REQUESTED = "restart requested"


@dataclass(frozen=True, slots=True)
class Decision:
    """What one update leads to.

    Attributes:
        state: the state from now on; None when there still is none.
        verdict: what became of the update.
        cancel: the running call is overtaken and must be cancelled.
        signal: completions to call now.
    """

    state: WorkerState | None
    verdict: Verdict
    cancel: bool = False
    signal: tuple[Completion, ...] = ()

    @property
    def wake(self) -> bool:
        """Whether the worker has something new to look at."""
        return self.verdict in (Verdict.ACCEPTED, Verdict.COALESCED)


def apply_update(
    state: WorkerState | None, options: UpdatePodOptions, now: float, *, runs_nothing: bool = False
) -> Decision:
    """Decide what an update does.

    Args:
        state: the worker's state; None for a UID that is not known.
        options: the update.
        now: loop time.
        runs_nothing: for an unknown UID: the runtime has no running container and no ready
            sandbox of it.
    """
    completion = _completions(options.kill)
    runtime_only = options.pod is None
    if runtime_only and options.update_type is not UpdateType.KILL:
        return Decision(state, Verdict.IGNORED, signal=completion)
    if state is None:
        state = _first_sight(options, now, runs_nothing=runs_nothing)
    elif state.termination_requested and options.update_type is UpdateType.CREATE:
        again = replace(state, restart_requested=True)
        return Decision(again, Verdict.RESTART_REQUESTED, signal=completion)
    if runtime_only:
        state = replace(state, observed_runtime=True)
    if state.finished_at is not None or (runtime_only and state.terminated_at is not None):
        return Decision(state, Verdict.IGNORED, signal=completion)
    return _accept(state, options, now)


def _accept(state: WorkerState, options: UpdatePodOptions, now: float) -> Decision:
    pod = options.pod if options.pod is not None else state.last_pod
    before = state
    state = _begin_terminating(state, options, pod, now)
    signal: tuple[Completion, ...] = ()
    if state.phase is WorkerPhase.TERMINATING:
        state = _note_kill(state, pod, options.kill or KillOptions())
    else:
        signal = _completions(options.kill)
    work = Work(
        update_type=options.update_type,
        started_at=now if options.started_at is None else options.started_at,
        pod=pod,
        mirror=options.mirror if options.pod is not None else None,
        running=None if pod is not None else options.running,
    )
    became = state.termination_requested and not before.termination_requested
    shortened = before.grace != 0 and state.grace != before.grace
    return Decision(
        state=replace(state, pending=merge_work(state.pending, work)),
        verdict=Verdict.ACCEPTED if state.pending is None else Verdict.COALESCED,
        cancel=became or shortened,
        signal=signal,
    )


def _first_sight(options: UpdatePodOptions, now: float, *, runs_nothing: bool) -> WorkerState:
    state = WorkerState(
        uid=options.uid, full_name=options.full_name, static=options.static, synced_at=now
    )
    pod = options.pod
    if pod is not None and is_terminal(pod.status.phase) and runs_nothing:
        # The agent restarted after this pod had ended: only what it held is left to release,
        # and admission must not count it as active meanwhile.
        return replace(state, terminating_at=now, started_terminating=True, terminated_at=now)
    return state


def _begin_terminating(
    state: WorkerState, options: UpdatePodOptions, pod: Pod | None, now: float
) -> WorkerState:
    if state.termination_requested:
        return state
    if options.pod is None:
        return replace(state, terminating_at=now, deleted=True)
    if pod is not None and pod.metadata.deletion_timestamp is not None:
        return replace(state, terminating_at=now, deleted=True)
    if pod is not None and is_terminal(pod.status.phase):
        return replace(state, terminating_at=now)
    if options.update_type is UpdateType.KILL:
        evicted = options.kill is not None and options.kill.evict
        return replace(state, terminating_at=now, evicted=evicted)
    return state


def _note_kill(state: WorkerState, pod: Pod | None, kill: KillOptions) -> WorkerState:
    status_fns = state.status_fns if kill.status_fn is None else (*state.status_fns, kill.status_fn)
    return replace(
        state,
        waiters=state.waiters + _completions(kill),
        status_fns=status_fns,
        grace=effective_grace(state.grace, pod, kill.grace),
    )


def _completions(kill: KillOptions | None) -> tuple[Completion, ...]:
    if kill is None or kill.completed is None:
        return ()
    return (kill.completed,)


def effective_grace(stored: int, pod: Pod | None, override: int | None) -> int:
    """Seconds the pod's containers get to stop; never grows, never below 1.

    Args:
        stored: what was decided before; 0 for nothing yet.
        pod: its deletionGracePeriodSeconds counts, and its
            terminationGracePeriodSeconds when nothing else does.
        override: what this kill asks for.
    """
    wanted = [stored] if stored else []
    if pod is not None and pod.metadata.deletion_grace_period_seconds is not None:
        wanted.append(pod.metadata.deletion_grace_period_seconds)
    if override is not None:
        wanted.append(override)
    if not wanted and pod is not None and pod.spec.termination_grace_period_seconds is not None:
        wanted.append(pod.spec.termination_grace_period_seconds)
    return max(min(wanted, default=0), 1)


@dataclass(frozen=True, slots=True)
class WorkerView:
    """What the rest of the agent may ask about one UID.

    Attributes:
        known_terminated: no container of it runs, and that is certain.
        termination_requested: it must end, or has ended.
        could_have_running_containers: its resources must be counted.
        finished: everything is released.
        containers_terminating: no container of it starts any more.
        runtime_removed: nothing of it runs any more.
        content_removed: its dead containers may be removed at once.
    """

    known_terminated: bool
    termination_requested: bool
    could_have_running_containers: bool
    finished: bool
    containers_terminating: bool
    runtime_removed: bool
    content_removed: bool


def view(state: WorkerState | None, *, synced: bool) -> WorkerView:
    """Answer every question about one UID (docs/behaviour/workers.md, "Queries").

    Args:
        state: None for a UID that is not known.
        synced: whether the workers have been told the full set of desired pods; before
            that, a UID they do not know may still be wanted by a source.
    """
    if state is None:
        return WorkerView(
            known_terminated=False,
            termination_requested=False,
            could_have_running_containers=not synced,
            finished=synced,
            containers_terminating=synced,
            runtime_removed=synced,
            content_removed=synced,
        )
    terminated = state.terminated_at is not None
    return WorkerView(
        known_terminated=terminated,
        termination_requested=state.termination_requested,
        could_have_running_containers=not terminated,
        finished=state.finished_at is not None,
        containers_terminating=state.started_terminating,
        runtime_removed=terminated,
        content_removed=(state.evicted or state.deleted) and terminated,
    )
