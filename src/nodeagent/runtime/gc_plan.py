"""Which dead containers and sandboxes may go (docs/behaviour/garbage.md). Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

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
    """

    min_age: float = 0.0
    max_per_pod_container: int = 1
    max_containers: int = -1


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


@dataclass(frozen=True, slots=True)
class DoomedContainer:
    """A container that goes, and why."""

    pod: RuntimePod
    container: RuntimeContainer
    why: str


@dataclass(frozen=True, slots=True)
class DoomedSandbox:
    """A sandbox that goes, and why."""

    pod: RuntimePod
    sandbox: RuntimeSandbox
    why: str


POD_GONE: Final = "its pod is gone"


def plan_containers(
    dead: Iterable[DeadContainer], policy: GCPolicy, removable: Removable
) -> list[DoomedContainer]:
    """Choose the dead containers to remove.

    Args:
        dead: all dead containers.
        policy: what is kept.
        removable: whether all containers of a pod may go.
    """
    units: defaultdict[tuple[PodUID, str], list[DeadContainer]] = defaultdict(list)
    for each in dead:
        units[each.pod.uid, each.container.name].append(each)
    chosen: list[DoomedContainer] = []
    kept: list[list[DeadContainer]] = []
    count = max(policy.max_per_pod_container, 0)
    for (uid, _), unit in units.items():
        unit.sort(key=_newest_first)
        if removable(uid):
            chosen += _doomed(unit, POD_GONE)
        else:
            kept.append(_cut(unit, count, chosen, f"of its name the newest {count} are kept"))
    if policy.max_containers >= 0:
        _cut_to_total(kept, policy.max_containers, chosen)
    return chosen


def _newest_first(dead: DeadContainer) -> tuple[int, int]:
    return (-dead.container.attempt, -dead.container.created_at)


def _doomed(dead: Iterable[DeadContainer], why: str) -> list[DoomedContainer]:
    return [DoomedContainer(each.pod, each.container, why) for each in dead]


def _cut(
    unit: Sequence[DeadContainer], count: int, chosen: list[DoomedContainer], why: str
) -> list[DeadContainer]:
    chosen += _doomed(unit[count:], why)
    return list(unit[:count])


def _cut_to_total(
    kept: Sequence[list[DeadContainer]], total: int, chosen: list[DoomedContainer]
) -> None:
    units = [unit for unit in kept if unit]
    if sum(map(len, units)) <= total:
        return
    why = f"of all dead containers {total} are kept"
    share = max(total // len(units), 1)
    left = [dead for unit in units for dead in _cut(unit, share, chosen, why)]
    left.sort(key=lambda dead: -dead.container.created_at)
    chosen += _doomed(left[total:], why)


def plan_sandboxes(pods: Iterable[RuntimePod], removable: Removable) -> list[DoomedSandbox]:
    """Choose the sandboxes to remove: not ready, without containers, and not a pod's newest."""
    chosen: list[DoomedSandbox] = []
    for pod in pods:
        used = {container.sandbox_id for container in pod.containers}
        gone = removable(pod.uid)
        why = POD_GONE if gone else "the pod has a newer one"
        newest_first = sorted(pod.sandboxes, key=lambda s: (-s.attempt, -s.created_at))
        chosen += [
            DoomedSandbox(pod, sandbox, why)
            for sandbox in newest_first[0 if gone else 1 :]
            if sandbox.state is not SandboxState.READY and sandbox.id not in used
        ]
    return chosen


def without(pods: Iterable[RuntimePod], doomed: Iterable[DoomedContainer]) -> list[RuntimePod]:
    """The pods as they are once these containers have gone."""
    ids = {each.container.id for each in doomed}
    return [
        replace(pod, containers=tuple(c for c in pod.containers if c.id not in ids)) for pod in pods
    ]
