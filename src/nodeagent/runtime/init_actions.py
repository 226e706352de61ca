"""What the init containers of a pod need (docs/behaviour/runtime.md, "Init containers").

A sidecar is an init container that restarts always: it runs beside the regular containers,
and the next init container waits only until it has started.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nodeagent.api import Container, Pod
from nodeagent.model import (
    ContainerRuntimeStatus,
    ContainerState,
    PodRuntimeStatus,
    ProbeResult,
)
from nodeagent.model.actions import ContainerToKill, KillReason
from nodeagent.model.restart import NEVER, is_sidecar, restartable
from nodeagent.runtime.hash import container_hash
from nodeagent.runtime.plan import Plan, changed_message, probe_message
from nodeagent.runtime.restart import effective_policy, init_failed, ran_already

Results = Mapping[str, ProbeResult]

_ALIVE: Final = (ContainerState.CREATED, ContainerState.RUNNING)


def plan_init(
    plan: Plan,
    pod: Pod,
    status: PodRuntimeStatus,
    liveness: Results,
    startup: Results,
    ran_before: Mapping[str, str],
) -> bool:
    """Plan the init containers, last to first; True when the regular ones may run.

    Sets ``plan.kill_pod`` when an init container failed for good, or when one that may run
    once did so and nobody knows how it ended.
    """
    inits = pod.spec.init_containers
    if not inits:
        return True
    done = any(
        latest is not None and latest.state in _ALIVE
        for latest in (status.latest(c.name) for c in pod.spec.containers)
    )
    initialised = seen_later = done
    for index in reversed(range(len(inits))):
        container = inits[index]
        latest = status.latest(container.name)
        sidecar = is_sidecar(container)
        if not seen_later and ran_already(pod, container, latest, ran_before):
            plan.give_up()
            return False
        if latest is None:
            if sidecar and seen_later:
                plan.init_starts.add(container.name)
            continue
        if sidecar:
            started = _plan_sidecar(plan, container, latest, liveness, startup)
        elif seen_later:
            continue  # it completed before the later ones began
        else:
            started = _plan_plain(plan, pod, container, latest)
            if plan.kill_pod:
                return False
        if started and not seen_later:
            if index == len(inits) - 1:
                initialised = True
            else:
                plan.init_starts.add(inits[index + 1].name)
        seen_later = True
    if not seen_later:
        plan.init_starts.add(inits[0].name)
    return initialised


def _plan_plain(plan: Plan, pod: Pod, container: Container, latest: ContainerRuntimeStatus) -> bool:
    """Plan the plain init container that is due; True when it is complete."""
    match latest.state:
        case ContainerState.CREATED:
            plan.init_starts.add(container.name)
        case ContainerState.RUNNING:
            pass
        case ContainerState.EXITED:
            if not init_failed(latest):
                return True
            _retry_or_give_up(plan, container, _restartable(pod, container, latest))
        case ContainerState.UNKNOWN:
            retry = effective_policy(pod, container) != NEVER
            _retry_or_give_up(plan, container, retry)
            if retry:
                _kill_unknown(plan, container, latest)
    return False


def _restartable(pod: Pod, container: Container, latest: ContainerRuntimeStatus) -> bool:
    # An OOM kill with exit code 0 is a failure too, so the policy is asked as for one.
    return restartable(pod, container, latest.exit_code or 137)


def _retry_or_give_up(plan: Plan, container: Container, retry: bool) -> None:
    if retry:
        plan.init_starts.add(container.name)
    else:
        plan.give_up()


def _plan_sidecar(
    plan: Plan,
    container: Container,
    latest: ContainerRuntimeStatus,
    liveness: Results,
    startup: Results,
) -> bool:
    """Plan one sidecar; True when it counts as started."""
    match latest.state:
        case ContainerState.RUNNING:
            return _plan_running_sidecar(plan, container, latest, liveness, startup)
        case ContainerState.UNKNOWN:
            _kill_unknown(plan, container, latest)
    plan.init_starts.add(container.name)
    return False


def _plan_running_sidecar(
    plan: Plan,
    container: Container,
    latest: ContainerRuntimeStatus,
    liveness: Results,
    startup: Results,
) -> bool:
    name = container.name
    if container.startup_probe is not None:
        result = startup.get(latest.id)
        if result is ProbeResult.FAILURE:
            message = probe_message(name, "startup", restart=True)
            _restart(plan, container, latest, KillReason.STARTUP_PROBE, message)
        if result is not ProbeResult.SUCCESS:
            return False
    if latest.hash != container_hash(name, container.image):
        _restart(plan, container, latest, KillReason.NONE, changed_message(name))
    elif container.liveness_probe and liveness.get(latest.id) is ProbeResult.FAILURE:
        message = probe_message(name, "liveness", restart=True)
        _restart(plan, container, latest, KillReason.LIVENESS_PROBE, message)
    return True


def _restart(
    plan: Plan,
    container: Container,
    latest: ContainerRuntimeStatus,
    reason: KillReason,
    message: str,
) -> None:
    plan.kills.append(ContainerToKill(latest.id, container.name, message, reason))
    plan.init_starts.add(container.name)


def _kill_unknown(plan: Plan, container: Container, latest: ContainerRuntimeStatus) -> None:
    message = 'Init container is in "unknown" state, try killing it before restart'
    plan.kills.append(ContainerToKill(latest.id, container.name, message, KillReason.UNKNOWN))
