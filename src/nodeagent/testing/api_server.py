"""An HTTP(S) front of an ``ApiStore`` on loopback, which also serves what a real one never should.

Not imported by ``nodeagent.testing`` itself, because it loads aiohttp.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import anyio
import msgspec
from aiohttp import web

from nodeagent.kube import ApiError, PatchKind
from nodeagent.testing.api_store import ApiStore, Request
from nodeagent.testing.api_watch import ApiWatch, status_object

Fault: TypeAlias = Callable[["FakeApiServer", web.Request], Awaitable[web.StreamResponse]]
"""Answers a request instead of the server (``nodeagent.testing.api_faults``)."""

_JSON: Final = "application/json"
_BODY_LIMIT: Final = 64 * 1024 * 1024
_ALWAYS_OK: Final = ("/healthz", "/livez", "/readyz")
_VERSION: Final = {"major": "1", "minor": "36", "gitVersion": "v1.36.0-fake"}


@dataclass(slots=True)
class _Injected:
    fault: Fault
    method: str
    path: re.Pattern[str]
    times: int


class FakeApiServer:
    """Serves a store.

    Args:
        store: what is served.
        host: address to listen on.
        tls: secures connections; None for plain HTTP.

    Attributes:
        store: see Args.
        url: where it listens, once it does. The port stays the same over ``stop`` and ``start``.
        authenticate: called with each request; raises ApiError to refuse it.
        watch_seconds: after which every watch ends, whatever was asked for; None for no limit.
        connections: how many connections have been made.
    """

    def __init__(
        self,
        store: ApiStore | None = None,
        *,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.store = store or ApiStore()
        self.url = ""
        self.authenticate: Callable[[web.Request], None] | None = None
        self.watch_seconds: float | None = None
        self.connections = 0
        self._host = host
        self._tls = tls
        self._port = 0
        self._runner: web.AppRunner | None = None
        self._faults: list[_Injected] = []
        self._transports: set[Any] = set()
        self._dead: set[Any] = set()
        self._thawed = anyio.Event()
        self._thawed.set()
        self._over = anyio.Event()

    # Life.

    async def start(self) -> None:
        """Listen."""
        app = web.Application(client_max_size=_BODY_LIMIT)
        app.router.add_route("*", "/{path:.*}", self.answer)
        self._over = anyio.Event()
        self._runner = web.AppRunner(
            app, shutdown_timeout=0.1, access_log=None, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self.url = f"{'https' if self._tls else 'http'}://{self._host}:{self._port}"

    async def stop(self) -> None:
        """Close all connections and listen no more: new ones are refused."""
        self._over.set()
        self.cut()
        if self._runner is not None:
            with anyio.CancelScope(shield=True):
                await self._runner.cleanup()
        self._runner = None
        self._transports.clear()
        self._dead.clear()

    # Faults.

    def inject(self, fault: Fault, *, method: str = "*", path: str = "", times: int = 1) -> None:
        """Answer the next requests with a fault.

        Args:
            fault: what answers.
            method: GET, WATCH and so on; ``*`` for all.
            path: a regular expression.
            times: how many requests.
        """
        self._faults.append(_Injected(fault, method, re.compile(path), times))

    def end_faults(self) -> None:
        """Answer as usual again."""
        self._faults.clear()

    def cut(self) -> None:
        """Break all connections, whatever is in flight on them."""
        for transport in self._transports:
            transport.abort()

    def freeze(self) -> None:
        """Be a black hole: connections are taken, and nothing is answered until ``thaw``."""
        self._thawed = anyio.Event()

    def thaw(self) -> None:
        """Answer again; what came meanwhile, too."""
        self._thawed.set()

    def go_half_open(self) -> None:
        """Never say anything again on the connections there are; new ones work."""
        self._dead |= self._transports

    async def silence(self) -> None:
        """Wait until the server stops."""
        await self._over.wait()

    # Requests.

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        data = await request.read()
        self._note(request)
        if request.transport in self._dead:
            await self.silence()
        await self._thawed.wait()
        try:
            asked = _asked(request, data)
            for injected in self._faults:
                if injected.times and _meets(injected, asked):
                    injected.times -= 1
                    self.store.requests.append(asked)
                    return await injected.fault(self, request)
            if self.authenticate is not None:
                self.authenticate(request)
            return await self._served(asked, request)
        except ApiError as error:
            return error_answer(error)

    def _note(self, request: web.Request) -> None:
        if request.transport not in self._transports:
            self.connections += 1
            self._transports.add(request.transport)
            gone = {t for t in self._transports if t is None or t.is_closing()}
            self._transports -= gone
            self._dead -= gone

    async def _served(self, asked: Request, request: web.Request) -> web.StreamResponse:
        if asked.path in _ALWAYS_OK:
            return web.Response(text="ok")
        if asked.path == "/version":
            return json_answer(_VERSION)
        self.store.admit(asked)
        if asked.method == "WATCH":
            return await self._watch(asked, request)
        answer = self.store.handle(asked)
        return json_answer(answer, 201 if asked.method == "POST" else 200)

    async def _watch(self, asked: Request, request: web.Request) -> web.StreamResponse:
        watch = self.store.watch(asked.path, asked.query)
        try:
            response = await self.begin(request)
            with anyio.move_on_after(self.watch_seconds):
                await self._tell(watch, response, request.transport)
            return response
        finally:
            self.store.close(watch)

    async def begin(self, request: web.Request) -> web.StreamResponse:
        """The beginning of an answer whose end is open."""
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        response.enable_chunked_encoding()
        await response.prepare(request)
        return response

    async def _tell(self, watch: ApiWatch, response: web.StreamResponse, transport: Any) -> None:
        while (line := await watch.next()) is not None:
            await self._thawed.wait()
            if transport in self._dead:
                await self.silence()
            await response.write(line + b"\n")
        await self._thawed.wait()
        if transport in self._dead:
            await self.silence()


def _asked(request: web.Request, data: bytes) -> Request:
    query = dict(request.query)
    watches = request.method == "GET" and query.get("watch") in ("1", "true")
    patch = None
    if request.method == "PATCH":
        try:
            patch = PatchKind(request.content_type)
        except ValueError:
            message = "the body of the request was in an unknown format"
            raise ApiError(415, "UnsupportedMediaType", message) from None
    try:
        body = msgspec.json.decode(data) if data else None
    except msgspec.DecodeError as error:
        message = f"the body of the request is no JSON: {error}"
        raise ApiError(400, "BadRequest", message) from None
    return Request("WATCH" if watches else request.method, request.path, query, body, patch)


def _meets(injected: _Injected, asked: Request) -> bool:
    return injected.method in ("*", asked.method) and bool(injected.path.search(asked.path))


def json_answer(body: object, status: int = 200) -> web.Response:
    """An answer in JSON."""
    return web.Response(body=msgspec.json.encode(body), status=status, content_type=_JSON)


def error_answer(error: ApiError) -> web.Response:
    """The answer that tells an error, as the real server does."""
    answer = json_answer(status_object(error), error.status)
    if error.retry_after is not None:
        answer.headers["Retry-After"] = str(int(error.retry_after))
    return answer


@asynccontextmanager
async def serving_api(
    store: ApiStore | None = None, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[FakeApiServer]:
    """A server on a port of its own, for as long as the body runs."""
    server = FakeApiServer(store, tls=tls)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
