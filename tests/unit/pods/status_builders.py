"""Builders for pods, looks and statuses that the status tests share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from nodeagent.api import (
    Container,
    ContainerRestartRule,
    ContainerRestartRuleOnExitCodes,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    ObjectMeta,
    Pod,
    PodCondition,
    PodReadinessGate,
    PodSpec,
    PodStatus,
)
from nodeagent.model import (
    ContainerID,
    ContainerRuntimeStatus,
    PodRuntimeStatus,
    PodUID,
    SandboxID,
    SandboxRuntimeStatus,
    SandboxState,
)
from nodeagent.model import ContainerState as Seen

UID = PodUID("u")
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Clock:
    """A wall clock that a test moves."""

    def __init__(self) -> None:
        self.moment = NOW

    def now(self) -> datetime:
        return self.moment

    def time_ns(self) -> int:
        return int(self.moment.timestamp()) * 10**9

    def move(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


def running() -> ContainerState:
    return ContainerState(running=ContainerStateRunning())


def waiting(reason: str = "ContainerCreating") -> ContainerState:
    return ContainerState(waiting=ContainerStateWaiting(reason=reason))


def ended(code: int = 0, message: str = "") -> ContainerState:
    return ContainerState(terminated=ContainerStateTerminated(exit_code=code, message=message))


def container_status(
    name: str,
    state: ContainerState,
    *,
    ready: bool = False,
    started: bool = False,
    last: ContainerState | None = None,
) -> ContainerStatus:
    return ContainerStatus(
        name=name,
        state=state,
        ready=ready,
        started=started,
        last_state=last or ContainerState(),
    )


def make_pod(
    *names: str,
    policy: str = "Always",
    init: tuple[str, ...] = (),
    sidecars: tuple[str, ...] = (),
    gates: tuple[str, ...] = (),
    host_network: bool = False,
    deadline: int | None = None,
    status: PodStatus | None = None,
    generation: int = 0,
    source: str = "file",
) -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name="web",
            namespace="default",
            uid=UID,
            generation=generation,
            annotations={"kubernetes.io/config.source": source},
        ),
        spec=PodSpec(
            containers=tuple(Container(name=n, image="img") for n in names or ("a",)),
            init_containers=(
                *(Container(name=n, image="img") for n in init),
                *(Container(name=n, image="img", restart_policy="Always") for n in sidecars),
            ),
            restart_policy=policy,
            readiness_gates=tuple(PodReadinessGate(condition_type=g) for g in gates),
            host_network=host_network,
            active_deadline_seconds=deadline,
        ),
        status=status or PodStatus(phase="Pending"),
    )


def restarting_all(pod: Pod, *names: str, code: int = 42) -> Pod:
    """The pod, where that exit code of those containers restarts all of them."""
    rule = ContainerRestartRule(
        action="RestartAllContainers",
        exit_codes=ContainerRestartRuleOnExitCodes(operator="In", values=(code,)),
    )
    spec = pod.spec
    containers = tuple(
        replace(c, restart_policy="Never", restart_policy_rules=(rule,)) if c.name in names else c
        for c in spec.containers
    )
    return replace(pod, spec=replace(spec, containers=containers))


def sandbox(
    state: SandboxState = SandboxState.READY,
    *,
    id_: str = "s",
    attempt: int = 0,
    ips: tuple[str, ...] = ("10.0.0.1",),
    network: bool = True,
    host: bool = False,
) -> SandboxRuntimeStatus:
    return SandboxRuntimeStatus(
        id=SandboxID(id_),
        attempt=attempt,
        state=state,
        ips=ips,
        has_network_status=network,
        host_network=host,
    )


def record(
    name: str = "a", state: Seen = Seen.RUNNING, *, code: int = 0, id_: str = "c1"
) -> ContainerRuntimeStatus:
    return ContainerRuntimeStatus(
        id=ContainerID(id_), name=name, state=state, sandbox_id=SandboxID("s"), exit_code=code
    )


def look(
    *containers: ContainerRuntimeStatus,
    sandboxes: tuple[SandboxRuntimeStatus, ...] = (),
    ips: tuple[str, ...] = (),
) -> PodRuntimeStatus:
    return PodRuntimeStatus(UID, "web", "default", ips, sandboxes, containers)


def condition(
    kind: str, status: str, *, reason: str = "", since: datetime | None = None
) -> PodCondition:
    return PodCondition(type=kind, status=status, reason=reason, last_transition_time=since)
