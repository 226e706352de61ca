"""Pods by the line, and neighbours of the workers that do as a test tells them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import anyio
from prometheus_client import CollectorRegistry

from nodeagent.api import Container, ObjectMeta, Pod, PodSpec, PodStatus
from nodeagent.journal import Journal
from nodeagent.model import (
    ContainerID,
    ContainerRuntimeStatus,
    ContainerState,
    PodRuntimeStatus,
    PodUID,
    RuntimeContainer,
    RuntimePod,
    RuntimeSandbox,
    SandboxID,
    SandboxRuntimeStatus,
    SandboxState,
    UpdateType,
)
from nodeagent.pods.metrics import PodMetrics
from nodeagent.pods.protocols import StatusFn
from nodeagent.pods.work_queue import WorkQueue
from nodeagent.pods.worker_updates import UpdatePodOptions
from nodeagent.pods.workers import PodWorkers

A_DATE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def make_pod(
    uid: str = "u1",
    name: str = "web",
    *,
    source: str = "api",
    phase: str = "Pending",
    deleting: bool = False,
    deletion_grace: int | None = None,
    grace: int | None = 30,
    mirror_of: str = "",
    created: datetime | None = None,
    active_deadline: int | None = None,
    image: str = "nginx",
    status: PodStatus | None = None,
) -> Pod:
    annotations = {"kubernetes.io/config.source": source}
    if mirror_of:
        annotations["kubernetes.io/config.mirror"] = mirror_of
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=uid,
            annotations=annotations,
            creation_timestamp=created,
            deletion_timestamp=A_DATE if deleting else None,
            deletion_grace_period_seconds=deletion_grace,
        ),
        spec=PodSpec(
            containers=(Container(name="main", image=image),),
            termination_grace_period_seconds=grace,
            active_deadline_seconds=active_deadline,
        ),
        status=status or PodStatus(phase=phase),
    )


def static_pod(uid: str = "u1", name: str = "web", *, image: str = "nginx") -> Pod:
    return make_pod(uid, name, source="file", image=image)


def mirror_pod(uid: str, name: str = "web") -> Pod:
    return make_pod(uid, name, mirror_of="hash")


def runtime_pod(uid: str = "u1", name: str = "web", *, up: bool = True) -> RuntimePod:
    sandbox = SandboxID(f"{uid}-sandbox")
    state = ContainerState.RUNNING if up else ContainerState.EXITED
    return RuntimePod(
        uid=PodUID(uid),
        name=name,
        namespace="default",
        sandboxes=(
            RuntimeSandbox(sandbox, 0, SandboxState.READY if up else SandboxState.NOT_READY),
        ),
        containers=(RuntimeContainer(ContainerID(f"{uid}-main"), "main", 0, state, sandbox),),
    )


def seen(
    uid: str, *containers: tuple[str, str, ContainerState], sandbox: bool = False
) -> PodRuntimeStatus:
    """A look at a pod: containers as (id, name, state), newest first."""
    ready = SandboxRuntimeStatus(SandboxID("s"), 0, SandboxState.READY)
    return PodRuntimeStatus(
        uid=PodUID(uid),
        sandboxes=(ready,) if sandbox else (),
        containers=tuple(
            ContainerRuntimeStatus(ContainerID(i), name, state) for i, name, state in containers
        ),
    )


def tell(update_type: UpdateType, pod: Pod, mirror: Pod | None = None) -> UpdatePodOptions:
    return UpdatePodOptions(update_type, pod, mirror)


@dataclass
class Made:
    """One call that the syncer got; ``ended`` stays None until it ends."""

    kind: str
    uid: str
    at: float
    update_type: UpdateType | None = None
    pod: Pod | None = None
    mirror: Pod | None = None
    grace: int | None = None
    status_fn: StatusFn | None = None
    status: PodRuntimeStatus | None = None
    ended: str | None = None


class FakeSyncer:
    """Records calls, refuses two at once for one pod, holds and fails as told."""

    def __init__(self) -> None:
        self.calls: list[Made] = []
        self.inside: set[str] = set()
        self.most_inside = 0
        self._gates: dict[tuple[str, str], anyio.Event] = {}
        self._errors: dict[tuple[str, str], list[Exception]] = defaultdict(list)
        self.terminal: set[str] = set()
        """UIDs whose next sync finds that the pod has ended."""

    def hold(self, kind: str, uid: str = "u1") -> anyio.Event:
        """Hold calls of this kind until the returned event is set."""
        return self._gates.setdefault((kind, uid), anyio.Event())

    def fail(self, kind: str, *errors: Exception, uid: str = "u1") -> None:
        """Let the next calls of this kind fail."""
        self._errors[kind, uid].extend(errors)

    def kinds(self, uid: str = "u1") -> list[str]:
        return [call.kind for call in self.calls if call.uid == uid]

    def last(self, kind: str, uid: str = "u1") -> Made:
        return [call for call in self.calls if (call.kind, call.uid) == (kind, uid)][-1]

    async def _make(self, made: Made) -> None:
        assert made.uid not in self.inside, f"two calls at once for {made.uid}"
        self.inside.add(made.uid)
        self.most_inside = max(self.most_inside, len(self.inside))
        self.calls.append(made)
        made.ended = None
        try:
            await anyio.lowlevel.checkpoint()
            if (gate := self._gates.get((made.kind, made.uid))) is not None:
                await gate.wait()
            if errors := self._errors[made.kind, made.uid]:
                raise errors.pop(0)
            made.ended = "done"
        except BaseException as error:
            made.ended = type(error).__name__
            raise
        finally:
            self.inside.remove(made.uid)

    async def sync_pod(
        self, update_type: UpdateType, pod: Pod, mirror: Pod | None, status: PodRuntimeStatus
    ) -> bool:
        uid = pod.metadata.uid
        await self._make(
            Made("sync", uid, anyio.current_time(), update_type, pod, mirror, status=status)
        )
        return uid in self.terminal

    async def sync_terminating_pod(
        self,
        pod: Pod,
        status: PodRuntimeStatus,
        grace: int | None,
        status_fn: StatusFn | None,
    ) -> None:
        now = anyio.current_time()
        await self._make(
            Made(
                "terminating",
                pod.metadata.uid,
                now,
                pod=pod,
                grace=grace,
                status_fn=status_fn,
                status=status,
            )
        )

    async def sync_terminating_runtime_pod(
        self, running: RuntimePod, status: PodRuntimeStatus
    ) -> None:
        await self._make(Made("runtime", running.uid, anyio.current_time(), status=status))

    async def sync_terminated_pod(self, pod: Pod, status: PodRuntimeStatus) -> None:
        now = anyio.current_time()
        await self._make(Made("terminated", pod.metadata.uid, now, pod=pod, status=status))


class FakeCache:
    """PLEG's cache that looks at once, unless it is told to fail or to stay silent."""

    def __init__(self) -> None:
        self.statuses: dict[str, PodRuntimeStatus] = {}
        self.asked: list[tuple[str, float]] = []
        self.errors: list[Exception] = []
        self.silence: anyio.Event | None = None

    def get(self, uid: PodUID) -> PodRuntimeStatus:
        return self.statuses.get(uid, PodRuntimeStatus(uid))

    async def get_newer_than(self, uid: PodUID, time: float) -> PodRuntimeStatus:
        self.asked.append((uid, time))
        if self.silence is not None:
            await self.silence.wait()
        if self.errors:
            raise self.errors.pop(0)
        return self.get(uid)


