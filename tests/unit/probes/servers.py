"""Servers for network probes to ask: on loopback, in the test's own loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
from tests.unit.probes.probe_fakes import container_of, probed

from nodeagent.api import ContainerPort, Probe
from nodeagent.model import ProbeKind
from nodeagent.probes.outcome import Target

# Made for these tests, for a name that is not the server's, and signed by nobody.
_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgSZdQxwAPuI3GIk0V
ojoJXWHiFm6ddbVlHi6EWGI0OeKhRANCAARZSMacscQICbH3LvicY4JUlDykZt/d
4l1dHwm8UcOjg+1I2Ld4cR/rUOypLGSVaYzV9I33y8tPHShI7hyA1uNN
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBljCCAT2gAwIBAgIUGknc0injm8SHRmcpeUCt1b5yF6AwCgYIKoZIzj0EAwIw
IDEeMBwGA1UEAwwVc29tZWJvZHktZWxzZS5pbnZhbGlkMCAXDTI2MTEyOTIzMDY1
MloYDzIxMjYxMTA1MjMwNjUyWjAgMR4wHAYDVQQDDBVzb21lYm9keS1lbHNlLmlu
dmFsaWQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARZSMacscQICbH3LvicY4JU
lDykZt/d4l1dHwm8UcOjg+1I2Ld4cR/rUOypLGSVaYzV9I33y8tPHShI7hyA1uNN
o1MwUTAdBgNVHQ4EFgQU8UEHFuprXRt/RvXc4TEShuDhV7wwHwYDVR0jBBgwFoAU
8UEHFuprXRt/RvXc4TEShuDhV7wwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQD
AgNHADBEAiAUKomC0i/gHZlR8x+fIcXWRPd2VYp74n5m5GRBqK/fXAIgPjhOMuYe
e8q0Tzg9gYCTSrGDly4VGxjkWlO1uQoQ93k=
-----END CERTIFICATE-----
"""


def target(address: str = "127.0.0.1", **probe: Any) -> Target:
    """What a liveness probe of a container with a port ``web`` (81) is made of."""
    check = Probe(**{"timeout_seconds": 1, **probe})
    pod = probed(liveness_probe=check, ports=(ContainerPort(name="web", container_port=81),))
    return Target(ProbeKind.LIVENESS, check, pod, container_of(pod), "c1", address)


def server_tls(tmp_path: Path) -> ssl.SSLContext:
    """TLS with a certificate that nobody should trust."""
    file = tmp_path / "server.pem"
    file.write_text(_KEY, encoding="ascii")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw_server(serve: Serve, **options: Any) -> AsyncIterator[int]:
    """A TCP server that does what the test says; gives its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0, **options)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await server.wait_closed()
        while tasks:
            await asyncio.sleep(0)


class Replies:
    """An HTTP server that gives the same bytes to everybody, and notes what it was asked."""

    def __init__(self, reply: bytes | Callable[[str], bytes]) -> None:
        self.reply = reply
        self.requests: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.requests.append(request)
        path = request.split(" ")[1]
        writer.write(self.reply(path) if callable(self.reply) else self.reply)
        await writer.drain()


def answer(status: str, body: bytes = b"", /, **headers: str) -> bytes:
    """An HTTP answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def hang(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Read, and never answer."""
    while await reader.read(65536):
        await anyio.lowlevel.checkpoint()


@contextmanager
def closed_port() -> Iterator[int]:
    """A port on which nobody listens, and which nobody else gets."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@contextmanager
def full_port() -> Iterator[int]:
    """A port whose connections never open: its queue is full."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        address = server.getsockname()
        clients = []
        for _ in range(4):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(address)
            clients.append(client)
        try:
            yield address[1]
        finally:
            for client in clients:
                client.close()
