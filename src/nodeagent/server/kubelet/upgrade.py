"""Asks the runtime's streaming server for an upgrade, on a connection of its own.

docs/behaviour/server.md, "Streams".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, cast
from urllib.parse import urlsplit

import anyio
import h11

_CONNECT: Final = 10.0
_ANSWER: Final = 30.0
_MOST_BODY: Final = 64 * 1024
_MOST_HEAD: Final = 64 * 1024
_NO_ADDRESS: Final = "the runtime has no streaming server: it gave no address of one"
_HOP: Final = ("connection", "transfer-encoding", "content-length", "keep-alive")


class NoStreamError(Exception):
    """The runtime's streaming server cannot be reached, or makes no sense."""


@dataclass(frozen=True, slots=True)
class Upgraded:
    """The runtime has switched to the protocol.

    Attributes:
        transport: the connection; reading is paused.
        head: its answer, for the client.
        rest: what it has sent since.
    """

    transport: asyncio.Transport
    head: bytes
    rest: bytes


@dataclass(frozen=True, slots=True)
class Declined:
    """The runtime did not switch: its answer, for the client."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Answer(asyncio.Protocol):
    """Collects what the runtime says to the request."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEAD)
        self._found: h11.InformationalResponse | h11.Response | None = None
        self._body = b""
        self._error = ""
        self._complete = anyio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are no subclasses.
        self.transport = cast(asyncio.Transport, transport)

    def ask(self, method: str, target: str, host: str, headers: Mapping[str, str]) -> None:
        assert self.transport is not None
        fields = [("host", host), *headers.items()]
        if method == "POST":
            fields.append(("content-length", "0"))
        request = h11.Request(method=method, target=target, headers=fields)
        self.transport.write(self._http.send(request) or b"")
        self.transport.write(self._http.send(h11.EndOfMessage()) or b"")

    def data_received(self, data: bytes) -> None:
        if self._complete.is_set():
            return
        try:
            self._http.receive_data(data)
            self._read()
        except h11.RemoteProtocolError as error:
            self._fail(f"the runtime's streaming server does not speak HTTP: {error}")

    def _read(self) -> None:
        assert self.transport is not None
        while not self._complete.is_set():
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                return
            if isinstance(event, h11.InformationalResponse):
                if event.status_code == 101:
                    self.transport.pause_reading()
                    self._found = event
                    self._complete.set()
            elif isinstance(event, h11.Response):
                self._found = event
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > _MOST_BODY:
                    self._complete.set()
            else:
                self._complete.set()

    def eof_received(self) -> bool:
        self.data_received(b"")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._complete.is_set():
            reason = exc or "no answer"
            self._fail(f"the runtime's streaming server closed the connection: {reason}")

    def _fail(self, error: str) -> None:
        self._error = error
        self._complete.set()

    async def get(self) -> Upgraded | Declined:
        with anyio.move_on_after(_ANSWER):
            await self._complete.wait()
        if self._found is None or self._error:
            raise NoStreamError(self._error or "the runtime's streaming server does not answer")
        assert self.transport is not None
        named = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in self._found.headers]
        if isinstance(self._found, h11.Response):
            kept = {name: value for name, value in named if name not in _HOP}
            return Declined(self._found.status_code, kept, self._body[:_MOST_BODY])
        head = "".join(f"{name}: {value}\r\n" for name, value in named)
        return Upgraded(
            self.transport,
            f"HTTP/1.1 101 Switching Protocols\r\n{head}\r\n".encode("latin-1"),
            self._http.trailing_data[0],
        )


@asynccontextmanager
async def upgrade(
    url: str, method: str, headers: Mapping[str, str]
) -> AsyncIterator[Upgraded | Declined]:
    """Ask for an upgrade; the connection is closed on leaving.

    Args:
        url: as the runtime gave it, good for one request.
        method: of the request.
        headers: of the upgrade.

    Raises:
        NoStreamError: there is no answer.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise NoStreamError(_NO_ADDRESS) from error
    if parts.scheme not in ("http", "https") or not host:
        raise NoStreamError(_NO_ADDRESS)
    try:
        with anyio.fail_after(_CONNECT):
            transport, answer = await asyncio.get_running_loop().create_connection(
                _Answer, host, port, ssl=True if parts.scheme == "https" else None
            )
    except OSError as error:
        reason = error.strerror or str(error) or "it takes too long"
        msg = f"the runtime's streaming server cannot be reached: {reason}"
        raise NoStreamError(msg) from error
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        answer.ask(method, target or "/", parts.netloc, headers)
        yield await answer.get()
    finally:
        transport.abort()
