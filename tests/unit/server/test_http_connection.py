"""HTTP spoken byte by byte, by clients that do not all behave."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketStream
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.server import App, HttpListener, Request, Response

pytestmark = pytest.mark.anyio


async def hello(request: Request) -> Response:
    return Response(body=f"hello {request.value('name')}".encode(), headers={"X-Way": "here"})


async def item(_request: Request, name: str) -> Response:
    return Response(body=name.encode())


async def large(_request: Request) -> Response:
    return Response(body=b"x" * 3_000_000)


def application() -> App:
    app = App()
    app.get("/hello", hello)
    app.get("/large", large)
    app.get_item("/items", item)
    return app


@asynccontextmanager
async def client() -> AsyncIterator[SocketStream]:
    async with (
        HttpListener("healthz", application(), "127.0.0.1", 0) as listener,
        await anyio.connect_tcp("127.0.0.1", listener.port) as stream,
    ):
        yield stream


async def read_all(stream: SocketStream) -> bytes:
    got = b""
    with anyio.fail_after(60):
        while True:
            try:
                got += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return got


async def ask(stream: SocketStream, *lines: str, body: bytes = b"") -> bytes:
    """Send a request as the last one of the connection; all that is answered."""
    head = "\r\n".join((*lines, "Host: a", "", "")).encode("latin-1")
    await stream.send(head + body)
    return await read_all(stream)


async def test_an_answer_has_its_length_type_and_headers() -> None:
    async with client() as stream:
        answer = await ask(stream, "GET /hello?name=me&x HTTP/1.1", "Connection: close")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        names = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
        assert names[b"Content-Length"] == b"8"
        assert names[b"Content-Type"] == b"text/plain; charset=utf-8"
        assert names[b"X-Way"] == b"here"
        assert body == b"hello me"


async def test_head_has_the_headers_alone() -> None:
    async with client() as stream:
        answer = await ask(stream, "HEAD /hello HTTP/1.1", "Connection: close")
        assert b"Content-Length: 6\r\n" in answer
        assert answer.endswith(b"\r\n\r\n")


async def test_an_old_client_is_answered_and_the_connection_closed() -> None:
    async with client() as stream:
        assert (await ask(stream, "GET /hello HTTP/1.0")).endswith(b"hello ")


async def test_several_requests_go_over_one_connection_in_order() -> None:
    async with client() as stream:
        for name in "abc":
            await stream.send(f"GET /items/{name} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        await stream.send(b"GET /items/d HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        answers = await read_all(stream)
        bodies = [part[:1] for part in answers.split(b"\r\n\r\n")[1:]]
        assert bodies == [b"a", b"b", b"c", b"d"]


async def test_a_request_may_come_in_pieces() -> None:
    async with client() as stream:
        for piece in (
            b"GET /hel",
            b"lo HTTP/1.1\r\nHo",
            b"st: a\r\nConnection: close\r\n",
            b"\r\n",
        ):
            await stream.send(piece)
            await anyio.sleep(0.5)
        assert (await read_all(stream)).endswith(b"hello ")


async def test_a_small_body_is_passed_over_and_a_large_one_refused() -> None:
    async with client() as stream:
        lines = ("GET /hello HTTP/1.1", "Content-Length: 3", "Expect: 100-continue")
        answer = await ask(stream, *lines, "Connection: close", body=b"abc")
        assert answer.startswith(b"HTTP/1.1 200 ")
    async with client() as stream:
        answer = await ask(
            stream, "GET /hello HTTP/1.1", "Content-Length: 100000", body=b"x" * 90_000
        )
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"connection: close" in answer.lower()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",  # without Host
        b"GET /hello HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # TLS
        b"GET /?" + b"&".join([b"a=1"] * 200) + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_refused_without_a_traceback(
    request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "nodeagent")
    async with client() as stream:
        await stream.send(request_bytes)
        assert (await read_all(stream)).startswith(b"HTTP/1.1 400 ")
    assert [r.levelno for r in caplog.records if r.getMessage() == "bad_request"] == [logging.DEBUG]
    assert all(r.exc_info is None for r in caplog.records)


async def test_headers_without_end_are_refused() -> None:
    async with client() as stream:
        await stream.send(b"GET /hello HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000)
        assert (await read_all(stream)).startswith(b"HTTP/1.1 431 ")


async def test_a_client_that_says_nothing_or_only_half_is_left_after_a_while() -> None:
    for said in (b"", b"GET /hello HT", b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"):
        async with client() as stream:
            if said:
                await stream.send(said)
            began = anyio.current_time()
            answer = await read_all(stream)
            assert answer.count(b"HTTP/1.1 200") == said.endswith(b"\r\n\r\n")
            assert 14 < anyio.current_time() - began < 30


async def test_a_client_that_takes_no_answer_is_left_after_a_while() -> None:
    async with (
        HttpListener("healthz", application(), "127.0.0.1", 0) as listener,
        await anyio.connect_tcp("127.0.0.1", listener.port) as stream,
    ):
        for _ in range(20):
            await stream.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        await anyio.sleep(100)
        assert not listener._connections


async def test_more_clients_than_one_port_serves_are_turned_away(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeagent.server.http._MOST_CONNECTIONS", 1)
    async with (
        HttpListener("healthz", application(), "127.0.0.1", 0) as listener,
        await anyio.connect_tcp("127.0.0.1", listener.port) as first,
    ):
        await first.send(b"GET /items/1 HTTP/1.1\r\nHost: a\r\n\r\n")
        await first.receive()
        async with await anyio.connect_tcp("127.0.0.1", listener.port) as second:
            assert await read_all(second) == b""
        assert "too_many_connections" in caplog.messages
        assert (await ask(first, "GET /items/2 HTTP/1.1", "Connection: close")).endswith(b"2")


async def test_an_answer_under_way_is_given_when_the_listener_closes() -> None:
    app, asked, go_on = App(), anyio.Event(), anyio.Event()

    async def slow(_request: Request) -> Response:
        asked.set()
        await go_on.wait()
        return Response(body=b"done")

    app.get("/slow", slow)
    answers: list[bytes] = []

    async def read(stream: SocketStream) -> None:
        await stream.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        answers.append(await read_all(stream))

    async with (
        anyio.create_task_group() as tasks,
        HttpListener("healthz", app, "127.0.0.1", 0) as listener,
    ):
        stream = await anyio.connect_tcp("127.0.0.1", listener.port)
        tasks.start_soon(read, stream)
        await asked.wait()
        go_on.set()
    await stream.aclose()
    assert answers[0].endswith(b"\r\n\r\ndone")


def test_paths_are_decoded_and_queries_keep_all_values() -> None:
    request = Request.of("GET", "/items/a%2Fb%20c?x=1&x=2&empty&y=%26#part")
    assert request.path == "/items/a/b c"
    assert request.values("x") == ["1", "2"]
    assert (request.value("x"), request.value("y"), request.value("none")) == ("1", "&", "")
    assert request.has("empty")
    assert not request.has("part")
    assert Request.of("GET", "http://host:80/healthz?verbose").path == "/healthz"


@given(st.text(alphabet=st.characters(codec="latin-1"), max_size=60))
def test_any_target_makes_a_request_or_a_value_error(target: str) -> None:
    try:
        request = Request.of("GET", target)
    except ValueError:
        return
    assert request.path.startswith("/")


async def test_methods_that_change_something_are_refused_with_those_allowed() -> None:
    app = application()
    answer = await app.answer(Request("POST", "/hello"))
    assert (answer.status, answer.headers["Allow"]) == (405, "GET,HEAD")
    assert (await app.answer(Request("POST", "/nowhere"))).status == 404
    for path in ("/items", "/items/", "/items/a/b", "/hello/"):
        assert (await app.answer(Request("GET", path))).status == 404, path
