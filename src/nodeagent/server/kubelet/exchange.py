"""One request of a client and the ways to answer it, over aiohttp."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any, Final

import anyio
from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import LineTooLong
from anyio import to_thread

from nodeagent.log import Log
from nodeagent.server.app import Request, Response
from nodeagent.server.kubelet.limits import MOST_OF_ONE, PeerCounts, client_of
from nodeagent.server.kubelet.splice import splice
from nodeagent.server.kubelet.stream_limits import StreamLimits
from nodeagent.server.kubelet.stream_request import Wish
from nodeagent.server.kubelet.translate import translate
from nodeagent.server.kubelet.upgrade import Upgraded
from nodeagent.streaming.upgrading import Agreed

log = Log("server")

LONGEST: Final = 4 * 3600.0
"""Seconds that any answer may take; streams that were upgraded have limits of their own."""
_BODY: Final = 10.0
"""Seconds that a client has for the body of a request."""
_CHUNK: Final = 256 * 1024
SERVER: Final = "nodeagent"
_SAFE: Final[Mapping[str, str]] = {"Server": SERVER, "X-Content-Type-Options": "nosniff"}
_TEXT: Final[Mapping[str, str]] = {**_SAFE, "Content-Type": "text/plain; charset=utf-8"}


MOST_HEAD: Final = 1024 * 1024
"""Bytes that the head of a request may have."""
_TOO_LARGE: Final = b"431: the head of the request is too large\n"


_REFUSAL: Final = b"".join(
    (
        b"HTTP/1.1 431 Request Header Fields Too Large\r\n",
        *(f"{name}: {value}\r\n".encode() for name, value in _TEXT.items()),
        f"Content-Length: {len(_TOO_LARGE)}\r\nConnection: close\r\n\r\n".encode(),
        _TOO_LARGE,
    )
)


class Connection(web.RequestHandler):
    """A client's connection; what it waits for ends when it goes."""

    def __init__(
        self,
        server: web.Server,
        peers: PeerCounts,
        *,
        loop: asyncio.AbstractEventLoop,
        **how: Any,
    ) -> None:
        super().__init__(server, loop=loop, **how)
        self._peers = peers
        self._counted = ""
        self.scope: anyio.CancelScope | None = None
        self._head = 0
        self._body: StreamReader | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come; one that has very many connections already is sent away."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        client = client_of(str(peer[0]) if peer else "")
        if self._peers.enter(client):
            self._counted = client
            return
        log.warning("too_many_connections", client=client, limit=MOST_OF_ONE)
        self.force_close()

    def data_received(self, data: bytes) -> None:
        """Bytes of the client; those of a head are counted, as aiohttp bounds its lines only."""
        before = self._request_count
        super().data_received(data)
        if self._request_count != before:
            self._body = self._messages[-1][1]
        if self._request_count != before or self._upgraded or self._in_body():
            self._head = 0
            return
        self._head += len(data)
        if self._head > MOST_HEAD and self.transport is not None:
            self._head = 0
            if self._current_request is None and not self._messages:
                self.transport.write(_REFUSAL)
            self.force_close()

    def _in_body(self) -> bool:
        """Whether what the client sends belongs to a request whose head is known."""
        return self._body is not None and not self._body.is_eof()

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Faults of a connection, such as a client that goes within a body, are no news."""
        log.debug("connection_failed", cause=repr(kw.get("exc_info"))[:200])

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what is no request; it tells nothing of what was sent or of the fault."""
        log.debug("bad_request", status=status, cause=repr(exc)[:200])
        if request.writer.output_size > 0:
            raise ConnectionError
        if isinstance(exc, LineTooLong):
            found = web.Response(status=431, body=_TOO_LARGE, headers=_TEXT)
        elif status == 500:
            found = web.Response(status=500, body=b"500: Internal Server Error\n", headers=_TEXT)
        else:
            found = web.Response(status=400, body=b"400: Bad Request\n", headers=_TEXT)
        found.force_close()
        return found

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client is gone."""
        super().connection_lost(exc)
        if self._counted:
            self._peers.leave(self._counted)
            self._counted = ""
        if self.scope is not None:
            self.scope.cancel()


class _Given(web.StreamResponse):
    """An answer that was given already, by other means than aiohttp's."""

    def __init__(self) -> None:
        super().__init__()
        self.force_close()

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        return


class Exchange:
    """A request, and what answers it.

    Args:
        request: what is asked, ready to use.
        raw: aiohttp's view of it.

    Attributes:
        request: see Args.
    """

    def __init__(self, request: Request, raw: web.BaseRequest) -> None:
        self.request = request
        self._raw = raw
        self._stream: web.StreamResponse | None = None

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The client's certificate, verified; None without one."""
        found: Mapping[str, Any] | None = self._raw.get_extra_info("peercert")
        return found or None

    @property
    def peer(self) -> str:
        """The client's address."""
        return self._raw.remote or ""

    async def body(self, most: int) -> bytes | None:
        """What the client sends along; None when it is more than ``most``, or takes too long."""
        found = b""
        with anyio.move_on_after(_BODY):
            while len(found) <= most:
                data = await self._raw.content.readany()
                if not data:
                    return found
                found += data
        return None

    async def write(self, data: bytes) -> None:
        """Begin or go on with an answer whose length is not known before its end."""
        if self._stream is None:
            stream = web.StreamResponse(headers={**_SAFE, "Content-Type": "text/plain"})
            stream.enable_chunked_encoding()
            self._stream = stream
            await stream.prepare(self._raw)
        if data:
            await self._stream.write(data)

    async def write_file(self, descriptor: int) -> None:
        """The same with what is in an open file, which is closed then."""
        try:
            while data := await to_thread.run_sync(os.read, descriptor, _CHUNK):
                await self.write(data)
        finally:
            os.close(descriptor)

    @property
    def begun(self) -> bool:
        """Whether a part of the answer is on its way."""
        return self._stream is not None

    async def end(self) -> web.StreamResponse:
        """End an answer that was written in parts."""
        await self.write(b"")
        assert self._stream is not None
        await self._stream.write_eof()
        return self._stream

    def cut(self) -> web.StreamResponse:
        """Break an answer off: the client must not take it for a whole one."""
        if (transport := self._raw.transport) is not None:
            transport.abort()
        return _Given()

    def plain(self, response: Response) -> web.Response:
        """A whole answer."""
        headers = {"Content-Type": response.content_type, **_SAFE, **response.headers}
        found = web.Response(status=response.status, body=response.body, headers=headers)
        if response.status in (400, 401, 413):
            found.force_close()
        return found

    def hold(self) -> None:
        """Read nothing more: what follows is not for aiohttp."""
        if (transport := self._raw.transport) is not None:
            transport.pause_reading()

    def release(self) -> None:
        """Read on."""
        transport = self._raw.transport
        if transport is not None and not transport.is_closing():
            transport.resume_reading()

    async def hand_over(self, upgraded: Upgraded, limits: StreamLimits) -> web.StreamResponse:
        """Join the client's connection with the runtime's until both have ended."""
        transport = self._raw.transport
        if transport is not None:
            head = upgraded.head + upgraded.rest
            await splice(transport, upgraded.transport, head, limits=limits)
        return _Given()

    async def translate(
        self, upgraded: Upgraded, agreed: Agreed, wish: Wish, limits: StreamLimits
    ) -> web.StreamResponse:
        """The same for a client whose protocol the runtime need not know."""
        transport = self._raw.transport
        if transport is not None:
            await translate(transport, upgraded, agreed, wish, limits)
        return _Given()
