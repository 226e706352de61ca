"""A PLEG on a scripted runtime."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from prometheus_client import CollectorRegistry
from tests.unit.pleg.pleg_builders import ScriptedLister

from nodeagent.channels import Channel, WhenFull
from nodeagent.journal import Journal
from nodeagent.model import PodLifecycleEvent, PodLifecycleEventType, PodUID
from nodeagent.pleg import Pleg, PlegSettings, PodCache


class Ring:
    """A PLEG on a scripted runtime, its cache, and what the sync loop would hear."""

    def __init__(
        self, capacity: int = 1000, lister: ScriptedLister | None = None, **settings: float
    ) -> None:
        self.lister = lister or ScriptedLister()
        self.cache = PodCache()
        self.channel: Channel[PodLifecycleEvent] = Channel("pleg", capacity, WhenFull.COALESCE)
        self.registry = CollectorRegistry()
        self.journal = Journal(monotonic=anyio.current_time)
        self.wanted: set[PodUID] | None = None
        """The pods that somebody wants; None for all."""
        self.at_work: set[PodUID] = set()
        """The pods in which somebody is making things."""
        self.settings = PlegSettings(**settings)  # type: ignore[arg-type]  # counts are floats here
        self.pleg = Pleg(
            self.lister,
            self.cache,
            self.channel,
            registry=self.registry,
            journal=self.journal,
            settings=self.settings,
            wanted=lambda uid: self.wanted is None or uid in self.wanted,
            at_work=lambda uid: uid in self.at_work,
        )

    def heard(self) -> list[tuple[str, str, PodLifecycleEventType]]:
        """Everything in the channel by now."""
        events: list[tuple[str, str, PodLifecycleEventType]] = []
        while self.channel.depth:
            event = self.channel.receive_nowait()
            events.append((event.pod_uid, event.container_id, event.type))
        return events

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def recorded(self, pod: str = "") -> list[str]:
        return [record.what for record in self.journal.select(pod)]


@asynccontextmanager
async def running(ring: Ring) -> AsyncIterator[Ring]:
    """The ring with PLEG running, past its first relist."""
    try:
        async with anyio.create_task_group() as tg:
            await tg.start(ring.pleg.run)
            await anyio.sleep(0.5)
            yield ring
            tg.cancel_scope.cancel()
    finally:
        ring.channel.dispose()
