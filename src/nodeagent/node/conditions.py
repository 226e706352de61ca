"""The conditions of a node, and what is said when they flip. Pure.

Rows and their tests: docs/behaviour/node.md, "Conditions".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from nodeagent.api.node import NodeCondition
from nodeagent.api.times import whole_seconds
from nodeagent.node.facts import Pressure

READY: Final = "Ready"
TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"


@dataclass(frozen=True, slots=True)
class _Words:
    """Reason and message for each state, and the reasons of the events."""

    true: tuple[str, str]
    false: tuple[str, str]
    events: tuple[str, str]


_PRESSURES: Final = {
    "MemoryPressure": _Words(
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("NodeHasInsufficientMemory", "NodeHasSufficientMemory"),
    ),
    "DiskPressure": _Words(
        ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("NodeHasDiskPressure", "NodeHasNoDiskPressure"),
    ),
    "PIDPressure": _Words(
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("NodeHasInsufficientPID", "NodeHasSufficientPID"),
    ),
}
_READY_EVENTS: Final = {TRUE: "NodeReady", FALSE: "NodeNotReady"}


def find(conditions: Sequence[NodeCondition], kind: str) -> NodeCondition | None:
    """The condition of that type."""
    return next((c for c in conditions if c.type == kind), None)


def put(conditions: Sequence[NodeCondition], condition: NodeCondition) -> tuple[NodeCondition, ...]:
    """The conditions with this one in the place of the one of its type, or at the end."""
    if find(conditions, condition.type) is None:
        return (*conditions, condition)
    return tuple(condition if c.type == condition.type else c for c in conditions)


def set_pressures(
    conditions: Sequence[NodeCondition], pressure: Pressure, now: datetime
) -> tuple[NodeCondition, ...]:
    """The conditions with those that say what the machine runs short of."""
    now = whole_seconds(now)
    given = {
        "MemoryPressure": pressure.memory,
        "DiskPressure": pressure.disk,
        "PIDPressure": pressure.pid,
    }
    result = tuple(conditions)
    for kind, holds in given.items():
        old = find(result, kind)
        status = TRUE if holds else FALSE
        if old is None or old.status != status:
            words = _PRESSURES[kind]
            reason, message = words.true if holds else words.false
            new = NodeCondition(
                type=kind,
                status=status,
                last_heartbeat_time=now,
                last_transition_time=now,
                reason=reason,
                message=message,
            )
        else:
            # Words that somebody else found for the same state stay.
            new = replace(old, last_heartbeat_time=now)
        result = put(result, new)
    return result


def set_ready(
    conditions: Sequence[NodeCondition], errors: Sequence[str], soft: str, now: datetime
) -> tuple[NodeCondition, ...]:
    """The conditions with the one that says whether pods can run.

    Args:
        conditions: the present ones.
        errors: why they cannot.
        soft: what an operator should know in either case.
        now: the moment of the heartbeat.
    """
    now = whole_seconds(now)
    old = find(conditions, READY)
    status = FALSE if errors else TRUE
    message = joined(errors) if errors else "kubelet is posting ready status"
    same = old is not None and old.status == status
    new = NodeCondition(
        type=READY,
        status=status,
        last_heartbeat_time=now,
        last_transition_time=old.last_transition_time if old is not None and same else now,
        reason="KubeletNotReady" if errors else "KubeletReady",
        message=f"{message}. WARNING: {soft}" if soft else message,
    )
    return put(conditions, new)


def joined(errors: Sequence[str]) -> str:
    """One error as it is, several as a list, each once."""
    unique = tuple(dict.fromkeys(errors))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"


def is_ready(conditions: Sequence[NodeCondition]) -> bool:
    """Whether the node says that pods can run."""
    found = find(conditions, READY)
    return found is not None and found.status == TRUE


@dataclass(frozen=True, slots=True)
class Flip:
    """A condition that has another status than before; ``reason`` is that of its event."""

    kind: str
    status: str
    reason: str


def flips(old: Sequence[NodeCondition], new: Sequence[NodeCondition]) -> Iterator[Flip]:
    """What there is to say when the conditions change from one to the other.

    A shortage is told also when the condition is new; readiness only when it was there before.
    """
    for kind, words in _PRESSURES.items():
        before, after = find(old, kind), find(new, kind)
        if after is not None and (before is None or before.status != after.status):
            yield Flip(kind, after.status, words.events[0 if after.status == TRUE else 1])
    before, after = find(old, READY), find(new, READY)
    if before is None or after is None or before.status == after.status:
        return
    if after.status in _READY_EVENTS:
        yield Flip(READY, after.status, _READY_EVENTS[after.status])
