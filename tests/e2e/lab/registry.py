"""A tiny OCI registry on loopback: enough for pulls, with a count of what was asked for."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web
from anyio.from_thread import BlockingPortal
from tests.e2e.lab.images import MANIFEST_TYPE, Image


class Registry:
    """Serves manifests and blobs by digest; containerd speaks plain http to loopback hosts."""

    def __init__(self) -> None:
        self.port = 0
        #: Requests for manifests, by ``repository:reference``.
        self.asked: Counter[str] = Counter()
        self._tags: dict[str, Image] = {}
        self._blobs: dict[str, bytes] = {}

    def push(self, repository_and_tag: str, image: Image) -> str:
        """Offer an image as ``repository:tag``; returns the reference to pull it by."""
        self._tags[repository_and_tag] = image
        self._blobs.update(image.blobs)
        return self.reference(repository_and_tag)

    def remove(self, repository_and_tag: str) -> None:
        """Stop offering a tag: pulls of it are answered with 404."""
        del self._tags[repository_and_tag]

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
        reference = request.match_info["reference"]
        name = f"{request.match_info['repository']}:{reference}"
        self.asked[name] += 1
        if reference.startswith("sha256:"):
            return self._answer(reference, MANIFEST_TYPE)
        image = self._tags.get(name)
        if image is None:
            return _unknown("MANIFEST_UNKNOWN")
        return self._answer(image.manifest_digest, MANIFEST_TYPE)

    async def _blob(self, request: web.Request) -> web.Response:
        return self._answer(request.match_info["digest"], "application/octet-stream")

    def _answer(self, digest: str, content_type: str) -> web.Response:
        blob = self._blobs.get(digest)
        if blob is None:
            return _unknown("BLOB_UNKNOWN")
        return web.Response(
            body=blob, content_type=content_type, headers={"Docker-Content-Digest": digest}
        )


def _unknown(code: str) -> web.Response:
    return web.json_response({"errors": [{"code": code, "message": "unknown"}]}, status=404)


@contextmanager
def open_registry(portal: BlockingPortal) -> Iterator[Registry]:
    """Run a registry on the portal's event loop."""
    registry = Registry()
    runner = portal.call(registry.start)
    try:
        yield registry
    finally:
        portal.call(runner.cleanup)
