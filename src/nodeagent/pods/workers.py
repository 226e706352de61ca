"""Pod workers: one task per pod UID, the only task allowed to change that pod.

The shell around the pure state machine of ``worker_state`` and ``worker_outcomes``: it owns
the tasks and the tables and decides nothing. Guarantees: docs/behaviour/workers.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus
from prometheus_client import CollectorRegistry

from nodeagent.aio import jitter as default_jitter
from nodeagent.api import Pod
from nodeagent.journal import Journal
from nodeagent.log import Log, log_context
from nodeagent.model import PodUID, SyncError, UpdateType
from nodeagent.pods.manager import is_terminal, pod_uid
from nodeagent.pods.metrics import PodMetrics
from nodeagent.pods.protocols import (
    EventRecorder,
    PodCacheReader,
    PodSyncer,
    RuntimeGate,
    StatusFn,
)
from nodeagent.pods.stop_failures import StopFailure, next_failure
from nodeagent.pods.work_queue import WorkQueue
from nodeagent.pods.worker_known import KnownPod
from nodeagent.pods.worker_names import StaticNames
from nodeagent.pods.worker_outcomes import (
    ERROR_BACK_OFF,
    RESYNC,
    Completed,
    Review,
    complete,
    finish_unstarted,
    replay,
    requeue_delay,
    review,
    take,
)
from nodeagent.pods.worker_state import (
    Decision,
    Verdict,
    WorkerState,
    WorkerView,
    apply_update,
    view,
)
from nodeagent.pods.worker_task import STATUS_TIMEOUT, Worker, WorkerCalls
from nodeagent.pods.worker_updates import Completion, KillOptions, UpdatePodOptions

log = Log("pods.workers")

_DEFAULT_GRACE: Final = 30


def no_events(pod: Pod, kind: str, reason: str, message: str) -> None:
    """Record no event."""


class PodWorkers:
    """All workers of the node.

    ``update_pod`` and the queries are synchronous and may be called from the event loop at
    any time, also before :meth:`run`; the work itself happens in tasks that ``run`` owns.

    Args:
        syncer: performs the calls.
        cache: what PLEG knows.
        queue: where pods wait for their next look; its consumer is the sync tick.
        gate: whether the runtime can be worked with; workers hold back while it cannot.
        journal: flight recorder.
        metrics: where durations go.
        events: event recorder.
        jitter: spreads delays.
        resync: seconds between two syncs of a pod at rest.
        status_timeout: seconds to wait for PLEG to look at a pod.
        on_restart: called when a UID has ended that is wanted again, so that it can start;
            must not block.
    """

    def __init__(
        self,
        syncer: PodSyncer,
        cache: PodCacheReader,
        queue: WorkQueue,
        gate: RuntimeGate,
        *,
        journal: Journal | None = None,
        metrics: PodMetrics | None = None,
        events: EventRecorder = no_events,
        jitter: Callable[[float], float] = default_jitter,
        resync: float = RESYNC,
        status_timeout: float = STATUS_TIMEOUT,
        on_restart: Callable[[PodUID], None] | None = None,
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._journal = journal or Journal()
        self._metrics = metrics or PodMetrics(CollectorRegistry())
        self._events = events
        self._jitter = jitter
        self._resync = resync
        self.on_restart = on_restart
        self._calls = WorkerCalls(
            syncer,
            cache,
            gate,
            journal=self._journal,
            metrics=self._metrics,
            events=events,
            status_timeout=status_timeout,
        )
        self._workers: dict[PodUID, Worker] = {}
        self._names = StaticNames()
        self._synced = False
        self._tasks: TaskGroup | None = None
        self._all_idle = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Work until cancelled; pods keep running then."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                for uid, worker in self._workers.items():
                    self._spawn(worker)
                    # A call that an earlier run was cancelled in is made again.
                    self.replay(uid)
                task_status.started()
                await anyio.sleep_forever()
        finally:
            self._tasks = None

    # -- telling ---------------------------------------------------------------------------

    def update_pod(self, options: UpdatePodOptions) -> None:
        """Tell a pod's worker something; starts the worker when there is none. Never blocks."""
        worker = self._workers.get(options.uid)
        decision = apply_update(
            None if worker is None else worker.state,
            options,
            anyio.current_time(),
            runs_nothing=worker is None and self._runs_nothing(options),
        )
        why = options.update_type.value
        if decision.verdict is not Verdict.ACCEPTED:
            why = f"{why}: {decision.verdict.value}"
        self._journal.record("pods", "UpdatePod", options.uid, why)
        if decision.state is not None:
            self._take_over(worker or self._add_worker(decision.state), decision)
        self._signal(decision.signal)

    def start_over(self, pod: Pod, mirror: Pod | None) -> None:
        """Start a worker for a UID that ended before; it waits for a new look at the pod."""
        self.update_pod(UpdatePodOptions(UpdateType.CREATE, pod, mirror))
        # What PLEG knew of the old pod says nothing about the new one.
        self._workers[pod_uid(pod)].last_sync = anyio.current_time()

    def _take_over(self, worker: Worker, decision: Decision) -> None:
        assert decision.state is not None
        self._set_state(worker, decision.state)
        if decision.wake:
            self._wake(worker)
        elif decision.verdict is Verdict.RESTART_REQUESTED and worker.exited.is_set():
            self._may_restart(worker)
        if decision.cancel and worker.scope is not None:
            worker.scope.cancel()

    def _runs_nothing(self, options: UpdatePodOptions) -> bool:
        if options.pod is None or not is_terminal(options.pod.status.phase):
            return False
        status = self._cache.get(options.uid)
        return not status.running and not status.has_ready_sandbox

    def _add_worker(self, state: WorkerState) -> Worker:
        worker = self._workers[state.uid] = Worker(state)
        name, _, namespace = state.full_name.rpartition("_")
        self._journal.name_pod(state.uid, f"{namespace}/{name}")
        if state.static:
            self._names.enqueue(state.full_name, state.uid)
        self._spawn(worker)
        return worker

    def _spawn(self, worker: Worker) -> None:
        if self._tasks is not None and worker.state.finished_at is None:
            self._tasks.start_soon(self._work, worker, name=f"pod-worker {worker.state.full_name}")

    def _set_state(self, worker: Worker, state: WorkerState) -> None:
        if state.phase is not worker.state.phase:
            what = f"Worker{state.phase.value.capitalize()}"
            self._journal.record("pods", what, state.uid)
        worker.state = state

    @staticmethod
    def _wake(worker: Worker) -> None:
        worker.busy = True
        worker.wake.set()

    @staticmethod
    def _signal(completions: Iterable[Completion]) -> None:
        for completed in completions:
            try:
                completed()
            except Exception as error:  # noqa: BLE001 - a waiter's fault is not the pod's
                log.fault("completion_failed", error)

    def replay(self, uid: PodUID) -> bool:
        """Let a worker look at its pod again; False when nobody works on that UID."""
        worker = self._workers.get(uid)
        if worker is None or worker.state.finished_at is not None:
            return False
        worker.state = replay(worker.state, anyio.current_time())
        if worker.state.pending is not None:
            self._wake(worker)
        return True

    def runtime_returned(self) -> None:
        """Retry now whatever failed last: the runtime may have been the cause."""
        for uid, worker in list(self._workers.items()):
            if worker.failing:
                self.replay(uid)

    def retry(self, uid: PodUID) -> None:
        """Try again now what failed last of a pod: there is news of it."""
        worker = self._workers.get(uid)
        if worker is not None and (worker.failing or worker.stop_failure is not None):
            self.replay(uid)

    def stop_failures(self) -> list[StopFailure]:
        """The pods that are to stop and could not be stopped, the first of them first."""
        failures = [w.stop_failure for w in self._workers.values() if not w.exited.is_set()]
        return sorted((f for f in failures if f is not None), key=lambda f: f.since)

    # -- working ---------------------------------------------------------------------------

    async def _work(self, worker: Worker) -> None:
        uid = worker.state.uid
        name, _, namespace = worker.state.full_name.rpartition("_")
        with log_context(pod=name, namespace=namespace, uid=uid):
            while not worker.exited.is_set():
                await worker.wake.wait()
                worker.wake = anyio.Event()
                try:
                    await self._turn(worker)
                except Exception as error:  # noqa: BLE001 - a fault of ours must not end the worker
                    log.fault("worker_fault", error)
                    self._journal.record("pods", "WorkerFault", uid, repr(error))
                    self._retry_later(worker)
                if not worker.wake.is_set():
                    self._rest(worker)

    async def _turn(self, worker: Worker) -> None:
        """Do what the mailbox asks for, once."""
        if worker.exited.is_set() or worker.state.pending is None:
            return
        if not self._may_start(worker):
            return
        await self._calls.hold_back(worker)
        status = await self._calls.look(worker)
        if status is None:
            self._retry_later(worker)
            return
        # Taken only now: what came in while we waited is part of this turn, and no await
        # lies between the decision and the scope that a kill cancels.
        worker.state, call = take(worker.state, status)
        worker.acted_on = status
        result, error = await self._calls.perform(worker, call, status)
        worker.failing = error is not None
        worker.tries = worker.tries + 1 if worker.failing else 0
        now = anyio.current_time()
        failure = next_failure(worker.stop_failure, worker.pod_name, call, error, now)
        worker.stop_failure = failure
        ended = complete(worker.state, call, result, now)
        self._apply(worker, ended)
        if not ended.exits:
            delay = requeue_delay(
                result,
                error,
                now,
                self._jitter,
                resync=self._resync,
                tries=worker.tries if failure is None else failure.tries,
                stopping=failure is not None,
            )
            self._queue.set(worker.state.uid, now + delay)

    def _may_start(self, worker: Worker) -> bool:
        state = worker.state
        if state.started_at is not None:
            return True
        now = anyio.current_time()
        if state.static and not self._names.request(state.full_name, state.uid, self._passes):
            holder = self._names.holder(state.full_name)
            if state.termination_requested:
                self._journal.record("pods", "EndedUnstarted", state.uid, f"behind {holder}")
                self._apply(worker, finish_unstarted(state, now))
            else:
                self._journal.record("pods", "WaitsForName", state.uid, f"behind {holder}")
                self._queue.set(state.uid, now + self._jitter(ERROR_BACK_OFF))
            return False
        worker.state = replace(state, started_at=now)
        self._metrics.worker_start_duration.observe(now - state.synced_at)
        return True

    def _passes(self, uid: PodUID) -> bool:
        worker = self._workers.get(uid)
        return worker is None or worker.state.termination_requested

    def _retry_later(self, worker: Worker) -> None:
        worker.failing = True
        due = anyio.current_time() + self._jitter(ERROR_BACK_OFF)
        self._queue.set(worker.state.uid, due)

    def _rest(self, worker: Worker) -> None:
        worker.busy = False
        if not any(w.busy for w in self._workers.values()):
            self._all_idle.set()
            self._all_idle = anyio.Event()

    def _apply(self, worker: Worker, ended: Completed) -> None:
        if ended.state is None:
            self._workers.pop(worker.state.uid, None)
        else:
            self._set_state(worker, ended.state)
            if ended.state.pending is not None:
                self._wake(worker)
        self._signal(ended.signal)
        if ended.exits:
            self._exit(worker)

    def _exit(self, worker: Worker) -> None:
        """The worker has nothing left to do: free what it holds, and tell who waits."""
        state = worker.state
        worker.exited.set()
        worker.wake.set()
        self._rest(worker)
        self._queue.discard(state.uid)
        if state.static:
            for uid in self._names.release(state.full_name, state.uid):
                if (waiting := self._workers.get(uid)) is not None:
                    self._wake(waiting)
        if state.restart_requested:
            self._may_restart(worker)

    def _may_restart(self, worker: Worker) -> None:
        if self.on_restart is not None:
            self.on_restart(worker.state.uid)

    # -- the full set ----------------------------------------------------------------------

    def sync_known_pods(
        self,
        desired: Iterable[Pod],
        *,
        all_sources: bool = True,
        hold: Collection[PodUID] = (),
    ) -> dict[PodUID, KnownPod]:
        """Compare the workers with all desired pods; end and forget what is not wanted.

        Args:
            desired: every pod that a source wants; no mirrors.
            all_sources: whether every source has spoken, so that a UID that nobody knows
                is one that nobody wants.
            hold: finished UIDs that must not be forgotten yet.

        Returns:
            What is left, by UID.
        """
        self._synced = self._synced or all_sources
        wanted = {pod_uid(pod) for pod in desired}
        known: dict[PodUID, KnownPod] = {}
        for uid, worker in list(self._workers.items()):
            if uid in hold:
                # What is left of a pod that nobody wants may go.
                worker.state = replace(worker.state, deleted=uid not in wanted)
            elif self._reviewed_away(worker, uid in wanted, all_sources):
                continue
            known[uid] = KnownPod.of(worker.state, wanted=uid in wanted)
        return known

    def _reviewed_away(self, worker: Worker, wanted: bool, all_sources: bool) -> bool:
        verdict = review(worker.state, wanted=wanted, all_sources=all_sources)
        if verdict is Review.FORGET:
            self._forget(worker)
            return True
        if not wanted and verdict is not Review.KEEP:
            worker.state = replace(worker.state, deleted=True)
        if verdict is Review.TERMINATE:
            self._kill(worker, KillOptions())
        # A pod that waits for its back-off keeps it; this is for one that nothing else
        # would wake again.
        elif verdict is Review.REPLAY and not worker.busy and worker.state.uid not in self._queue:
            self.replay(worker.state.uid)
        return False

    def _kill(self, worker: Worker, kill: KillOptions) -> None:
        state = worker.state
        work = state.pending or state.active
        assert work is not None, "an unfinished worker was told something"
        self.update_pod(
            UpdatePodOptions(UpdateType.KILL, state.last_pod, work.mirror, work.running, kill)
        )

    def _forget(self, worker: Worker) -> None:
        uid = worker.state.uid
        self._journal.record("pods", "Forgotten", uid)
        del self._workers[uid]

    # -- asking ----------------------------------------------------------------------------

    def view(self, uid: PodUID) -> WorkerView:
        """What is known of one UID (docs/behaviour/workers.md, "Queries")."""
        return view(self.state(uid), synced=self._synced)

    def is_known(self, uid: PodUID) -> bool:
        """Whether the UID has a worker, working or finished."""
        return uid in self._workers

    def is_current(self, uid: PodUID) -> bool:
        """Whether a worker has acted, or acts, on the newest look at its pod, without a failure."""
        worker = self._workers.get(uid)
        return worker is not None and not worker.failing and worker.acted_on is self._cache.get(uid)

    def state(self, uid: PodUID) -> WorkerState | None:
        """The state of one UID, to be shown."""
        worker = self._workers.get(uid)
        return None if worker is None else worker.state

    def states(self) -> Mapping[PodUID, WorkerState]:
        """All states, to be shown."""
        return {uid: worker.state for uid, worker in self._workers.items()}

    # -- ending ----------------------------------------------------------------------------

    async def kill_pod_now(
        self,
        pod: Pod,
        *,
        evict: bool = False,
        grace: int | None = None,
        status_fn: StatusFn | None = None,
    ) -> None:
        """Kill a pod and wait until nothing of it runs.

        Args:
            pod: whom.
            evict: the node wants to be rid of it.
            grace: seconds its containers get, if shorter than what the pod says.
            status_fn: changes its status while it terminates.

        Raises:
            SyncError: it still ran after 1.5 times the grace period, at least 10 s; it is
                still being killed then.
        """
        done = anyio.Event()
        kill = KillOptions(done.set, evict, grace, status_fn)
        self.update_pod(UpdatePodOptions(UpdateType.KILL, pod, kill=kill))
        given = (grace, pod.spec.termination_grace_period_seconds, _DEFAULT_GRACE)
        limit = max(10.0, 1.5 * next(seconds for seconds in given if seconds is not None))
        with anyio.move_on_after(limit):
            await done.wait()
            return
        text = "Container runtime did not kill the pod within specified grace period."
        self._events(pod, "Warning", "ExceededGracePeriod", text)
        msg = f"the pod still runs {limit:g} s after it was killed"
        raise SyncError(msg, reason="ExceededGracePeriod")

    async def stop_all(self, timeout: float, grace: int | None = None) -> tuple[PodUID, ...]:
        """Kill every pod and wait until all have ended and let go of what they held.

        Args:
            timeout: seconds that this may take.
            grace: seconds containers get, if shorter than what their pods say.

        Returns:
            The UIDs that were not done in time.
        """
        workers = {u: w for u, w in self._workers.items() if w.state.finished_at is None}
        for uid, worker in workers.items():
            self._journal.record("pods", "StopAll", uid)
            self._kill(worker, KillOptions(grace=_shorter(grace, worker.state.last_pod)))
        with anyio.move_on_after(timeout):
            for worker in workers.values():
                await self._exited(worker)
        return tuple(uid for uid, worker in workers.items() if not worker.exited.is_set())

    async def _exited(self, worker: Worker) -> None:
        while not worker.exited.is_set():
            with anyio.move_on_after(1.0):
                await worker.exited.wait()
            # The sync loop that hands out retries may have ended already.
            for uid in self._queue.pop_due(anyio.current_time()):
                self.replay(uid)

    async def drained(self) -> None:
        """Return when no worker has anything to do right now.

        A worker whose pod waits for a back-off or a resync has nothing to do. The caller's
        scope bounds the wait.
        """
        while any(worker.busy for worker in self._workers.values()):
            await self._all_idle.wait()


def _shorter(grace: int | None, pod: Pod | None) -> int | None:
    """A bound on grace periods does not make a pod's own longer."""
    own = None if pod is None else pod.spec.termination_grace_period_seconds
    return grace if grace is None or own is None else min(grace, max(own, 1))
