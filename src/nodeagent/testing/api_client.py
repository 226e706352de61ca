"""An API client that speaks to an ``ApiStore`` directly, without HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import anyio
import anyio.lowlevel
import msgspec

from nodeagent.api.codec import convert, to_builtins
from nodeagent.kube import KubeClients, PatchKind, Query, UndecodableError, UnreachableError
from nodeagent.testing.api_store import ApiStore, Request
from nodeagent.testing.api_watch import ApiWatch

T = TypeVar("T")

_TIMEOUT: Final = 10.0


class StoreClient:
    """A ``KubeClient`` over a store.

    Args:
        store: answers the requests.

    Attributes:
        drops: how often the connections were dropped.
    """

    def __init__(self, store: ApiStore) -> None:
        self._store = store
        self._reachable = True
        self._silent = False
        self._lost = 0
        self._broken = anyio.Event()
        self._answering = anyio.Event()
        self.drops = 0

    # Faults.

    def cut(self) -> None:
        """Break all watches; requests fail at once until :meth:`heal`."""
        self._reachable = False
        self._broken.set()

    def fall_silent(self) -> None:
        """Let nothing through any more without closing anything, until :meth:`heal`."""
        self._silent = True
        self._lost += 1
        self._answering = anyio.Event()

    def heal(self) -> None:
        """The server answers again. Watches from before stay silent until they are dropped."""
        self._reachable, self._silent = True, False
        self._answering.set()

    # Requests.

    async def get(
        self,
        path: str,
        wanted: type[T],
        *,
        query: Query | None = None,
        timeout: float | None = None,
    ) -> T:
        """Read an object or a list."""
        return _decoded(await self._ask(Request("GET", path, query or {}), timeout), wanted)

    async def get_bytes(
        self, path: str, *, query: Query | None = None, timeout: float | None = None
    ) -> bytes:
        """Read an object or a list as the JSON that came."""
        return msgspec.json.encode(await self._ask(Request("GET", path, query or {}), timeout))

    async def post(
        self,
        path: str,
        body: object,
        wanted: type[T],
        *,
        query: Query | None = None,
        timeout: float | None = None,
    ) -> T:
        """Create an object in a collection, or use a subresource such as ``token``."""
        request = Request("POST", path, query or {}, to_builtins(body))
        return _decoded(await self._ask(request, timeout), wanted)

    async def put(
        self, path: str, body: object, wanted: type[T], *, timeout: float | None = None
    ) -> T:
        """Replace an object."""
        request = Request("PUT", path, {}, to_builtins(body))
        return _decoded(await self._ask(request, timeout), wanted)

    async def patch(
        self,
        path: str,
        patch: Mapping[str, Any] | list[Any],
        wanted: type[T],
        *,
        kind: PatchKind = PatchKind.STRATEGIC,
        timeout: float | None = None,
    ) -> T:
        """Change parts of an object."""
        request = Request("PATCH", path, {}, to_builtins(patch), kind)
        return _decoded(await self._ask(request, timeout), wanted)

    async def delete(
        self,
        path: str,
        *,
        grace_seconds: int | None = None,
        uid: str = "",
        timeout: float | None = None,
    ) -> None:
        """Delete an object; with ``uid`` only if it is still that one (else ``conflict``)."""
        body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        if uid:
            body["preconditions"] = {"uid": uid}
        await self._ask(Request("DELETE", path, {}, body), timeout)

    @asynccontextmanager
    async def watch(self, path: str, query: Query) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch; the iterator gives one line (one event) at a time."""
        request = Request("WATCH", path, dict(query))
        await self._pass(request, None)
        watch = self._store.watch(path, query)
        try:
            yield self._lines(watch)
        finally:
            self._store.close(watch)

    def drop_connections(self) -> None:
        """Close all connections."""
        self.drops += 1
        self._broken.set()

    async def _ask(self, request: Request, timeout: float | None) -> dict[str, Any]:
        await self._pass(request, timeout)
        return self._store.handle(request)

    async def _pass(self, request: Request, timeout: float | None) -> None:
        """Let the request through to the server, or fail as a connection does."""
        await anyio.lowlevel.checkpoint()
        if self._silent:
            with anyio.move_on_after(timeout or _TIMEOUT):
                await self._answering.wait()
            if self._silent:
                raise UnreachableError("no answer in time")
        if not self._reachable:
            raise UnreachableError("connection refused")
        self._store.admit(request)

    def _lines(self, watch: ApiWatch) -> AsyncIterator[bytes]:
        if self._broken.is_set():
            self._broken = anyio.Event()
        return self._read(watch, self._broken, self._lost)

    async def _read(self, watch: ApiWatch, broken: anyio.Event, lost: int) -> AsyncIterator[bytes]:
        while True:
            line = watch.next_nowait() or await _unless(broken, watch.next)
            if self._lost != lost:
                await broken.wait()
            if broken.is_set():
                raise UnreachableError("the connection was closed")
            if line is None:
                return
            yield line
            await anyio.lowlevel.checkpoint()


async def _unless(
    broken: anyio.Event, next_line: Callable[[], Awaitable[bytes | None]]
) -> bytes | None:
    """The next line, or None as soon as the connection is broken."""
    found: bytes | None = None
    async with anyio.create_task_group() as tasks:

        async def watch_over() -> None:
            await broken.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch_over)
        found = await next_line()
        tasks.cancel_scope.cancel()
    return found


def _decoded(answer: dict[str, Any], wanted: type[T]) -> T:
    try:
        return convert(answer, wanted)
    except msgspec.ValidationError as error:
        raise UndecodableError(str(error)) from error


def store_clients(store: ApiStore) -> KubeClients:
    """Three clients of one store."""
    return KubeClients(
        main=StoreClient(store), events=StoreClient(store), heartbeat=StoreClient(store)
    )
