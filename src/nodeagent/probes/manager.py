"""All probes of a node: when each is due, what it does then, and what comes of it.

docs/behaviour/probes.md. One heap holds all due times; a task exists only while a container is
being asked.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus

from nodeagent.api import Container, ContainerStatus, Pod, PodStatus, Probe
from nodeagent.channels import Channel
from nodeagent.journal import Journal
from nodeagent.model import PodUID, ProbeKind, ProbeUpdate
from nodeagent.model.probes import ProbeResults
from nodeagent.probes.ages import ContainerAges
from nodeagent.probes.decision import Do, Step, decide, find_status, judge, sight
from nodeagent.probes.metrics import ProbeMetrics, Tally
from nodeagent.probes.outcome import Outcome, Target
from nodeagent.probes.prober import Prober
from nodeagent.probes.results import Outbox, ResultStore, Subject
from nodeagent.probes.schedule import Schedule
from nodeagent.probes.worker import Worker, probes_of

_CLOSING: Final = 2.0
TERMINAL: Final = frozenset({"Succeeded", "Failed"})


class ProbeManager:
    """Probes the containers of pods that were added, until they are removed.

    Every method but :meth:`run` is synchronous and cheap. Results are found in :attr:`results`
    at once; their changes go to the channels.

    Args:
        prober: makes single probes.
        status_of: the stored status of a pod.
        channels: where changed results go, by kind.
        journal: flight recorder.
        metrics: figures.
    """

    def __init__(
        self,
        prober: Prober,
        status_of: Callable[[PodUID], PodStatus | None],
        channels: Mapping[ProbeKind, Channel[ProbeUpdate]],
        *,
        journal: Journal,
        metrics: ProbeMetrics,
    ) -> None:
        self._prober = prober
        self._status_of = status_of
        self._journal = journal
        self._metrics = metrics
        self._outboxes = {kind: Outbox(channel) for kind, channel in channels.items()}
        self._store = ResultStore(self._announce)
        self.ages = ContainerAges()
        """Since when containers run; survives the agent on its own."""
        self._workers: dict[Subject, Worker] = {}
        self._by_pod: dict[PodUID, set[Subject]] = {}
        self._schedule: Schedule[Worker] = Schedule()
        self._tasks: TaskGroup | None = None
        self._born: float | None = None
        self.on_probe: Callable[[float], None] | None = None
        """Told, as each probe begins, when it was due."""

    @property
    def count(self) -> int:
        """How many probes there are."""
        return len(self._workers)

    @property
    def results(self) -> ProbeResults:
        """The newest results, live."""
        return self._store.view

    # -- what pods ask for -----------------------------------------------------------------

    def add_pod(self, pod: Pod) -> None:
        """Probe the containers of a pod, or learn of its newest version."""
        uid = PodUID(pod.metadata.uid)
        wanted: set[Subject] = set()
        for container, kind, probe in probes_of(pod):
            subject = (uid, container.name, kind)
            wanted.add(subject)
            worker = self._workers.get(subject)
            if worker is None:
                self._begin(subject, pod, container, probe)
            elif worker.pod is not pod:
                worker.pod, worker.container, worker.probe = pod, container, probe
        for subject in self._by_pod.get(uid, set()) - wanted:
            self._end(self._workers[subject])

    def stop_liveness_and_startup(self, uid: PodUID) -> None:
        """The pod ends: only its readiness still matters."""
        for subject in list(self._by_pod.get(uid, ())):
            if subject[2] is not ProbeKind.READINESS:
                self._end(self._workers[subject])

    def remove_pod(self, uid: PodUID) -> None:
        """The pod has ended: no probe of it is made any more, and its results are dropped."""
        for subject in list(self._by_pod.get(uid, ())):
            self._end(self._workers[subject])
        self._store.forget_pod(uid)
        self.ages.forget_pod(uid)

    def pods(self) -> frozenset[PodUID]:
        """The pods of which something is known."""
        return self._store.pods() | self.ages.pods() | self._by_pod.keys()

    def trigger_readiness(self, uid: PodUID, containers: Iterable[str]) -> None:
        """Make the readiness probes of these containers now; their periods begin anew."""
        for name in containers:
            worker = self._workers.get((uid, name, ProbeKind.READINESS))
            if worker is None:
                continue
            if worker.asking:
                worker.again = True
            else:
                worker.due = anyio.current_time()
                self._schedule.set(worker, worker.due)

    # -- what survives the agent -----------------------------------------------------------

    def snapshot(self) -> Any:
        """The results, for the next agent."""
        return self._store.snapshot()

    def restore(self, saved: Any, shift: float) -> None:
        """Take over the results of an agent before this one."""
        del shift
        self._store.restore(saved)

    # -- at work ---------------------------------------------------------------------------

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Probe until cancelled."""
        self._born = anyio.current_time()
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                for outbox in self._outboxes.values():
                    tasks.start_soon(outbox.run)
                task_status.started()
                while True:
                    await self._schedule.wait()
                    now = anyio.current_time()
                    for due, worker in self._schedule.pop_due(now):
                        self._tick(worker, due, now)
        finally:
            with anyio.move_on_after(_CLOSING, shield=True):
                await self._prober.aclose()

    def _begin(self, subject: Subject, pod: Pod, container: Container, probe: Probe) -> None:
        metadata = pod.metadata
        tally = Tally(
            self._metrics,
            probe_type=subject[2].value.capitalize(),
            container=container.name,
            pod=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
        )
        worker = Worker(subject, pod, container, probe, tally, anyio.current_time())
        if self._born is not None and worker.due - self._born < worker.period:
            # All pods are new to an agent that has just started: spread them.
            worker.due += random.random() * worker.period
        self._workers[subject] = worker
        self._by_pod.setdefault(subject[0], set()).add(subject)
        self._schedule.set(worker, worker.due)

    def _end(self, worker: Worker) -> None:
        worker.stop()
        self._schedule.discard(worker)
        del self._workers[worker.subject]
        subjects = self._by_pod[worker.uid]
        subjects.discard(worker.subject)
        if not subjects:
            del self._by_pod[worker.uid]

    def _tick(self, worker: Worker, due: float, now: float) -> None:
        worker.due = due
        status = self._status_of(worker.uid)
        found = None if status is None else find_status(status, worker.container.name)
        over = status is not None and status.phase in TERMINAL
        seen = sight(worker.pod, worker.container, found, over=over)
        step = decide(
            worker.kind,
            worker.memory,
            seen,
            known=self._store.get(worker.kind, seen.container_id),
            delayed=self._is_delayed(worker, found, now),
        )
        self._take(worker, step, "the container does not run" if not seen.running else "")
        if step.do is Do.STOP:
            self._end(worker)
        elif step.do is Do.PROBE and self._tasks is not None:
            address = status.pod_ip if status is not None else ""
            worker.asking = True
            self._tasks.start_soon(self._ask, worker, address)
        else:
            self._plan_next(worker)

    def _is_delayed(self, worker: Worker, found: ContainerStatus | None, now: float) -> bool:
        """Whether the initial delay since the container was first seen running has not passed."""
        if found is None or found.state.running is None:
            return False
        name = worker.container.name
        age = self.ages.age(worker.uid, name, found.container_id, now)
        return age < worker.probe.initial_delay_seconds

    async def _ask(self, worker: Worker, address: str) -> None:
        target = Target(
            worker.kind,
            worker.probe,
            worker.pod,
            worker.container,
            worker.memory.container_id,
            address,
        )
        outcome: Outcome | None = None
        with anyio.CancelScope() as worker.scope:
            async with self._prober.slot(worker.probe):
                began = anyio.current_time()
                self._note_start(worker.due, began)
                outcome = await self._prober.probe(target)
        worker.scope = None
        worker.asking = False
        if outcome is None or worker.stopped:
            return
        worker.tally.count(outcome.result, anyio.current_time() - began)
        step = judge(
            worker.kind,
            worker.memory,
            outcome.result,
            successes=max(worker.probe.success_threshold, 1),
            failures=max(worker.probe.failure_threshold, 1),
        )
        self._take(worker, step, outcome.text)
        self._plan_next(worker)

    def _note_start(self, due: float, now: float) -> None:
        self._metrics.lateness.observe(now - due)
        if self.on_probe is not None:
            self.on_probe(due)

    def _plan_next(self, worker: Worker) -> None:
        now = anyio.current_time()
        if worker.again:
            worker.again = False
            worker.due = now
        else:
            worker.due += worker.period
            if worker.due < now:
                # However many periods an answer took: one probe makes up for all.
                worker.due += math.floor((now - worker.due) / worker.period) * worker.period
        self._schedule.set(worker, worker.due)

    def _take(self, worker: Worker, step: Step, why: str) -> None:
        container_id = step.memory.container_id
        if container_id != worker.memory.container_id:
            self._store.begin(worker.subject, container_id)
        worker.memory = step.memory
        if step.result is None:
            return
        if self._store.note(worker.subject, container_id, step.result):
            what = f"{worker.kind.value.capitalize()}{step.result.value.capitalize()}"
            name = worker.container.name
            self._journal.record("probes", what, worker.uid, why[:200], container=name)

    def _announce(self, update: ProbeUpdate) -> None:
        self._outboxes[update.kind].post(update)
