"""Connections to the API server: one pool for each way to secure them.

When the way changes (a new certificate), requests in flight end on the old connections, new
ones and watches take new connections.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

import anyio
from anyio.abc import TaskStatus

from nodeagent._version import __version__
from nodeagent.kube.access import Access
from nodeagent.kube.errors import UndecodableError, UnreachableError
from nodeagent.kube.failures import cause_of
from nodeagent.kube.metrics import ClientMetrics

if TYPE_CHECKING:
    import aiohttp

BODY_LIMIT: Final = 128 * 1024 * 1024
"""Most bytes of an answer that is no watch."""
_IDLE_SECONDS: Final = 60.0
_DEAD_SECONDS: Final = 30
_READ_BUFFER: Final = 1 << 18
_CLOSE_SECONDS: Final = 1.0
_DROPPED: Final = "the connection was given up, because connections seemed dead"
_MOVED: Final = "the watch was ended, because the credentials have changed"


class MovedError(UnreachableError):
    """A stream was ended, because other credentials are in force: it should begin anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, before it is known how the server is reached."""

    method: str
    path: str
    query: Mapping[str, str] | None = None
    body: bytes | None = field(default=None, repr=False)
    content_type: str = ""
    watch: bool = False


class Transport:
    """Sends requests; closes what is not needed any more in :meth:`run`.

    Args:
        metrics: count requests.
        proxy_for: the proxy for a URL by the environment, None for a direct connection.
    """

    def __init__(
        self, metrics: ClientMetrics, proxy_for: Callable[[str], str | None] = lambda _url: None
    ) -> None:
        self._metrics = metrics
        self._proxy_for = proxy_for
        self._pool: _Pool | None = None
        self._old: list[_Pool] = []
        self._work = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Close pools that have served, until cancelled; then close everything."""
        task_status.started()
        try:
            while True:
                await self._work.wait()
                self._work = anyio.Event()
                await self._close_old()
        finally:
            self.drop()
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                await self._close_old()

    def drop(self) -> None:
        """Close all connections; what is in flight on them fails."""
        for pool in (self._pool, *self._old):
            if pool is not None:
                pool.cut(_DROPPED, everything=True)
        self._put_away()

    def suspect(self) -> None:
        """An answer did not come: new requests take new connections, nothing else happens."""
        if self._pool is not None:
            self._old.append(self._pool)
            self._pool = None
            self._work.set()

    def move(self, access: Access) -> None:
        """Another access is in force: new requests get new connections where it needs them."""
        if self._pool is not None and self._pool.connection != access.connection:
            self._put_away()

    async def send(self, access: Access, request: Request) -> Exchange:
        """Send a request; returns when the answer begins. The caller closes it.

        Raises:
            UnreachableError: no answer came.
        """
        import aiohttp
        from yarl import URL

        pool = self._pool_for(access)
        query = f"?{urlencode(request.query)}" if request.query else ""
        url = f"{access.server}{request.path}{query}"
        host = pool.host
        began = anyio.current_time()
        pool.users += 1
        answered = False
        try:
            with pool.cuttable(stream=request.watch):
                response = await pool.session.request(
                    request.method,
                    URL(url, encoded=True),
                    data=request.body,
                    headers=_headers(access, request),
                    proxy=access.proxy or self._proxy_for(access.server),
                    server_hostname=access.server_name or None,
                    allow_redirects=False,
                )
            answered = True
        except (aiohttp.ClientError, OSError, ValueError) as error:
            msg = f"{request.method} {access.shown}{request.path}: {cause_of(error)}"
            raise UnreachableError(msg) from error
        finally:
            if not answered:
                self._metrics.failed(request.method, host)
                self._leave(pool)
        seconds = anyio.current_time() - began
        self._metrics.answered(request.method, host, response.status, seconds)
        return Exchange(response, pool, request, lambda: self._leave(pool))

    def _pool_for(self, access: Access) -> _Pool:
        if self._pool is None or self._pool.connection != access.connection:
            self._put_away()
            self._pool = _Pool(access)
        return self._pool

    def _put_away(self) -> None:
        if self._pool is not None:
            self._pool.cut(_MOVED, everything=False)
            self._old.append(self._pool)
            self._pool = None
        self._work.set()

    def _leave(self, pool: _Pool) -> None:
        pool.users -= 1
        if pool is not self._pool:
            self._work.set()

    async def _close_old(self) -> None:
        for pool in [pool for pool in self._old if not pool.users or pool.dropped]:
            self._old.remove(pool)
            await pool.session.close()


