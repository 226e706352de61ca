"""Pod conditions that the agent owns. Pure (docs/behaviour/phase.md, "Conditions")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from nodeagent.api import Container, ContainerStatus, Pod, PodCondition
from nodeagent.model import PodRuntimeStatus, SandboxState
from nodeagent.model.restart import asks_for_restart_of_all, is_sidecar, may_restart_all
from nodeagent.pods.phase import FAILED, SUCCEEDED

TRUE: Final = "True"
FALSE: Final = "False"
POD_SCHEDULED: Final = "PodScheduled"
INITIALIZED: Final = "Initialized"
READY: Final = "Ready"
CONTAINERS_READY: Final = "ContainersReady"
READY_TO_START: Final = "PodReadyToStartContainers"
RESTARTING: Final = "AllContainersRestarting"
DISRUPTION_TARGET: Final = "DisruptionTarget"
RESTART_STARTED: Final = "RestartAllContainersStarted"
OWNED: Final = frozenset(
    {POD_SCHEDULED, INITIALIZED, READY, CONTAINERS_READY, READY_TO_START, RESTARTING}
)


def condition(
    kind: str, status: str, reason: str = "", message: str = "", *, generation: int = 0
) -> PodCondition:
    """A condition without times; the status manager sets its transition time."""
    return PodCondition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        observed_generation=generation,
    )


def find(conditions: Sequence[PodCondition], kind: str) -> PodCondition | None:
    """The condition of that type."""
    return next((c for c in conditions if c.type == kind), None)


def compute_conditions(
    pod: Pod,
    phase: str,
    statuses: Sequence[ContainerStatus],
    init_statuses: Sequence[ContainerStatus],
    runtime: PodRuntimeStatus,
    old: Sequence[PodCondition],
) -> tuple[PodCondition, ...]:
    """All conditions, foreign ones first, in the order in which the API shows them.

    Args:
        pod: spec, generation and foreign conditions (``status.conditions``) are read.
        phase: the phase just computed.
        statuses: statuses of regular containers.
        init_statuses: statuses of init containers.
        runtime: what the runtime reported, for the sandbox.
        old: the conditions as last stored.
    """
    generation = pod.metadata.generation
    known = {s.name: s for s in (*statuses, *init_statuses)}
    ready, containers_ready = readiness_conditions(pod, phase, known)
    foreign = [c for c in pod.status.conditions if c.type not in OWNED]
    if (disrupted := find(old, DISRUPTION_TARGET)) is not None:
        # The agent's own word counts until the API has it too; others may say it as well.
        foreign = [*(c for c in foreign if c.type != DISRUPTION_TARGET), disrupted]
    return (
        *foreign,
        condition(
            READY_TO_START,
            TRUE if sandbox_usable(pod, runtime) else FALSE,
            generation=generation,
        ),
        _initialized(pod, phase, statuses, known, old, generation),
        ready,
        containers_ready,
        condition(POD_SCHEDULED, TRUE, generation=generation),
        *_restarting(pod, runtime, old),
    )


def restarts_all(conditions: Sequence[PodCondition]) -> bool:
    """Whether all containers of the pod are being removed to start again."""
    found = find(conditions, RESTARTING)
    return found is not None and found.status == TRUE


def _restarting(
    pod: Pod, runtime: PodRuntimeStatus, old: Sequence[PodCondition]
) -> Iterator[PodCondition]:
    """True from the exit that asks for it until no container has a record any more."""
    if not may_restart_all(pod):
        return
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    latest = {c.name: runtime.latest(c.name) for c in containers}
    asked = pod.metadata.deletion_timestamp is None and any(
        asks_for_restart_of_all(pod, c, latest[c.name]) for c in containers
    )
    if asked or (restarts_all(old) and any(latest.values())):
        yield condition(RESTARTING, TRUE, RESTART_STARTED)
    else:
        yield condition(RESTARTING, FALSE)


def readiness_conditions(
    pod: Pod, phase: str, known: Mapping[str, ContainerStatus]
) -> tuple[PodCondition, PodCondition]:
    """The conditions Ready and ContainersReady; ``known`` are all statuses by name."""
    generation = pod.metadata.generation
    containers_ready = _containers_ready(pod, phase, known, generation)
    return _ready(pod, containers_ready, generation), containers_ready


def sandbox_usable(pod: Pod, runtime: PodRuntimeStatus) -> bool:
    """Whether the newest sandbox is ready, alone, and of the right network mode."""
    if not runtime.sandboxes:
        return False
    newest = runtime.sandboxes[0]
    if newest.state is not SandboxState.READY:
        return False
    if sum(s.state is SandboxState.READY for s in runtime.sandboxes) > 1:
        return False
    if newest.host_network != pod.spec.host_network:
        return False
    return newest.host_network or not newest.has_network_status or bool(newest.ips)


def _names(names: Sequence[str]) -> str:
    return f"[{' '.join(names)}]"


def _containers_ready(
    pod: Pod, phase: str, known: Mapping[str, ContainerStatus], generation: int
) -> PodCondition:
    if phase == SUCCEEDED:
        return condition(CONTAINERS_READY, FALSE, "PodCompleted", generation=generation)
    if phase == FAILED:
        return condition(CONTAINERS_READY, FALSE, "PodFailed", generation=generation)
    wanted: list[Container] = [c for c in pod.spec.init_containers if is_sidecar(c)]
    wanted += pod.spec.containers
    unknown = [c.name for c in wanted if c.name not in known]
    unready = [c.name for c in wanted if c.name in known and not known[c.name].ready]
    parts = []
    if unknown:
        parts.append(f"containers with unknown status: {_names(unknown)}")
    if unready:
        parts.append(f"containers with unready status: {_names(unready)}")
    if parts:
        text = ", ".join(parts)
        return condition(CONTAINERS_READY, FALSE, "ContainersNotReady", text, generation=generation)
    return condition(CONTAINERS_READY, TRUE, generation=generation)


def _ready(pod: Pod, containers_ready: PodCondition, generation: int) -> PodCondition:
    if containers_ready.status != "True":
        return PodCondition(
            type=READY,
            status=containers_ready.status,
            reason=containers_ready.reason,
            message=containers_ready.message,
            observed_generation=generation,
        )
    missing = []
    for gate in pod.spec.readiness_gates:
        name = gate.condition_type
        present = find(pod.status.conditions, name)
        if present is None:
            missing.append(
                f'corresponding condition of pod readiness gate "{name}" does not exist.'
            )
        elif present.status != "True":
            missing.append(
                f'the status of pod readiness gate "{name}" is not "True", but {present.status}'
            )
    if missing:
        text = ", ".join(missing)
        return condition(READY, FALSE, "ReadinessGatesNotReady", text, generation=generation)
    return condition(READY, TRUE, generation=generation)


def _initialized(
    pod: Pod,
    phase: str,
    statuses: Sequence[ContainerStatus],
    known: Mapping[str, ContainerStatus],
    old: Sequence[PodCondition],
    generation: int,
) -> PodCondition:
    if phase == SUCCEEDED:
        return condition(INITIALIZED, TRUE, "PodCompleted", generation=generation)
    begun = any(s.state.running is not None or s.state.terminated is not None for s in statuses)
    before = find(old, INITIALIZED)
    if begun or (before is not None and before.status == "True"):
        return condition(INITIALIZED, TRUE, generation=generation)
    unknown = [c.name for c in pod.spec.init_containers if c.name not in known]
    incomplete = [
        c.name
        for c in pod.spec.init_containers
        if c.name in known and not (known[c.name].started if is_sidecar(c) else known[c.name].ready)
    ]
    parts = []
    if unknown:
        parts.append(f"containers with unknown status: {_names(unknown)}")
    if incomplete:
        parts.append(f"containers with incomplete status: {_names(incomplete)}")
    if parts:
        text = ", ".join(parts)
        return condition(
            INITIALIZED, FALSE, "ContainersNotInitialized", text, generation=generation
        )
    return condition(INITIALIZED, TRUE, generation=generation)
