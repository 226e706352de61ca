"""The first stage of the merge: snapshots of all sources, one after the other."""

from __future__ import annotations

from collections import deque

import anyio

from nodeagent.channels import Channel
from nodeagent.model import PodUpdate, Snapshot
from nodeagent.sources.pod_storage import PodStorage


class PodMux:
    """Merges snapshots and sends the updates to the config channel in order.

    Args:
        storage: where the pods of each source are kept.
        channel: the config channel; a full one makes the source wait.
    """

    def __init__(self, storage: PodStorage, channel: Channel[PodUpdate]) -> None:
        self.storage = storage
        self._channel = channel
        self._lock = anyio.Lock()
        # What was merged but not yet sent: a source cancelled while it waited for room must
        # not lose the updates that the storage already counts as made.
        self._unsent: deque[PodUpdate] = deque()

    async def publish(self, snapshot: Snapshot) -> None:
        """Merge a snapshot and send what it changes; waits while the channel is full."""
        async with self._lock:
            self._unsent.extend(self.storage.merge(snapshot))
            while self._unsent:
                await self._channel.send(self._unsent[0])
                self._unsent.popleft()
