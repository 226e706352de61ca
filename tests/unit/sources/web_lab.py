"""A web server that answers what the test says, on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import anyio
from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Web:
    """A server at ``url``: answers ``body`` with ``status``, or what ``handler`` does."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/pods"
        self.body: str | bytes = ""
        self.status = 200
        self.headers: dict[str, str] = {}
        self.handler: Handler | None = None
        self.requests: list[web.Request] = []
        self.over = anyio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        if self.handler is not None:
            return await self.handler(request)
        data = self.body.encode() if isinstance(self.body, str) else self.body
        return web.Response(body=data, status=self.status, headers=self.headers)

    async def stalled(self, request: web.Request) -> web.StreamResponse:
        """Begins a body and does not end it."""
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"apiVersion: v1\n")
        await self.over.wait()
        return response

    async def silent(self, _request: web.Request) -> web.StreamResponse:
        """Does not answer."""
        await self.over.wait()
        return web.Response()

    def redirect(self, to: str, status: int = 302) -> None:
        self.status, self.headers = status, {"Location": to}


async def broken_off(request: web.Request) -> web.StreamResponse:
    """Says more bytes than it sends."""
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b"apiVersion: v1\n")
    assert request.transport is not None
    request.transport.close()
    return response


async def endless(request: web.Request) -> web.StreamResponse:
    """Sends until nobody listens."""
    response = web.StreamResponse()
    await response.prepare(request)
    with suppress(ConnectionError):
        while True:
            await response.write(b"# " + b"x" * 65534)
    return response


@asynccontextmanager
async def serving() -> AsyncIterator[Web]:
    """A server on a port of its own."""
    app = web.Application()
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    found: list[Web] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        return await found[0].answer(request)

    app.router.add_route("*", "/{path:.*}", answer)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.append(Web(runner.addresses[0][1]))
    try:
        yield found[0]
    finally:
        found[0].over.set()
        with anyio.CancelScope(shield=True):
            await runner.cleanup()
