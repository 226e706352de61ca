"""The four sync calls of a pod worker: bring one pod to where it should be.

docs/behaviour/workers.md, "Sync calls". Each call is idempotent: it reads what is, does what
is missing, and says in the stored status what it found.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from prometheus_client import CollectorRegistry

from nodeagent.api import Pod, PodStatus
from nodeagent.clock import Clock
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import (
    ContainerError,
    DeadlineError,
    NetworkNotReadyError,
    PodRuntimeStatus,
    PodUID,
    RejectedError,
    RuntimePod,
    SandboxRuntimeStatus,
    SyncError,
    UpdateType,
)
from nodeagent.model.actions import PodSyncResult
from nodeagent.model.volumes import MountedVolume
from nodeagent.pods.conditions import restarts_all
from nodeagent.pods.container_statuses import StatusContext
from nodeagent.pods.metrics import PodMetrics, count_ends
from nodeagent.pods.phase import TERMINAL
from nodeagent.pods.protocols import (
    EventRecorder,
    NoProbes,
    NoReferences,
    PodProbes,
    PodReferences,
    PodRuntime,
    StatusFn,
    Volumes,
)
from nodeagent.pods.rejection import (
    UNSUPPORTED,
    counted_as,
    rejected,
    with_refusal,
    without_refusal,
)
from nodeagent.pods.start_figures import PullSpan, StartFigures
from nodeagent.pods.status import DEADLINE_EXCEEDED, NodeFacts, generate_pod_status, is_static
from nodeagent.pods.status_manager import StatusManager

log = Log("sync")

FAILED_MOUNT = "FailedMount"


class PodSync:
    """Implements the worker's sync calls.

    Args:
        runtime: the runtime side.
        start_error: why a container could not be started the last time.
        ran_once: ids of containers that ran and may not run again, by name.
        volumes: the pod's volumes.
        statuses: where statuses are stored.
        inspect: a fresh look at one pod in the runtime, without a cache.
        record: event recorder.
        unsupported: fields of a pod that this version cannot honour.
        qos_class: quality-of-service class of a spec.
        network_error: why the runtime's network is not ready, "" when it is.
        runtime_name: scheme of container ids.
        node: addresses of the node.
        clock: wall clock, for what is shown.
        journal: flight recorder.
        metrics: where starts and ends are counted.
        waiting_note: what a container that is being started waits for, "" for nothing.
        probes: the pods' probes.
        want_mirror: has the API's copy of a pod made, if it is a static one. Never waits.
        references: learns which objects pods refer to.
        pulled: when a pod pulled its images.
        latest: the newest look at a pod; it may be newer than what a sync began with.
    """

    def __init__(
        self,
        *,
        runtime: PodRuntime,
        start_error: Callable[[PodUID, str], ContainerError | None],
        ran_once: Callable[[PodUID], Mapping[str, str]],
        volumes: Volumes,
        statuses: StatusManager,
        inspect: Callable[[PodUID], Awaitable[PodRuntimeStatus]],
        record: EventRecorder,
        unsupported: Callable[[Pod], Sequence[str]],
        qos_class: Callable[[Pod], str],
        network_error: Callable[[], str],
        runtime_name: Callable[[], str],
        node: Callable[[], NodeFacts],
        clock: Clock,
        journal: Journal,
        metrics: PodMetrics | None = None,
        waiting_note: Callable[[PodUID, str], str] = lambda _uid, _container: "",
        probes: PodProbes | None = None,
        want_mirror: Callable[[Pod], None] = lambda _pod: None,
        references: PodReferences | None = None,
        pulled: PullSpan = lambda _uid: None,
        latest: Callable[[PodUID], PodRuntimeStatus] | None = None,
    ) -> None:
        self._latest = latest
        self._runtime = runtime
        self._start_error = start_error
        self._ran_once = ran_once
        self._volumes = volumes
        self._statuses = statuses
        self._inspect = inspect
        self._record = record
        self._unsupported = unsupported
        self._qos_class = qos_class
        self._network_error = network_error
        self._runtime_name = runtime_name
        self._node = node
        self._clock = clock
        self._journal = journal
        self._metrics = metrics or PodMetrics(CollectorRegistry())
        self._waiting_note = waiting_note
        # What the runtime side is working on right now.
        self._at_work: dict[PodUID, tuple[Pod, PodRuntimeStatus, Mapping[str, str]]] = {}
        self._probes: PodProbes = NoProbes() if probes is None else probes
        self._want_mirror = want_mirror
        self._references: PodReferences = references or NoReferences()
        self._born = clock.now()
        self._starts = StartFigures(self._metrics, clock, pulled)
        # What keeps pods from the runtime side.
        self._held: dict[PodUID, str] = {}

    async def sync_pod(
        self, update_type: UpdateType, pod: Pod, mirror: Pod | None, status: PodRuntimeStatus
    ) -> bool:
        """Bring a pod up, or keep it up; True when it has ended for good.

        Raises:
            NetworkNotReadyError: the pod needs a network that is not ready.
            BackOffError: all that is missing waits for a back-off.
            SyncError: something failed.
        """
        shown = self._generate(pod, status)
        if shown.phase in TERMINAL:
            self._note_deadline(pod, shown)
            self._store(pod, shown)
            return True
        if fields := self._unsupported(pod):
            self._want_mirror(pod)
            self._refuse(pod, shown, fields)
            return False
        self._store(pod, without_refusal(shown))
        self._ask_unready(pod, shown)
        network = self._network_error()
        if network and not pod.spec.host_network:
            self._hold(pod, status, "NetworkNotReady", f"network is not ready: {network}")
            raise NetworkNotReadyError(network)
        self._want_mirror(pod)
        self._references.register(pod)
        try:
            volumes = await self._mount(pod, status)
        except RejectedError as refusal:
            self._metrics.admission_rejections.labels(counted_as(refusal.reason)).inc()
            self._store(pod, rejected(shown, refusal))
            return True
        self._held.pop(PodUID(pod.metadata.uid), None)
        self._probes.add_pod(pod)
        # What this sync starts is in no record that the status below is made from.
        ran = dict(self._ran_once(PodUID(pod.metadata.uid)))
        restart_all = restarts_all(shown.conditions)
        outcome = await self._run(pod, status, volumes, ran, restart_all=restart_all)
        if (error := outcome.error()) is not None:
            raise error
        if outcome.reset:
            return await self._start_again(update_type, pod, mirror)
        return False

    async def _run(
        self,
        pod: Pod,
        status: PodRuntimeStatus,
        volumes: Mapping[str, MountedVolume],
        ran: Mapping[str, str],
        *,
        restart_all: bool,
    ) -> PodSyncResult:
        uid = PodUID(pod.metadata.uid)
        self._at_work[uid] = (pod, status, ran)
        try:
            outcome = await self._runtime.sync_pod(
                pod, status, volumes, probes=self._probes.results, restart_all=restart_all
            )
            if outcome.errors or outcome.sandbox_error is not None:
                # Why a container waits is shown at once, not at the next sync.
                self.refresh(uid)
            return outcome
        finally:
            del self._at_work[uid]

    def at_work(self, uid: PodUID) -> bool:
        """Whether the runtime side is working on a pod that is to run."""
        return uid in self._at_work

    def sandbox_ready(self, uid: PodUID, sandbox: SandboxRuntimeStatus) -> None:
        """A pod that is being worked on has a new sandbox: its addresses show at once."""
        if (work := self._at_work.get(uid)) is not None:
            pod, status, ran = work
            status = replace(status, sandboxes=(sandbox,), ips=sandbox.ips)
            self._at_work[uid] = (pod, status, ran)
            self.refresh(uid)

    def refresh(self, uid: PodUID) -> None:
        """Show anew what a pod waits for while it is being worked on; else do nothing."""
        if (work := self._at_work.get(uid)) is not None:
            pod, status, ran = work
            if self._latest is not None:
                # A container that was stopped for a new image does not run while that is pulled.
                status = replace(status, containers=self._latest(uid).containers)
            self._store(pod, without_refusal(self._generate(pod, status, ran=ran)))

    async def _start_again(self, update_type: UpdateType, pod: Pod, mirror: Pod | None) -> bool:
        """All containers were removed; go on at once with the start of the pod."""
        after = await self._inspect(PodUID(pod.metadata.uid))
        names = {c.name for c in (*pod.spec.containers, *pod.spec.init_containers)}
        if left := sorted({c.name for c in after.containers} & names):
            msg = f"containers are still there after they were removed: {', '.join(left)}"
            raise SyncError(msg, reason="RemoveContainerError")
        return await self.sync_pod(update_type, pod, mirror, after)

    async def sync_terminating_pod(
        self,
        pod: Pod,
        status: PodRuntimeStatus,
        grace: int | None,
        status_fn: StatusFn | None,
    ) -> None:
        """Stop everything of a pod.

        Raises:
            SyncError: something still runs.
        """
        uid = PodUID(pod.metadata.uid)
        self._held.pop(uid, None)
        self._starts.forget_pod(uid)
        shown = self._generate(pod, status)
        if status_fn is not None:
            shown = status_fn(shown)
        self._store(pod, shown)
        self._probes.stop_liveness_and_startup(uid)
        try:
            await self._runtime.kill_pod(pod, status, grace)
        except SyncError as error:
            self._record(pod, "Warning", "FailedKillPod", f"error killing pod: {error}")
            raise
        self._probes.remove_pod(uid)
        after = await self._inspect(uid)
        if running := after.running:
            names = ", ".join(sorted(c.name for c in running))
            msg = f"containers still run after they were stopped: {names}"
            raise SyncError(msg, reason="FailedKillPod")
        self._store(pod, self._generate(pod, after, final=True))

    async def sync_terminating_runtime_pod(
        self, running: RuntimePod, status: PodRuntimeStatus
    ) -> None:
        """Stop a pod that only the runtime knows.

        Raises:
            SyncError: something still runs.
        """
        log.info("orphan_stopped", pod=f"{running.namespace}/{running.name}", uid=running.uid)
        await self._runtime.kill_pod(None, status, 1)

    async def sync_terminated_pod(self, pod: Pod, status: PodRuntimeStatus) -> None:
        """Clean up after a pod whose containers have all ended.

        Raises:
            SyncError: something could not be removed.
        """
        self._store(pod, self._generate(pod, status, final=True))
        # No container can run any more, so that the end may be told from now on.
        self._statuses.nudge(PodUID(pod.metadata.uid))
        await self._volumes.unmount(PodUID(pod.metadata.uid))
        self._references.unregister(PodUID(pod.metadata.uid))
        self._statuses.terminate_pod(pod)
        self._journal.record("sync", "PodTerminated", pod.metadata.uid)

    def _generate(
        self,
        pod: Pod,
        status: PodRuntimeStatus,
        *,
        final: bool = False,
        ran: Mapping[str, str] | None = None,
    ) -> PodStatus:
        uid = PodUID(pod.metadata.uid)

        def reason(container: str) -> ContainerError | None:
            return self._start_error(uid, container)

        return generate_pod_status(
            pod,
            status,
            self._statuses.get(uid) or pod.status,
            StatusContext(
                self._runtime_name(),
                reason,
                self._ran_once(uid) if ran is None else ran,
                lambda container: self._held.get(uid) or self._waiting_note(uid, container),
                probes=self._probes.results,
                agent_started=self._born,
            ),
            self._node(),
            qos_class=self._qos_class(pod),
            active_for=self._statuses.active_for(uid),
            final=final,
        )

    def _ask_unready(self, pod: Pod, shown: PodStatus) -> None:
        """Whoever has started and is not ready is asked at once, not at its next turn."""
        unready = [
            s.name
            for s in (*shown.container_statuses, *shown.init_container_statuses)
            if s.started and not s.ready
        ]
        if unready:
            self._probes.trigger_readiness(PodUID(pod.metadata.uid), unready)

    def _store(self, pod: Pod, status: PodStatus) -> None:
        uid = PodUID(pod.metadata.uid)
        before = self._statuses.get(uid)
        if not self._statuses.set(pod, status):
            return
        count_ends(self._metrics, before, status)
        if before is not None and before.phase == status.phase:
            return
        self._journal.record("status", f"Phase{status.phase}", uid, status.message or status.reason)
        self._starts.new_phase(pod, status)

    def _note_deadline(self, pod: Pod, shown: PodStatus) -> None:
        before = self._statuses.get(PodUID(pod.metadata.uid))
        known = before is not None and before.reason == DEADLINE_EXCEEDED
        if shown.reason == DEADLINE_EXCEEDED and not known:
            self._record(pod, "Normal", DEADLINE_EXCEEDED, shown.message)

    async def _mount(self, pod: Pod, status: PodRuntimeStatus) -> Mapping[str, MountedVolume]:
        uid = PodUID(pod.metadata.uid)
        # While it waits it may say what for.
        self._at_work[uid] = (pod, status, self._ran_once(uid))
        try:
            return await self._volumes.mount(pod)
        except SyncError as error:
            text = str(error)
            if error.reason == FAILED_MOUNT:
                text = f"Unable to attach or mount volumes: {error}"
            told = isinstance(error, DeadlineError)
            self._hold(pod, status, error.reason, text, told=told)
            raise
        finally:
            del self._at_work[uid]

    def _hold(
        self, pod: Pod, status: PodRuntimeStatus, reason: str, text: str, *, told: bool = False
    ) -> None:
        """The pod cannot go on: an event says so, and those of its containers that wait.

        ``told`` is for when other events have said it already.
        """
        if not told:
            self._record(pod, "Warning", reason, text)
        self._held[PodUID(pod.metadata.uid)] = text
        self._store(pod, without_refusal(self._generate(pod, status)))

    def _refuse(self, pod: Pod, shown: PodStatus, fields: Sequence[str]) -> None:
        """A pod that asks for what we cannot do waits and says so; what runs goes on."""
        refused = with_refusal(shown, fields)
        before = self._statuses.get(PodUID(pod.metadata.uid))
        self._store(pod, refused)
        if before is None or before.message != refused.message:
            self._record(pod, "Warning", UNSUPPORTED, refused.message)
            label = _label(pod)
            log.warning("pod_refused", pod=label, static=is_static(pod), cause=refused.message)


def _label(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