class FakeGate:
    """A runtime that is up until the test takes it down."""

    def __init__(self) -> None:
        self._up = anyio.Event()
        self._up.set()

    @property
    def ready(self) -> bool:
        return self._up.is_set()

    def errors(self) -> Sequence[str]:
        return () if self.ready else ("container runtime is down",)

    async def wait_ready(self) -> None:
        await self._up.wait()

    def down(self) -> None:
        self._up = anyio.Event()

    def up(self) -> None:
        self._up.set()


class FakeStatuses:
    """The computed statuses, in a dictionary."""

    def __init__(self) -> None:
        self.stored: dict[PodUID, PodStatus] = {}

    def get(self, uid: PodUID) -> PodStatus | None:
        return self.stored.get(uid)

    def set(self, pod: Pod, status: PodStatus) -> bool:
        self.stored[PodUID(pod.metadata.uid)] = status
        return True

    def __iter__(self) -> Iterator[PodUID]:
        return iter(tuple(self.stored))

    def remove_orphans(self, known: Iterable[PodUID]) -> None:
        keep = set(known)
        self.stored = {uid: status for uid, status in self.stored.items() if uid in keep}


class FakeLister:
    """What the runtime has; ``before_answer`` runs while the list is on its way."""

    def __init__(self) -> None:
        self.pods: dict[PodUID, RuntimePod] = {}
        self.errors: list[Exception] = []
        self.calls = 0
        self.takes = 0.0
        self.before_answer: Callable[[], None] | None = None

    def put(self, *pods: RuntimePod) -> None:
        self.pods.update({pod.uid: pod for pod in pods})

    async def list_pods(self) -> Mapping[PodUID, RuntimePod]:
        self.calls += 1
        await anyio.sleep(self.takes)
        if self.errors:
            raise self.errors.pop(0)
        answer = dict(self.pods)
        if self.before_answer is not None:
            self.before_answer()
        return answer


@dataclass
class Event:
    pod: str
    kind: str
    reason: str
    message: str


@dataclass
class Rig:
    """Workers with fake neighbours. Jitter is off, so delays are exact."""

    syncer: FakeSyncer = field(default_factory=FakeSyncer)
    cache: FakeCache = field(default_factory=FakeCache)
    gate: FakeGate = field(default_factory=FakeGate)
    queue: WorkQueue = field(default_factory=WorkQueue)
    journal: Journal = field(default_factory=Journal)
    events: list[Event] = field(default_factory=list)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    resync: float = 60.0

    def __post_init__(self) -> None:
        self.metrics = PodMetrics(self.registry)
        self.workers = PodWorkers(
            self.syncer,
            self.cache,
            self.queue,
            self.gate,
            journal=self.journal,
            metrics=self.metrics,
            events=self._record,
            jitter=lambda seconds: seconds,
            resync=self.resync,
        )

    def _record(self, pod: Pod, kind: str, reason: str, message: str) -> None:
        self.events.append(Event(pod.metadata.uid, kind, reason, message))

    def tell(self, update_type: UpdateType, pod: Pod, mirror: Pod | None = None) -> None:
        self.workers.update_pod(tell(update_type, pod, mirror))

    def due_in(self, uid: str = "u1") -> float | None:
        """Seconds until the pod is due; None when it is not waiting."""
        due = self.queue.due_at(PodUID(uid))
        return None if due is None else due - anyio.current_time()

    def figure(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    async def settle(self) -> None:
        """Let every task run until it waits for time or for the test; no time passes."""
        for _ in range(200):
            await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def running(rig: Rig | None = None) -> AsyncIterator[Rig]:
    """Run the workers of a rig for the length of a block."""
    rig = rig or Rig()
    async with anyio.create_task_group() as tg:
        await tg.start(rig.workers.run)
        yield rig
        tg.cancel_scope.cancel()
