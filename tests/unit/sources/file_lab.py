"""A file source at work on a directory, for tests. Time is virtual unless a test says otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream

from nodeagent.journal import Journal, JournalRecord
from nodeagent.model import PodUID, Snapshot
from nodeagent.sources import FileSource
from nodeagent.sources.checkpoint import ManifestCheckpoint

POD = """apiVersion: v1
kind: Pod
metadata: {name: %s}
spec: {containers: [{name: c, image: "%s"}]}
"""
TWO_CONTAINERS = (
    """apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: one, image: "%s"}
""",
    """  - {name: two, image: "%s"}
""",
)
"""Two pieces of a manifest, of which the first alone is a valid pod, too."""


class Running:
    """A file source at work and the snapshots it sends."""

    def __init__(
        self, source: FileSource, snapshots: MemoryObjectReceiveStream[Snapshot], journal: Journal
    ) -> None:
        self.source = source
        self.snapshots = snapshots
        self.journal = journal

    async def snapshot(self, seconds: float = 20.0) -> Snapshot:
        with anyio.fail_after(seconds):
            return await self.snapshots.receive()

    async def next(self, seconds: float = 20.0) -> dict[str, str]:
        """The next snapshot: images by pod."""
        found = await self.snapshot(seconds)
        return {p.metadata.name: ",".join(c.image for c in p.spec.containers) for p in found.pods}

    async def uids(self) -> set[PodUID]:
        return {PodUID(p.metadata.uid) for p in (await self.snapshot()).pods}

    async def silent(self, seconds: float = 60.0) -> bool:
        """Whether no snapshot comes for so long."""
        with anyio.move_on_after(seconds):
            await self.snapshots.receive()
            return False
        return True

    def refusals(self) -> list[str]:
        return [r.why for r in self.journal.select() if r.what == "ManifestRefused"]


async def refusal(records: MemoryObjectReceiveStream[JournalRecord]) -> str:
    with anyio.fail_after(20):
        async for record in records:
            if record.what == "ManifestRefused" and "does not exist" not in record.why:
                return record.why
    pytest.fail("the journal ended")


@asynccontextmanager
async def running(
    *paths: Path, checkpoint: Path | None = None, period: float = 20.0, watch: bool = True
) -> AsyncIterator[Running]:
    send, receive = anyio.create_memory_object_stream[Snapshot](1000)
    journal = Journal()
    source = FileSource(
        paths,
        "n1",
        period=period,
        journal=journal,
        checkpoint=ManifestCheckpoint(checkpoint, "n1") if checkpoint else None,
        watch=watch,
    )
    with send, receive:
        async with anyio.create_task_group() as tg:
            with anyio.fail_after(20):
                await tg.start(source.run, send.send)
            yield Running(source, receive, journal)
            tg.cancel_scope.cancel()
