"""An event feed that says what the test tells it, and a PLEG that listens to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from tests.unit.pleg.pleg_ring import Ring, running

from nodeagent.clock import SystemClock
from nodeagent.cri import FeedListener, RuntimeHint
from nodeagent.cri.events import Effect
from nodeagent.pleg import EventMetrics, EventWatch, PlegSettings
from nodeagent.rpc import Unimplemented


class ScriptedFeed:
    """Opens a stream at once, unless it is ``missing`` or ``fault`` says otherwise."""

    def __init__(self, name: str = "cri", *, missing: bool = False) -> None:
        self.name = name
        self.missing = missing
        self.fault: Exception | None = None
        self.hurried = 0
        self.runs = 0
        self._listener: FeedListener | None = None

    @property
    def followed(self) -> bool:
        return self._listener is not None

    async def run(
        self, listener: FeedListener, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED
    ) -> None:
        self.runs += 1
        await anyio.sleep(0.001)
        task_status.started()
        listener.feed_opened()
        if self.missing:
            raise Unimplemented("unknown method")
        if self.fault is not None:
            raise self.fault
        self._listener = listener
        try:
            await anyio.sleep_forever()
        finally:
            self._listener = None

    def try_now(self) -> None:
        self.hurried += 1

    def say(self, uid: str, id_: str, effect: Effect = Effect.ANY, at: int = 0) -> None:
        assert self._listener is not None
        self._listener.feed_hint(RuntimeHint(uid, id_, "", "event", effect, at))

    def cut(self) -> None:
        assert self._listener is not None
        self._listener.feed_interrupted("the connection was lost")

    def reopen(self) -> None:
        assert self._listener is not None
        self._listener.feed_opened()


@asynccontextmanager
async def following(ring: Ring, *feeds: ScriptedFeed, seconds: float = 2.0) -> AsyncIterator[Ring]:
    """The ring with PLEG and these feeds running, ``seconds`` later."""
    settings: PlegSettings = ring.settings
    watch = EventWatch(
        feeds,
        ring.pleg,
        metrics=EventMetrics(ring.registry),
        journal=ring.journal,
        settings=settings,
        clock=SystemClock(),
    )
    ring.pleg.audit_with(watch)
    async with running(ring), anyio.create_task_group() as tg:
        await tg.start(watch.run)
        await anyio.sleep(seconds)
        yield ring
        tg.cancel_scope.cancel()
