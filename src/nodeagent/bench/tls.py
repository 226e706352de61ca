"""Ports of loopback that speak TLS: the agent's, and that of a socat which it is compared with."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from nodeagent.bench.children import ended, free_port
from nodeagent.bench.stream_end import PART
from nodeagent.bench.waiting import until

_TIMEOUT: Final = 120.0


def serving_certificate(base: Path) -> Path:
    """A certificate for loopback below ``base``, with its key in ``key.pem`` beside it."""
    from nodeagent.server.kubelet.self_signed import self_signed

    made = self_signed("localhost", ["127.0.0.1"])
    certificate = base / "served.pem"
    certificate.write_bytes(made.chain)
    _key(certificate).write_bytes(made.key)
    return certificate


def serving_flags(port: int, certificate: Path) -> list[str]:
    """The agent's flags for a port that is open to everybody, with such a certificate."""
    return [
        f"--port={port}", "--address=127.0.0.1", f"--client-ca-file={certificate}",
        f"--tls-cert-file={certificate}", f"--tls-private-key-file={_key(certificate)}",
        "--anonymous-auth=true", "--authorization-mode=AlwaysAllow",
    ]  # fmt: skip


@contextmanager
def connected(port: int) -> Iterator[ssl.SSLSocket]:
    """A connection to a port of loopback, whatever its certificate. Blocking.

    Raises:
        OSError: nobody listens there.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    plain = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT)
    with context.wrap_socket(plain) as stream:
        yield stream


@asynccontextmanager
async def socat(certificate: Path, address: str, *options: str) -> AsyncIterator[int]:
    """A socat from TLS to somewhere else; its port, 0 where there is no socat.

    Args:
        certificate: as of :func:`serving_certificate`; what is said lies beside it.
        address: the other end, in socat's words.
        options: further ones.
    """
    program = shutil.which("socat")
    if program is None:
        yield 0
        return
    port = free_port()
    listen = f"OPENSSL-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr,verify=0"
    files = f"cert={certificate},key={_key(certificate)}"
    command = [program, f"-b{PART}", *options, f"{listen},{files}", address]
    with certificate.with_name("socat.log").open("ab") as log:
        process = await anyio.open_process(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )

    async def listens() -> bool:
        try:
            await to_thread.run_sync(_knock, port)
        except OSError:
            return False
        return True

    async with ended(process):
        await until("an answer of socat", listens, timeout=_TIMEOUT)
        yield port


def _key(certificate: Path) -> Path:
    return certificate.with_name("key.pem")


def _knock(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT).close()
