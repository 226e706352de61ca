"""Which dead containers and sandboxes may go (docs/behaviour/runtime.md, "Garbage"). Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from nodeagent.model import (
    ContainerState,
    PodUID,
    RuntimeContainer,
    RuntimePod,
    RuntimeSandbox,
    SandboxState,
)

Removable: TypeAlias = Callable[[PodUID], bool]
"""Whether everything of a pod may go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GCPolicy:
    """What is kept of the dead.

    Attributes:
        min_age: seconds that a dead container is left alone after it was first seen.
        max_per_pod_container: dead containers kept per pod and container name.
        max_containers: dead containers kept over all; negative for no bound.
        period: seconds between two collections.
    """

    min_age: float = 0.0
    max_per_pod_container: int = 1
    max_containers: int = -1
    period: float = 60.0


@dataclass(frozen=True, slots=True)
class DeadContainer:
    """A container that may be removed."""

    pod: RuntimePod
    container: RuntimeContainer


def dead_containers(
    pods: Iterable[RuntimePod], old_enough: Callable[[RuntimeContainer], bool]
) -> list[DeadContainer]:
    """All containers that do not run and are old enough."""
    return [
        DeadContainer(pod, container)
        for pod in pods
        for container in pod.containers
        if container.state is not ContainerState.RUNNING and old_enough(container)
    ]


def plan_containers(
    dead: Iterable[DeadContainer], policy: GCPolicy, removable: Removable
) -> list[DeadContainer]:
    """Choose the dead containers to remove.

    Args:
        dead: all dead containers.
        policy: what is kept.
        removable: whether all containers of a pod may go.
    """
    units: defaultdict[tuple[PodUID, str], list[DeadContainer]] = defaultdict(list)
    for each in dead:
        units[each.pod.uid, each.container.name].append(each)
    chosen: list[DeadContainer] = []
    kept: list[list[DeadContainer]] = []
    for (uid, _), unit in units.items():
        unit.sort(key=_newest_first)
        if removable(uid):
            chosen += unit
        else:
            kept.append(_cut(unit, max(policy.max_per_pod_container, 0), chosen))
    if policy.max_containers >= 0:
        _cut_to_total(kept, policy.max_containers, chosen)
    return chosen


def _newest_first(dead: DeadContainer) -> tuple[int, int]:
    return (-dead.container.attempt, -dead.container.created_at)


def _cut(
    unit: Sequence[DeadContainer], count: int, chosen: list[DeadContainer]
) -> list[DeadContainer]:
    chosen += unit[count:]
    return list(unit[:count])


def _cut_to_total(
    kept: Sequence[list[DeadContainer]], total: int, chosen: list[DeadContainer]
) -> None:
    units = [unit for unit in kept if unit]
    if sum(map(len, units)) <= total:
        return
    share = max(total // len(units), 1)
    left = [dead for unit in units for dead in _cut(unit, share, chosen)]
    left.sort(key=lambda dead: -dead.container.created_at)
    chosen += left[total:]


def plan_sandboxes(
    pods: Iterable[RuntimePod], removable: Removable
) -> list[tuple[RuntimePod, RuntimeSandbox]]:
    """Choose the sandboxes to remove: not ready, without containers, and not a pod's newest."""
    chosen: list[tuple[RuntimePod, RuntimeSandbox]] = []
    for pod in pods:
        used = {container.sandbox_id for container in pod.containers}
        spared = 0 if removable(pod.uid) else 1
        newest_first = sorted(pod.sandboxes, key=lambda s: (-s.attempt, -s.created_at))
        chosen += [
            (pod, sandbox)
            for sandbox in newest_first[spared:]
            if sandbox.state is not SandboxState.READY and sandbox.id not in used
        ]
    return chosen
