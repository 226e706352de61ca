"""A client on a unix socket that outlives its connections.

Every call goes over the current connection; a new one is made when there is none. A
connection is replaced when it was lost, and when no answer made progress on it while a call
waited: new calls then go to a fresh connection (by path, so a runtime that came back under a new
inode is found), while the old one is pinged and closed if it stays silent.
"""

from __future__ import annotations

import asyncio
import functools
import math
import os
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

import anyio
from anyio import CancelScope
from grpclib.metadata import encode_metadata, encode_timeout
from multidict import MultiDict

from nodeagent.rpc import wire
from nodeagent.rpc.errors import DeadlineExceeded, Internal, RpcError, Unavailable
from nodeagent.rpc.headers import Headers
from nodeagent.rpc.link import Call, Link
from nodeagent.rpc.wire import Message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from types import TracebackType

MAX_PATH: Final = 107
"""Bytes that the kernel takes as the path of a unix socket."""

_SILENCE: Final = 1.0
_NO_LIMIT: Final = 10_000_000.0
_TRIES: Final = 3
"""How often a call is made that servers sent away before they had begun with it."""


Reply = TypeVar("Reply", bound=Message)


def check_path(path: str | os.PathLike[str]) -> str:
    """Return a socket path as text.

    Raises:
        ValueError: the kernel does not take a path of that length.
    """
    text = os.fspath(path)
    size = len(os.fsencode(text))
    if size > MAX_PATH:
        msg = f"socket path {text} has {size} bytes, the limit is {MAX_PATH}: use a shorter one"
        raise ValueError(msg)
    return text


def decode(data: bytes, reply: type[Reply]) -> Reply:
    """Decode a message.

    Raises:
        Internal: the bytes are not a message of that type.
    """
    try:
        return wire.parse(reply, data)
    except Exception as exc:
        msg = f"the reply is not a {reply.__name__}: {exc!r}"
        raise Internal(msg) from exc


class Replies(Generic[Reply]):
    """The messages of a server stream, in order. Iterate once, inside its context."""

    def __init__(self, call: Call, reply: type[Reply], method: str, idle: float | None) -> None:
        self._call = call
        self._reply = reply
        self._method = method
        self._idle = math.inf if idle is None else idle

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Reply:
        call = self._call
        data: bytes | None = None
        with (
            named(self._method),
            CancelScope(deadline=_now() + self._idle) as call.scope,
        ):
            if call.cut is None:
                data = await call.receive()
        raise_if_cut(call, call.scope, self._method, self._idle)
        if data is None:
            raise StopAsyncIteration
        with named(self._method):
            return decode(data, self._reply)


