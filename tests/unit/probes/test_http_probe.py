"""HTTP probes against servers that answer, lead astray, stall, flood and break off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.unit.probes.servers import (
    Replies,
    answer,
    closed_port,
    full_port,
    hang,
    raw_server,
    server_tls,
    target,
)
from yarl import URL

from nodeagent.api import HTTPGetAction, HTTPHeader
from nodeagent.http_action import address_of, headers_of, shown
from nodeagent.model import ProbeResult
from nodeagent.probes.http_probe import HttpProbe
from nodeagent.probes.outcome import Outcome

pytestmark = pytest.mark.anyio

SUCCESS, FAILURE, UNKNOWN = ProbeResult.SUCCESS, ProbeResult.FAILURE, ProbeResult.UNKNOWN


def header(name: str, value: str) -> HTTPHeader:
    return HTTPHeader(name=name, value=value)


@pytest.fixture
async def probe() -> AsyncIterator[HttpProbe]:
    made = HttpProbe()
    yield made
    await made.aclose()


async def ask(probe: HttpProbe, port: int | str, path: str = "/healthz", **action: Any) -> Outcome:
    return await probe(target(http_get=HTTPGetAction(path=path, port=port, **action)))


@pytest.mark.parametrize("status", ["200 OK", "204 No Content", "299 Odd"])
async def test_bh1_a_good_status_is_success(probe: HttpProbe, status: str) -> None:
    body = b"" if status.startswith("204") else b"fine"
    async with raw_server(Replies(answer(status, body))) as port:
        assert await ask(probe, port) == Outcome(SUCCESS, body.decode())


@pytest.mark.parametrize("status", [400, 404, 500, 503, 999])
async def test_bh3_a_bad_status_is_failure_without_the_body(probe: HttpProbe, status: int) -> None:
    async with raw_server(Replies(answer(f"{status} X", b"secret"))) as port:
        text = f"HTTP probe failed with statuscode: {status}"
        assert await ask(probe, port) == Outcome(FAILURE, text)


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        ("302 Found", {"Location": "http://elsewhere.invalid/"}),
        ("301 Moved", {}),
        ("304 Not Modified", {}),
        ("300 Choices", {"Location": "/other"}),
    ],
)
async def test_bh2_what_leads_elsewhere_is_a_success_to_look_at(
    probe: HttpProbe, status: str, headers: dict[str, str]
) -> None:
    body = b"" if status.startswith("304") else b"over there"
    server = Replies(answer(status, body, **headers))
    async with raw_server(server) as port:
        outcome = await ask(probe, port)
        text = f"Probe terminated redirects, Response body: {body.decode()}"
        assert outcome == Outcome(SUCCESS, text, warning=True)
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", ["301 A", "302 B", "303 C", "307 D", "308 E"])
async def test_bh4_a_redirect_on_the_same_host_is_followed(probe: HttpProbe, status: str) -> None:
    async with raw_server(Replies(answer("418 No"))) as other:

        def reply(path: str) -> bytes:
            if path == "/healthz":
                return answer(status, Location="next?a=b")
            return answer(status, Location=f"http://127.0.0.1:{other}/last")

        server = Replies(reply)
        async with raw_server(server) as port:
            outcome = await ask(probe, port, http_headers=(header("X-Me", "1"),))
        assert outcome == Outcome(FAILURE, "HTTP probe failed with statuscode: 418")
        assert [r.split(" ")[1] for r in server.requests] == ["/healthz", "/next?a=b"]
        assert all("X-Me: 1" in r for r in server.requests)


async def test_bh5_a_loop_of_redirects_ends(probe: HttpProbe) -> None:
    server = Replies(answer("302 Found", Location="/healthz"))
    async with raw_server(server) as port:
        outcome = await ask(probe, port)
        text = f'Get "http://127.0.0.1:{port}/healthz": stopped after 10 redirects'
        assert outcome == Outcome(FAILURE, text)
        assert len(server.requests) == 10


async def test_bh4_nothing_but_http_is_followed(probe: HttpProbe) -> None:
    async with raw_server(Replies(answer("302 Found", Location="ftp://127.0.0.1/x"))) as port:
        outcome = await ask(probe, port)
        assert outcome.result is FAILURE
        assert 'unsupported protocol scheme "ftp"' in outcome.text


async def test_bh6_nobody_listens(probe: HttpProbe) -> None:
    with closed_port() as port:
        outcome = await ask(probe, port)
    place = f"127.0.0.1:{port}"
    text = f'Get "http://{place}/healthz": dial tcp {place}: connect: connection refused'
    assert outcome == Outcome(FAILURE, text)


async def test_bh7_bp5_nobody_answers(probe: HttpProbe) -> None:
    start = anyio.current_time()
    async with raw_server(hang) as port:
        outcome = await ask(probe, port)
    assert outcome.result is FAILURE
    assert outcome.text.startswith(f'Get "http://127.0.0.1:{port}/healthz": context deadline')
    assert anyio.current_time() - start == pytest.approx(1.0, abs=0.2)


async def test_bp5_the_connection_does_not_open(probe: HttpProbe) -> None:
    with full_port() as port:
        outcome = await ask(probe, port)
    assert outcome.result is FAILURE
    assert "context deadline exceeded" in outcome.text


async def test_bp5_slow_redirects_share_the_time(probe: HttpProbe) -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.3)
        writer.write(answer("302 Found", Location="/healthz"))
        await writer.drain()

    async with raw_server(slow) as port:
        outcome = await ask(probe, port)
        assert outcome.result is FAILURE
        assert "context deadline exceeded" in outcome.text


async def test_bh8_a_flood_is_cut(probe: HttpProbe) -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")
            sent += 0x1000
            await writer.drain()

    async with raw_server(flood) as port:
        assert await ask(probe, port) == Outcome(SUCCESS, "x" * 10 * 1024)
    assert sent < 50_000_000


async def test_bh8_a_body_that_stalls_fails_in_time(probe: HttpProbe) -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello")
        await hang(reader, writer)

    async with raw_server(stall) as port:
        outcome = await ask(probe, port)
        assert outcome.result is FAILURE
        assert "context deadline exceeded" in outcome.text


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 200_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x00\xa5garbage",
    ],
    ids=["nothing", "ssh", "status", "short", "chunks", "long header", "tls"],
)
async def test_bh9_what_is_no_http_is_failure(probe: HttpProbe, reply: bytes) -> None:
    async with raw_server(Replies(reply), limit=2**20) as port:
        outcome = await ask(probe, port)
        assert outcome.result is FAILURE
        assert outcome.text.startswith('Get "http://')
        assert len(outcome.text) < 2000


async def test_bh10_the_request_is_plain(probe: HttpProbe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    server = Replies(answer("200 OK", Set_Cookie="a=b"))
    async with raw_server(server) as port:
        for _ in range(2):
            assert (await ask(probe, port)).result is SUCCESS
    head, *lines = server.requests[1].strip().split("\r\n")
    assert head == "GET /healthz HTTP/1.1"
    assert sorted(lines) == [
        "Accept: */*",
        "Connection: close",
        f"Host: 127.0.0.1:{port}",
        "User-Agent: kube-probe/1.36",
    ]


async def test_bh10_headers_of_the_action_replace_ours(probe: HttpProbe) -> None:
    server = Replies(answer("200 OK"))
    given = (
        header("host", "app.example"),
        header("user-agent", "me"),
        header("Accept", ""),
        header("X-Many", "1"),
        header("X-Many", "2"),
    )
    async with raw_server(server) as port:
        assert (await ask(probe, port, http_headers=given)).result is SUCCESS
    lines = server.requests[0].strip().split("\r\n")[1:]
    assert sorted(line.lower() for line in lines) == [
        "connection: close",
        "host: app.example",
        "user-agent: me",
        "x-many: 1",
        "x-many: 2",
    ]


async def test_bh10_an_impossible_header_is_failure(probe: HttpProbe) -> None:
    async with raw_server(Replies(answer("200 OK"))) as port:
        outcome = await ask(probe, port, http_headers=(header("X", "a\r\nEvil: 1"),))
        assert outcome.result is FAILURE


def test_bh10_one_empty_header_takes_only_itself_away() -> None:
    headers = headers_of(HTTPGetAction(http_headers=(header("USER-AGENT", ""),)), "kube-probe")
    assert dict(headers) == {"Accept": "*/*", "Connection": "close"}


async def test_bh11_nobodys_certificate_is_verified(probe: HttpProbe, tmp_path: Path) -> None:
    server = Replies(answer("200 OK", b"secret"))
    async with raw_server(server, ssl=server_tls(tmp_path)) as port:
        assert await ask(probe, port, scheme="HTTPS") == Outcome(SUCCESS, "secret")
        plain = await ask(probe, port)
        assert plain.result is FAILURE


async def test_bh9_a_server_without_tls_is_called_that(probe: HttpProbe) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer("400 Bad Request"))
        await writer.drain()

    async with raw_server(plain) as port:
        outcome = await ask(probe, port, scheme="HTTPS")
    where = f"https://127.0.0.1:{port}/healthz"
    assert outcome == Outcome(
        FAILURE, f'Get "{where}": http: server gave HTTP response to HTTPS client'
    )


def test_bh6_urls_are_shown_with_their_port() -> None:
    assert shown(URL("http://[fd00::1]:80/a%20b?c=d", encoded=True)) == (
        "http://[fd00::1]:80/a%20b?c=d"
    )
    assert shown(URL("https://host/", encoded=True)) == "https://host:443/"


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/", "/"),
        ("", "/"),
        ("health", "/health"),
        ("/a?b=c&d=%20e", "/a?b=c&d=%20e"),
        ("/a b", "/a%20b"),
        ("/ü", "/%C3%BC"),
        ("/%2F..//x;y=1", "/%2F..//x;y=1"),
        ("/a#b", "/a"),
    ],
)
async def test_bh12_the_path_stays_as_it_is(probe: HttpProbe, path: str, wanted: str) -> None:
    server = Replies(answer("200 OK"))
    async with raw_server(server) as port:
        assert (await ask(probe, port, path)).result is SUCCESS
    assert server.requests[0].split(" ")[1] == wanted


def test_bp1_addresses_of_ipv6_have_brackets() -> None:
    action = HTTPGetAction(path="/x", scheme="HTTPS")
    assert address_of(action, "fd00::1", 8443) == "https://[fd00::1]:8443/x"


async def test_bp1_the_actions_host_counts(probe: HttpProbe) -> None:
    server = Replies(answer("200 OK"))
    async with raw_server(server) as port:
        action = HTTPGetAction(path="/", port=port, host="127.0.0.1")
        assert (await probe(target("192.0.2.1", http_get=action))).result is SUCCESS


@pytest.mark.parametrize(
    ("port", "address", "text"),
    [
        ("nobody", "127.0.0.1", "container main has no port named 'nobody'"),
        (70000, "127.0.0.1", "invalid port number: 70000"),
        (80, "", "the pod has no address yet"),
    ],
)
async def test_bp3_without_a_place_to_go_it_cannot_be_made(
    probe: HttpProbe, port: int | str, address: str, text: str
) -> None:
    action = HTTPGetAction(path="/", port=port)
    assert await probe(target(address, http_get=action)) == Outcome(UNKNOWN, text)


async def test_a_server_that_died_is_not_masked(probe: HttpProbe) -> None:
    async with raw_server(Replies(answer("200 OK"))) as port:
        assert (await ask(probe, port)).result is SUCCESS
    assert (await ask(probe, port)).result is FAILURE


async def test_it_can_be_closed_at_any_time() -> None:
    probe = HttpProbe()
    await probe.aclose()
    with closed_port() as port:
        await ask(probe, port)
    await probe.aclose()
    await probe.aclose()
