"""What has changed in the in-memory API server, and the watches that tell of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio
import msgspec

from nodeagent.kube import ApiError
from nodeagent.testing.api_resources import Resource, Selection

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
"""Annotation of the bookmark after which a WatchList has told everything there was."""

BOOKMARK_SECONDS: Final = 60.0
"""How often a watch gets a bookmark if it wants any."""

LAST_BOOKMARK_SECONDS: Final = 2.0
"""How long before its end it gets the last one."""


@dataclass(frozen=True, slots=True)
class Change:
    """One write: what there was before and after it; None when there was nothing.

    After a removal ``after`` is the last state, with the version of the removal.
    """

    resource: Resource
    before: dict[str, Any] | None
    after: dict[str, Any]
    removed: bool = False


class History:
    """The last writes by resource version: every write has the next one.

    Args:
        start: version before the first write.
        length: how many writes are kept.
    """

    def __init__(self, start: int, length: int) -> None:
        self.version = start
        self._length = length
        self._floor = start
        self._changes: list[Change] = []

    def add(self, change: Change) -> None:
        """Note a write; its version is ``version + 1``."""
        self.version += 1
        self._changes.append(change)
        if len(self._changes) > 2 * self._length:
            self._forget(self.version - self._length)

    def expire(self) -> None:
        """Forget all that was."""
        self._forget(self.version)

    def _forget(self, floor: int) -> None:
        self._changes = self._changes[floor - self._floor :]
        self._floor = floor

    def since(self, version: int) -> list[Change]:
        """All writes after a version.

        Raises:
            ApiError: 410, they are not known any more.
        """
        if version < self._floor:
            message = f"too old resource version: {version} ({self._floor})"
            raise ApiError(410, "Expired", message)
        return self._changes[version - self._floor :]


class ApiWatch:
    """One watch; :meth:`next` gives its events.

    Args:
        history: all writes.
        resource: what is watched.
        chosen: which objects of it.
        after: the version after which changes are told.
        bookmarks: whether the client wants any.
        seconds: after which it ends.
    """

    def __init__(
        self,
        history: History,
        resource: Resource,
        chosen: Selection,
        *,
        after: int,
        bookmarks: bool,
        seconds: float | None,
    ) -> None:
        self._history = history
        self._resource = resource
        self._chosen = chosen
        self._after = after
        self.bookmarks = bookmarks
        self._end = None if seconds is None else anyio.current_time() + seconds
        self._bookmark_at = self._next_bookmark()
        self._out: deque[tuple[str, Mapping[str, Any]]] = deque()
        self._ended = False
        self._wake = anyio.Event()

    def wake(self) -> None:
        """Something has changed."""
        self._wake.set()

    def tell(self, event: str, item: Mapping[str, Any]) -> None:
        """Put an event into the stream."""
        self._out.append((event, item))
        self._wake.set()

    def bookmark(self, annotations: Mapping[str, str] | None = None) -> None:
        """Tell the version that the stream has come to."""
        self._take()
        self.tell("BOOKMARK", self._bookmark(annotations))

    def finish(self) -> None:
        """End the stream after what it has still to tell."""
        self._ended = True
        self._wake.set()

    def next_nowait(self) -> bytes | None:
        """The next event as a line of JSON without its end; None when there is none now."""
        if not self._out and not self._ended:
            self._take()
        if not self._out:
            return None
        event, item = self._out.popleft()
        return msgspec.json.encode({"type": event, "object": item})

    async def next(self) -> bytes | None:
        """The next event as a line of JSON without its end; None after the last."""
        while True:
            if (line := self.next_nowait()) is not None:
                return line
            if self._ended or (self._end is not None and anyio.current_time() >= self._end):
                return None
            await self._wait()

    def _next_bookmark(self) -> float:
        now = anyio.current_time()
        last = float("inf") if self._end is None else self._end - LAST_BOOKMARK_SECONDS
        times = [now + BOOKMARK_SECONDS, last if last > now else float("inf")]
        return min(times) if self.bookmarks else float("inf")

    async def _wait(self) -> None:
        self._wake = anyio.Event()
        end = float("inf") if self._end is None else self._end
        with anyio.CancelScope(deadline=min(end, self._bookmark_at)):
            await self._wake.wait()
        if anyio.current_time() >= self._bookmark_at:
            self._bookmark_at = self._next_bookmark()
            self.bookmark()

    def _take(self) -> None:
        try:
            changes = self._history.since(self._after)
        except ApiError as error:
            self.tell("ERROR", status_object(error))
            self.finish()
            return
        if changes:
            self._after = self._history.version
        for change in changes:
            if change.resource is self._resource and (event := self._event(change)):
                self._out.append((event, change.after))

    def _event(self, change: Change) -> str:
        was = change.before is not None and self._chosen.takes(change.before)
        there = not change.removed and self._chosen.takes(change.after)
        if was:
            return "MODIFIED" if there else "DELETED"
        return "ADDED" if there else ""

    def _bookmark(self, annotations: Mapping[str, str] | None) -> dict[str, Any]:
        metadata: dict[str, Any] = {
            "resourceVersion": str(self._after),
            "creationTimestamp": None,
            **({"annotations": dict(annotations)} if annotations else {}),
        }
        item = {
            "kind": self._resource.kind,
            "apiVersion": self._resource.version,
            "metadata": metadata,
        }
        if self._resource.kind == "Pod":
            # A real server fills in what its types have no way to leave out.
            item |= {"spec": {"containers": None}, "status": {}}
        return item


def status_object(error: ApiError) -> dict[str, Any]:
    """The Status object that says what an error says."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        "code": error.status,
        **(
            {"details": {"retryAfterSeconds": int(error.retry_after)}}
            if error.retry_after is not None
            else {}
        ),
    }