class _Pool:
    """Connections of one kind.

    Attributes:
        connection: which kind; see ``Access.connection``.
        host: host and port of the server.
        users: exchanges that are not closed.
        dropped: nothing on it may go on.
    """

    def __init__(self, access: Access) -> None:
        import aiohttp

        self.connection = access.connection
        self.host = urlsplit(access.server).netloc.rpartition("@")[2]
        self.users = 0
        self.dropped = False
        self._ended: dict[bool, str] = {}
        self._scopes: dict[anyio.CancelScope, bool] = {}
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                # How many requests there may be is the throttle's matter: one that hangs must
                # not take the place of a heartbeat.
                limit=0,
                ssl=access.tls if access.tls is not None else True,
                keepalive_timeout=_IDLE_SECONDS,
                socket_factory=impatient_socket,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            read_bufsize=_READ_BUFFER,
        )

    def cut(self, why: str, *, everything: bool) -> None:
        """End the streams on it, or all that is in flight."""
        self.dropped = self.dropped or everything
        for stream in (True, False) if everything else (True,):
            self._ended.setdefault(stream, why)
        for scope, stream in list(self._scopes.items()):
            if stream or everything:
                scope.cancel()

    @contextmanager
    def cuttable(self, *, stream: bool) -> Iterator[None]:
        """What happens inside ends with an error when the pool is cut."""
        if stream in self._ended:
            raise self._error(stream=stream)
        with anyio.CancelScope() as scope:
            self._scopes[scope] = stream
            try:
                yield
            finally:
                del self._scopes[scope]
        if scope.cancelled_caught:
            raise self._error(stream=stream)

    def _error(self, *, stream: bool) -> UnreachableError:
        why = self._ended[stream]
        return MovedError(why) if why is _MOVED else UnreachableError(why)


class Exchange:
    """An answer that has begun; to be closed.

    Args:
        response: of aiohttp.
        pool: that it came through.
        request: that it answers.
        left: called once, when it is closed.
    """

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        pool: _Pool,
        request: Request,
        left: Callable[[], None],
    ) -> None:
        self._response = response
        self._pool = pool
        self._request = request
        self._left: Callable[[], None] | None = left

    @property
    def status(self) -> int:
        """HTTP status code."""
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers; names in any case."""
        return self._response.headers

    async def chunk(self) -> bytes:
        """What has come meanwhile; b"" at the end.

        Raises:
            UnreachableError: the connection was lost; MovedError: it is to be made anew.
        """
        with self._reading():
            return await self._response.content.readany()
        raise AssertionError

    @contextmanager
    def _reading(self) -> Iterator[None]:
        import aiohttp

        try:
            with self._pool.cuttable(stream=self._request.watch):
                yield
        except (aiohttp.ClientError, OSError, ValueError) as error:
            msg = f"{self._request.method} {self._request.path}: {cause_of(error)}"
            raise UnreachableError(msg) from error

    async def body(self, limit: int = BODY_LIMIT) -> bytes:
        """All of it.

        Raises:
            UnreachableError: the connection was lost.
            UndecodableError: it does not end within ``limit`` bytes.
        """
        chunks, size = [], 0
        with self._reading():
            while chunk := await self._response.content.readany():
                chunks.append(chunk)
                size += len(chunk)
                if size > limit:
                    asked = f"{self._request.method} {self._request.path}"
                    msg = f"{asked}: the answer has more than {limit} bytes, and is not read on"
                    raise UndecodableError(msg)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def beginning(self, limit: int) -> bytes:
        """The first bytes of it, also when there is no more of it to be had."""
        data = b""
        try:
            while len(data) < limit and (chunk := await self.chunk()):
                data += chunk
        except UnreachableError:
            return data
        return data

    def close(self) -> None:
        """Give the connection back, or up when the answer is not over."""
        if self._left is not None:
            self._left()
            self._left = None
            if self._response.content.at_eof():
                self._response.release()
            else:
                self._response.close()


def impatient_socket(address: Any) -> socket.socket:
    """A socket whose connection the kernel gives up when nobody answers for 30 s."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    for option, value in (
        (socket.TCP_KEEPIDLE, _DEAD_SECONDS // 2),
        (socket.TCP_KEEPINTVL, _DEAD_SECONDS // 6),
        (socket.TCP_KEEPCNT, 3),
        (socket.TCP_USER_TIMEOUT, _DEAD_SECONDS * 1000),
    ):
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return made


def _headers(access: Access, request: Request) -> dict[str, str]:
    headers = {
        "Accept": "application/json",
        # Unpacking 2 MB takes no longer than reading them from a fast network, and much less than
        # from a slow one; servers pack large answers only. Events should not wait in a packer.
        "Accept-Encoding": "identity" if request.watch else "gzip",
        "User-Agent": f"nodeagent/{__version__}",
    }
    if access.authorization:
        headers["Authorization"] = access.authorization
    if request.content_type:
        headers["Content-Type"] = request.content_type
    return headers
