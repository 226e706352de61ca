"""What a hint needs of an encoded ContainerEventResponse, and nothing else.

An event holds all that is known of its pod. Decoding that for four fields would take longer than
all else that an event costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nodeagent.cri.interned import cut, read_numbers
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Internal

# Fields of ContainerEventResponse, PodSandboxStatus and PodSandboxMetadata.
_CONTAINER_ID, _TYPE, _AT, _SANDBOX = 1, 2, 3, 4
_ID, _METADATA = 1, 2
_UID: Final = 2


@dataclass(frozen=True, slots=True)
class EventFacts:
    """What a container event is about.

    Attributes:
        container_id: the container, or the sandbox for its own events.
        kind: ``CONTAINER_STOPPED_EVENT``; a number when it has no name.
        at: wall time in nanoseconds.
        sandbox_id: "" when the event does not say.
        pod_uid: "" when the event does not say.
    """

    container_id: str
    kind: str
    at: int
    sandbox_id: str
    pod_uid: str


def read_event(data: bytes) -> EventFacts:
    """Read an event.

    Raises:
        Internal: the bytes are no event.
    """
    numbers = read_numbers(data)
    sandbox = _last(data, _SANDBOX)
    kind = v1.ContainerEventType(numbers.get(_TYPE, 0))
    return EventFacts(
        container_id=_text(data, _CONTAINER_ID),
        kind=kind.name or str(int(kind)),
        at=numbers.get(_AT, 0),
        sandbox_id=_text(sandbox, _ID),
        pod_uid=_text(_last(sandbox, _METADATA), _UID),
    )


def _last(data: bytes, field: int) -> bytes:
    found = cut(data, field)
    return found[-1] if found else b""


def _text(data: bytes, field: int) -> str:
    try:
        return _last(data, field).decode()
    except UnicodeDecodeError as exc:
        msg = f"field {field} of the event is not text"
        raise Internal(msg) from exc
