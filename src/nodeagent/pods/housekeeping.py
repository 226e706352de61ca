"""Housekeeping: sweeps up what nobody wants and starts again what somebody does.

A service that the sync loop's handler wakes, because it asks the runtime and may have to
wait for it. One sweep at a time, each with a deadline. Rows and their tests:
docs/behaviour/workers.md, "Housekeeping".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.api import Pod
from nodeagent.channels import Ticker
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import PodUID, UpdateType
from nodeagent.pods.active_pods import ActivePods
from nodeagent.pods.housekeeping_plan import CleanupPlan, plan_cleanups
from nodeagent.pods.manager import PodManager, pod_uid
from nodeagent.pods.metrics import PodMetrics, static_label
from nodeagent.pods.protocols import PodStatusStore, RuntimePodLister
from nodeagent.pods.sources_ready import SourcesReady
from nodeagent.pods.status import is_static
from nodeagent.pods.worker_known import KnownPod
from nodeagent.pods.worker_updates import KillOptions, UpdatePodOptions
from nodeagent.pods.workers import PodWorkers

log = Log("pods.housekeeping")

SLOW: Final = 1.0
TIMEOUT: Final = 60.0
GC_PERIOD: Final = 60.0
_ORPHAN_GRACE: Final = 1


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweeper may rely on. A UID in none of the three sets is nobody's.

    Attributes:
        wanted: UIDs of pods and mirror pods that a source wants.
        working: UIDs that have a worker which has not finished.
        in_runtime: UIDs that the runtime knows, running or not.
    """

    wanted: frozenset[PodUID]
    working: frozenset[PodUID]
    in_runtime: frozenset[PodUID]

    def is_orphan(self, uid: PodUID) -> bool:
        """Whether nobody wants, works on, or runs anything under this UID."""
        return not (uid in self.wanted or uid in self.working or uid in self.in_runtime)


@dataclass(frozen=True, slots=True, kw_only=True)
class HousekeepingHooks:
    """What housekeeping lets others do; each is awaited inside the sweep's deadline.

    Attributes:
        purge: remove what the runtime still has of an ended pod, before a new pod starts
            under the same UID; raises when something is left.
        sweepers: clean up after orphans (directories, probes...), once all sources are
            ready. One that fails does not keep the others from their turn.
        held: UIDs of pods that have no worker because nothing is decided about them yet.
        collect_garbage: remove dead containers and sandboxes; is told whether all sources
            are ready. Has its own period.
    """

    purge: Callable[[PodUID], Awaitable[None]] | None = None
    sweepers: Sequence[Callable[[Sweep], Awaitable[None]]] = ()
    held: Callable[[], Collection[PodUID]] = tuple
    collect_garbage: Callable[[bool], Awaitable[None]] | None = None


