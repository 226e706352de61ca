"""Which pods count: their resources are taken, and they start again if nobody works on them."""

from __future__ import annotations

from nodeagent.api import Pod, PodStatus
from nodeagent.pods.manager import PodManager, is_terminal, pod_uid
from nodeagent.pods.protocols import PodStatusStore
from nodeagent.pods.worker_state import WorkerView
from nodeagent.pods.workers import PodWorkers


def is_active(pod: Pod, worker: WorkerView, status: PodStatus | None) -> bool:
    """Whether a desired pod runs, may run, or is still ending.

    Args:
        pod: the pod; its own status is what the API knows.
        worker: what the workers know of it.
        status: the status that this agent computed.
    """
    if worker.known_terminated:
        return False
    ended = is_terminal(pod.status.phase) or (status is not None and is_terminal(status.phase))
    return worker.termination_requested or not ended


class ActivePods:
    """Answers that question for all pods of the node.

    Args:
        manager: the desired pods.
        workers: who works on them.
        statuses: what was computed of them.
    """

    def __init__(self, manager: PodManager, workers: PodWorkers, statuses: PodStatusStore) -> None:
        self._manager = manager
        self._workers = workers
        self._statuses = statuses

    def __contains__(self, pod: Pod) -> bool:
        uid = pod_uid(pod)
        return is_active(pod, self._workers.view(uid), self._statuses.get(uid))

    def all(self) -> list[Pod]:
        """All active pods; no mirrors."""
        return [pod for pod in self._manager.get_pods() if pod in self]
