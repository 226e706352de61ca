"""What happened to a pod between two looks at it: a table, without clock or runtime.

docs/behaviour/pleg.md, "Events". A sandbox counts like a container: ready is running, not
ready is exited.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType
from typing import Final

from nodeagent.model import (
    ContainerRuntimeStatus,
    ContainerState,
    PodLifecycleEvent,
    PodLifecycleEventType,
    PodRuntimeStatus,
    PodUID,
    RuntimePod,
    SandboxState,
)

STARTED: Final = PodLifecycleEventType.CONTAINER_STARTED
DIED: Final = PodLifecycleEventType.CONTAINER_DIED
REMOVED: Final = PodLifecycleEventType.CONTAINER_REMOVED
CHANGED: Final = PodLifecycleEventType.CONTAINER_CHANGED
POD_SYNC: Final = PodLifecycleEventType.POD_SYNC

WAKING: Final = frozenset({STARTED, DIED, POD_SYNC})
"""Events that make the sync loop look at the pod; one of them is enough."""


class Seen(enum.Enum):
    """How a look found one container or sandbox."""

    ABSENT = enum.auto()
    CREATED = enum.auto()
    RUNNING = enum.auto()
    EXITED = enum.auto()
    UNKNOWN = enum.auto()


_CONTAINERS: Final[Mapping[ContainerState, Seen]] = MappingProxyType(
    {
        ContainerState.CREATED: Seen.CREATED,
        ContainerState.RUNNING: Seen.RUNNING,
        ContainerState.EXITED: Seen.EXITED,
        ContainerState.UNKNOWN: Seen.UNKNOWN,
    }
)
_SANDBOXES: Final[Mapping[SandboxState, Seen]] = MappingProxyType(
    {SandboxState.READY: Seen.RUNNING, SandboxState.NOT_READY: Seen.EXITED}
)


def transition(before: Seen, after: Seen) -> tuple[PodLifecycleEventType, ...]:
    """Name the events of one container or sandbox seen first so, then so."""
    if before is after:
        return ()
    match after:
        case Seen.RUNNING:
            return (STARTED,)
        case Seen.EXITED:
            return (DIED,)
        case Seen.CREATED | Seen.UNKNOWN:
            return (CHANGED,)
        case Seen.ABSENT:
            return (REMOVED,) if before is Seen.EXITED else (DIED, REMOVED)


def compute_events(old: RuntimePod | None, new: RuntimePod | None) -> tuple[PodLifecycleEvent, ...]:
    """Name all that happened to one pod between two looks.

    Args:
        old: the earlier look; None when the pod was not there.
        new: the later look; None when the pod is not there.

    Returns:
        The events of containers, then those of sandboxes, each ordered by id. A container
        that turned UNKNOWN adds one POD_SYNC, unless another event wakes the pod anyway.
    """
    uid = _uid(old, new)
    if old is new or uid is None:
        return ()
    steps = [*_steps(_containers(old), _containers(new)), *_steps(_sandboxes(old), _sandboxes(new))]
    events = [
        PodLifecycleEvent(uid, kind, id_)
        for id_, before, after in steps
        for kind in transition(before, after)
    ]
    turned_unknown = any(after is Seen.UNKNOWN for _, _, after in steps)
    if turned_unknown and not any(event.type in WAKING for event in events):
        events.append(PodLifecycleEvent(uid, POD_SYNC))
    return tuple(events)


def announced_ids(old: RuntimePod | None, new: RuntimePod | None) -> frozenset[str]:
    """What changed between two looks in a way that runtimes have events for.

    No event tells that a state has become unknown, or known again.
    """
    if old is new:
        return frozenset()
    steps = [*_steps(_containers(old), _containers(new)), *_steps(_sandboxes(old), _sandboxes(new))]
    return frozenset(id_ for id_, *step in steps if Seen.UNKNOWN not in step)


def as_known(listed: RuntimePod, status: PodRuntimeStatus) -> RuntimePod:
    """The pod as its record shows it after an inspection, to compare later lists with.

    An inspection and the list that led to it may disagree: something has changed in between, or
    the runtime answers oddly. Only the next list tells, so what the record holds counts: what a
    list goes on showing and the record lacks is then looked at again.

    Args:
        listed: what the list has shown.
        status: what the inspection has found.
    """
    details = {c.id: c for c in status.containers}
    boxes = {s.id: s for s in status.sandboxes}
    containers = tuple(
        replace(c, state=_recorded(details[c.id], c.state))
        for c in listed.containers
        if c.id in details
    )
    sandboxes = tuple(
        replace(s, state=boxes[s.id].state) for s in listed.sandboxes if s.id in boxes
    )
    known = replace(listed, containers=containers, sandboxes=sandboxes)
    return listed if known == listed else known


def _recorded(found: ContainerRuntimeStatus, listed: ContainerState) -> ContainerState:
    # An end without its time is not all that there is to know about it, and what to believe of
    # a state that is unknown is decided elsewhere.
    early = found.state is ContainerState.EXITED and not found.finished_at
    unknown = ContainerState.UNKNOWN in (listed, found.state)
    return listed if early or unknown else found.state


_SAID: Final = attrgetter("name", "attempt", "sandbox_id", "created_at", "image", "hash")


def told_otherwise(old: RuntimePod | None, new: RuntimePod) -> bool:
    """Whether a list says other things of a container or sandbox than its state."""
    if old is None or old is new:
        return False
    containers = {c.id: _SAID(c) for c in old.containers}
    sandboxes = {s.id: s.attempt for s in old.sandboxes}
    return any(c.id in containers and containers[c.id] != _SAID(c) for c in new.containers) or any(
        sandboxes.get(s.id, s.attempt) != s.attempt for s in new.sandboxes
    )


def _uid(old: RuntimePod | None, new: RuntimePod | None) -> PodUID | None:
    if new is not None:
        return new.uid
    return None if old is None else old.uid


def _steps(
    before: Mapping[str, Seen], after: Mapping[str, Seen]
) -> Iterator[tuple[str, Seen, Seen]]:
    for id_ in sorted(before.keys() | after.keys()):
        step = before.get(id_, Seen.ABSENT), after.get(id_, Seen.ABSENT)
        if step[0] is not step[1]:
            yield id_, *step


def _containers(pod: RuntimePod | None) -> dict[str, Seen]:
    return {} if pod is None else {c.id: _CONTAINERS[c.state] for c in pod.containers}


def _sandboxes(pod: RuntimePod | None) -> dict[str, Seen]:
    return {} if pod is None else {s.id: _SANDBOXES[s.state] for s in pod.sandboxes}
