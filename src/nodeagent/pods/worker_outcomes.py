"""From a worker's mailbox to a call, and from the call's outcome to the next state.

Pure. Rows and their tests: docs/behaviour/workers.md, "Calls", "Outcomes" and "Review".
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from nodeagent.aio import leaves
from nodeagent.model import BackOffError, NetworkNotReadyError, PodRuntimeStatus, UpdateType
from nodeagent.pods.protocols import StatusFn
from nodeagent.pods.worker_state import WorkerState
from nodeagent.pods.worker_updates import Completion, Work, merge_work, remember_work
from nodeagent.rpc import (
    InvalidArgument,
    PermissionDenied,
    RpcError,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)

RESYNC: Final = 60.0
ERROR_BACK_OFF: Final = 10.0
LONGEST_BACK_OFF: Final = 60.0
QUICK_RETRY: Final = 1.0
QUICK_RETRIES: Final = (1.0, 2.0, 3.0, 3.0, 3.0)
"""Waits after the first failures of calls to the runtime: what ails it is often over soon."""
_FINAL: Final = (InvalidArgument, Unimplemented, PermissionDenied, Unauthenticated)
"""Answers that the same question gets again."""


class CallKind(enum.Enum):
    """Which method of the syncer to call."""

    SYNC = "SyncPod"
    TERMINATING = "SyncTerminatingPod"
    TERMINATING_RUNTIME = "SyncTerminatingRuntimePod"
    TERMINATED = "SyncTerminatedPod"


@dataclass(frozen=True, slots=True)
class Call:
    """One call to make. ``grace`` None lets each container have the pod's own."""

    kind: CallKind
    work: Work
    grace: int | None = None
    status_fn: StatusFn | None = None

    @property
    def operation(self) -> str:
        """The metric's operation type."""
        if self.kind is CallKind.TERMINATED:
            return "terminated"
        if self.kind is CallKind.SYNC:
            return self.work.update_type.value
        return UpdateType.KILL.value


class Result(enum.Enum):
    """How a call ended."""

    DONE = "done"
    TERMINAL = "terminal"
    """A sync found that the pod has ended by itself."""
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Completed:
    """What the end of a call leads to.

    Attributes:
        state: the state from now on; None when the UID is to be forgotten.
        signal: completions to call now.
        exits: the worker has nothing left to do, ever.
    """

    state: WorkerState | None
    signal: tuple[Completion, ...] = ()
    exits: bool = False


def take(state: WorkerState, status: PodRuntimeStatus) -> tuple[WorkerState, Call]:
    """Empty the mailbox and name the call to make.

    Args:
        state: with something pending.
        status: a look at the pod later than the worker's last action.
    """
    work = state.pending
    assert work is not None, "nothing pending"
    kind = _kind(state, work, status)
    state = replace(
        state,
        pending=None,
        active=remember_work(state.active, work),
        started_terminating=state.started_terminating or kind is not CallKind.SYNC,
    )
    if kind is not CallKind.TERMINATING:
        return state, Call(kind, work)
    status_fn = state.status_fns[-1] if state.status_fns else None
    return state, Call(kind, work, state.grace or None, status_fn)


def _kind(state: WorkerState, work: Work, status: PodRuntimeStatus) -> CallKind:
    if work.pod is None:
        return CallKind.TERMINATING_RUNTIME
    if not state.termination_requested:
        return CallKind.SYNC
    # What was believed to have ended may turn out to run: after an agent restart with an
    # empty cache, or when something else started it. It is stopped before its volumes go.
    if state.terminated_at is not None and not status.running:
        return CallKind.TERMINATED
    return CallKind.TERMINATING


def complete(state: WorkerState, call: Call, result: Result, now: float) -> Completed:
    """Decide what follows from the end of a call.

    Args:
        state: as it is now; updates may have come in while the call ran.
        call: the call that ended.
        result: how.
        now: loop time.
    """
    if result in (Result.FAILED, Result.CANCELLED):
        return Completed(state)
    if result is Result.TERMINAL and call.kind is CallKind.SYNC:
        return Completed(_ended_by_itself(state, now))
    if call.kind is CallKind.SYNC:
        return Completed(state)
    if call.kind is CallKind.TERMINATED:
        return Completed(
            replace(state, finished_at=now, pending=None, waiters=()), state.waiters, exits=True
        )
    only_runtime = call.kind is CallKind.TERMINATING_RUNTIME and state.last_pod is None
    if only_runtime:
        return Completed(None, state.waiters, exits=True)
    terminated_at = now if state.terminated_at is None else state.terminated_at
    after = replace(state, terminated_at=terminated_at, waiters=(), status_fns=())
    return Completed(replay(after, now), state.waiters)


