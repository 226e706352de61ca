"""docs/behaviour/sources.md, "URL": one request."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import Any

import aiohttp
import anyio
import pytest
from aiohttp import web
from tests.unit.sources.web_lab import broken_off, endless, serving

from nodeagent.sources import fetch as module
from nodeagent.sources.fetch import Answer, Fetcher, FetchError, Validators
from nodeagent.sources.manifest_scan import SIZE_LIMIT

pytestmark = pytest.mark.anyio

NONE = Validators()


async def refused(fetcher: Fetcher, known: Validators = NONE) -> str:
    with pytest.raises(FetchError) as caught:
        await fetcher.fetch(known)
    return str(caught.value)


async def test_the_body_comes_with_what_makes_the_next_request_conditional() -> None:
    """sources.md, UR3."""
    async with serving() as site:
        site.body = "hello"
        site.headers = {"ETag": '"7"', "Last-Modified": "Wed, 01 Jan 2025 00:00:00 GMT"}
        fetcher = Fetcher(site.url)
        first = await fetcher.fetch(NONE)
        assert first.body == b"hello"
        assert "If-None-Match" not in site.requests[0].headers
        site.status, site.body = 304, ""
        assert await fetcher.fetch(first.validators) == Answer(None, first.validators)
        again = site.requests[1].headers
        assert again["If-None-Match"] == '"7"'
        assert again["If-Modified-Since"] == "Wed, 01 Jan 2025 00:00:00 GMT"
        assert await refused(fetcher) == "304 Not Modified"


async def test_headers_are_sent_as_given_and_repeated_ones_all() -> None:
    """sources.md, UR1."""
    async with serving() as site:
        given = [("X-Token", "one"), ("X-Token", "two"), ("user-agent", "mine"), ("X-Empty", "")]
        await Fetcher(site.url, given).fetch(NONE)
        (request,) = site.requests
        assert request.method == "GET"
        assert request.headers.getall("X-Token") == ["one", "two"]
        assert request.headers.getall("User-Agent") == ["mine"]
        assert request.headers["X-Empty"] == ""


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (404, "404 Not Found"),
        (500, "500 Internal Server Error"),
        (204, "204 No Content"),
        (206, "206 Partial Content"),
        (401, "401 Unauthorized"),
        (300, "300 Multiple Choices"),
    ],
)
async def test_any_status_but_200_is_an_error(status: int, told: str) -> None:
    """sources.md, UR5."""
    async with serving() as site:
        site.status = status
        assert await refused(Fetcher(site.url)) == told


async def test_a_body_that_stalls_is_given_up() -> None:
    """sources.md, UR5."""
    async with serving() as site:
        site.handler = site.stalled
        began = anyio.current_time()
        assert await refused(Fetcher(site.url)) == "no complete answer within 10 s"
        assert anyio.current_time() - began == pytest.approx(10, abs=1)


async def test_a_server_that_says_nothing_is_given_up() -> None:
    """sources.md, UR5."""
    async with serving() as site:
        site.handler = site.silent
        assert await refused(Fetcher(site.url)) == "no complete answer within 10 s"


async def test_a_body_that_breaks_off_is_none() -> None:
    """sources.md, UR5."""
    async with serving() as site:
        site.handler = broken_off
        assert await refused(Fetcher(site.url)) == "the answer broke off"


async def test_nobody_there() -> None:
    """sources.md, UR5."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        told = await refused(Fetcher(f"http://user:secret@127.0.0.1:{port}/?token=secret"))
    assert told == f"cannot connect to 127.0.0.1:{port}: Connection refused"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"", "the server closed the connection without an answer"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "not an HTTP answer: "),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000, "not an HTTP answer: "),
    ],
    ids=["nothing", "ssh", "headers without end"],
)
async def test_what_answers_is_no_web_server(answer: bytes, told: str) -> None:
    """sources.md, UR5."""

    async def serve(client: anyio.abc.SocketStream) -> None:
        async with client:
            await client.receive()
            with suppress(anyio.BrokenResourceError):
                await client.send(answer)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with anyio.create_task_group() as tg:
            tg.start_soon(listener.serve, serve)
            text = await refused(Fetcher(f"http://127.0.0.1:{port}/"))
            tg.cancel_scope.cancel()
    assert text.startswith(told)
    assert len(text) < 250
    assert "\n" not in text


