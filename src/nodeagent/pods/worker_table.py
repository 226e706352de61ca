"""What the pod workers are at: a table of them, and the answers that others ask of it."""

from __future__ import annotations

from collections.abc import Mapping

import anyio

from nodeagent.model import PodUID
from nodeagent.pods.protocols import PodCacheReader
from nodeagent.pods.stop_failures import StopFailure
from nodeagent.pods.worker_names import StaticNames
from nodeagent.pods.worker_state import WorkerState, WorkerView, view
from nodeagent.pods.worker_task import Worker


class WorkerTable:
    """All workers of the node, to be looked at. Nothing here changes one.

    Args:
        cache: what PLEG knows.
    """

    def __init__(self, cache: PodCacheReader) -> None:
        self._cache = cache
        self._workers: dict[PodUID, Worker] = {}
        self._names = StaticNames()
        self._synced = False
        self._all_idle = anyio.Event()

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

    def stop_failures(self) -> list[StopFailure]:
        """The pods that are to stop and could not be stopped, the first of them first."""
        failures = [w.stop_failure for w in self._workers.values() if not w.exited.is_set()]
        return sorted((f for f in failures if f is not None), key=lambda f: f.since)

    async def drained(self) -> None:
        """Return when no worker has anything to do right now.

        A worker whose pod waits for a back-off or a resync has nothing to do. The caller's
        scope bounds the wait.
        """
        while any(worker.busy for worker in self._workers.values()):
            await self._all_idle.wait()

    def _passes(self, uid: PodUID) -> bool:
        worker = self._workers.get(uid)
        return worker is None or worker.state.termination_requested

    def _rest(self, worker: Worker) -> None:
        worker.busy = False
        if not any(w.busy for w in self._workers.values()):
            self._all_idle.set()
            self._all_idle = anyio.Event()
