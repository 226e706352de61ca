"""What malformed requests and failing handlers leave in the log."""

from __future__ import annotations

import logging

import anyio
import pytest
from aiohttp import ClientSession

from nodeagent.server import App, HttpListener, Request, Response

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]


async def fail(_request: Request) -> Response:
    raise ZeroDivisionError("handler")


async def test_a_malformed_request_is_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "nodeagent")
    async with (
        HttpListener("healthz", App(), "127.0.0.1", 0) as listener,
        await anyio.connect_tcp("127.0.0.1", listener.port) as stream,
    ):
        await stream.send(b"GET /" + b"x" * 20_000)
        assert (await stream.receive()).startswith(b"HTTP/1.")
    bad = [r for r in caplog.records if r.getMessage() == "bad_request"]
    assert len(bad) == 1
    assert bad[0].levelno == logging.DEBUG
    assert all(r.exc_info is None for r in caplog.records)


async def test_a_handler_that_fails_is_reported_in_full(caplog: pytest.LogCaptureFixture) -> None:
    app = App()
    app.get("/", fail)
    async with (
        HttpListener("healthz", app, "127.0.0.1", 0) as listener,
        ClientSession() as session,
        session.get(f"http://127.0.0.1:{listener.port}/") as answer,
    ):
        assert answer.status == 500
    (failed,) = [r for r in caplog.records if r.getMessage() == "request_failed"]
    assert failed.exc_info is not None
