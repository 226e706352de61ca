"""Every path and method, for everybody: docs/http-api.md; docs/behaviour/server.md, "Paths"."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import anyio
import anyio.streams.tls
import h11
import pytest
from anyio.abc import ByteStream
from tests.unit.kube.authority import Authority
from tests.unit.server.api_lab import Lab, api_lab, head, reply

from nodeagent.proto.runtime import v1
from nodeagent.server import Response
from nodeagent.server.kubelet import listener as listener_module
from nodeagent.server.kubelet.api import Answer, Route
from nodeagent.server.kubelet.exchange import Exchange
from nodeagent.testing import make_pod

pytestmark = pytest.mark.anyio

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
GET, GET_POST, POST = ("GET",), ("GET", "POST"), ("POST",)

# path: the methods that it has, whether a node reader may GET it, what the admin gets of them
TABLE: dict[str, tuple[tuple[str, ...], bool, int]] = {
    "/healthz": (("GET", "HEAD"), True, 200),
    "/healthz/ping": (("GET", "HEAD"), True, 200),
    "/healthz/nothing": (("GET", "HEAD"), True, 404),
    "/livez": (("GET", "HEAD"), False, 200),
    "/readyz": (("GET", "HEAD"), False, 200),
    "/metrics": (("GET", "HEAD"), True, 200),
    "/metrics/resource": (("GET", "HEAD"), True, 200),
    "/metrics/cadvisor": (("GET", "HEAD"), True, 200),
    "/metrics/probes": (("GET", "HEAD"), True, 200),
    "/metrics/slis": (("GET", "HEAD"), True, 200),
    "/stats/summary": (("GET", "HEAD", "POST"), True, 200),
    "/pods": (("GET", "HEAD"), True, 200),
    "/pods/": (("GET", "HEAD"), True, 200),
    "/runningpods": (GET, True, 200),
    "/runningpods/": (GET, True, 200),
    "/containerLogs/default/web/main": (GET, False, 400),
    "/containerLogs/default/none/main": (GET, False, 404),
    "/exec/default/web/main?command=ls&output=1": (GET_POST, False, 500),
    "/exec/default/web/uid-web/main?command=ls&output=1": (GET_POST, False, 500),
    "/exec/default/web/main": (GET_POST, False, 400),
    "/attach/default/web/main?output=1": (GET_POST, False, 500),
    "/portForward/default/web": (GET_POST, False, 500),
    "/portForward/default/none": (GET_POST, False, 404),
    "/run/default/none/main?cmd=ls": (POST, False, 404),
    "/logs/": (GET, False, 200),
    "/logs/nothing": (GET, False, 404),
    "/configz": (GET, False, 200),
    "/debug/tasks": (GET, False, 200),
    "/debug/journal": (("GET", "HEAD"), False, 200),
    # what does not exist is no less guarded
    "/": ((), False, 404),
    "/stats": ((), True, 404),
    "/metrics/nothing": ((), True, 404),
    "/checkpoint/default/web/none": (POST, False, 404),
    "/checkpoint/a/b/c": (POST, False, 404),
    "/checkpoint/a/b": ((), False, 404),
    "/statusz": (GET, False, 200),
    "/flagz": (GET, False, 200),
    "/debug/flags/v": (("PUT",), False, 400),
    "/debug/flags/w": (("PUT",), False, 404),
    "/debug/pprof/threads": (GET, False, 200),
    "/debug/pprof/nothing": (("GET", "POST", "DELETE"), False, 404),
    "/podsx": ((), False, 404),
    "//pods": ((), False, 404),
    "/pods/../pods": ((), True, 404),
    "/containerLogs": ((), False, 404),
    "/containerLogs/default/web/main/more": ((), False, 404),
    "/debug/pprof/": (GET, False, 200),
}
CLOSED = (OSError, anyio.EndOfStream, anyio.BrokenResourceError, h11.RemoteProtocolError)
"""How a client notices that the server has closed its connection."""
NOBODY = {"anonymous": "", "bad token": "nonsense"}


async def drip(stream: ByteStream) -> None:
    """Send a header now and then, until the connection is closed."""
    while True:
        await anyio.sleep(10)
        await stream.send(b"X-Slow: 1\r\n")
        with anyio.move_on_after(0.1):
            await stream.receive()


async def drained(stream: ByteStream) -> None:
    """Read until the connection is closed."""
    while True:
        await stream.receive()


@pytest.mark.parametrize("path", TABLE)
async def test_hp1_hp2_who_gets_what(path: str, tmp_path: Path) -> None:
    methods, readable, answer = TABLE[path]
    async with api_lab(tmp_path) as lab:
        lab.table.pods = [make_pod("web")]
        for method in METHODS:
            for who in NOBODY.values():
                got = await lab.ask(path, method=method, token=who)
                assert (got.status, got.body) == (401, b"" if method == "HEAD" else b"Unauthorized")
            assert (await lab.ask(path, method=method, token="other")).status == 403
            got = await lab.ask(path, method=method, token="reader")
            expected = 403
            if method == "GET" and readable:
                expected = answer
            assert got.status == expected, method
            got = await lab.ask(path, method=method, token="admin")
            if methods and method not in methods:
                assert got.status == 405
                assert set(methods) <= {text.strip() for text in got.headers["allow"].split(",")}
            else:
                assert got.status == answer, method


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *((f"/{name}/a/b/c", 405) for name in ("run", "exec", "attach", "containerLogs")),
        ("/portForward/a/b", 405),
        ("/runningpods/", 405),
        ("/logs/", 405),
        ("/debug/pprof/", 405),
        ("/configz", 404),
        ("/debug/tasks", 404),
        ("/nothing", 404),
        ("/pods", 200),
        ("/healthz", 200),
    ],
)
async def test_hp3_debugging_handlers_can_be_off(path: str, status: int, tmp_path: Path) -> None:
    async with api_lab(tmp_path, debugging=False) as lab:
        got = await lab.ask(path)
        assert got.status == status
        if status == 405:
            assert got.text == "Debug endpoints are disabled.\n"
        assert (await lab.ask(path, token="")).status == 401


async def test_hp3_logs_of_the_node_can_be_off_alone(tmp_path: Path) -> None:
    async with api_lab(tmp_path, logs=False) as lab:
        got = await lab.ask("/logs/x")
        assert (got.status, got.text) == (405, "logs endpoint is disabled.\n")


async def test_hp4_too_many_parameters_are_refused(tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab:
        lab.table.pods = [make_pod("web")]
        many = "&".join(["command=x"] * 19_999)
        assert (await lab.ask(f"/exec/default/web/main?output=1&{many}")).status == 500
        assert (await lab.ask(f"/exec/default/web/main?output=1&{many}&{many}")).status == 400


async def test_ht1_answers_tell_nothing_of_what_serves_them(tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab:
        got = await lab.ask("/pods")
        assert got.headers["server"] == "nodeagent"
        assert got.headers["x-content-type-options"] == "nosniff"
        async with lab.connected() as stream:
            for _ in range(3):
                await stream.send(head("GET", "/healthz", "admin", {"Connection": "keep-alive"}))
                received = b""
                while not received.endswith(b"ok"):
                    received += await stream.receive()


async def test_ht5_a_slow_client_is_shown_the_door(tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab, lab.connected() as stream:
        began = anyio.current_time()
        await stream.send(b"GET /pods HTTP/1.1\r\n")
        with pytest.raises(CLOSED):
            await drip(stream)
        assert anyio.current_time() - began < 120


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01 nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nauthorization\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\0b\r\n\r\n", 400),
        (b"GET /" + b"a" * 1_100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 1_100_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + (b"X: " + b"a" * 100_000 + b"\r\n") * 12, 431),
    ],
)
async def test_ht6_what_is_no_request_is_refused(
    sent: bytes, status: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with api_lab(tmp_path) as lab, lab.connected() as stream:
        await stream.send(sent)
        got = await reply(stream)
        assert got.status == status
        assert len(got.body) < 60
    assert "Traceback" not in caplog.text


async def test_ht6_a_body_is_no_head(tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab, lab.connected() as stream:
        length = {"Content-Length": "3000000", "Connection": "keep-alive"}
        await stream.send(head("POST", "/stats/summary", "admin", length) + b"a" * 3_000_000)
        received = b""
        while not received.endswith(b"}"):
            received += await stream.receive()
        await stream.send(head("GET", "/healthz", "admin"))
        assert (await reply(stream)).status == 200


async def test_ht8_there_is_a_bound_on_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "MOST_CONNECTIONS", 2)
    async with api_lab(tmp_path) as lab, lab.connected() as one, lab.connected():
        await one.send(head("GET", "/healthz", "admin"))
        assert (await reply(one)).status == 200
        async with lab.connected():
            with pytest.raises(
                (OSError, anyio.EndOfStream, anyio.BrokenResourceError, ssl.SSLError)
            ):
                async with lab.connected() as more:
                    await more.receive()


async def test_ht10_a_handler_that_fails_tells_nothing(tmp_path: Path) -> None:
    async def broken(_exchange: Exchange, _steps: Sequence[str]) -> Answer:
        raise RuntimeError("a secret")

    async with api_lab(tmp_path, extra=[Route("odd", GET, broken)]) as lab:
        got = await lab.ask("/odd")
        assert (got.status, got.text) == (500, "500: Internal Server Error\n")


async def test_ht7_an_answer_lasts_four_hours_at_most(tmp_path: Path) -> None:
    ended: list[float] = []

    async def endless(exchange: Exchange, _steps: Sequence[str]) -> Answer:
        await exchange.write(b"x")
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(anyio.current_time())
        return Response()

    async with api_lab(tmp_path, extra=[Route("odd", GET, endless)]) as lab, lab.connected() as it:
        began = anyio.current_time()
        await it.send(head("GET", "/odd", "admin"))
        with pytest.raises(CLOSED):
            await drained(it)
        assert ended[0] - began == pytest.approx(4 * 3600, abs=1)


async def test_ht9_answers_that_go_on_are_cut_when_the_agent_ends(tmp_path: Path) -> None:
    begun = anyio.Event()

    async def endless(exchange: Exchange, _steps: Sequence[str]) -> Answer:
        await exchange.write(b"x")
        begun.set()
        await anyio.sleep_forever()
        return Response()

    async with api_lab(tmp_path, extra=[Route("odd", GET, endless)]) as lab:
        stream = await anyio.connect_tcp(
            "127.0.0.1", lab.port, ssl_context=lab.trust(), tls_hostname="127.0.0.1"
        )
        await stream.send(head("GET", "/odd", "admin"))
        await begun.wait()
    await anyio.aclose_forcefully(stream)


# -- certificates ------------------------------------------------------------------------------


async def serial(lab: Lab) -> int:
    """Serial number of the certificate that a new connection gets."""
    stream = await anyio.connect_tcp(
        "127.0.0.1", lab.port, ssl_context=lab.trust(), tls_hostname="127.0.0.1"
    )
    async with stream:
        found = stream.extra(anyio.streams.tls.TLSAttribute.peer_certificate)
        assert isinstance(found, dict)
        return int(str(found["serialNumber"]), 16)


async def test_ha1_a_client_certificate_is_enough(tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab:
        for name, status in (("admin", 200), ("other", 403), ("reader", 200)):
            got = await lab.ask("/pods", token="", client=lab.authority.client(name))
            assert got.status == status


async def test_hc6_a_certificate_of_somebody_else_ends_the_handshake(tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab:
        stranger = Authority("stranger").client("admin")
        ended = lab.authority.client("admin", life=timedelta(minutes=1))
        for pair in (stranger, ended):
            with pytest.raises(CLOSED):
                await lab.ask("/pods", token="", client=pair)
        assert (await lab.ask("/pods")).status == 200


async def test_hc3_a_new_certificate_is_taken_up(tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab, lab.connected() as old:
        first = await serial(lab)
        lab.authority.server().write(tmp_path, "served")
        await anyio.sleep(listener_module.LOOK_PERIOD + 1)
        assert await serial(lab) != first
        await old.send(head("GET", "/pods", "admin"))
        assert (await reply(old)).status == 200


@pytest.mark.parametrize("what", ["garbage", "another key", "gone", "garbage authority"])
async def test_hc4_garbage_changes_nothing(what: str, tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab:
        first, kept = await serial(lab), lab.files.certificate.read_bytes()
        match what:
            case "garbage":
                lab.files.certificate.write_text("-----BEGIN nothing")
            case "another key":
                lab.files.key.write_bytes(lab.authority.server().key)
            case "gone":
                lab.files.certificate.unlink()
            case _:
                assert lab.files.client_ca is not None
                lab.files.client_ca.write_text("x")
        await anyio.sleep(listener_module.LOOK_PERIOD + 1)
        assert str(tmp_path) in lab.listener.problem
        assert await serial(lab) == first
        pair = lab.authority.server()
        pair.write(tmp_path, "served")
        assert lab.files.client_ca is not None
        lab.files.client_ca.write_bytes(lab.authority.certificate)
        await anyio.sleep(listener_module.LOOK_PERIOD + 1)
        assert lab.listener.problem == ""
        assert await serial(lab) != first
        assert kept != lab.files.certificate.read_bytes()


async def test_hc5_versions_and_ciphers(tmp_path: Path) -> None:
    suites = ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",)
    async with api_lab(tmp_path, tls_cipher_suites=suites) as lab:
        context = lab.trust()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        stream = await anyio.connect_tcp(
            "127.0.0.1", lab.port, ssl_context=context, tls_hostname="127.0.0.1"
        )
        async with stream:
            cipher = stream.extra(anyio.streams.tls.TLSAttribute.cipher)
            assert cipher[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"
    (tmp_path / "13").mkdir()
    async with api_lab(tmp_path / "13", tls_min_version="VersionTLS13") as lab:
        context = lab.trust()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(CLOSED):
            await anyio.connect_tcp(
                "127.0.0.1", lab.port, ssl_context=context, tls_hostname="127.0.0.1"
            )


# -- files of the node -------------------------------------------------------------------------


async def test_files_of_the_node_are_shown(tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab:
        root = tmp_path / "var-log"
        (root / "a").mkdir()
        (root / "a" / "x <y>.log").write_text("hello\n")
        (root / "link").symlink_to(root / "a" / "x <y>.log")
        assert (await lab.ask("/logs/a/x%20%3Cy%3E.log")).text == "hello\n"
        assert (await lab.ask("/logs/link")).text == "hello\n"
        assert '<a href="x%20%3Cy%3E.log">x &lt;y&gt;.log</a>' in (await lab.ask("/logs/a/")).text
        moved = await lab.ask("/logs/a")
        assert (moved.status, moved.headers["location"]) == (301, "a/")
        large = os.urandom(3_000_000)
        (root / "large").write_bytes(large)
        assert (await lab.ask("/logs/large")).body == large


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "%2e%2e/secret",
        "..%2fsecret",
        "a/../../secret",
        "out",
        "dir/secret",
        "fifo",
        "no",
        "%00",
        "/etc/passwd",
        "x" * 300,
    ],
)
async def test_nothing_outside_the_logs_of_the_node_is_shown(path: str, tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab:
        root = tmp_path / "var-log"
        (tmp_path / "secret").write_text("secret")
        (root / "out").symlink_to(tmp_path / "secret")
        (root / "dir").symlink_to(tmp_path)
        os.mkfifo(root / "fifo")
        assert (await lab.ask(f"/logs/{path}")).status == 404


async def test_configz_and_tasks(tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab:
        assert (await lab.ask("/configz")).text == '{"kubeletconfig":{"port":10250}}'
        told = (await lab.ask("/debug/tasks")).text
        assert "LogWatch.run (kubelet/log_watch.py:" in told


async def test_he1_he2_a_command_and_its_output(tmp_path: Path) -> None:
    async with api_lab(tmp_path) as lab:
        pod = make_pod("web")
        lab.table.pods = [pod]
        path = "/run/default/web/main?cmd=ls+-l"
        got = await lab.ask(path, method="POST")
        assert (got.status, got.text) == (500, 'container not found ("main")')
        lab.table.set_container(pod, "main", "c1")
        lab.runtime.answer = v1.ExecSyncResponse(stdout=b"out", stderr=b"err")
        assert (await lab.ask(path, method="POST")).text == "outerr"
        assert lab.runtime.requests == [("c1", ["ls", "-l"])]
        lab.runtime.answer = v1.ExecSyncResponse(stdout=b"out", exit_code=3)
        got = await lab.ask(path, method="POST")
        assert (got.status, got.text) == (500, "command 'ls -l' exited with 3: out")


async def test_hp1_each_answer_says_of_which_kind_it_is(tmp_path: Path) -> None:
    text, json_ = "text/plain", "application/json"
    kinds = {
        "/healthz": text,
        "/metrics": text,
        "/metrics/cadvisor": text,
        "/metrics/resource": text,
        "/pods": json_,
        "/runningpods/": json_,
        "/stats/summary": json_,
        "/configz": json_,
        "/statusz": text,
        "/flagz": text,
        "/logs/": "text/html",
        "/debug/tasks": json_,
        "/nothing": text,
    }
    async with api_lab(tmp_path) as lab:
        found = {path: (await lab.ask(path)).headers["content-type"] for path in kinds}
    assert {path: kind.partition(";")[0] for path, kind in found.items()} == kinds


@pytest.mark.parametrize(
    ("method", "path", "what"),
    [
        ("GET", "/debug/pprof/", "profiling"),
        ("PUT", "/debug/flags/v", "flags"),
        ("GET", "/logs/", "logs"),
    ],
)
async def test_hp3_single_endpoints_can_be_off(
    method: str, path: str, what: str, tmp_path: Path
) -> None:
    async with api_lab(tmp_path, logs=False) as lab:
        got = await lab.ask(path, method=method)
        assert (got.status, got.text) == (405, f"{what} endpoint is disabled.\n")