def _ended_by_itself(state: WorkerState, now: float) -> WorkerState:
    if not state.termination_requested:
        state = replace(state, terminating_at=now)
    return replay(replace(state, started_terminating=True), now)


def replay(state: WorkerState, now: float) -> WorkerState:
    """Put the last work into the mailbox again, under whatever lies there."""
    if state.active is None or state.finished_at is not None:
        return state
    kind = UpdateType.KILL if state.termination_requested else UpdateType.SYNC
    again = replace(state.active, update_type=kind, started_at=now)
    # What lies in the mailbox is newer than what is replayed, so it goes on top.
    pending = again if state.pending is None else merge_work(again, state.pending)
    return replace(state, pending=pending)


def finish_unstarted(state: WorkerState, now: float) -> Completed:
    """End a worker that never was let to begin."""
    terminating_at = now if state.terminating_at is None else state.terminating_at
    done = replace(
        state, terminating_at=terminating_at, terminated_at=now, finished_at=now,
        pending=None, waiters=(),
    )  # fmt: skip
    return Completed(done, state.waiters, exits=True)


def requeue_delay(
    result: Result,
    error: Exception | None,
    now: float,
    jitter: Callable[[float], float],
    *,
    resync: float = RESYNC,
    tries: int = 1,
    stopping: bool = False,
) -> float:
    """Seconds until the pod is looked at again if nothing else happens.

    Args:
        result: how the call ended.
        error: what it raised.
        now: loop time.
        jitter: spreads a delay ``d`` over ``[d, 1.5 d)``.
        resync: seconds between two syncs of a pod at rest.
        tries: how many calls have failed now, one after the other.
        stopping: the pod could not be stopped.
    """
    if error is None:
        return jitter(ERROR_BACK_OFF if result is Result.CANCELLED else resync)
    causes = list(leaves(error))
    if any(isinstance(leaf, NetworkNotReadyError) for leaf in causes):
        return jitter(QUICK_RETRY)
    again = jitter(_back_off(causes, tries, stopping=stopping))
    waits = [leaf for leaf in causes if isinstance(leaf, BackOffError)]
    if waits and len(waits) == len(causes):
        # Not spread: the pod's status tells the time of the next try.
        delay = min(max(min(leaf.until for leaf in waits) - now, 0.0), resync)
        if all(leaf.only for leaf in waits):
            return delay
        return min(delay, again)
    return again


def _back_off(causes: Sequence[BaseException], tries: int, *, stopping: bool) -> float:
    answers = [answer for answer in map(_answer, causes) if answer is not None]
    # The runtime being away is not the pod's fault: it must go on soon after the return,
    # and its next look waits for PLEG to see the runtime again anyway.
    if any(isinstance(answer, Unavailable) for answer in answers):
        return QUICK_RETRY
    if any(not isinstance(answer, _FINAL) for answer in answers):
        if tries <= len(QUICK_RETRIES):
            return QUICK_RETRIES[tries - 1]
        tries -= len(QUICK_RETRIES)
    if not stopping:
        return ERROR_BACK_OFF
    return min(ERROR_BACK_OFF * 2.0 ** (tries - 1), LONGEST_BACK_OFF)


def _answer(error: BaseException | None) -> RpcError | None:
    """The answer of the runtime that stands behind an error."""
    depth = 0
    while error is not None and depth < 8:
        if isinstance(error, RpcError):
            return error
        error = error.__cause__
        depth += 1
    return None


class Review(enum.Enum):
    """What the full set of desired pods means for one worker."""

    KEEP = "keep"
    FORGET = "forget"
    TERMINATE = "terminate"
    REPLAY = "replay"


def review(state: WorkerState, *, wanted: bool, all_sources: bool = True) -> Review:
    """Compare one worker with the desired pods (docs/behaviour/workers.md, "Review").

    Args:
        state: the worker's state.
        wanted: whether a source wants the pod.
        all_sources: whether every source has spoken; until then nothing new is ended here.
    """
    if wanted and not state.restart_requested:
        return Review.KEEP
    if state.finished_at is not None:
        return Review.FORGET
    if wanted:
        return Review.REPLAY
    if not all_sources and not state.termination_requested:
        return Review.KEEP
    return Review.REPLAY if state.termination_requested else Review.TERMINATE
