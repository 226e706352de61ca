"""The :class:`KubeClient` that speaks HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final, TypeVar

import anyio

from nodeagent.aio import jitter
from nodeagent.api.codec import encode
from nodeagent.duration import format_duration
from nodeagent.kube.answers import error_of, object_of
from nodeagent.kube.client import PatchKind, Query
from nodeagent.kube.credentials.keeper import AccessKeeper
from nodeagent.kube.errors import ApiError, UnreachableError
from nodeagent.kube.lines import LineSplitter, LineTooLongError
from nodeagent.kube.requests import Wanted
from nodeagent.kube.requests import wanted as wanted_by
from nodeagent.kube.throttle import Throttle
from nodeagent.kube.transport import Exchange, MovedError, Request, Transport

T = TypeVar("T")

_JSON: Final = "application/json"
_ERROR_BYTES: Final = 64 * 1024
_MOST_TRIES: Final = 10
_SHORTEST_WAIT: Final = 0.5


class HttpClient:
    """Requests to the API server that a keeper's access leads to.

    An answer that asks to come again later (429, or 503 with Retry-After) is asked for again as
    long as the timeout allows; one that does not know us, once with credentials read anew.

    Args:
        keeper: knows how the server is reached.
        transport: the connections.
        throttle: of this client; None for no limit.
        timeout: seconds of loop time for a request that names none, its waiting included.
    """

    def __init__(
        self,
        keeper: AccessKeeper,
        transport: Transport,
        *,
        throttle: Throttle | None = None,
        timeout: float = 60.0,
    ) -> None:
        self._keeper = keeper
        self._transport = transport
        self._throttle = throttle
        self._timeout = timeout

    def change_timeout(self, seconds: float) -> None:
        """Give requests that name no timeout so many seconds from now on."""
        self._timeout = seconds

    async def get(
        self,
        path: str,
        wanted: type[T],
        *,
        query: Query | None = None,
        timeout: float | None = None,
    ) -> T:
        """Read an object or a list."""
        request = Request(method="GET", path=path, query=query)
        return object_of(wanted, await self._body(request, timeout), partial(_asked, request))

    async def get_bytes(
        self, path: str, *, query: Query | None = None, timeout: float | None = None
    ) -> bytes:
        """Read an object or a list as the JSON that came."""
        return await self._body(Request(method="GET", path=path, query=query), timeout)

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
        request = Request(
            method="POST", path=path, query=query, body=encode(body), content_type=_JSON
        )
        return object_of(wanted, await self._body(request, timeout), partial(_asked, request))

    async def put(
        self, path: str, body: object, wanted: type[T], *, timeout: float | None = None
    ) -> T:
        """Replace an object."""
        request = Request(method="PUT", path=path, body=encode(body), content_type=_JSON)
        return object_of(wanted, await self._body(request, timeout), partial(_asked, request))

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
        request = Request(method="PATCH", path=path, body=encode(patch), content_type=kind.value)
        return object_of(wanted, await self._body(request, timeout), partial(_asked, request))

    async def delete(
        self,
        path: str,
        *,
        grace_seconds: int | None = None,
        uid: str = "",
        timeout: float | None = None,
    ) -> None:
        """Delete an object; with ``uid`` only if it is still that one (else ``conflict``)."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if uid:
            options["preconditions"] = {"uid": uid}
        request = Request(method="DELETE", path=path, body=encode(options), content_type=_JSON)
        await self._body(request, timeout)

    @asynccontextmanager
    async def watch(self, path: str, query: Query) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch; the iterator gives one line (one event) at a time, without its end.

        Opening it has the client's timeout, reading none. It ends, too, when other credentials
        are in force.
        """
        request = Request(method="GET", path=path, query={"watch": "1", **query}, watch=True)
        with self._deadline(request, None):
            exchange = await self._open(request)
        try:
            yield _Lines(exchange, path)
        finally:
            exchange.close()

    def drop_connections(self) -> None:
        """Close all connections: one of them seems dead. New requests make new ones."""
        self._transport.drop()

    async def _body(self, request: Request, timeout: float | None) -> bytes:
        with self._deadline(request, timeout):
            exchange = await self._open(request)
            try:
                return await exchange.body()
            finally:
                exchange.close()
        raise AssertionError

    @contextmanager
    def _deadline(self, request: Request, timeout: float | None) -> Iterator[None]:
        seconds = self._timeout if timeout is None else timeout
        with anyio.move_on_after(seconds) as scope:
            yield
        if scope.cancelled_caught:
            self._transport.suspect()
            limit = format_duration(seconds)
            msg = f"{request.method} {request.path}: no complete answer within {limit}"
            raise UnreachableError(msg)

    async def _open(self, request: Request) -> Exchange:
        """Send a request, again where that helps; the answer is a good one."""
        renewed = False
        for tries in range(1, _MOST_TRIES + 1):
            if self._throttle is not None:
                await self._throttle.acquire()
            access = self._keeper.access
            if access is None:
                msg = f"{request.method} {request.path}: {self._keeper.why_none}"
                raise UnreachableError(msg)
            exchange = await self._transport.send(access, request)
            if 200 <= exchange.status < 300:
                return exchange
            error = await self._error(exchange, request)
            if error.unauthorized and not renewed:
                renewed = True
                if await self._keeper.renew(access):
                    continue
            if tries == _MOST_TRIES or not await _wait_for_turn(error):
                raise error
        raise AssertionError

    async def _error(self, exchange: Exchange, request: Request) -> ApiError:
        try:
            body = await exchange.beginning(_ERROR_BYTES)
        finally:
            exchange.close()
        whose = self._keeper.source
        return error_of(exchange.status, exchange.headers, body, _asked(request), whose)


class _Lines:
    """The lines of an answer."""

    def __init__(self, exchange: Exchange, path: str) -> None:
        self._exchange = exchange
        self._path = path
        self._splitter = LineSplitter()
        self._ready: list[bytes] = []
        self._over = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._ready:
            if self._over:
                raise StopAsyncIteration
            await self._read()
        return self._ready.pop()

    async def _read(self) -> None:
        try:
            chunk = await self._exchange.chunk()
        except MovedError:
            # As if the server had ended it; half a line is no line.
            self._over = True
            return
        if not chunk:
            self._over = True
            self._ready = [rest] if (rest := self._splitter.rest()).strip() else []
            return
        try:
            lines = self._splitter.feed(chunk)
        except LineTooLongError as error:
            self._over = True
            msg = f"GET {self._path}: {error}; the watch is given up"
            raise UnreachableError(msg) from error
        # The next one is at the end.
        self._ready = lines[::-1]


async def _wait_for_turn(error: ApiError) -> bool:
    """Wait as long as the server wants; False when it does not say, or there is not the time."""
    if error.retry_after is None or not (error.too_many_requests or error.status == 503):
        return False
    delay = jitter(max(error.retry_after, _SHORTEST_WAIT), 0.2)
    if anyio.current_time() + delay >= anyio.current_effective_deadline():
        return False
    await anyio.sleep(delay)
    return True


def _asked(request: Request) -> Wanted:
    return wanted_by(request.method, request.path, request.query)
