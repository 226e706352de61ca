"""What the sync loop's six pod handlers do: decide, change memory, hand on.

Everything here is synchronous and touches neither disk nor socket. Rows and their tests:
docs/behaviour/workers.md, "Handlers".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import anyio

from nodeagent.api import Pod, PodStatus
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import ContainerID, PodUID, ProbeKind, ProbeResult, ProbeUpdate, UpdateType
from nodeagent.pods.active_pods import ActivePods
from nodeagent.pods.admission import Admission, Held
from nodeagent.pods.conditions import READY, compute_conditions, find
from nodeagent.pods.dead_containers import KEPT, containers_to_remove
from nodeagent.pods.manager import PodManager, is_mirror, is_terminal, pod_source, pod_uid
from nodeagent.pods.metrics import PodMetrics
from nodeagent.pods.protocols import (
    EventRecorder,
    PodCacheReader,
    PodStatusStore,
    ProbeResultSink,
)
from nodeagent.pods.rejection import Rejection, counted_as
from nodeagent.pods.sources_ready import SourcesReady
from nodeagent.pods.work_queue import WorkQueue
from nodeagent.pods.worker_updates import UpdatePodOptions
from nodeagent.pods.workers import PodWorkers

log = Log("pods.handlers")

_NEVER: Final = datetime.min.replace(tzinfo=UTC)


class AdmitAll:
    """Lets every pod run."""

    def __call__(self, pod: Pod, active: Sequence[Pod]) -> Rejection | None:
        """Let it run."""
        return None

    def forget(self, pod: Pod) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerHooks:
    """Where the handlers hand things on to.

    Attributes:
        wake_housekeeping: clean-ups are due.
        remove_dead: have a dead container removed; False when it did not fit.
        admit: may a new pod run?
        record: event recorder.
        probes: where readiness and startup results are noted.
        past_deadline: has a pod run longer than its active deadline allows?
        dead_kept: gives the dead containers of each name that are left to the container GC.
        qos_class: quality-of-service class of a spec.
        status_wanted: the API's pod that shows a status has come, has changed or may go.
    """

    wake_housekeeping: Callable[[], None]
    remove_dead: Callable[[PodUID, ContainerID], bool]
    admit: Admission = field(default_factory=AdmitAll)
    record: EventRecorder | None = None
    probes: ProbeResultSink | None = None
    past_deadline: Callable[[Pod], bool] | None = None
    dead_kept: Callable[[], int] = lambda: KEPT
    qos_class: Callable[[Pod], str] = lambda _pod: ""
    status_wanted: Callable[[PodUID], None] = lambda _uid: None


class PodHandlers:
    """Implements :class:`nodeagent.channels.SyncHandler`.

    Args:
        manager: the desired pods.
        workers: who works on them.
        queue: where pods wait for their next look.
        cache: what PLEG knows.
        statuses: what was computed of the pods.
        sources: which sources have spoken.
        hooks: where things are handed on to.
        journal: flight recorder.
        metrics: where rejections are counted.
    """

    def __init__(
        self,
        manager: PodManager,
        workers: PodWorkers,
        queue: WorkQueue,
        cache: PodCacheReader,
        statuses: PodStatusStore,
        sources: SourcesReady,
        hooks: HandlerHooks,
        *,
        journal: Journal,
        metrics: PodMetrics,
    ) -> None:
        self._manager = manager
        self._workers = workers
        self._queue = queue
        self._cache = cache
        self._statuses = statuses
        self._sources = sources
        self._hooks = hooks
        self._journal = journal
        self._metrics = metrics
        self._active = ActivePods(manager, workers, statuses)
        self._held: set[PodUID] = set()

    # -- the six ---------------------------------------------------------------------------

    def handle_pod_additions(self, pods: Sequence[Pod]) -> None:
        """New pods of a source, the oldest first."""
        for pod in sorted(pods, key=lambda p: p.metadata.creation_timestamp or _NEVER):
            self._manager.add(pod)
            if is_mirror(pod):
                self._update_of_mirror(pod)
            else:
                self._admit(pod)

    def handle_pod_updates(self, pods: Sequence[Pod]) -> None:
        """Changed pods, and pods whose graceful deletion was asked for; no new admission."""
        for pod in pods:
            self._manager.update(pod)
            if is_mirror(pod):
                self._update_of_mirror(pod)
            else:
                self._tell(UpdateType.UPDATE, pod)
                if pod.metadata.deletion_timestamp is not None:
                    self._hooks.status_wanted(pod_uid(pod))

    def handle_pod_removes(self, pods: Sequence[Pod]) -> None:
        """Pods that their source no longer names."""
        for pod in pods:
            self._manager.remove(pod)
            if is_mirror(pod):
                self._update_of_mirror(pod)
                continue
            self._let_go(pod)
            if self._may_remove(pod):
                self._tell(UpdateType.KILL, pod)

    def handle_pod_reconcile(self, pods: Sequence[Pod]) -> None:
        """Pods whose status was changed by someone else."""
        for pod in pods:
            self._manager.update(pod)
            if is_mirror(pod):
                continue
            if self._ready_is_stale(pod):
                self._tell(UpdateType.SYNC, pod)
            if pod.status.phase == "Failed" and pod.status.reason == "Evicted":
                self._remove_dead(pod_uid(pod), everything=True)

    def handle_pod_syncs(self, pods: Sequence[Pod]) -> None:
        """Pods to look at again."""
        for pod in pods:
            if not is_mirror(pod):
                self._tell(UpdateType.SYNC, pod)

    def handle_pod_cleanups(self) -> None:
        """Housekeeping is due; a service does it, because it asks the runtime."""
        self._hooks.wake_housekeeping()

    # -- held pods -------------------------------------------------------------------------

    @property
    def held(self) -> Collection[PodUID]:
        """Pods that are wanted and have no worker, because nothing is decided about them yet."""
        return self._held

    def admit_again(self, uid: PodUID) -> None:
        """A pod that is held can be decided about."""
        pod = self._manager.get_by_uid(uid)
        if pod is not None and uid in self._held:
            self._admit(pod)

    # -- what the loop asks ----------------------------------------------------------------

    def source_seen(self, source: str) -> None:
        """One op of this source was handled."""
        self._sources.seen(source)

    def pods_due(self) -> Sequence[Pod]:
        """Pods whose resync is due or whose active deadline has passed."""
        due: dict[PodUID, Pod] = {}
        for uid in self._queue.pop_due(anyio.current_time()):
            pod = self._manager.get_by_uid(uid)
            if pod is None:
                # Its source has let it go, but its worker is not done with it.
                self._workers.replay(uid)
            else:
                due[uid] = pod
        if self._hooks.past_deadline is not None:
            for pod in self._manager.get_pods():
                if self._is_overdue(pod, self._hooks.past_deadline):
                    due[pod_uid(pod)] = pod
        return tuple(due.values())

    def pod_by_uid(self, uid: PodUID) -> Pod | None:
        """A known pod; never a mirror pod."""
        return self._manager.get_by_uid(uid)

    def is_current(self, uid: PodUID) -> bool:
        """Whether the pod's worker has acted, or acts, on the newest look at it."""
        return self._workers.is_current(uid)

    def unnamed_pod_seen(self, uid: PodUID) -> None:
        """Something of a pod has changed that no source names, or it can be looked at again."""
        self._workers.retry(uid)

    def container_died(self, uid: PodUID, container_id: str) -> None:
        """A container or sandbox of the pod ended; its dead records may be removed."""
        everything = self._workers.view(uid).content_removed
        self._remove_dead(uid, container_id, everything=everything)

    def probe_changed(self, update: ProbeUpdate) -> None:
        """A readiness or startup result changed: note it in the pod's status."""
        probes = self._hooks.probes
        if probes is None:
            return
        good = update.result is ProbeResult.SUCCESS
        if update.kind is ProbeKind.READINESS:
            probes.set_container_readiness(update.pod_uid, update.container_id, ready=good)
        elif update.kind is ProbeKind.STARTUP:
            probes.set_container_startup(update.pod_uid, update.container_id, started=good)

    # -- how -------------------------------------------------------------------------------

    def _tell(self, update_type: UpdateType, pod: Pod) -> None:
        if pod_uid(pod) in self._held:
            if self._must_be_judged(pod):
                return  # it has no worker yet, and whoever decides looks at its newest version
            self._let_go(pod)
        mirror = self._manager.get_mirror_of(pod)
        self._workers.update_pod(UpdatePodOptions(update_type, pod, mirror))

    def _update_of_mirror(self, mirror: Pod) -> None:
        # The mirror that the event brought goes along, also when it has just vanished.
        static = self._manager.get_pod_and_mirror(mirror).pod
        if static is None:
            log.debug("mirror_without_pod", mirror=mirror.metadata.name)
            return
        if pod_uid(static) in self._held:
            return
        self._workers.update_pod(UpdatePodOptions(UpdateType.UPDATE, static, mirror))
        self._hooks.status_wanted(pod_uid(static))

    def _admit(self, pod: Pod) -> None:
        """Let a pod run, reject it, or hold it until more is known."""
        uid = pod_uid(pod)
        if self._must_be_judged(pod):
            others = [other for other in self._active.all() if other.metadata.uid != uid]
            verdict = self._hooks.admit(pod, others)
            if isinstance(verdict, Held):
                self._held.add(uid)
                self._journal.record("pods", "AdmissionHeld", uid, verdict.why)
                return
            if verdict is not None:
                self._let_go(pod)
                self._reject(pod, verdict)
                return
        self._let_go(pod)
        self._metrics.containers_per_pod.observe(len(pod.spec.containers))
        self._tell(UpdateType.CREATE, pod)

    def _must_be_judged(self, pod: Pod) -> bool:
        """Whether anything new would start; else a worker only has to see the pod through."""
        ending = pod.metadata.deletion_timestamp is not None or is_terminal(pod.status.phase)
        return not ending and not self._workers.view(pod_uid(pod)).termination_requested

    def _let_go(self, pod: Pod) -> None:
        uid = pod_uid(pod)
        if uid in self._held:
            self._held.discard(uid)
            self._hooks.admit.forget(pod)

    def _reject(self, pod: Pod, rejection: Rejection) -> None:
        uid = pod_uid(pod)
        self._journal.record("pods", "Rejected", uid, f"{rejection.reason}: {rejection.message}")
        log.warning("pod_rejected", pod=pod.metadata.name, uid=uid, reason=rejection.reason)
        self._metrics.admission_rejections.labels(counted_as(rejection.reason)).inc()
        if self._hooks.record is not None:
            self._hooks.record(pod, "Warning", rejection.reason, rejection.message)
        status = PodStatus(
            qos_class=pod.status.qos_class or self._hooks.qos_class(pod),
            phase="Failed",
            reason=rejection.reason,
            message=f"Pod was rejected: {rejection.message}",
        )
        self._statuses.set(pod, status)

    def _may_remove(self, pod: Pod) -> bool:
        source = pod_source(pod)
        if self._sources.all_ready() or self._sources.spoken(source):
            return True
        self._journal.record("pods", "RemoveRefused", pod_uid(pod), f"{source} has not spoken")
        return False

    def _ready_is_stale(self, pod: Pod) -> bool:
        shown = find(pod.status.conditions, READY)
        if shown is None or not pod.spec.readiness_gates:
            return False
        computed = find(
            compute_conditions(
                pod,
                pod.status.phase,
                pod.status.container_statuses,
                pod.status.init_container_statuses,
                self._cache.get(pod_uid(pod)),
                pod.status.conditions,
            ),
            READY,
        )
        return computed is not None and (computed.status, computed.message) != (
            shown.status,
            shown.message,
        )

    def _is_overdue(self, pod: Pod, past_deadline: Callable[[Pod], bool]) -> bool:
        if pod.spec.active_deadline_seconds is None:
            return False
        ending = self._workers.view(pod_uid(pod)).termination_requested
        return not ending and past_deadline(pod)

    def _remove_dead(self, uid: PodUID, container_id: str = "", *, everything: bool) -> None:
        status = self._cache.get(uid)
        kept = self._hooks.dead_kept()
        for dead in containers_to_remove(status, container_id, everything=everything, kept=kept):
            if not self._hooks.remove_dead(uid, dead):
                log.debug("dead_container_left", uid=uid, container=dead)
                return