class RpcChannel:
    """Calls to one server on a unix socket. Use as an async context manager.

    Any number of tasks may call at once. Every error is an :class:`RpcError`.

    Args:
        path: the socket; it need not exist yet.
        connect_timeout: seconds to wait for a connection.
        ping_timeout: seconds that a suspected connection has to answer a ping.

    Raises:
        ValueError: the path is too long for a socket.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        connect_timeout: float = 5.0,
        ping_timeout: float = 20.0,
    ) -> None:
        self.path = check_path(path)
        self._connect_timeout = connect_timeout
        self._ping_timeout = ping_timeout
        self._connecting = anyio.Lock()
        self._link: Link | None = None
        self._links: set[Link] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections; calls in flight raise Unavailable."""
        self._closed = True
        links = tuple(self._links)
        for link in links:
            link.abort()
        with anyio.move_on_after(5, shield=True):
            for link in links:
                await link.lost.wait()
        self._links.clear()

    async def unary(
        self,
        method: str,
        request: Message,
        reply: type[Reply],
        *,
        timeout: float | None,
        metadata: Mapping[str, str] | None = None,
    ) -> Reply:
        """Call ``method`` (``/package.Service/Method``) and decode the reply.

        Args:
            method: the full name of the method, with its leading slash.
            request: the message to send.
            reply: the type of the answer.
            timeout: seconds, connecting included; None leaves it to the caller's scope.
            metadata: headers to send along.
        """
        data = await self.unary_bytes(method, request, timeout=timeout, metadata=metadata)
        with named(method):
            return decode(data, reply)

    async def unary_bytes(
        self,
        method: str,
        request: Message,
        *,
        timeout: float | None,
        metadata: Mapping[str, str] | None = None,
    ) -> bytes:
        """Call ``method`` and return the reply as it came. See :meth:`unary`."""
        limit = math.inf if timeout is None else timeout
        payload = wire.encode(request)
        deadline = _now() + limit
        for left in reversed(range(_TRIES)):
            call: Call | None = None
            data: bytes | None = None
            with named(method):
                try:
                    with CancelScope(deadline=deadline) as scope:
                        call = Call(await self._current_link(), scope)
                        await call.send(call_headers(method, limit, metadata), payload)
                        data = await call.receive()
                        if data is not None:
                            await call.finish()
                finally:
                    self._put_away(call)
            if not (left and call is not None and call.untaken):
                break
        raise_if_cut(call, scope, method, limit)
        if data is None:
            raise Internal("the reply is empty", _short(method))
        return data

    @asynccontextmanager
    async def server_stream(
        self,
        method: str,
        request: Message,
        reply: type[Reply],
        *,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Replies[Reply]]:
        """Open a server stream; it is given up on leaving the context.

        Args:
            method: the full name of the method, with its leading slash.
            request: the message to send.
            reply: the type of each answer.
            timeout: seconds to connect and send the request; None for no limit.
            idle_timeout: seconds to wait for each message; None for no limit.
            metadata: headers to send along.
        """
        limit = math.inf if timeout is None else timeout
        payload = wire.encode(request)
        call: Call | None = None
        try:
            with named(method), CancelScope(deadline=_now() + limit) as scope:
                call = Call(await self._current_link(), scope)
                await call.send(call_headers(method, metadata=metadata), payload)
            raise_if_cut(call, scope, method, limit)
            assert call is not None
            yield Replies(call, reply, _short(method), idle_timeout)
        finally:
            self._put_away(call)

    def _put_away(self, call: Call | None) -> None:
        if call is None:
            return
        waited = _now() - call.began
        if call.silent and waited >= _SILENCE:
            if self._link is call.link:
                self._link = None
            call.link.retire(self._ping_timeout)
        call.drop()

    async def _current_link(self) -> Link:
        link = self._link
        if link is not None and link.usable:
            return link
        async with self._connecting:
            link = self._link
            if link is None or not link.usable:
                link = self._link = await self._connect()
        return link

    async def _connect(self) -> Link:
        self._refuse_if_closed()
        self._links = {link for link in self._links if not link.lost.is_set()}
        loop = asyncio.get_running_loop()
        link: Link | None = None
        try:
            with anyio.move_on_after(self._connect_timeout):
                _, link = await loop.create_unix_connection(Link, self.path)
        except OSError as exc:
            msg = f"unix://{self.path}: {_explain(exc)}"
            raise Unavailable(msg) from exc
        if link is None:
            msg = f"unix://{self.path}: no connection within {self._connect_timeout:g} s"
            raise Unavailable(msg)
        self._links.add(link)
        try:
            self._refuse_if_closed()  # which may have happened meanwhile
        except Unavailable:
            link.abort()
            raise
        return link

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise Unavailable("the channel is closed")


def _now() -> float:
    """Loop time, for a quarter of what anyio's own function costs."""
    return asyncio.get_running_loop().time()


@functools.cache
def _short(method: str) -> str:
    return method.rpartition("/")[2]


def _explain(exc: OSError) -> str:
    if isinstance(exc, FileNotFoundError):
        return "there is no such socket"
    if isinstance(exc, ConnectionRefusedError):
        return "nobody listens on the socket"
    if isinstance(exc, PermissionError):
        return "permission denied"
    return exc.strerror or str(exc)


def call_headers(
    method: str,
    limit: float = math.inf,
    metadata: Mapping[str, str] | None = None,
    *,
    authority: str = "localhost",
    user_agent: str = "nodeagent",
) -> Headers:
    """The headers of a call that may take ``limit`` seconds."""
    headers = _plain_headers(method, limit, authority, user_agent)
    return (*headers, *encode_metadata(MultiDict(metadata))) if metadata else headers


@functools.lru_cache(maxsize=512)
def _plain_headers(method: str, limit: float, authority: str, user_agent: str) -> Headers:
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", authority),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", user_agent),
    ]
    if limit < _NO_LIMIT:
        # A little later than our own deadline, so that ours is the one that is reported.
        headers.append(("grpc-timeout", encode_timeout(limit + 1)))
    return tuple(headers)


def raise_if_cut(call: Call | None, scope: CancelScope, method: str, limit: float) -> None:
    """Tell a call that was cut, or that took too long, from one that was cancelled."""
    if call is not None and call.cut is not None:
        raise Unavailable(call.cut, _short(method))
    if scope.cancelled_caught:
        msg = f"no answer within {limit:g} s"
        raise DeadlineExceeded(msg, _short(method))


@contextmanager
def named(method: str) -> Iterator[None]:
    """Errors from inside become :class:`RpcError` and carry the method."""
    try:
        yield
    except RpcError as exc:
        if not exc.method:
            exc.method = _short(method)
        raise
    except OSError as exc:
        msg = f"the connection broke: {exc!r}"
        raise Unavailable(msg, _short(method)) from exc
