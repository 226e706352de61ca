"""What bad clients send to the API port of a real agent (docs/behaviour/server.md)."""

from __future__ import annotations

import gzip
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from command import DEADLINE, Command, command, free_port
from tests.unit.kube.authority import Authority

from nodeagent.bench.proc import read_process

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]

POD = """apiVersion: v1
kind: Pod
metadata: {name: web, uid: uid-web}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: any}
  - {name: other, image: any}
"""
LOG = "/containerLogs/default/web-n1/main"
LINE = "2026-01-01T00:00:00.000000001Z stdout F {}\n"
FOLLOWERS = 500


class Port:
    """The API port of a running agent, as an administrator asks it."""

    def __init__(self, agent: Command, port: int, authority: Authority, home: Path) -> None:
        self.agent, self.port, self.authority = agent, port, authority
        self._pair = authority.client("admin").write(home, "admin")

    @property
    def pid(self) -> int:
        return self.agent.running.pid

    @contextmanager
    def connected(self, *, known: bool = True) -> Iterator[ssl.SSLSocket]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if known:
            context.load_cert_chain(*self._pair)
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)
        with context.wrap_socket(plain) as stream:
            yield stream

    def raw(self, sent: bytes, *, known: bool = True) -> bytes:
        """What comes back for these bytes until the agent ends the connection."""
        got = b""
        with self.connected(known=known) as stream:
            try:
                stream.sendall(sent)
                while data := stream.recv(65536):
                    got += data
            except (ConnectionError, ssl.SSLError):
                pass  # it need not take all of it
        return got

    def ask(self, path: str, method: str = "GET", body: bytes = b"", **fields: str) -> bytes:
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        length = {"Content-Length": str(len(body))} if body else {}
        lines = {"Host": "n", "Connection": "close", **length, **named}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return self.raw(
            f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("utf-8", "surrogateescape") + body
        )

    async def status(self, path: str, method: str = "GET", **more: Any) -> int:
        got = await to_thread.run_sync(lambda: self.ask(path, method, **more))
        harmless(got)
        return code(got)

    async def alive(self) -> None:
        """It answers, and nothing has gone wrong inside."""
        assert await self.status("/healthz") == 200
        text = (self.agent.home / "agent.log").read_text()
        assert "Traceback" not in text
        assert "request_failed" not in text


