"""The HTTPS listener of the kubelet's API.

docs/behaviour/server.md, "Listener" and "Certificates".
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Final, Self

import anyio
from aiohttp import web
from anyio import to_thread
from anyio.abc import TaskGroup

from nodeagent.log import Log
from nodeagent.server.http import bind_error
from nodeagent.server.kubelet.api import KubeletApi
from nodeagent.server.kubelet.exchange import MOST_HEAD, Connection
from nodeagent.server.kubelet.limits import MOST_CONNECTIONS, MOST_OF_ONE, PeerCounts
from nodeagent.server.kubelet.serving import ServingError, ServingFiles

log = Log("server")

LOOK_PERIOD: Final = 5.0
"""Seconds between two looks at the files."""
_IDLE: Final = 90.0
"""Seconds that a client has for its next request, and for the whole of its head."""
_HANDSHAKE: Final = 10.0
_MOST_HEADERS: Final = 1000
_SHUTDOWN: Final = 2.0
_BACKLOG: Final = 256
_NAME: Final = "api"


class ApiListener:
    """Serves the API on one address, while its block is open.

    Certificate, key and client authority are read again when they change; connections that are
    there stay as they are. What cannot be used is told, and the last good ones stay in force.

    Args:
        api: gives the answers.
        files: of the certificate.
        context: makes the TLS settings of the files; blocking.
        address: IP address to bind to.
        port: TCP port; 0 lets the system choose (see :attr:`port` afterwards).

    Attributes:
        port: where it listens.
        problem: why the newest state of the files is not in force; "" when it is.
        ends: when the certificate in force ends; None when that is not known.
    """

    def __init__(
        self,
        api: KubeletApi,
        files: ServingFiles,
        context: Callable[[ServingFiles], ssl.SSLContext],
        *,
        address: str,
        port: int,
    ) -> None:
        self.port = port
        self.problem = ""
        self.ends: datetime | None = None
        self._api = api
        self._files = files
        self._make_context = context
        self._address = address
        self._tasks: TaskGroup | None = None
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._http: web.Server | None = None
        self._seen: tuple[object, ...] = ()
        self._hint = anyio.Event()
        self._peers = PeerCounts(MOST_OF_ONE)

    def look(self) -> None:
        """A file has changed: look at once."""
        self._hint.set()

    async def __aenter__(self) -> Self:
        """Start listening.

        Raises:
            OSError: the port is taken or not permitted; the text says what to do.
            ServingError: the certificate cannot be used.
        """
        self._seen = await to_thread.run_sync(self._files.signature)
        context = await self._context()
        self._http = web.Server(self._api.handle)
        try:
            self._socket = bound_socket(self._address, self.port)
        except OSError as error:
            text = bind_error(_NAME, self._address, self.port, error)
            raise OSError(error.errno, text) from error
        self.port = self._socket.getsockname()[1]
        self._tasks = tasks = anyio.create_task_group()
        await tasks.__aenter__()
        try:
            await self._listen(context)
        except BaseException:
            tasks.cancel_scope.cancel()
            await tasks.__aexit__(None, None, None)
            self._socket.close()
            raise
        tasks.start_soon(self._look_after_files)
        log.info("listening", listener=_NAME, address=self._address, port=self.port)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        assert self._tasks is not None
        assert self._http is not None
        assert self._socket is not None
        if self._server is not None:
            self._server.close()
        self._socket.close()
        with anyio.CancelScope(shield=True):
            self._api.stop()
            self._http.pre_shutdown()
            await self._http.shutdown(_SHUTDOWN)
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def _context(self) -> ssl.SSLContext:
        """The TLS settings of the files as they are now. Raises ServingError."""
        context, ends = await to_thread.run_sync(self._read)
        self.ends = ends
        return context

    def _read(self) -> tuple[ssl.SSLContext, datetime | None]:
        context = self._make_context(self._files)
        return context, self._files.ends()

    async def _listen(self, context: ssl.SSLContext) -> None:
        """Let new connections have these TLS settings. The port is never closed meanwhile."""
        assert self._socket is not None
        before = self._server
        self._server = await asyncio.get_running_loop().create_server(
            self._connection,
            sock=self._socket.dup(),
            ssl=context,
            ssl_handshake_timeout=_HANDSHAKE,
            backlog=_BACKLOG,
        )
        if before is not None:
            before.close()

    def _connection(self) -> asyncio.Protocol:
        assert self._http is not None
        if len(self._http.connections) >= MOST_CONNECTIONS:
            log.warning("too_many_connections", listener=_NAME, limit=MOST_CONNECTIONS)
            return _TurnedAway()
        return Connection(
            self._http,
            self._peers,
            loop=asyncio.get_running_loop(),
            access_log=None,
            keepalive_timeout=_IDLE,
            max_line_size=MOST_HEAD,
            max_field_size=MOST_HEAD,
            max_headers=_MOST_HEADERS,
        )

    async def _look_after_files(self) -> None:
        while True:
            with anyio.move_on_after(LOOK_PERIOD):
                await self._hint.wait()
            self._hint = anyio.Event()
            seen = await to_thread.run_sync(self._files.signature)
            if seen == self._seen:
                continue
            self._seen = seen
            try:
                context = await self._context()
            except ServingError as error:
                if str(error) != self.problem:
                    self.problem = str(error)
                    now = "the last good ones stay in force"
                    log.warning("certificate_refused", problem=self.problem, now=now)
                continue
            self.problem = ""
            await self._listen(context)
            ends = f"{self.ends:%Y-%m-%dT%H:%M:%SZ}" if self.ends is not None else "unknown"
            log.info("certificate_read_again", ends=ends)


class _TurnedAway(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        transport.close()


def bound_socket(address: str, port: int) -> socket.socket:
    """A socket that is bound.

    Raises:
        OSError: the port is taken or not permitted, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((address, port))
        found.listen(_BACKLOG)
        found.setblocking(False)  # noqa: FBT003 - the standard library's
    except OSError:
        found.close()
        raise
    return found
