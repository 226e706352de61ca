"""An API server that takes events, or does not."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import anyio

from nodeagent.api import Pod
from nodeagent.api.event import Event
from nodeagent.journal import Journal
from nodeagent.kube import ApiError, KubeClient, KubeError
from nodeagent.node.event_recorder import EventRecorder
from nodeagent.node.events import JournalEvents
from nodeagent.testing import make_pod

T = TypeVar("T")


class EventsApi:
    """Keeps events by path; ``trouble`` is raised by the next calls, one after the other."""

    def __init__(self) -> None:
        self.events: dict[str, Event] = {}
        self.calls: list[tuple[str, str]] = []
        self.patches: list[Mapping[str, Any]] = []
        self.trouble: list[KubeError | None] = []
        self.hangs = False
        self.takes = 0.0

    @property
    def client(self) -> KubeClient:
        return cast(KubeClient, self)

    async def post(self, path: str, body: Event, wanted: type[T], **_other: Any) -> T:
        await self._called("post", path)
        name = f"{path}/{body.metadata.name}"
        if name in self.events:
            raise ApiError(409, "AlreadyExists", "it is there")
        self.events[name] = body
        return cast(T, body)

    async def patch(self, path: str, patch: Mapping[str, Any], wanted: type[T], **_other: Any) -> T:
        await self._called("patch", path)
        if path not in self.events:
            raise ApiError(404, "NotFound", "no such event")
        self.patches.append(patch)
        return cast(T, self.events[path])

    async def _called(self, method: str, path: str) -> None:
        self.calls.append((method, path))
        if self.hangs:
            await anyio.sleep_forever()
        await anyio.sleep(self.takes)
        trouble = self.trouble.pop(0) if self.trouble else None
        if trouble is not None:
            raise trouble


class StillClock:
    """Wall time that stands still unless a test moves it."""

    def __init__(self) -> None:
        self.nanoseconds = 1_700_000_000_123_456_789

    def time_ns(self) -> int:
        return self.nanoseconds

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.nanoseconds / 10**9, UTC)


class Said:
    """Takes the place of an event sender and keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def send(self, event: Event) -> None:
        self.events.append(event)


def event(pod: Pod | None = None, reason: str = "BackOff", message: str = "m") -> Event:
    """One event about a pod, with a name of its own."""
    said = Said()
    recorder = EventRecorder(JournalEvents(Journal()), "node-1", _CLOCK, said)
    _CLOCK.nanoseconds += 1
    recorder(pod or make_pod("web"), "Warning", reason, message)
    return said.events[0]


_CLOCK = StillClock()
