"""A tiny OCI registry on loopback: enough for pulls, with faults and a count of what was asked."""

import asyncio
import base64
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from aiohttp import web
from anyio.from_thread import BlockingPortal
from tests.e2e.lab.images import MANIFEST_TYPE, Image

T = TypeVar("T")


class Registry:
    """Serves manifests and blobs by digest; containerd speaks plain http to loopback hosts."""

    def __init__(self) -> None:
        self.port = 0
        #: Requests for manifests, by ``repository:reference``.
        self.asked: Counter[str] = Counter()
        self._tags: dict[str, Image] = {}
        self._blobs: dict[str, bytes] = {}
        self._logins: dict[str, str] = {}
        self._limited: set[str] = set()
        self._corrupt: set[str] = set()
        self._held: dict[str, asyncio.Event] = {}
        self._portal: BlockingPortal | None = None

    def push(self, repository_and_tag: str, image: Image) -> str:
        """Offer an image as ``repository:tag``; returns the reference to pull it by."""
        self._tags[repository_and_tag] = image
        self._blobs.update(image.blobs)
        return self.reference(repository_and_tag)

    def remove(self, repository_and_tag: str) -> None:
        """Stop offering a tag: pulls of it are answered with 404."""
        del self._tags[repository_and_tag]

    def demand(self, repository: str, user: str, password: str) -> None:
        """Serve a repository only to this login."""
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._logins[repository] = f"Basic {pair}"

    def limit(self, repository: str) -> None:
        """Answer that too much was asked for, until `heal`."""
        self._limited.add(repository)

    def corrupt(self, repository: str) -> None:
        """Serve blobs with other bytes than their digest says, until `heal`."""
        self._corrupt.add(repository)

    def hold(self, repository: str) -> None:
        """Let requests for blobs wait, until `heal`."""
        self._held[repository] = self._run(_make_event)

    def heal(self, repository: str) -> None:
        """Serve the repository as it should be; what is held goes on."""
        self._limited.discard(repository)
        self._corrupt.discard(repository)
        if (held := self._held.pop(repository, None)) is not None:
            self._run(held.set)

    def _run(self, call: Callable[[], T]) -> T:
        async def on_the_loop() -> T:
            return call()

        assert self._portal is not None
        return self._portal.call(on_the_loop)

    def reference(self, repository_and_tag: str) -> str:
        """The image name by which a tag of this registry (there or not) is pulled."""
        return f"127.0.0.1:{self.port}/{repository_and_tag}"

    async def start(self) -> web.AppRunner:
        """Listen on a free loopback port."""
        app = web.Application()
        app.router.add_get("/v2/", self._ping)
        app.router.add_get("/v2/{repository:.+}/manifests/{reference}", self._manifest)
        app.router.add_get("/v2/{repository:.+}/blobs/{digest}", self._blob)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        return runner

    async def _ping(self, _request: web.Request) -> web.Response:
        return web.json_response({})

    async def _manifest(self, request: web.Request) -> web.Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        reference = request.match_info["reference"]
        name = f"{request.match_info['repository']}:{reference}"
        self.asked[name] += 1
        if reference.startswith("sha256:"):
            return self._answer(reference, MANIFEST_TYPE)
        image = self._tags.get(name)
        if image is None:
            return _error(404, "MANIFEST_UNKNOWN")
        return self._answer(image.manifest_digest, MANIFEST_TYPE)

    async def _blob(self, request: web.Request) -> web.Response:
        repository = request.match_info["repository"]
        if (held := self._held.get(repository)) is not None:
            await held.wait()
        if (refusal := self._refusal(request)) is not None:
            return refusal
        answer = self._answer(request.match_info["digest"], "application/octet-stream")
        if repository in self._corrupt and isinstance(answer.body, bytes):
            answer.body = bytes(len(answer.body))
        return answer

    def _refusal(self, request: web.Request) -> web.Response | None:
        repository = request.match_info["repository"]
        if repository in self._limited:
            return _error(429, "TOOMANYREQUESTS")
        wanted = self._logins.get(repository)
        if wanted is not None and request.headers.get("Authorization") != wanted:
            return _error(401, "UNAUTHORIZED", {"WWW-Authenticate": 'Basic realm="lab"'})
        return None

    def _answer(self, digest: str, content_type: str) -> web.Response:
        blob = self._blobs.get(digest)
        if blob is None:
            return _error(404, "BLOB_UNKNOWN")
        return web.Response(
            body=blob, content_type=content_type, headers={"Docker-Content-Digest": digest}
        )


def _make_event() -> asyncio.Event:
    return asyncio.Event()


def _error(status: int, code: str, headers: dict[str, str] | None = None) -> web.Response:
    errors = {"errors": [{"code": code, "message": code.lower()}]}
    return web.json_response(errors, status=status, headers=headers)


@contextmanager
def open_registry(portal: BlockingPortal) -> Iterator[Registry]:
    """Run a registry on the portal's event loop."""
    registry = Registry()
    registry._portal = portal
    runner = portal.call(registry.start)
    try:
        yield registry
    finally:
        portal.call(runner.cleanup)
