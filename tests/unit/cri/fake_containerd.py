"""containerd's event service, as the test tells it."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator

import anyio
import betterproto2

from nodeagent.proto.containerd.services.events.v1 import Envelope, EventsBase, SubscribeRequest
from nodeagent.proto.google.protobuf import Any

MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=dt.UTC)
MOMENT_NS = 1767323045678000000


def envelope(topic: str, event: betterproto2.Message, namespace: str = "k8s.io") -> Envelope:
    kind = f"containerd.events.{type(event).__name__}"
    packed = Any(type_url=kind, value=bytes(event))
    return Envelope(timestamp=MOMENT, namespace=namespace, topic=topic, event=packed)


class FakeContainerd(EventsBase):
    """Sends ``events`` to each subscriber, then holds the stream open."""

    def __init__(self, *events: Envelope) -> None:
        self.events = list(events)
        self.requests: list[SubscribeRequest] = []
        self.namespaces: list[str] = []

    async def subscribe(self, message: SubscribeRequest) -> AsyncIterator[Envelope]:
        self.requests.append(message)
        for event in self.events:
            yield event
        await anyio.sleep_forever()