async def test_https_to_a_server_without() -> None:
    """sources.md, UR5."""
    async with serving() as site:
        told = await refused(Fetcher(site.url.replace("http:", "https:")))
        assert told.startswith("no secure connection to 127.0.0.1:")


@pytest.mark.parametrize(("size", "good"), [(SIZE_LIMIT - 1, True), (SIZE_LIMIT, False)])
@pytest.mark.parametrize("chunked", [True, False])
async def test_reaching_the_size_limit_fails(size: int, good: bool, chunked: bool) -> None:
    """sources.md, UR6."""

    async def answer(_request: web.Request) -> web.StreamResponse:
        response = web.Response(body=b"#" * size)
        if chunked:
            response.enable_chunked_encoding()
        return response

    async with serving() as site:
        site.handler = answer
        if good:
            assert (await Fetcher(site.url).fetch(NONE)).body == b"#" * size
        else:
            told = await refused(Fetcher(site.url))
            assert told.startswith("too large: ")
            assert told.endswith(" 10485760 bytes, the limit is below 10485760")


async def test_an_endless_body_is_not_read_to_its_end() -> None:
    """sources.md, UR6."""
    async with serving() as site:
        site.handler = endless
        assert (await refused(Fetcher(site.url))).startswith("too large: at least 10")


@pytest.mark.parametrize(
    "page",
    [
        "<!DOCTYPE html><html></html>",
        "\n <html lang=en>",
        "\ufeff<HTML>",
        '<?xml version="1.0"?>',
        "<head>",
    ],
)
async def test_a_web_page_is_called_so(page: str) -> None:
    """sources.md, UR7."""
    async with serving() as site:
        site.body = page
        assert await refused(Fetcher(site.url)) == "an HTML or XML page instead of manifests"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_another_host_goes_without_the_headers(status: int) -> None:
    """sources.md, UR9."""
    async with serving() as site, serving() as other:
        site.redirect(other.url, status)
        other.body = "hello"
        # No word of the first server's remembered answer either way: it is of the last one.
        answer = await Fetcher(site.url, [("Authorization", "Bearer secret")]).fetch(NONE)
        assert answer.body == b"hello"
        assert site.requests[0].headers["Authorization"] == "Bearer secret"
        assert "Authorization" not in other.requests[0].headers
        assert "nodeagent" in other.requests[0].headers["User-Agent"]


async def test_who_was_redirected_is_told_who_has_answered_and_what_was_not_sent() -> None:
    """sources.md, UR5, UR9."""
    async with serving() as site, serving() as other:
        site.redirect(other.url + "?token=secret")
        other.status = 401
        where = other.url.removeprefix("http://").removesuffix("/pods")
        fetcher = Fetcher(site.url, [("Authorization", "Bearer secret")])
        told = f"redirected to {where}, to which the headers were not sent"
        assert await refused(fetcher) == f"401 Unauthorized ({told})"
        assert await refused(Fetcher(site.url)) == f"401 Unauthorized (redirected to {where})"
        other.status, other.body = 200, "<html>Please log in</html>"
        page = "an HTML or XML page instead of manifests"
        assert await refused(fetcher) == f"{page} ({told})"
        # A redirect to another place of the same server is no news.
        site.handler = moved_within
        assert await refused(fetcher) == "404 Not Found"


async def moved_within(request: web.Request) -> web.StreamResponse:
    if request.query_string:
        raise web.HTTPNotFound
    raise web.HTTPFound("/elsewhere?here")


