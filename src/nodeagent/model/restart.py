"""Whether a container that ended may run again (docs/behaviour/phase.md, "Restartable").

Container-level rules come first (KEP-5307), then the container's own policy, then the pod's.
"""

from __future__ import annotations

import enum
from typing import Final

from nodeagent.api import Container, ContainerRestartRule, Pod
from nodeagent.model.runtime import ContainerRuntimeStatus, ContainerState

ALWAYS: Final = "Always"
ON_FAILURE: Final = "OnFailure"
NEVER: Final = "Never"
RESTART_ALL: Final = "RestartAllContainers"
RESTARTING_ALL: Final = "RestartingAllContainers"
"""Reason of a container that was removed because all of its pod start again (KEP-5532)."""


class RestartDecision(enum.Enum):
    """What to do about a container that ended."""

    STAY = "stay"
    RESTART = "restart"
    RESTART_ALL = "restart-all"


def is_sidecar(container: Container) -> bool:
    """Whether an init container keeps running beside the regular ones (KEP-753)."""
    return container.restart_policy == ALWAYS


def matching_rule(container: Container, exit_code: int) -> ContainerRestartRule | None:
    """The first restart rule that speaks about this exit code."""
    for rule in container.restart_policy_rules:
        if rule.exit_codes is None:
            continue
        listed = exit_code in rule.exit_codes.values
        if listed == (rule.exit_codes.operator == "In"):
            return rule
    return None


def restart_decision(pod: Pod, container: Container, exit_code: int) -> RestartDecision:
    """What the restart rules and policies say about an exit."""
    if container.restart_policy is not None:
        rule = matching_rule(container, exit_code)
        if rule is not None and rule.action == RESTART_ALL:
            return RestartDecision.RESTART_ALL
        if rule is not None and rule.action == "Restart":
            return RestartDecision.RESTART
        policy = container.restart_policy
    else:
        policy = pod.spec.restart_policy or ALWAYS
    if policy == ALWAYS or (policy == ON_FAILURE and exit_code != 0):
        return RestartDecision.RESTART
    return RestartDecision.STAY


def restartable(pod: Pod, container: Container, exit_code: int) -> bool:
    """Whether the container may run again after this exit."""
    return restart_decision(pod, container, exit_code) is not RestartDecision.STAY


def asks_for_restart_of_all(
    pod: Pod, container: Container, latest: ContainerRuntimeStatus | None
) -> bool:
    """Whether this container's exit is what asks for all containers to start again.

    Args:
        pod: its pod.
        container: its spec.
        latest: its newest record.
    """
    if latest is None or latest.state is not ContainerState.EXITED:
        return False
    return restart_decision(pod, container, latest.exit_code) is RestartDecision.RESTART_ALL


def may_restart_all(pod: Pod) -> bool:
    """Whether the exit of a container can make all containers of the pod start again."""
    return any(
        rule.action == RESTART_ALL
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for rule in container.restart_policy_rules
    )
