"""When a container may run again (docs/behaviour/runtime.md, "Restarts").

Pure functions on the spec and on a container's newest record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nodeagent.api import Container, EphemeralContainer, Pod
from nodeagent.model import ContainerRuntimeStatus, ContainerState
from nodeagent.model.restart import (
    ALWAYS,
    NEVER,
    restartable,
)

OOM_KILLED: Final = "OOMKilled"


def effective_policy(pod: Pod, container: Container) -> str:
    """The container's own restart policy, else the pod's."""
    return container.restart_policy or pod.spec.restart_policy or ALWAYS


def should_restart(pod: Pod, container: Container, latest: ContainerRuntimeStatus | None) -> bool:
    """Whether a container should be started, judged by its newest record."""
    if pod.metadata.deletion_timestamp is not None:
        return False
    if latest is None:
        return True
    if latest.state is ContainerState.RUNNING:
        return False
    if latest.state is not ContainerState.EXITED:
        return True
    return restartable(pod, container, latest.exit_code)


def restarts_after_kill(pod: Pod, container: Container) -> bool:
    """Whether a container killed for a failed probe runs again; exit codes do not matter."""
    return effective_policy(pod, container) != NEVER


def runs_once(pod: Pod, container: Container) -> bool:
    """Whether the container may run in one instance only, whatever becomes of its record."""
    return isinstance(container, EphemeralContainer) or effective_policy(pod, container) == NEVER


def ran_already(
    pod: Pod,
    container: Container,
    latest: ContainerRuntimeStatus | None,
    ran_before: Mapping[str, str],
) -> bool:
    """Whether the container may run once, and did so in an instance that is gone.

    Args:
        pod: its pod.
        container: its spec.
        latest: its newest record.
        ran_before: ids of containers that ran by our own record, by name.
    """
    if container.name not in ran_before or not runs_once(pod, container):
        return False
    if latest is None:
        return True
    return latest.state is ContainerState.CREATED and latest.id != ran_before[container.name]


def init_failed(latest: ContainerRuntimeStatus) -> bool:
    """Whether an exited plain init container counts as failed."""
    return latest.exit_code != 0 or latest.reason == OOM_KILLED
