"""The process that a measurement of probes asks: HTTP and gRPC health on loopback.

Run as ``python -m nodeagent.bench.probe_targets``; it writes its ports as one line of JSON, and
ends with its standard input.

Its answers are ready-made: what is measured is who asks, on a machine that both share.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Final, cast

from nodeagent.rpc.http2_frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    MAGIC,
    SETTINGS,
    frame,
)

_BACKLOG: Final = 1024
_WEB_ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n"
    b"Connection: close\r\n\r\nok"
)
_HEAD: Final = 9


def _text(value: bytes) -> bytes:
    return bytes((len(value),)) + value


_GREETING: Final = frame(SETTINGS, 0, 0)
_NEVER_INDEXED: Final = b"\x00"
_STATUS_200: Final = b"\x88"
_CONTENT_TYPE: Final = b"\x5f" + _text(b"application/grpc")
_SERVING: Final = b"\x08\x01"


def health_answer(stream: int) -> bytes:
    """The frames that answer a call of ``Health/Check`` on a stream: it is SERVING."""
    trailer = _NEVER_INDEXED + _text(b"grpc-status") + _text(b"0")
    message = b"\x00" + len(_SERVING).to_bytes(4, "big") + _SERVING
    return (
        frame(SETTINGS, ACK, 0)
        + frame(HEADERS, END_HEADERS, stream, _STATUS_200 + _CONTENT_TYPE)
        + frame(DATA, 0, stream, message)
        + frame(HEADERS, END_HEADERS | END_STREAM, stream, trailer)
    )


class _Health(asyncio.Protocol):
    """Answers the call of each stream that its client has ended; reads no header."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._greeted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by type
        self._transport.write(_GREETING)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._data += data
        if not self._greeted:
            if len(self._data) < len(MAGIC):
                return
            self._data = self._data[len(MAGIC) :]
            self._greeted = True
        while len(self._data) >= _HEAD:
            end = _HEAD + int.from_bytes(self._data[:3], "big")
            if len(self._data) < end:
                return
            kind, flags = self._data[3], self._data[4]
            stream = int.from_bytes(self._data[5:_HEAD], "big")
            self._data = self._data[end:]
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                self._transport.write(health_answer(stream))


class _Web(asyncio.Protocol):
    """Answers the first request and closes; a TCP probe only connects."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by type

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._data += data
        if self._data.endswith(b"\r\n\r\n"):
            self._transport.write(_WEB_ANSWER)
            self._transport.close()


async def listen() -> dict[str, asyncio.Server]:
    """Serve ``http`` and ``grpc``, each on a port of its own, until they are closed."""
    loop = asyncio.get_running_loop()
    return {
        "http": await loop.create_server(_Web, "127.0.0.1", 0, backlog=_BACKLOG),
        "grpc": await loop.create_server(_Health, "127.0.0.1", 0, backlog=_BACKLOG),
    }


def port_of(server: asyncio.Server) -> int:
    """The port on which a server listens."""
    port: int = server.sockets[0].getsockname()[1]
    return port


async def _serve() -> None:
    servers = await listen()
    ports = {name: port_of(server) for name, server in servers.items()}
    print(json.dumps(ports), flush=True)  # noqa: T201 - what the parent waits for
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    try:
        import uvloop

        uvloop.run(_serve())
    except ImportError:
        asyncio.run(_serve())
