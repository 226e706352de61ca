"""PLEG's books: every pod it has seen, which of them are unsettled, and what ails them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import anyio

from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import PodUID, RuntimePod
from nodeagent.pleg.health import DegradedPod, Trouble
from nodeagent.pleg.tracked import TrackedPod, View, all_ids

log: Final = Log("pleg")


class Books:
    """All tracked pods. A pod at rest costs one entry and is not visited.

    Args:
        journal: is told names, degraded pods and recoveries.
        patience: seconds after which a call without an answer makes its pod degraded.
    """

    def __init__(self, journal: Journal, patience: float) -> None:
        self._journal = journal
        self._patience = patience
        self._pods: dict[PodUID, TrackedPod] = {}
        self._unsettled: dict[PodUID, TrackedPod] = {}
        self._owners: dict[str, PodUID] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def track(self, uid: PodUID) -> TrackedPod:
        """The entry of a pod, made when there is none."""
        pod = self._pods.get(uid)
        if pod is None:
            pod = self._pods[uid] = TrackedPod(uid)
        return pod

    def find(self, uid: PodUID) -> TrackedPod | None:
        """The entry of a pod, if there is one."""
        return self._pods.get(uid)

    def owner(self, id_: str) -> PodUID | None:
        """The pod of a container or sandbox that the newest look at its pod has shown."""
        return self._owners.get(id_)

    def note(self, pod: TrackedPod, view: View) -> None:
        """Keep what a look has found, unless a later one is known."""
        if view.at <= pod.newest_at:
            return
        before, pod.newest, pod.newest_at = pod.newest, view.pod, view.at
        if before is view.pod:
            return
        now = all_ids(view.pod)
        for gone in all_ids(before) - now:
            self._owners.pop(gone, None)
        for id_ in now:
            self._owners[id_] = pod.uid

    def unsettle(self, pod: TrackedPod) -> None:
        """Have the next relist visit the pod even if the runtime's list stays the same."""
        self._unsettled[pod.uid] = pod

    def settle(self, pod: TrackedPod) -> None:
        """Let the pod rest if nothing is left to do, and forget it if it is gone."""
        if not pod.settled:
            self._unsettled[pod.uid] = pod
            return
        self._unsettled.pop(pod.uid, None)
        if not pod.known:
            self._pods.pop(pod.uid, None)

    def is_settled(self, pod: TrackedPod) -> bool:
        """Whether nobody has a reason to look at the pod again."""
        return pod.settled and pod.uid not in self._unsettled

    @property
    def unsettled(self) -> list[PodUID]:
        """The pods that the next relist must visit."""
        return list(self._unsettled)

    def present(self) -> dict[PodUID, RuntimePod]:
        """All pods as the newest looks have shown them."""
        return {uid: pod.newest for uid, pod in self._pods.items() if pod.newest is not None}

    def changed(self, pods: Mapping[PodUID, RuntimePod]) -> list[PodUID]:
        """The pods that a relist must visit, given all that the runtime has."""
        return [uid for uid in self._pods.keys() | pods.keys() if self._moved(uid, pods.get(uid))]

    def _moved(self, uid: PodUID, found: RuntimePod | None) -> bool:
        pod = self._pods.get(uid)
        return pod is None or uid in self._unsettled or pod.said is not found

    def name(self, pod: TrackedPod, found: RuntimePod | None) -> None:
        """Learn the pod's name from what a look found."""
        if not pod.name and found is not None:
            pod.name = f"{found.namespace}/{found.name}"
            self._journal.name_pod(pod.uid, pod.name)

    def degrade(self, pod: TrackedPod, trouble: Trouble) -> None:
        """Note that a pod cannot be known at present; logged once until it recovers."""
        before = pod.trouble
        since = trouble.since if before is None else before.since
        pod.trouble = Trouble(trouble.rpc, since, trouble.error)
        if before is None:
            log.warning(
                "pod_degraded", uid=pod.uid, pod=pod.name, rpc=trouble.rpc, error=trouble.error
            )
        if before is None or before.error != trouble.error:
            why = trouble.error or "no answer"
            self._journal.record("pleg", "Degraded", pod.uid, why, rpc=trouble.rpc)

    def recover(self, pod: TrackedPod) -> None:
        """Note that the pod is known again."""
        if pod.trouble is None:
            return
        down = anyio.current_time() - pod.trouble.since
        pod.trouble = None
        log.info("pod_recovered", uid=pod.uid, pod=pod.name, after=down)
        self._journal.record("pleg", "Recovered", pod.uid, duration=down)

    def degrade_overdue(self, now: float) -> None:
        """Note the pods about which a call has been under way for too long."""
        for pod in self._unsettled.values():
            if pod.call is not None and pod.trouble is None and pod.overdue(now, self._patience):
                self.degrade(pod, pod.call)

    def degraded(self, now: float) -> list[DegradedPod]:
        """The pods that cannot be known at present."""
        found: Iterable[DegradedPod | None] = (
            pod.degraded(now, self._patience) for pod in self._unsettled.values()
        )
        return [pod for pod in found if pod is not None]
