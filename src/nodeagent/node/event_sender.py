"""Sends events to the API server, one after the other, and never makes anybody wait for it.

Rows and their tests: docs/behaviour/events.md, "Delivery".
"""

from __future__ import annotations

import random
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from prometheus_client import CollectorRegistry, Counter

from nodeagent.api import codec
from nodeagent.api.event import Event
from nodeagent.channels import Channel, WhenFull
from nodeagent.kube import ApiError, KubeClient, KubeError, paths
from nodeagent.log import Log
from nodeagent.node.event_correlator import Correlator, Sent

log = Log("event")

QUEUE: Final = 1000
"""Events that wait at most."""
TRIES: Final = 12
"""Times that one event is offered to a server that does not answer."""
PAUSE: Final = 10.0
"""Seconds between two tries; before the second one a random part of it."""
FLUSH: Final = 2.0
"""Seconds that are left for what still waits when the agent ends."""
REST: Final = 4.0
"""After an event the sender rests for so many times what sending it took: when many pods start or
stop together, their statuses come first, and whatever is busy then is not kept busy by events."""
LONGEST_REST: Final = 0.1
CROWD: Final = 200
"""Events that wait from which on the sender does not rest."""


class EventSender:
    """The way of events to the API server.

    Args:
        client: for events only, so that many of them delay nothing else.
        registry: where what became of events is counted.
    """

    def __init__(self, client: KubeClient, registry: CollectorRegistry) -> None:
        self._client = client
        self._queue: Channel[Event] = Channel("api-events", QUEUE, WhenFull.COALESCE)
        self._correlator = Correlator()
        self._unsent: Sent | None = None
        self._reachable = True
        self._complaint = ""
        self._results = Counter(
            "nodeagent_events",
            "Events about pods and the node by what became of them: created, updated, full (no "
            "room in the queue), spam (too many of one type about one object), refused (by the "
            "API server), unreachable (given up)",
            ["result"],
            registry=registry,
        )

    def send(self, event: Event) -> None:
        """Queue an event; when there is no room it is dropped and counted."""
        if not self._queue.send_nowait(event):
            self._results.labels("full").inc()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Send events until cancelled; what waits then is sent if that takes no longer than 2 s."""
        task_status.started()
        try:
            while True:
                event = await self._queue.receive()
                began = anyio.current_time()
                await self._take(event)
                if self._queue.depth < CROWD:
                    took = anyio.current_time() - began
                    await anyio.sleep(min(REST * took, LONGEST_REST))
        finally:
            with anyio.move_on_after(FLUSH, shield=True):
                await self._flush()
            self._queue.dispose()

    async def _take(self, event: Event) -> None:
        self._unsent = self._correlator.correlate(event, anyio.current_time())
        if self._unsent is None:
            self._results.labels("spam").inc()
            return
        for tried in range(TRIES):
            if tried:
                await anyio.sleep(PAUSE * random.random() if tried == 1 else PAUSE)
            if await self._offer(self._unsent):
                break
        else:
            self._results.labels("unreachable").inc()
        self._unsent = None

    async def _flush(self) -> None:
        """One try for each event that waits, unless the server has not answered."""
        if self._unsent is not None and self._reachable:
            await self._offer(self._unsent)
        while self._reachable and self._queue.depth:
            event = self._queue.receive_nowait()
            sent = self._correlator.correlate(event, anyio.current_time())
            if sent is not None:
                await self._offer(sent)

    async def _offer(self, sent: Sent) -> bool:
        """Offer an event once; whether that is the end of it."""
        try:
            result = await self._put(sent)
        except ApiError as error:
            self._reachable = True
            self._complain(error)
            result = "refused"
        except KubeError as error:
            self._reachable = False
            log.debug("event_not_sent", reason=sent.event.reason, cause=str(error))
            return False
        else:
            self._reachable, self._complaint = True, ""
        self._results.labels(result).inc()
        return True

    async def _put(self, sent: Sent) -> str:
        event = sent.event
        namespace = event.metadata.namespace
        if sent.update:
            fields = codec.to_builtins(event)
            patch = {
                "count": event.count,
                "message": event.message,
                "lastTimestamp": fields["lastTimestamp"],
            }
            try:
                await self._client.patch(paths.event(namespace, event.metadata.name), patch, Event)
            except ApiError as error:
                if not error.not_found:
                    raise
            else:
                return "updated"
        await self._client.post(paths.event(namespace), event, Event)
        return "created"

    def _complain(self, error: ApiError) -> None:
        """Log why events are refused, once for each cause until one is taken."""
        if error.not_found or error.already_exists or "being terminated" in error.message:
            # A namespace that is going takes no events, and nobody reads them there any more.
            log.debug("event_refused", status=error.status, cause=str(error))
            return
        cause = f"{error.status} {error.reason}"
        if cause == self._complaint:
            return
        self._complaint = cause
        log.warning(
            "event_refused",
            status=error.status,
            cause=str(error),
            hint="the node needs the rights to create and patch events",
        )
