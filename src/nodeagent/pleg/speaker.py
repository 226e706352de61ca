"""Tells the sync loop what happened, and forgets nothing that does not fit."""

from __future__ import annotations

from typing import Any, Final

import anyio

from nodeagent.channels import Channel
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import ContainerState, PodLifecycleEvent, PodUID, RuntimePod
from nodeagent.pleg.events import CHANGED, compute_events
from nodeagent.pleg.metrics import PlegMetrics
from nodeagent.pleg.tracked import TrackedPod, View

log: Final = Log("pleg")


class Speaker:
    """Sends a pod's events without ever waiting (docs/behaviour/pleg.md, "Sending").

    What does not fit is counted and stays unsaid: the pod keeps the state that was said of
    it, so that the next look finds the same transition again.

    Args:
        channel: to the sync loop.
        metrics: counts what did not fit.
        journal: gets one record per event.
        hint_sync_period: a pod that is hinted at again and again without a change, such as one
            whose sandbox cannot be made, gets at most one POD_SYNC for that in so many seconds.
    """

    def __init__(
        self,
        channel: Channel[PodLifecycleEvent],
        metrics: PlegMetrics,
        journal: Journal,
        hint_sync_period: float,
    ) -> None:
        self._channel = channel
        self._metrics = metrics
        self._journal = journal
        self._hint_sync_period = hint_sync_period
        self._hint_syncs: dict[PodUID, float] = {}  # oldest first

    def say(self, pod: TrackedPod, view: View) -> None:
        """Send all that happened to ``pod`` up to ``view``, or as much as fits."""
        events = compute_events(pod.said, view.pod)
        if pod.explain(events, view) and self._may_sync(pod.uid, view.at):
            pod.owes_sync = True
        left = pod.unsaid(events)
        for position, event in enumerate(left):
            # The status in the cache is all that ContainerChanged is about: nobody is woken.
            if event.type is not CHANGED and not self._fits(event):
                self._put_off(pod, len(left) - position)
                return
            pod.sent(event)
            self._note(pod, view, event)
        pod.all_sent(view.pod)

    def _may_sync(self, uid: PodUID, now: float) -> bool:
        for old in list(self._hint_syncs):
            if now - self._hint_syncs[old] < self._hint_sync_period:
                break
            del self._hint_syncs[old]
        if uid in self._hint_syncs:
            return False
        self._hint_syncs[uid] = now
        return True

    def _fits(self, event: PodLifecycleEvent) -> bool:
        try:
            return self._channel.send_nowait(event)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return False  # the loop is going down; nobody is left to be told

    def _put_off(self, pod: TrackedPod, count: int) -> None:
        pod.unsent = True
        self._metrics.unsent_events += count
        self._journal.record(
            "pleg", "EventsPutOff", pod.uid, "the channel is full; said again at the next relist",
            count=count,
        )  # fmt: skip

    def _note(self, pod: TrackedPod, view: View, event: PodLifecycleEvent) -> None:
        name, state = _find(event.container_id, view.pod, pod.said)
        facts: dict[str, Any] = {"id": event.container_id, "container": name, "state": state}
        shown = {key: value for key, value in facts.items() if value}
        self._journal.record("pleg", event.type.value, pod.uid, **shown)
        log.debug("event", event=event.type.value, uid=pod.uid, **shown)
        if state == ContainerState.UNKNOWN.value and event.container_id not in pod.warned:
            pod.warned.add(event.container_id)
            log.warning("container_state_unknown", uid=pod.uid, pod=pod.name, container=name)


def _find(id_: str, *pods: RuntimePod | None) -> tuple[str, str]:
    """Name and state of a container or sandbox, from the first pod that has it."""
    for pod in pods:
        if pod is None:
            continue
        for container in pod.containers:
            if container.id == id_:
                return container.name, container.state.value
        for sandbox in pod.sandboxes:
            if sandbox.id == id_:
                return "", f"sandbox {sandbox.state.value}"
    return "", ""
