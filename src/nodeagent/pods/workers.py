"""Pod workers: one task per pod UID, the only task allowed to change that pod.

The shell around the pure state machine of ``worker_state`` and ``worker_outcomes``; it decides
nothing. What others ask is in ``worker_table``, what the tasks do in ``worker_tasks``, and what
they are told is here. Guarantees: docs/behaviour/workers.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

import anyio

from nodeagent.api import Pod
from nodeagent.model import PodUID, SyncError, UpdateType
from nodeagent.pods.manager import is_terminal, pod_uid
from nodeagent.pods.protocols import StatusFn
from nodeagent.pods.worker_known import KnownPod
from nodeagent.pods.worker_outcomes import Review, review
from nodeagent.pods.worker_state import Decision, Verdict, WorkerState, apply_update
from nodeagent.pods.worker_task import Worker
from nodeagent.pods.worker_tasks import WorkerTasks
from nodeagent.pods.worker_updates import KillOptions, UpdatePodOptions

_DEFAULT_GRACE: Final = 30


class PodWorkers(WorkerTasks):
    """All workers of the node.

    ``update_pod`` and the queries are synchronous and may be called from the event loop at
    any time, also before :meth:`run`; the work itself happens in tasks that ``run`` owns.

    Made with what :class:`WorkerTasks` takes.
    """

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


def _shorter(grace: int | None, pod: Pod | None) -> int | None:
    """A bound on grace periods does not make a pod's own longer."""
    own = None if pod is None else pod.spec.termination_grace_period_seconds
    return grace if grace is None or own is None else min(grace, max(own, 1))