async def test_a_redirect_back_does_not_bring_the_headers_back() -> None:
    """sources.md, UR9."""
    async with serving() as site, serving() as other:
        other.redirect(site.url + "?second")

        async def answer(request: web.Request) -> web.StreamResponse:
            if request.query_string:
                return web.Response(text="hello")
            raise web.HTTPFound(other.url)

        site.handler = answer
        found = await Fetcher(site.url, [("X-Token", "secret")]).fetch(NONE)
        assert found.body == b"hello"
        assert [r.headers.get("X-Token") for r in site.requests] == ["secret", None]


async def test_a_redirect_on_the_same_server_keeps_the_headers() -> None:
    """sources.md, UR9."""
    async with serving() as site:

        async def answer(request: web.Request) -> web.StreamResponse:
            if request.path == "/there":
                return web.Response(text="hello")
            raise web.HTTPFound("/there")

        site.handler = answer
        await Fetcher(site.url, [("X-Token", "secret")]).fetch(NONE)
        assert [r.headers.get("X-Token") for r in site.requests] == ["secret", "secret"]


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("/pods", "more than 10 redirects"),
        ("", "302 Found without a Location"),
        ("file:///etc/passwd", "302 Found to what is no http or https URL"),
        ("http://[", "302 Found to what is no URL"),
        ("http://127.0.0.1:99999/", "302 Found to what is no URL"),
    ],
)
async def test_redirects_that_lead_nowhere(location: str, told: str) -> None:
    """sources.md, UR9."""
    async with serving() as site:
        site.redirect(location)
        assert (await refused(Fetcher(site.url))).startswith(told)
        assert len(site.requests) <= 11


async def test_a_redirect_from_https_to_http_is_not_followed() -> None:
    """sources.md, UR9."""
    from yarl import URL

    response: Any = type("Response", (), {"status": 302, "reason": "Found"})()
    response.headers = {"Location": "http://example.com/x"}
    with pytest.raises(FetchError, match="302 Found from https to http, which is not followed"):
        module._target(URL("https://example.com/"), response)
    assert str(module._target(URL("http://example.com/a"), response)) == "http://example.com/x"


async def test_a_header_takes_precedence_over_user_and_password_of_the_url() -> None:
    """sources.md, UR1."""
    async with serving() as site:
        url = site.url.replace("http://", "http://user:secret@")
        await Fetcher(url, [("authorization", "Bearer mine")]).fetch(NONE)
        (request,) = site.requests
        assert request.headers.getall("Authorization") == ["Bearer mine"]


async def test_user_and_password_of_the_url_are_sent_to_its_host_only() -> None:
    """sources.md, UR9, UR13."""
    async with serving() as site, serving() as other:
        site.redirect(other.url)
        await Fetcher(site.url.replace("//", "//me:secret@")).fetch(NONE)
        assert site.requests[0].headers["Authorization"].startswith("Basic ")
        assert "Authorization" not in other.requests[0].headers


async def test_a_proxy_is_asked_where_there_is_one() -> None:
    """sources.md, UR1."""
    async with serving() as proxy:
        proxy.body = "hello"
        fetcher = Fetcher("http://pods.invalid/x", proxy_for=lambda _url: proxy.url)
        assert (await fetcher.fetch(NONE)).body == b"hello"
        assert proxy.requests[0].headers["Host"] == "pods.invalid"


async def test_cancelling_a_request_leaves_nothing_behind() -> None:
    async with serving() as site:
        site.handler = site.stalled
        with anyio.move_on_after(1) as scope:
            await Fetcher(site.url).fetch(NONE)
        assert scope.cancelled_caught


def test_a_certificate_that_is_not_trusted_is_named_with_the_reason() -> None:
    """sources.md, UR5."""
    fault = ssl.SSLCertVerificationError(1, "certificate verify failed")
    fault.verify_message = "self-signed certificate"
    key: Any = type("Key", (), {"host": "example.com", "port": 443, "is_ssl": True})()
    error = aiohttp.ClientConnectorCertificateError(key, fault)
    assert module._cause(error) == (
        "the certificate of example.com is not accepted: self-signed certificate"
    )
