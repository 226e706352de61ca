"""Container events: one bounded queue for each subscriber."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio

from nodeagent.rpc import ResourceExhausted, RpcError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nodeagent.embedded.faults import Hooks
    from nodeagent.proto.runtime import v1

CAPACITY: Final = 4096


class Subscription:
    """The events for one subscriber, in order. Iterating ends only with an error."""

    def __init__(self, capacity: int) -> None:
        self._send, self._receive = anyio.create_memory_object_stream["v1.ContainerEventResponse"](
            capacity
        )
        self._error: RpcError | None = None

    def put(self, event: v1.ContainerEventResponse) -> None:
        """Add an event; a subscriber that does not keep up is cut off."""
        if self._error is not None:
            return
        try:
            self._send.send_nowait(event)
        except anyio.WouldBlock:
            self.cut(ResourceExhausted("this subscriber is too slow, events were lost"))

    def cut(self, error: RpcError) -> None:
        """End the stream with an error, after what is queued."""
        self._error = error
        self._send.close()

    def close(self) -> None:
        """The subscriber is gone."""
        self._send.close()
        self._receive.close()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> v1.ContainerEventResponse:
        try:
            return await self._receive.receive()
        except anyio.EndOfStream:
            raise self._error or StopAsyncIteration from None


class EventHub:
    """Hands each event to all subscribers, through the hooks.

    Args:
        hooks: they may lose, repeat and delay events.
        capacity: events that a subscriber may be behind.
    """

    def __init__(self, hooks: Hooks, capacity: int = CAPACITY) -> None:
        self._hooks = hooks
        self._capacity = capacity
        self._subscriptions: set[Subscription] = set()
        self._late: list[tuple[float, int, v1.ContainerEventResponse]] = []
        self._numbers = itertools.count()

    @property
    def has_subscribers(self) -> bool:
        """Whether anybody listens."""
        return bool(self._subscriptions)

    @contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """Receive the events from now on."""
        subscription = Subscription(self._capacity)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            subscription.close()

    def publish(self, event: v1.ContainerEventResponse) -> None:
        """Tell all subscribers."""
        loop = asyncio.get_running_loop()
        try:
            deliveries = tuple(self._hooks.deliver(event))
        except RpcError as exc:
            self.cut(exc)
            return
        for delay, delivered in deliveries:
            if delay > 0:
                due = loop.time() + delay
                heapq.heappush(self._late, (due, next(self._numbers), delivered))
                loop.call_at(due, self._put_next)
            else:
                self._put(delivered)

    def cut(self, error: RpcError) -> None:
        """End all streams with an error."""
        for subscription in tuple(self._subscriptions):
            subscription.cut(error)

    def _put_next(self) -> None:
        # One for each timer. Timers of the same moment fire in any order, the heap is in order.
        self._put(heapq.heappop(self._late)[2])

    def _put(self, event: v1.ContainerEventResponse) -> None:
        for subscription in tuple(self._subscriptions):
            subscription.put(event)