class Housekeeping:
    """The service.

    Args:
        manager: the desired pods.
        workers: who works on them; their ``on_restart`` is made to wake this service.
        lister: lists what the runtime has.
        statuses: what was computed of the pods.
        sources: which sources have spoken.
        hooks: what others do.
        journal: flight recorder.
        metrics: gauges and counters.
        timeout: seconds that one sweep may take.
        gc_period: seconds between two garbage collections.
    """

    def __init__(
        self,
        manager: PodManager,
        workers: PodWorkers,
        lister: RuntimePodLister,
        statuses: PodStatusStore,
        sources: SourcesReady,
        hooks: HousekeepingHooks | None = None,
        *,
        journal: Journal,
        metrics: PodMetrics,
        timeout: float = TIMEOUT,
        gc_period: float = GC_PERIOD,
    ) -> None:
        self._manager = manager
        self._workers = workers
        self._lister = lister
        self._statuses = statuses
        self._sources = sources
        self._hooks = hooks or HousekeepingHooks()
        self._journal = journal
        self._metrics = metrics
        self._timeout = timeout
        self._gc_period = gc_period
        self._active = ActivePods(manager, workers, statuses)
        self._wake = anyio.Event()
        self._failing: dict[str, str] = {}
        self._listed: frozenset[PodUID] = frozenset()
        self._listed_at = -math.inf
        self._known: Mapping[PodUID, KnownPod] = {}
        metrics.refresh = self._show
        workers.on_restart = self._on_restart

    def wake(self) -> None:
        """Have a sweep made soon. Never blocks; several wakes make one sweep."""
        self._wake.set()

    def _on_restart(self, _uid: PodUID) -> None:
        self.wake()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Sweep whenever woken, and collect garbage, until cancelled."""
        async with anyio.create_task_group() as tg:
            if self._hooks.collect_garbage is not None:
                tg.start_soon(self._collect_garbage, self._hooks.collect_garbage)
            task_status.started()
            while True:
                await self._wake.wait()
                self._wake = anyio.Event()
                await self.sweep()

    async def _collect_garbage(self, collect: Callable[[bool], Awaitable[None]]) -> None:
        async for _ in Ticker(self._gc_period):
            try:
                with anyio.fail_after(self._timeout):
                    await collect(self._sources.all_ready())
                self._went_well("garbage collection")
            except Exception as error:  # noqa: BLE001 - the next round tries again
                self._failed("garbage collection", error)

    async def sweep(self) -> None:
        """Clean up once; what fails is logged and done the next time."""
        began = anyio.current_time()
        try:
            with anyio.fail_after(self._timeout):
                await self._clean_up()
            self._went_well("clean-up")
        except Exception as error:  # noqa: BLE001 - the next sweep tries again
            self._failed("clean-up", error)
        took = anyio.current_time() - began
        if took > SLOW:
            cause = "housekeeping took too long"
            log.error("housekeeping_slow", cause=cause, seconds=round(took, 3), expected=SLOW)
            self._journal.record("pods", "HousekeepingSlow", duration=took)

    def _failed(self, what: str, error: Exception) -> None:
        cause = str(error) or type(error).__name__
        if self._failing.get(what) == cause:
            return  # said already, two seconds ago and before
        self._failing[what] = cause
        log.warning("housekeeping_failed", what=what, cause=cause)
        self._journal.record("pods", "HousekeepingFailed", why=f"{what}: {cause}")

    def _went_well(self, what: str) -> None:
        if self._failing.pop(what, ""):
            log.info("housekeeping_recovered", what=what)

    async def _clean_up(self) -> None:
        purged = await self._purge_ended()
        all_sources = self._sources.all_ready()
        known = self._review(purged, all_sources=all_sources)
        runtime = None
        if all_sources:
            began = anyio.current_time()
            runtime = await self._lister.list_pods()
            self._listed, self._listed_at = frozenset(runtime), began
        # Nothing is awaited from here to the end of the plan: it is made from one moment.
        plan = plan_cleanups(
            self._manager.get_pods(),
            {*known, *self._workers.states(), *self._hooks.held()},
            runtime,
            self._active.__contains__,
        )
        self._carry_out(plan)
        self._known = known
        if runtime is not None:
            await self._sweep_orphans(runtime)

    def _to_restart(self) -> set[PodUID]:
        """UIDs that have ended and are wanted again."""
        return {
            uid
            for uid, state in self._workers.states().items()
            if state.restart_requested
            and state.finished_at is not None
            and self._manager.get_by_uid(uid) is not None
        }

    def _with_remains(self) -> set[PodUID]:
        """UIDs that have ended and of which the runtime still has something.

        As long as somebody remembers that they have ended, a pod that comes back under such a
        UID is a new one; nobody could tell from its dead containers.
        """
        return {
            uid
            for uid, state in self._workers.states().items()
            if state.finished_at is not None
            and not state.restart_requested
            and (uid in self._listed or state.finished_at >= self._listed_at)
        }

    async def _purge_ended(self) -> set[PodUID]:
        """Let what is left of ended pods be removed; returns those of which nothing is left.

        Their finished workers are still there meanwhile, so nothing can start under the UID
        while its old containers are being removed.
        """
        purged = set()
        for uid in sorted(self._to_restart()):
            try:
                if self._hooks.purge is not None:
                    await self._hooks.purge(uid)
            except Exception as error:  # noqa: BLE001 - the pod waits for the next sweep
                self._failed(f"removal of the old containers of {uid}", error)
            else:
                purged.add(uid)
        return purged

    def _review(self, purged: set[PodUID], *, all_sources: bool) -> Mapping[PodUID, KnownPod]:
        to_restart = self._to_restart()
        pods = self._manager.get_pods()
        known = self._workers.sync_known_pods(
            pods, all_sources=all_sources, hold=(to_restart - purged) | self._with_remains()
        )
        for uid in sorted(to_restart & purged):
            self._restart(uid)
        return known

    def _restart(self, uid: PodUID) -> None:
        pod = self._manager.get_by_uid(uid)
        assert pod is not None
        # The new pod must not be judged by how the old one ended.
        self._statuses.remove_orphans(set(self._statuses) - {uid})
        self._journal.record("pods", "Restarted", uid, "wanted again under the same UID")
        self._metrics.restarted_pods.labels(static_label(is_static(pod))).inc()
        self._workers.start_over(pod, self._manager.get_mirror_of(pod))

    def _carry_out(self, plan: CleanupPlan) -> None:
        for pod in plan.create:
            self._journal.record("pods", "Restarted", pod_uid(pod), "wanted, and nobody at work")
            self._metrics.restarted_pods.labels(static_label(is_static(pod))).inc()
            self._tell(UpdateType.CREATE, pod)
        for pod in plan.end:
            self._tell(UpdateType.KILL, pod)
        for running in plan.kill:
            log.info("orphan_found", pod=f"{running.namespace}/{running.name}", uid=running.uid)
            self._journal.record("pods", "OrphanFound", running.uid)
            self._metrics.orphaned_runtime_pods.inc()
            kill = KillOptions(grace=_ORPHAN_GRACE)
            self._workers.update_pod(UpdatePodOptions(UpdateType.KILL, running=running, kill=kill))

    def _tell(self, update_type: UpdateType, pod: Pod) -> None:
        mirror = self._manager.get_mirror_of(pod)
        self._workers.update_pod(UpdatePodOptions(update_type, pod, mirror))

    def _show(self) -> None:
        """Count for the metrics: only when somebody reads them, and not at each sweep."""
        pods = self._manager.get_pods()
        self._metrics.set_working(pod.label for pod in self._known.values())
        self._metrics.mirror_pods.set(len(self._manager.get_mirrors()))
        self._metrics.managed_ephemeral_containers.set(
            sum(len(pod.spec.ephemeral_containers) for pod in pods)
        )
        active = [pod for pod in pods if pod in self._active]
        for gauge, counted in (
            (self._metrics.desired_pods, pods),
            (self._metrics.active_pods, active),
        ):
            tally = Counter(static_label(is_static(pod)) for pod in counted)
            for label in ("", "true"):
                gauge.labels(label).set(tally[label])

    async def _sweep_orphans(self, runtime: Collection[PodUID]) -> None:
        everyone = (*self._manager.get_pods(), *self._manager.get_mirrors())
        wanted = frozenset(pod_uid(pod) for pod in everyone)
        states = self._workers.states().items()
        working = frozenset(uid for uid, state in states if state.finished_at is None)
        self._statuses.remove_orphans(wanted | working)
        sweep = Sweep(wanted, working, frozenset(runtime))
        for sweeper in self._hooks.sweepers:
            try:
                await sweeper(sweep)
            except Exception as error:  # noqa: BLE001 - the others still have their turn
                self._failed("sweep after orphans", error)
