"""An API source before an API server in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from nodeagent.journal import Journal
from nodeagent.kube import KubeClient
from nodeagent.model import Snapshot
from nodeagent.sources.api_checkpoint import ApiCheckpoint
from nodeagent.sources.api_source import ApiSource
from nodeagent.testing import ApiStore, StoreClient, make_pod

NODE = "n1"


class ApiLab:
    """A source, and what it has published."""

    def __init__(
        self,
        store: ApiStore | None = None,
        client: KubeClient | None = None,
        *,
        checkpoint: Path | None = None,
        node: str = NODE,
        **options: Any,
    ) -> None:
        self.store = store or ApiStore()
        self.client = StoreClient(self.store)
        self.journal = Journal()
        self.checkpoint = ApiCheckpoint(checkpoint, node) if checkpoint is not None else None
        self.source = ApiSource(
            client or self.client,
            node,
            checkpoint=self.checkpoint,
            journal=self.journal,
            **options,
        )
        self.snapshots: list[Snapshot] = []
        self._published = anyio.Event()

    async def publish(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)
        self._published.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ApiLab]:
        async with anyio.create_task_group() as tasks:
            await tasks.start(self.source.run, self.publish)
            yield self
            tasks.cancel_scope.cancel()

    async def until(self, holds: Callable[[], bool], seconds: float = 600.0) -> float:
        """Wait until something holds after a snapshot; returns the loop time."""
        with anyio.fail_after(seconds):
            while not holds():
                self._published = anyio.Event()
                with anyio.move_on_after(0.05):
                    await self._published.wait()
        return anyio.current_time()

    async def names(self, *wanted: str) -> None:
        """Wait until exactly these pods are published."""
        await self.until(lambda: bool(self.snapshots) and self.shown() == sorted(wanted))

    def shown(self) -> list[str]:
        """Names of the pods of the last snapshot."""
        return sorted(pod.metadata.name for pod in self.snapshots[-1].pods)

    def add(self, name: str, **fields: Any) -> dict[str, Any]:
        """Create a pod that is bound to the node."""
        return self.store.create(make_pod(name, node_name=NODE, **fields))

    def mark(self, name: str, **labels: str) -> None:
        """Change a pod's labels."""
        self.store.edit("pods", name, lambda pod: pod["metadata"].update(labels=labels))

    def told(self, what: str) -> list[str]:
        """Why the journal was told of something."""
        return [r.why for r in self.journal.select() if r.what == what]

    def asked(self) -> list[tuple[str, str, str]]:
        """Requests: method, version, page or limit."""
        return [
            (
                "LIST" if r.method == "GET" else "WATCH",
                r.query.get("resourceVersion", ""),
                r.query.get("continue") or r.query.get("limit") or "",
            )
            for r in self.store.requests
        ]
