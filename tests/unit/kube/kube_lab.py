"""An API server that answers what the test says, on loopback, and kubeconfigs that lead to it."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from aiohttp import web

from nodeagent.kube.client import KubeClients
from nodeagent.kube.connect import ClientSettings, open_clients

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Api:
    """A server at ``url``; answers by ``handler``, else ``body`` with ``status``."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.status = 200
        self.body: object = {}
        self.headers: dict[str, str] = {}
        self.handler: Handler | None = None
        self.requests: list[web.Request] = []
        self.bodies: list[Any] = []
        self.peers: list[str] = []
        self.ports: list[int] = []
        """Of clients: one for each connection."""
        self.over = anyio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        self.requests.append(request)
        self.bodies.append(json.loads(data) if data else None)
        self.peers.append(_peer(request))
        assert request.transport is not None
        self.ports.append(request.transport.get_extra_info("peername")[1])
        if self.handler is not None:
            return await self.handler(request)
        return self.plain()

    def plain(self) -> web.Response:
        """What ``status`` and ``body`` say."""
        body = self.body
        if isinstance(body, str):
            body = body.encode()
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return web.Response(status=self.status, body=data, headers=self.headers)

    async def silent(self, _request: web.Request) -> web.StreamResponse:
        """Does not answer."""
        await self.over.wait()
        return web.Response()


def _peer(request: web.Request) -> str:
    """Common name of the client's certificate."""
    assert request.transport is not None
    certificate = request.transport.get_extra_info("peercert")
    if not certificate:
        return ""
    return str(dict(pair[0] for pair in certificate["subject"])["commonName"])


@asynccontextmanager
async def api_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[Api]:
    """A server on a port of its own."""
    app = web.Application(client_max_size=64 * 1024**2)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None, handler_cancellation=True)
    found: list[Api] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        return await found[0].answer(request)

    app.router.add_route("*", "/{path:.*}", answer)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    api = Api(f"{'https' if tls else 'http'}://127.0.0.1:{port}")
    found.append(api)
    try:
        yield api
    finally:
        api.over.set()
        with anyio.CancelScope(shield=True):
            await runner.cleanup()


def server_tls(
    certificate: Path, key: Path, clients: bytes | None = None, *, required: bool = False
) -> ssl.SSLContext:
    """How a server secures connections; it asks for certificates signed by ``clients``."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    # As Go servers do: certificates need no key identifiers.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.load_cert_chain(certificate, key)
    if clients is not None:
        context.load_verify_locations(cadata=clients.decode())
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def kubeconfig(
    path: Path,
    server: str,
    *,
    user: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
) -> Path:
    """Write a kubeconfig."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "contexts": [{"name": "lab", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "me", "user": user or {}}],
    }
    path.write_text(json.dumps(document))
    return path


@asynccontextmanager
async def connected(
    directory: Path, *, settings: ClientSettings | None = None, **user: Any
) -> AsyncIterator[tuple[Api, KubeClients]]:
    """A plain server, and clients of it."""
    async with api_server() as api:
        config = kubeconfig(directory / "kubeconfig", api.url, user=user)
        async with open_clients(config, settings=settings) as clients:
            yield api, clients
