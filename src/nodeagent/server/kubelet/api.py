"""The kubelet's API: which handler answers what, and for whom.

docs/behaviour/server.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, TypeAlias

import anyio
from aiohttp import web

from nodeagent.log import Log
from nodeagent.server.app import App, Request, Response
from nodeagent.server.http_metrics import HttpMetrics
from nodeagent.server.kubelet.exchange import LONGEST, Connection, Exchange
from nodeagent.server.kubelet.gate import Gate

log = Log("server")

Answer: TypeAlias = Response | web.StreamResponse
Handler: TypeAlias = Callable[[Exchange, Sequence[str]], Awaitable[Answer]]

_MOST_PARAMETERS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Route:
    """Paths that begin with one name.

    Attributes:
        name: the first step of the path.
        methods: that are answered.
        handler: is given the further steps.
        steps: how many there may be; None for any number.
        debug: whether it belongs to the debugging handlers.
        off: what is said of it when it is switched off by itself; "" when it is not.
        upgrades: whether it becomes a stream without end.
    """

    name: str
    methods: tuple[str, ...]
    handler: Handler
    steps: tuple[int, ...] | None = (0,)
    debug: bool = True
    off: str = ""
    upgrades: bool = False


#: Of which of the debugging handlers something is said when they are switched off.
_SAID_TO_BE_OFF: Final = (
    "run",
    "exec",
    "attach",
    "portForward",
    "containerLogs",
    "runningpods",
    "debug/pprof",
    "logs",
)


class KubeletApi:
    """Answers requests.

    Args:
        gate: who is let in.
        apps: answers without streams; the first that knows a path gives it.
        routes: further paths.
        debugging: whether the debugging handlers are switched on.
        metrics: count the requests; None for nobody.
    """

    def __init__(
        self,
        gate: Gate,
        apps: Sequence[App],
        routes: Sequence[Route],
        *,
        debugging: bool,
        metrics: HttpMetrics | None = None,
    ) -> None:
        self._metrics = metrics
        self._gate = gate
        self._apps = apps
        self._routes = {route.name: route for route in routes}
        self.debugging = debugging
        """Whether the debugging handlers are switched on."""
        self.off = {route.name: route.off for route in routes}
        """What is said of the routes that are switched off by themselves, by their names."""
        self._scopes: set[anyio.CancelScope] = set()

    @property
    def paths(self) -> list[str]:
        """What is answered, without what stands behind the first steps."""
        known = {path for app in self._apps for path in app.paths}
        return sorted(known | {f"/{name}" for name in self._routes})

    def stop(self) -> None:
        """End all answers that are being given."""
        for scope in tuple(self._scopes):
            scope.cancel()

    async def handle(self, raw: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; never raises for anything that a client does."""
        connection = raw.protocol
        assert isinstance(connection, Connection)
        with anyio.CancelScope() as scope:
            connection.scope = scope
            self._scopes.add(scope)
            try:
                with self._counted(raw):
                    return await self._answered(raw)
            finally:
                connection.scope = None
                self._scopes.discard(scope)
        return Exchange(Request("", "/"), raw).cut()

    def _counted(self, raw: web.BaseRequest) -> AbstractContextManager[None]:
        if self._metrics is None:
            return nullcontext()
        return self._metrics.counted(raw.method, raw.path, raw.headers.get("Upgrade", ""))

    async def _answered(self, raw: web.BaseRequest) -> web.StreamResponse:
        try:
            request = _request(raw)
        except ValueError:
            exchange = Exchange(Request(raw.method, "/"), raw)
            return exchange.plain(Response(400, b"400: the query has too many parameters\n"))
        exchange = Exchange(request, raw)
        try:
            answer = await self._answer(exchange)
        except OSError as error:
            log.debug("client_gone", path=request.path, cause=repr(error))
            return exchange.cut()
        except Exception as error:  # noqa: BLE001 - a broken handler breaks its answer only
            log.fault("request_failed", error, method=request.method, path=request.path)
            if exchange.begun:
                return exchange.cut()
            answer = Response(500, b"500: Internal Server Error\n")
        return exchange.plain(answer) if isinstance(answer, Response) else answer

    async def _answer(self, exchange: Exchange) -> Answer:
        request = exchange.request
        refusal = await self._gate.refusal(
            request.method, request.path, request.headers, exchange.certificate, exchange.peer
        )
        if refusal is not None:
            return refusal
        for app in self._apps:
            if app.knows(request.path):
                return await app.answer(request)
        return await self._routed(exchange)

    async def _routed(self, exchange: Exchange) -> Answer:
        request = exchange.request
        first, _, rest = request.path.removeprefix("/").partition("/")
        if first == "debug":
            second, _, rest = rest.partition("/")
            first = f"debug/{second}"
        route = self._routes.get(first)
        if not self.debugging and (route is None or route.debug):
            said = first in _SAID_TO_BE_OFF
            return Response(405, b"Debug endpoints are disabled.\n") if said else _nothing()
        if route is None:
            return _nothing()
        if off := self.off[route.name]:
            return Response(405, f"{off} endpoint is disabled.\n".encode())
        steps = tuple(rest.split("/")) if rest else ()
        if route.steps is not None and len(steps) not in route.steps:
            return _nothing()
        if request.method not in route.methods:
            allow = {"Allow": ", ".join(route.methods)}
            return Response(405, b"405: Method Not Allowed", headers=allow)
        if route.upgrades:
            return await route.handler(exchange, steps)
        with anyio.move_on_after(LONGEST):
            return await route.handler(exchange, steps)
        return exchange.cut()


def _nothing() -> Response:
    return Response(404, b"404: Page Not Found\n")


def _request(raw: web.BaseRequest) -> Request:
    headers: dict[str, str] = {}
    for name, value in raw.headers.items():
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return Request.of(raw.method, raw.raw_path, headers, _MOST_PARAMETERS)
