"""A cluster with TLS: an API server over a store, and somebody who signs certificates."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
from aiohttp import web
from tests.unit.kube.authority import Authority
from tests.unit.kube.kube_lab import Api, api_server, kubeconfig, server_tls

from nodeagent.kube import ApiError
from nodeagent.testing.api_store import ApiStore, Request
from nodeagent.testing.api_watch import status_object

CSRS = "certificatesigningrequests"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """Wall time that goes with the loop."""

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=anyio.current_time())

    def time_ns(self) -> int:
        return int(self.now().timestamp() * 1e9)


@dataclass
class TlsCluster:
    """The API server, what it stores, and who signs.

    Attributes:
        life: of the certificates that are signed.
        known: common names of clients that are let in; "" is who has no certificate.
    """

    api: Api
    store: ApiStore
    authority: Authority
    directory: Path
    life: timedelta = timedelta(days=365)
    known: set[str] = field(default_factory=lambda: {"", "system:node:n1"})

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The signing requests that there are."""
        return self.store.all(CSRS)

    def bootstrap(self, token: str = "07401b.f395accd246ae52d") -> Path:
        """A kubeconfig that may ask for a certificate."""
        (self.directory / "ca.crt").write_bytes(self.authority.certificate)
        return kubeconfig(
            self.directory / "bootstrap",
            self.api.url,
            user={"token": token},
            cluster={"certificate-authority": "ca.crt"},
        )

    async def sign(self, name: str = "", *, start: datetime | None = None) -> None:
        """Approve a request (the last one) and give it its certificate."""
        name = name or self.requests[-1]["metadata"]["name"]
        request = base64.b64decode(self.store.get(CSRS, name)["spec"]["request"])
        begin = start or Clock().now() - timedelta(seconds=1)
        certificate = self.authority.sign(request, start=begin, life=self.life)
        self.decide(name, "Approved", certificate=base64.b64encode(certificate).decode())

    def decide(self, name: str, decision: str, message: str = "", **status: object) -> None:
        """Decide on a request."""

        def change(item: dict[str, Any]) -> None:
            condition = {"type": decision, "status": "True", "reason": "ByTest"}
            item["status"] = {"conditions": [{**condition, "message": message}], **status}

        self.store.edit(CSRS, name, change, status=True)

    async def keep_signing(self) -> None:
        """Sign whatever is asked for."""
        while True:
            for item in self.requests:
                if not item["status"].get("certificate"):
                    await self.sign(item["metadata"]["name"])
            await anyio.sleep(0.5)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.api.peers[-1] not in self.known:
            return web.Response(status=401)
        method = request.method
        if "watch" in request.query:
            return await self._watch(request)
        asked = Request(method, request.path, dict(request.query), self.api.bodies[-1])
        try:
            self.store.admit(asked)
            return web.json_response(self.store.handle(asked))
        except ApiError as error:
            return web.json_response(status_object(error), status=error.status)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        watch = self.store.watch(request.path, dict(request.query))
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while (line := await watch.next()) is not None:
                await response.write(line + b"\n")
        finally:
            self.store.close(watch)
        return response


@asynccontextmanager
async def tls_cluster(directory: Path) -> AsyncIterator[TlsCluster]:
    """A cluster."""
    authority = Authority()
    certificate, key = authority.server().write(directory, "server")
    tls = server_tls(certificate, key, authority.certificate)
    # Certificates live on the loop's time here, which OpenSSL does not know.
    tls.verify_flags |= ssl.VerifyFlags(0x200000)
    async with api_server(tls) as api:
        cluster = TlsCluster(api, ApiStore(clock=Clock()), authority, directory)
        api.handler = cluster.answer
        yield cluster


def shown(path: Path) -> dict[str, Any]:
    """A kubeconfig's only cluster and user."""
    import yaml

    document = yaml.safe_load(path.read_text())
    return {
        "cluster": document["clusters"][0]["cluster"],
        "user": document["users"][0]["user"],
        "context": document["current-context"],
    }
