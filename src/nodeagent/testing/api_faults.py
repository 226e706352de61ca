"""Bad answers for a ``FakeApiServer``: give them to its ``inject``."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
from aiohttp import web

from nodeagent.kube import ApiError
from nodeagent.testing.api_server import FakeApiServer, Fault, error_answer, json_answer

PAGE = "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"


def refuses(status: int, reason: str = "", retry_after: float | None = None) -> Fault:
    """An error, told in a Status object."""

    async def answer(_server: FakeApiServer, _request: web.Request) -> web.StreamResponse:
        return error_answer(ApiError(status, reason, f"injected {status}", retry_after))

    return answer


def html(status: int = 200) -> Fault:
    """A web page, such as a proxy shows."""

    async def answer(_server: FakeApiServer, _request: web.Request) -> web.StreamResponse:
        return web.Response(text=PAGE, status=status, content_type="text/html")

    return answer


def says(body: bytes, status: int = 200) -> Fault:
    """Any bytes."""

    async def answer(_server: FakeApiServer, _request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status, content_type="application/json")

    return answer


async def hangs(server: FakeApiServer, _request: web.Request) -> web.StreamResponse:
    """Takes the request and never answers."""
    await server.silence()
    return web.Response()


def slow(seconds: float) -> Fault:
    """Answers late, and well."""

    async def answer(server: FakeApiServer, request: web.Request) -> web.StreamResponse:
        await anyio.sleep(seconds)
        return await server.answer(request)

    return answer


async def cut_off(_server: FakeApiServer, request: web.Request) -> web.StreamResponse:
    """Breaks the connection in the middle of the answer."""
    response = web.StreamResponse(headers={"Content-Length": "100000"})
    await response.prepare(request)
    await response.write(b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},')
    assert request.transport is not None
    request.transport.abort()
    return response


async def endless_body(server: FakeApiServer, request: web.Request) -> web.StreamResponse:
    """Begins a list and goes on with it for ever, a little at a time."""
    response = await server.begin(request)
    await response.write(b'{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[')
    while True:
        await response.write(b" " * 1000)
        await anyio.sleep(0.5)


async def endless_pages(server: FakeApiServer, request: web.Request) -> web.StreamResponse:
    """A list that always has one more page."""
    number = int((request.query.get("continue") or "page-0").removeprefix("page-")) + 1
    meta = {"resourceVersion": str(server.store.version), "continue": f"page-{number}"}
    return json_answer({"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": []})


def lines(*told: bytes, end: str = "close") -> Fault:
    """A watch that tells these lines.

    Args:
        told: the lines, with their ends.
        end: ``close`` ends it well, ``abort`` breaks the connection, ``hang`` goes silent.
    """

    async def answer(server: FakeApiServer, request: web.Request) -> web.StreamResponse:
        response = await server.begin(request)
        for line in told:
            await response.write(line)
        if end == "hang":
            await server.silence()
        elif end == "abort":
            assert request.transport is not None
            # What was written is to arrive first.
            await anyio.sleep(0.05)
            request.transport.abort()
        return response

    return answer


def event(kind: str, item: Any) -> bytes:
    """A line of a watch."""
    return msgspec.json.encode({"type": kind, "object": item}) + b"\n"
