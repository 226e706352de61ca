"""A named, bounded memory object stream that says what "full" means.

Nothing else connects two parts of the ring.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


class WhenFull(enum.Enum):
    """What a sender does when the channel is full."""

    WAIT = enum.auto()
    """Losing this item would lose work: the producer waits."""
    COALESCE = enum.auto()
    """The producer says it again later: the item is counted and dropped here."""


@dataclass(slots=True)
class ChannelStats:
    """What happened on one channel so far.

    ``wait_seconds`` is how long items lay in the channel, summed over ``received`` items; the
    time for which a sender waited for room is not part of it.
    """

    sent: int = 0
    received: int = 0
    coalesced: int = 0
    high_water: int = 0
    wait_seconds: float = 0.0


class Channel(Generic[T]):
    """A bounded queue with one consumer and a declared overflow policy.

    Args:
        name: shown in metrics and logs.
        capacity: items that may lie in the channel.
        when_full: overflow policy of :meth:`send`.
    """

    def __init__(self, name: str, capacity: int, when_full: WhenFull = WhenFull.WAIT) -> None:
        if capacity < 1:
            msg = f"channel {name}: capacity must be at least 1, not {capacity}"
            raise ValueError(msg)
        self.name = name
        self.capacity = capacity
        self.when_full = when_full
        self.stats = ChannelStats()
        self.observe_wait: Callable[[float], None] | None = None
        self._send, self._receive = anyio.create_memory_object_stream[tuple[float, T]](capacity)
        self._turn = anyio.Lock()
        self._room: anyio.Event | None = None

    @property
    def depth(self) -> int:
        """Items lying in the channel now."""
        return self._send.statistics().current_buffer_used

    async def send(self, item: T) -> None:
        """Hand an item on; waits for room under WAIT, drops and counts under COALESCE.

        A cancelled ``send`` has not sent the item; senders get room in order of arrival.

        Raises:
            anyio.ClosedResourceError: the channel was closed.
        """
        if self.when_full is WhenFull.COALESCE:
            await anyio.lowlevel.checkpoint()
            self.send_nowait(item)
            return
        # The stream's own send is not used: it may take the item of a sender that is just being
        # cancelled, who would then believe that it was not sent.
        async with self._turn:
            while not self._put(item):
                self._room = anyio.Event()
                await self._room.wait()

    def send_nowait(self, item: T) -> bool:
        """Hand an item on if there is room; False (and counted) if there is none.

        Raises:
            anyio.ClosedResourceError: the channel was closed.
        """
        if self._put(item):
            return True
        self.stats.coalesced += 1
        return False

    def _put(self, item: T) -> bool:
        try:
            self._send.send_nowait((anyio.current_time(), item))
        except anyio.WouldBlock:
            return False
        self.stats.sent += 1
        self.stats.high_water = max(self.stats.high_water, self.depth)
        return True

    def _wake_sender(self) -> None:
        if self._room is not None:
            self._room.set()

    async def receive(self) -> T:
        """The oldest item; waits for one.

        Raises:
            anyio.EndOfStream: the channel was closed and is empty.
        """
        return self._received(await self._receive.receive())

    def receive_nowait(self) -> T:
        """The oldest item.

        Raises:
            anyio.WouldBlock: there is none.
        """
        return self._received(self._receive.receive_nowait())

    def _received(self, stamped: tuple[float, T]) -> T:
        self._wake_sender()
        sent_at, item = stamped
        waited = anyio.current_time() - sent_at
        self.stats.received += 1
        self.stats.wait_seconds += waited
        if self.observe_wait is not None:
            self.observe_wait(waited)
        return item

    def __aiter__(self) -> Channel[T]:
        return self

    async def __anext__(self) -> T:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    def close(self) -> None:
        """No more items are taken; the consumer ends after the last one."""
        self._send.close()
        self._wake_sender()

    def dispose(self) -> None:
        """Close both ends; what lies in the channel is gone."""
        self.close()
        self._receive.close()
