"""Keeps what cannot be rebuilt from the runtime in a file: back-offs, and what ran once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import msgspec
from anyio import TASK_STATUS_IGNORED, to_thread
from anyio.abc import TaskStatus

from nodeagent.log import Log
from nodeagent.state_file import StateFile

log = Log("checkpoint")


class Checkpointer:
    """Saves a snapshot when it has changed.

    Args:
        file: where to.
        snapshot: gives the present content, JSON-able; called on the event loop.
        period: seconds between two looks whether something changed.
    """

    def __init__(
        self, file: StateFile, snapshot: Callable[[], Any], *, period: float = 5.0
    ) -> None:
        self._file = file
        self._snapshot = snapshot
        self._period = period
        self._saved = b""
        self._lock = anyio.Lock()
        self._failing = False

    async def load(self) -> Any:
        """What was saved last, None when there is nothing or it is damaged."""
        content = await to_thread.run_sync(self._file.load)
        if content is not None:
            self._saved = msgspec.json.encode(content)
        return content

    async def save(self) -> None:
        """Save now if something has changed; a disk that refuses is reported, not raised."""
        async with self._lock:
            content = self._snapshot()
            data = msgspec.json.encode(content)
            if data == self._saved:
                return
            try:
                await to_thread.run_sync(self._file.save, content)
            except OSError as error:
                if not self._failing:
                    log.warning("checkpoint_not_saved", file=str(self._file.path), cause=str(error))
                self._failing = True
                return
            self._saved, self._failing = data, False

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Save once a period, and a last time when cancelled."""
        task_status.started()
        try:
            while True:
                await anyio.sleep(self._period)
                await self.save()
        finally:
            with anyio.move_on_after(2.0, shield=True):
                await self.save()
