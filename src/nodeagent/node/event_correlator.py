"""What becomes of an event before it is sent: combined with similar ones, counted, or left out.

Pure: no clock, no client. Rows and their tests: docs/behaviour/events.md, "Correlation".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Generic, TypeVar

import msgspec

from nodeagent.api.event import Event

T = TypeVar("T")

REMEMBERED: Final = 4096
"""Events, groups of similar events, and objects that are remembered at most, of each."""
SIMILAR: Final = 10
"""Different messages of which the last is combined with the similar ones before."""
WINDOW: Final = 600.0
"""Seconds of silence after which similar events are no longer combined."""
BURST: Final = 25
"""Events of one type about one object that may be sent at once."""
REFILL: Final = 300.0
"""Seconds after which one more may be sent."""

_COMBINED: Final = "(combined from similar events): "


@dataclass(frozen=True, slots=True)
class Sent:
    """An event that is to be sent.

    Attributes:
        event: the event, with its count so far.
        update: it was sent before under this name, so its count, message and time change.
    """

    event: Event
    update: bool


@dataclass(slots=True)
class _Group:
    """Events that differ in nothing but their message, of which only the hash is kept."""

    last: float
    messages: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Observed:
    name: str
    first: datetime | None
    count: int


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class _Remembered(Generic[T]):
    """What is known by some key; the one that was not asked for longest goes first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._known: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        self._known[key] = made = make()
        if len(self._known) > self._size:
            self._known.popitem(last=False)
        return made


class Correlator:
    """Decides what is sent.

    Args:
        remembered: how many of each kind of thing are remembered.
    """

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._groups: _Remembered[_Group] = _Remembered(remembered)
        self._observed: _Remembered[_Observed] = _Remembered(remembered)
        self._buckets: _Remembered[_Bucket] = _Remembered(remembered)

    def correlate(self, event: Event, now: float) -> Sent | None:
        """What to send for an event that has just happened; None when there are too many.

        Args:
            event: the event as it was said; its name must not have been used before.
            now: monotonic seconds.
        """
        event, key = self._combined(event, now)
        sent = self._counted(event, key)
        return sent if self._may_be_sent(event, now) else None

    def _combined(self, event: Event, now: float) -> tuple[Event, Hashable]:
        similar = _similar(event)
        group = self._groups.get(similar, lambda: _Group(now))
        if now - group.last > WINDOW:
            group.messages.clear()
        group.last = now
        # Output of probes and hooks may be long, and thousands of events are remembered.
        message = hash(event.message)
        if message in group.messages or len(group.messages) < SIMILAR - 1:
            group.messages.add(message)
            where = event.involved_object
            return event, (similar, where.field_path, message)
        return msgspec.structs.replace(event, message=_COMBINED + event.message), similar

    def _counted(self, event: Event, key: Hashable) -> Sent:
        seen = self._observed.get(
            key, lambda: _Observed(event.metadata.name, event.first_timestamp, 0)
        )
        seen.count += 1
        if seen.count == 1:
            return Sent(event, update=False)
        known = msgspec.structs.replace(
            event,
            metadata=msgspec.structs.replace(event.metadata, name=seen.name),
            first_timestamp=seen.first,
            count=seen.count,
        )
        return Sent(known, update=True)

    def _may_be_sent(self, event: Event, now: float) -> bool:
        bucket = self._buckets.get((_object(event), event.type), lambda: _Bucket(BURST, now))
        bucket.tokens = min(float(BURST), bucket.tokens + (now - bucket.at) / REFILL)
        bucket.at = now
        if bucket.tokens < 1.0:
            return False
        bucket.tokens -= 1.0
        return True


def _object(event: Event) -> Hashable:
    where = event.involved_object
    who = (event.source.component, event.source.host)
    return (*who, where.kind, where.namespace, where.name, where.uid, where.api_version)


def _similar(event: Event) -> Hashable:
    return (_object(event), event.type, event.reason)
