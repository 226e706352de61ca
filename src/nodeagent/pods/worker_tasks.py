"""The tasks of the pod workers: what each does when it is woken, and how it rests and ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus
from prometheus_client import CollectorRegistry

from nodeagent.aio import jitter as default_jitter
from nodeagent.api import Pod
from nodeagent.journal import Journal
from nodeagent.log import Log, log_context
from nodeagent.model import PodUID
from nodeagent.pods.metrics import PodMetrics
from nodeagent.pods.protocols import EventRecorder, PodCacheReader, PodSyncer, RuntimeGate
from nodeagent.pods.stop_failures import next_failure
from nodeagent.pods.work_queue import WorkQueue
from nodeagent.pods.worker_outcomes import (
    ERROR_BACK_OFF,
    RESYNC,
    Completed,
    complete,
    finish_unstarted,
    replay,
    requeue_delay,
    take,
)
from nodeagent.pods.worker_state import WorkerState
from nodeagent.pods.worker_table import WorkerTable
from nodeagent.pods.worker_task import STATUS_TIMEOUT, Worker, WorkerCalls
from nodeagent.pods.worker_updates import Completion

log = Log("pods.workers")


def no_events(pod: Pod, kind: str, reason: str, message: str) -> None:
    """Record no event."""


class WorkerTasks(WorkerTable):
    """One task per pod UID, all of them owned by :meth:`run`.

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
        super().__init__(cache)
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
        self._tasks: TaskGroup | None = None

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

    def reconfigure(self, resync: float) -> None:
        """Sync pods at rest so often from now on, those that rest now among them."""
        if resync == self._resync:
            return
        self._resync = resync
        now = anyio.current_time()
        self._queue.bring_forward(lambda: now + self._jitter(resync))

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

    def _retry_later(self, worker: Worker) -> None:
        worker.failing = True
        due = anyio.current_time() + self._jitter(ERROR_BACK_OFF)
        self._queue.set(worker.state.uid, due)

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
