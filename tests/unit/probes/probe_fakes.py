"""Pods, statuses and neighbours for the tests of probes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

import anyio
from prometheus_client import CollectorRegistry

from nodeagent.api import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    ExecAction,
    Pod,
    PodStatus,
    Probe,
)
from nodeagent.channels import Channel
from nodeagent.journal import Journal
from nodeagent.limiter import PatientLimiter
from nodeagent.model import PodUID, ProbeKind, ProbeResult, ProbeUpdate
from nodeagent.probes import ProbeManager, ProbeMetrics, Prober
from nodeagent.probes.outcome import Handler, Outcome, Target
from nodeagent.testing import make_container, make_pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)
UID = PodUID("uid-web")


def probe(**fields: Any) -> Probe:
    values = {"period_seconds": 10, "timeout_seconds": 1, "failure_threshold": 3, **fields}
    return Probe(exec=ExecAction(command=("check",)), **values)


def probed(container: str = "main", pod: str = "web", **probes: Any) -> Pod:
    return make_pod(pod, make_container(container, **probes))


def status(
    name: str = "main",
    cid: str = "c1",
    *,
    state: str = "running",
    started: bool = True,
    code: int = 1,
    at: datetime = NOW,
) -> ContainerStatus:
    states = {
        "running": ContainerState(running=ContainerStateRunning(started_at=at)),
        "waiting": ContainerState(waiting=ContainerStateWaiting()),
        "ended": ContainerState(
            terminated=ContainerStateTerminated(exit_code=code, container_id=f"containerd://{cid}")
        ),
    }
    return ContainerStatus(
        name=name,
        container_id=f"containerd://{cid}" if cid else "",
        state=states[state],
        started=started and state == "running",
    )


def pod_status(*containers: ContainerStatus, phase: str = "Running") -> PodStatus:
    return PodStatus(phase=phase, pod_ip="10.0.0.1", container_statuses=containers)


class Answers:
    """Answers questions as the test says, and notes them."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, Target]] = []
        self.answer: Outcome | Exception = Outcome(ProbeResult.SUCCESS, "fine")
        self.takes = 0.0
        self.open = 0
        self.most = 0
        self.cut = 0
        self.closed = False

    async def __call__(self, target: Target) -> Outcome:
        self.asked.append((anyio.current_time(), target))
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            await anyio.sleep(self.takes)
        except anyio.get_cancelled_exc_class():
            self.cut += 1
            raise
        finally:
            self.open -= 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def aclose(self) -> None:
        self.closed = True

    def times(self, kind: ProbeKind | None = None) -> list[float]:
        return [round(at, 3) for at, target in self.asked if kind in (None, target.kind)]


class Events:
    """Notes events."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str, str]] = []

    def event(self, pod: Pod, kind: str, reason: str, message: str, field_path: str = "") -> None:
        assert kind == "Warning"
        self.said.append((reason, message, field_path))


class Desk:
    """A manager with its neighbours."""

    made: ClassVar[list[Desk]] = []

    def __init__(self, total: int = 16, **handlers: Handler) -> None:
        self.made.append(self)
        self.answers = Answers()
        self.events = Events()
        self.journal = Journal()
        self.registry = CollectorRegistry()
        self.statuses: dict[PodUID, PodStatus] = {}
        self.channels = {kind: Channel[ProbeUpdate](kind.value, 20) for kind in ProbeKind}
        slots = PatientLimiter(total, 0.5)
        used = handlers or {"exec": self.answers}
        prober = Prober({field: (handler, slots) for field, handler in used.items()}, self.events)
        self.manager = ProbeManager(
            prober,
            self.statuses.get,
            self.channels,
            journal=self.journal,
            metrics=ProbeMetrics(self.registry),
        )

    def updates(self, kind: ProbeKind) -> list[ProbeUpdate]:
        found = []
        while True:
            try:
                found.append(self.channels[kind].receive_nowait())
            except anyio.WouldBlock:
                return found

    def results(self, kind: ProbeKind) -> list[ProbeResult]:
        return [update.result for update in self.updates(kind)]

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


def container_of(pod: Pod) -> Container:
    return pod.spec.containers[0]