def code(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else 0


def harmless(answer: bytes) -> None:
    """No answer tells of what is inside."""
    for word in (b"Traceback", b'File "', b".py", b"Exception"):
        assert word not in answer, answer[:2000]


@asynccontextmanager
async def serving(home: Path, *flags: str) -> AsyncIterator[Port]:
    authority, port = Authority(), free_port()
    (home / "ca.crt").write_bytes(authority.certificate)
    async with command(home) as agent:
        agent.put("web.yaml", POD)
        await agent.start(
            "--container-runtime-endpoint=embedded:simulated",
            f"--port={port}",
            "--address=127.0.0.1",
            f"--client-ca-file={home / 'ca.crt'}",
            "--authorization-mode=AlwaysAllow",
            *flags,
        )
        await agent.runs("web-n1")
        yield Port(agent, port, authority, home)


def log_of(port: Port, name: str = "main") -> Path:
    (pod,) = (port.agent.home / "logs").iterdir()
    file = pod / name / "0.log"
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


TRICKS = (
    "/logs/../../../etc/passwd",
    "/logs/..%2f..%2f..%2fetc%2fpasswd",
    "/logs/%2e%2e/%2e%2e/etc/passwd",
    "/logs//etc/passwd",
    "/logs/....//....//etc/passwd",
    "/logs/%00",
    "/logs/\\..\\..\\etc\\passwd",
    "/logs/" + "a/" * 3000,
    "/logs/" + "a" * 5000,
    "/containerLogs/default/web-n1/..%2f..%2f..%2fetc%2fpasswd",
    "/containerLogs/default/../../main",
    "/containerLogs/default/web-n1/main%00",
    "/containerLogs/%2e%2e/web-n1/main",
    "/containerLogs/default/web-n1/main/../../../../etc/passwd",
    "/containerLogs/default/web-n1/" + "m" * 10_000,
    "/checkpoint/default/web-n1/..%2fmain",
)


async def test_tricks_with_paths_lead_nowhere(tmp_path: Path) -> None:
    async with serving(tmp_path) as port:
        for path in TRICKS:
            method = "POST" if path.startswith("/checkpoint") else "GET"
            got = await to_thread.run_sync(port.ask, path, method)
            harmless(got)
            assert b"root:" not in got, path
            assert code(got) in (301, 400, 403, 404), (path, got[:300])
        await port.alive()


PARAMETERS = (
    ("tailLines=-1", 422),
    ("tailLines=99999999999999999999", 400),
    ("tailLines=9223372036854775807", 200),
    ("tailLines=1e3", 400),
    ("limitBytes=0", 422),
    ("limitBytes=-5", 422),
    ("limitBytes=9223372036854775808", 400),
    ("sinceSeconds=-1", 422),
    ("sinceSeconds=9223372036854775807", 200),
    ("sinceSeconds=x", 400),
    ("sinceTime=yesterday", 400),
    ("sinceTime=9999-12-31T23:59:59Z", 200),
    ("sinceTime=0000-01-01T00:00:00Z", 400),
    ("stream=Neither", 422),
    ("tailLines=1&tailLines=-1", 200),
    ("follow=%ff%fe", 200),
    ("&".join(f"a{number}=1" for number in range(30_000)), 400),
    ("timestamps=" + "t" * 100_000, 200),
)


async def test_parameters_without_measure_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as port:
        log_of(port).write_text(LINE.format("hello"))
        found = {}
        for query, _ in PARAMETERS:
            if query.startswith("follow"):
                query = f"{query}&limitBytes=5"
            found[query[:60]] = await port.status(f"{LOG}?{query}")
        assert list(found.values()) == [wanted for _, wanted in PARAMETERS], found
        assert await port.status("/debug/pprof/profile?seconds=-1") == 400
        assert await port.status("/debug/pprof/profile?seconds=1e9") == 400
        assert await port.status("/checkpoint/default/web-n1/main?timeout=x", "POST") == 404
        await port.alive()


async def test_bodies_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as port:
        packed = gzip.compress(b"2" * 1_000_000)
        for body in (b"\xff\xfe", b"{}", b"-1", b"9" * 5000, packed, b"x" * 3_000_000):
            more = {"body": body, "Content_Type": "application/x-protobuf"}
            assert await port.status("/debug/flags/v", "PUT", **more) in (400, 413)
        assert await port.status("/flagz", Accept="image/png") == 406
        assert await port.status("/statusz", Accept="\udcff" * 50) == 406
        for method in ("TRACE", "CONNECT", "BREW", "get"):
            got = await to_thread.run_sync(port.ask, LOG, method)
            assert code(got) in (400, 404, 405), (method, got[:300])
        for sent in (
            b"\x16\x03\x01\x02\x00" * 50,
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET /pods HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            b"GET / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST /run/a/b/c HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
            b"GET /" + b"a" * 2_000_000 + b" HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 300_000 + b"\r\n",
        ):
            got = await to_thread.run_sync(port.raw, sent)
            harmless(got)
            assert code(got) in (0, 400, 404, 414, 431), got[:200]
        # Without a certificate nobody learns anything, also of paths that do not exist.
        for path in (LOG, "/nothing", "/healthz", "/logs/", "/%00"):
            sent = f"GET {path} HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n".encode()
            got = await to_thread.run_sync(partial(port.raw, sent, known=False))
            assert code(got) == 401, (path, got[:200])
            assert got.endswith(b"Unauthorized")
        await port.alive()


async def test_a_client_that_stops_reading_costs_little(tmp_path: Path) -> None:
    async with serving(tmp_path, "--container-log-max-size=-1") as port:
        with log_of(port).open("w") as file:
            for _ in range(400):
                file.write(LINE.format("x" * 200) * 1000)
        assert log_of(port).stat().st_size > 90_000_000
        before = read_process(port.pid).rss_mb
        head = f"GET {LOG} HTTP/1.1\r\nHost: n\r\n\r\n".encode()
        with ExitStack() as stack:
            for _ in range(10):
                stream = stack.enter_context(port.connected())
                stream.sendall(head)
                assert b" 200 " in await to_thread.run_sync(stream.recv, 100)
            # What is not taken is not read from the disk either.
            for _ in range(20):
                await port.alive()
            assert read_process(port.pid).rss_mb - before < 60
        await port.alive()


async def test_a_client_that_sends_slowly_holds_up_nobody(tmp_path: Path) -> None:
    async with serving(tmp_path) as port:
        with ExitStack() as stack:
            slow = [stack.enter_context(port.connected()) for _ in range(50)]
            for number, stream in enumerate(slow):
                stream.sendall(b"GET /pods HTTP/1.1\r\nHost"[: number % 20 + 1])
            half = stack.enter_context(port.connected())
            half.sendall(b"PUT /debug/flags/v HTTP/1.1\r\nHost: n\r\nContent-Length: 50\r\n\r\n2")
            for byte in b"GET /healthz":
                slow[0].sendall(bytes([byte]))
                await port.alive()
            # A body that does not come is not waited for.
            got = await to_thread.run_sync(half.recv, 65536)
            assert code(got) in (400, 408)


async def test_five_hundred_follow_through_one_inotify_instance(tmp_path: Path) -> None:
    async with serving(tmp_path) as port:
        logs = [log_of(port, name) for name in ("main", "other")]
        for log in logs:
            log.write_text(LINE.format("first"))
        descriptors = open_files(port.pid)
        with ExitStack() as stack:
            streams = []
            for number in range(FOLLOWERS):
                stream = stack.enter_context(port.connected())
                name = ("main", "other")[number % 2]
                path = f"/containerLogs/default/web-n1/{name}?follow=true"
                stream.sendall(f"GET {path} HTTP/1.1\r\nHost: n\r\n\r\n".encode())
                await to_thread.run_sync(until, stream, b"first\n")
                streams.append(stream)
            assert instances(port.pid) <= 2  # one for manifests
            before = read_process(port.pid).rss_mb
            for turn in range(20):
                for log in logs:
                    with log.open("a") as file:
                        file.write(LINE.format(f"turn-{turn}.") * 10)
                for stream in streams:
                    await to_thread.run_sync(until, stream, f"turn-{turn}.\n".encode())
            assert read_process(port.pid).rss_mb - before < 20
            await port.alive()

        async def closed() -> bool:
            return open_files(port.pid) <= descriptors + 2

        await port.agent.until(closed)


def until(stream: ssl.SSLSocket, wanted: bytes) -> None:
    """Read until something has come."""
    got = b""
    while wanted not in got:
        data = stream.recv(65536)
        assert data, got[-200:]
        got += data


def open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def instances(pid: int) -> int:
    """How many inotify instances a process has."""
    found = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += str(link.readlink()) == "anon_inode:inotify"
        except FileNotFoundError:
            continue
    return found


async def test_bad_certificates_change_nothing_but_health(tmp_path: Path) -> None:
    own = Authority("own")
    certificate, key = own.server().write(tmp_path, "served")
    flags = (f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}")
    async with serving(tmp_path, *flags) as port:
        good = certificate.read_bytes(), key.read_bytes()

        def shown() -> bytes:
            with port.connected() as stream:
                found = stream.getpeercert(binary_form=True)
                assert found is not None
                return found

        async def said(text: str) -> None:
            async def told() -> bool:
                page = await port.agent.get(
                    port.agent.health, "/healthz", Accept="application/json"
                )
                return text in page

            await port.agent.until(told)

        first = await to_thread.run_sync(shown)
        certificate.write_bytes(b"garbage")
        await said("served.crt")
        assert await to_thread.run_sync(shown) == first
        own.client("x", life=timedelta(minutes=1)).write(tmp_path, "served")
        await said("the certificate of the API port ended")
        # One of another name is the client's to refuse.
        own.server("elsewhere.example.com").write(tmp_path, "served")

        async def replaced() -> bool:
            return b"elsewhere.example.com" in await to_thread.run_sync(shown)

        await port.agent.until(replaced)
        await port.alive()
        certificate.write_bytes(good[0])
        key.write_bytes(good[1])

        async def back() -> bool:
            return await to_thread.run_sync(shown) == first

        await port.agent.until(back)
        await port.alive()
