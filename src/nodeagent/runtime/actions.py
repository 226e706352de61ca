"""What a pod needs done in the runtime: a pure decision (docs/behaviour/runtime.md, "Actions").

No clock, no runtime, no ``await``: the executor performs what is decided here and decides
nothing. Whether a start has to wait for its crash back-off is asked right before the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from nodeagent.api import Container, Pod
from nodeagent.model import (
    ContainerRuntimeStatus,
    ContainerState,
    PodRuntimeStatus,
    ProbeResult,
    SandboxID,
    SandboxState,
)
from nodeagent.model.actions import (
    NO_SANDBOX,
    ContainerToKill,
    ContainerToReset,
    KillReason,
    PodActions,
)
from nodeagent.model.probes import NO_RESULTS, ProbeResults
from nodeagent.model.restart import NEVER, ON_FAILURE, asks_for_restart_of_all, restartable
from nodeagent.runtime.hash import container_hash
from nodeagent.runtime.init_actions import plan_init
from nodeagent.runtime.plan import Plan, changed_message, probe_message
from nodeagent.runtime.restart import (
    effective_policy,
    ran_already,
    restarts_after_kill,
    runs_once,
    should_restart,
)

_SEEN_ALIVE: Final = (ContainerState.CREATED, ContainerState.RUNNING, ContainerState.EXITED)


@dataclass(frozen=True, slots=True)
class SandboxChange:
    """Whether a pod needs a new sandbox.

    Attributes:
        attempt: attempt of the sandbox to use or to create.
        sandbox_id: the sandbox to use, or the one that is replaced and worth an event.
        why: the cause in words; "" when nothing changed.
    """

    attempt: int
    sandbox_id: SandboxID
    why: str = ""

    @property
    def changed(self) -> bool:
        """Whether a new sandbox is needed."""
        return bool(self.why)


def sandbox_change(pod: Pod, status: PodRuntimeStatus) -> SandboxChange:
    """Say whether the pod needs a new sandbox; the first matching row of the table wins."""
    if not status.sandboxes:
        return SandboxChange(0, NO_SANDBOX, "the pod has no sandbox")
    latest = status.sandboxes[0]
    ready = sum(s.state is SandboxState.READY for s in status.sandboxes)
    if ready > 1:
        why = f"the pod has {ready} ready sandboxes"
    elif latest.state is not SandboxState.READY:
        why = "the sandbox is not ready"
    elif latest.host_network != pod.spec.host_network:
        # The event is left out here: the sandbox is sound, it is the spec that changed.
        wanted = "the host's" if pod.spec.host_network else "its own"
        return SandboxChange(latest.attempt + 1, NO_SANDBOX, f"the pod wants {wanted} network")
    elif not pod.spec.host_network and latest.has_network_status and not latest.ips:
        why = "the sandbox has no IP address"
    else:
        return SandboxChange(latest.attempt, latest.id)
    return SandboxChange(latest.attempt + 1, latest.id, why)


def compute_pod_actions(
    pod: Pod,
    status: PodRuntimeStatus,
    *,
    probes: ProbeResults = NO_RESULTS,
    restart_all: bool = False,
    ran_before: Mapping[str, str] = MappingProxyType({}),
) -> PodActions:
    """Decide what a pod needs done.

    Args:
        pod: the desired state.
        status: what the runtime reports, not older than our own last action on the pod.
        probes: results of liveness and startup probes.
        restart_all: the pod's condition ``AllContainersRestarting`` is True.
        ran_before: containers of this pod that, by our own record, were started at some
            time, even when the runtime knows nothing of them any more, and their ids.
    """
    sandbox = sandbox_change(pod, status)
    plan = Plan(attempt=sandbox.attempt, sandbox_id=sandbox.sandbox_id, sandbox_why=sandbox.why)
    if restart_all:
        plan.resets = _resets(pod, status)
    elif sandbox.changed:
        _plan_new_sandbox(plan, pod, status, ran_before)
    else:
        _plan_containers(plan, pod, status, probes, ran_before)
    return plan.actions(pod)


def _resets(pod: Pod, status: PodRuntimeStatus) -> list[ContainerToReset]:
    """All instances of all containers; those whose exit asked for it go last."""
    regular, init = pod.spec.containers, pod.spec.init_containers

    def source(container: Container) -> bool:
        return asks_for_restart_of_all(pod, container, status.latest(container.name))

    order = [
        *(c for c in regular if not source(c)),
        *(c for c in init if not source(c)),
        *(c for c in regular if source(c)),
        *(c for c in init if source(c)),
    ]
    return [
        ContainerToReset(record.id, record.name, record.state is not ContainerState.EXITED)
        for container in order
        for record in status.containers
        if record.name == container.name
    ]


def _plan_new_sandbox(
    plan: Plan, pod: Pod, status: PodRuntimeStatus, ran_before: Mapping[str, str]
) -> None:
    plan.kill_pod = True
    plan.create_sandbox = True
    candidates = [
        c for c in pod.spec.containers if _runs_in_new_sandbox(pod, c, status, ran_before)
    ]
    over = pod.spec.restart_policy == NEVER and not _goes_on(pod, candidates)
    if over and _has_begun(plan, pod, status, ran_before):
        plan.create_sandbox = False
        return
    if not candidates and _ever_lived(pod, status, ran_before):
        plan.create_sandbox = False
    elif pod.spec.init_containers:
        plan.init_starts.add(pod.spec.init_containers[0].name)
    else:
        plan.starts.update(c.name for c in candidates)


def _goes_on(pod: Pod, candidates: Iterable[Container]) -> bool:
    """Whether a container has a policy of its own by which it runs again, unlike its pod."""
    own = any(effective_policy(pod, container) != NEVER for container in candidates)
    return own and all(effective_policy(pod, c) != NEVER for c in pod.spec.init_containers)


def _has_begun(
    plan: Plan, pod: Pod, status: PodRuntimeStatus, ran_before: Mapping[str, str]
) -> bool:
    """Whether anything of the pod was in an earlier sandbox, as far as anyone knows."""
    if plan.attempt != 0 and status.containers:
        return True
    return any(
        ran_already(pod, c, status.latest(c.name), ran_before) for c in pod.spec.init_containers
    )


def _runs_in_new_sandbox(
    pod: Pod, container: Container, status: PodRuntimeStatus, ran_before: Mapping[str, str]
) -> bool:
    latest = status.latest(container.name)
    if ran_already(pod, container, latest, ran_before):
        return False
    if latest is None or latest.state is ContainerState.CREATED:
        return True
    ended = latest.state is ContainerState.EXITED
    if runs_once(pod, container):
        # What stops with its sandbox has had its run.
        return ended and restartable(pod, container, latest.exit_code)
    return not (ended and latest.exit_code == 0 and effective_policy(pod, container) == ON_FAILURE)


def _ever_lived(pod: Pod, status: PodRuntimeStatus, ran_before: Mapping[str, str]) -> bool:
    for container in pod.spec.containers:
        latest = status.latest(container.name)
        if container.name in ran_before or (latest is not None and latest.state in _SEEN_ALIVE):
            return True
    return False


def _plan_containers(
    plan: Plan,
    pod: Pod,
    status: PodRuntimeStatus,
    probes: ProbeResults,
    ran_before: Mapping[str, str],
) -> None:
    plan.ephemeral_starts.update(
        c.name
        for c in pod.spec.ephemeral_containers
        if status.latest(c.name) is None and c.name not in ran_before
    )
    _plan_strangers(plan, pod, status)
    initialised = plan_init(plan, pod, status, probes.liveness, probes.startup, ran_before)
    if plan.kill_pod or not initialised:
        return
    kept = 0
    for container in pod.spec.containers:
        kept += _plan_regular(plan, pod, container, status, probes, ran_before)
    if kept == 0 and not plan.starts:
        plan.give_up()


def _plan_strangers(plan: Plan, pod: Pod, status: PodRuntimeStatus) -> None:
    """Stop what runs under a name that has left the spec, and all but the newest of a name."""
    spec = pod.spec
    names = {c.name for c in (*spec.containers, *spec.init_containers, *spec.ephemeral_containers)}
    newest: set[str] = set()
    for record in status.containers:
        if record.state is not ContainerState.RUNNING:
            continue
        if record.name not in names:
            message = f"Container {record.name} is no longer in the pod's spec"
        elif record.name in newest:
            message = f"Container {record.name} runs in a newer instance"
        else:
            newest.add(record.name)
            continue
        plan.kills.append(ContainerToKill(record.id, record.name, message))


def _plan_regular(
    plan: Plan,
    pod: Pod,
    container: Container,
    status: PodRuntimeStatus,
    probes: ProbeResults,
    ran_before: Mapping[str, str],
) -> bool:
    """Plan one regular container; True when it runs and is left alone."""
    name = container.name
    latest = status.latest(name)
    if ran_already(pod, container, latest, ran_before):
        return False
    if latest is not None and latest.state is ContainerState.RUNNING:
        return _plan_running(plan, pod, container, latest, probes)
    if not should_restart(pod, container, latest):
        return False
    if latest is not None and latest.state is ContainerState.UNKNOWN:
        message = 'Container is in "unknown" state, try killing it before restart'
        plan.kills.append(ContainerToKill(latest.id, name, message, KillReason.UNKNOWN))
    plan.starts.add(name)
    return False


def _plan_running(
    plan: Plan,
    pod: Pod,
    container: Container,
    latest: ContainerRuntimeStatus,
    probes: ProbeResults,
) -> bool:
    """Plan one running regular container; True when it is left alone."""
    restart = restarts_after_kill(pod, container)
    if latest.hash != container_hash(container.name, container.image):
        reason, message, restart = KillReason.NONE, changed_message(container.name), True
    elif probes.liveness.get(latest.id) is ProbeResult.FAILURE:
        reason = KillReason.LIVENESS_PROBE
        message = probe_message(container.name, "liveness", restart)
    elif probes.startup.get(latest.id) is ProbeResult.FAILURE:
        reason = KillReason.STARTUP_PROBE
        message = probe_message(container.name, "startup", restart)
    else:
        return True
    plan.kills.append(ContainerToKill(latest.id, container.name, message, reason))
    if restart:
        plan.starts.add(container.name)
    return False
