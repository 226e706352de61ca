"""Serving gRPC on a unix socket, in one task group.

Handlers are the generated ``...Base`` classes. They raise :class:`RpcError` subclasses (or
grpclib's own error) to answer a status. A call whose client went away or whose deadline
passed is cancelled through an anyio scope, so a handler can shield what must not be torn.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import anyio
from anyio import CancelScope, to_thread
from grpclib.exceptions import GRPCError
from grpclib.metadata import decode_metadata, decode_timeout, encode_grpc_message
from grpclib.protocol import AbstractHandler, Stream
from h2.exceptions import ProtocolError, StreamClosedError
from h2.settings import SettingCodes
from hyperframe.frame import GoAwayFrame

from nodeagent.aio import background
from nodeagent.log import Log
from nodeagent.rpc import wire
from nodeagent.rpc.channel import check_path, decode
from nodeagent.rpc.errors import Code, Internal, InvalidArgument, ResourceExhausted, RpcError
from nodeagent.rpc.link import frame
from nodeagent.rpc.socket_file import bind, clear, unlink
from nodeagent.rpc.watched import Watched, read_frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from anyio.abc import TaskGroup
    from grpclib.const import Handler

log = Log("rpc.server")

_MAX_STREAMS: Final = 10_000
_GOODBYE: Final = 5.0
_ACCEPT_TURNS: Final = 4
_SEND_BUFFER: Final = 1 << 20
"""Bytes asked for: the lists of a node go out at once, and wake up their reader once."""


class Servable(Protocol):
    """A service: what the generated server bases are."""

    def __mapping__(self) -> Mapping[str, Handler]:
        """Handlers by the full name of their method."""
        ...


class ServerCall:
    """One call as its handler sees it; the part of grpclib's stream that handlers use.

    Attributes:
        path: the full name of the method.
    """

    def __init__(
        self,
        stream: Stream,
        handler: Handler,
        path: str,
        headers: list[tuple[str, str]],
        max_send: int | None = None,
    ) -> None:
        self._max_send = max_send
        self._headers = headers
        self.path = path
        self._stream = stream
        self._handler = handler
        self._headers_sent = False
        self._messages = 0

    @property
    def metadata(self) -> Mapping[str, str | bytes]:
        """The headers that the client sent along."""
        return decode_metadata(self._headers)

    async def recv_message(self) -> Any:
        """Wait for the next message of the client; None when there are no more."""
        data = await read_frame(self._stream)
        if data is None:
            return None
        try:
            return decode(data, self._handler.request_type)
        except Internal as exc:
            raise InvalidArgument(exc.message.replace("reply", "request", 1)) from exc

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        message = await self.recv_message()
        if message is None:
            raise StopAsyncIteration
        return message

    async def send_message(self, message: Any) -> None:
        """Send a message to the client. Raises ResourceExhausted when it is too large."""
        data = wire.encode(message)
        if self._max_send is not None and len(data) > self._max_send:
            msg = f"grpc: trying to send message larger than max ({len(data)} vs. {self._max_send})"
            raise ResourceExhausted(msg)
        if not self._headers_sent:
            self._headers_sent = True
            await self._stream.send_headers(
                [(":status", "200"), ("content-type", "application/grpc")]
            )
        self._messages += 1
        await self._stream.send_data(frame(data))

    async def finish(self, status: int, message: str) -> None:
        """Send the status; 0 is success."""
        if status == 0 and not self._messages and not self._handler.cardinality.server_streaming:
            status, message = Code.INTERNAL, "the handler gave no answer"
        await send_status(self._stream, status, message, first=not self._headers_sent)


async def send_status(stream: Stream, status: int, message: str, *, first: bool) -> None:
    """End a stream with a gRPC status; ``first`` when nothing was sent on it yet."""
    headers = [(":status", "200"), ("content-type", "application/grpc")] if first else []
    headers.append(("grpc-status", str(int(status))))
    if message:
        headers.append(("grpc-message", encode_grpc_message(message)))
    await stream.send_headers(headers, end_stream=True)
    if stream.closable:
        stream.reset_nowait()


class _Connection(AbstractHandler):
    """The calls of one client, each a task of the server's group."""

    def __init__(self, server: UnixServer) -> None:
        self._server = server
        self._scopes: dict[Stream, CancelScope] = {}
        self.closing = False

    def accept(
        self, stream: Stream, headers: list[tuple[str, str]], release_stream: Callable[[], None]
    ) -> None:
        """Start to answer a call, unless the client was told to go away."""
        if self.closing:
            return
        self._scopes[stream] = scope = CancelScope()
        self._server.tasks.start_soon(self._answer, stream, headers, release_stream, scope)

    def cancel(self, stream: Stream) -> None:
        """The client gave one call up."""
        if scope := self._scopes.pop(stream, None):
            scope.cancel()

    def close(self) -> None:
        """The client is gone."""
        for stream in tuple(self._scopes):
            self.cancel(stream)

    async def _answer(
        self,
        stream: Stream,
        headers: list[tuple[str, str]],
        release: Callable[[], None],
        scope: CancelScope,
    ) -> None:
        try:
            await self._dispatch(stream, headers, scope)
        except (OSError, ProtocolError, AttributeError) as exc:
            log.debug("answer_not_sent", error=repr(exc))
        finally:
            self._scopes.pop(stream, None)
            with contextlib.suppress(ProtocolError, AttributeError, KeyError):
                release()

    async def _dispatch(
        self, stream: Stream, headers: list[tuple[str, str]], scope: CancelScope
    ) -> None:
        table = dict(headers)
        kind = table.get("content-type", "")
        if table.get(":method") != "POST" or not kind.startswith("application/grpc"):
            await stream.send_headers([(":status", "415")], end_stream=True)
            return
        path = table.get(":path", "")
        handler = self._server.mapping.get(path)
        if handler is None:
            text = f"unknown method {path}"
            await send_status(stream, Code.UNIMPLEMENTED, text, first=True)
            return
        try:
            if "grpc-timeout" in table:
                now = asyncio.get_running_loop().time()
                scope.deadline = now + decode_timeout(table["grpc-timeout"])
        except ValueError as exc:
            await send_status(stream, Code.INVALID_ARGUMENT, str(exc), first=True)
            return
        call = ServerCall(stream, handler, path, headers, self._server.max_send)
        status, message = await _run(call, handler, scope)
        if stream in self._scopes:  # else nobody is there to hear it
            await call.finish(status, message)


async def _run(call: ServerCall, handler: Handler, scope: CancelScope) -> tuple[int, str]:
    status, message = 0, ""
    try:
        with scope:
            await handler.func(call)
    except RpcError as exc:
        return exc.code, exc.message
    except GRPCError as exc:
        return exc.status.value, exc.message or ""
    except StreamClosedError:
        # The client went away while the answer was made; nobody is there to hear it.
        return Code.CANCELLED, "the client has gone"
    except Exception as exc:  # noqa: BLE001 - a broken handler breaks its call, not the server
        log.fault("handler_failed", exc, method=call.path)
        return Code.UNKNOWN, f"{type(exc).__name__}: {exc}"
    if scope.cancelled_caught:
        status, message = Code.DEADLINE_EXCEEDED, "the deadline that the client set has passed"
    return status, message


class _ServerLink(Watched):
    """A server's connection."""

    def __init__(self, server: UnixServer) -> None:
        self._calls = _Connection(server)
        super().__init__(self._calls)
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet a client."""
        super().connection_made(transport)
        if (sock := transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self.h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: _MAX_STREAMS})
        self.connection.flush()
        self._server.links.add(self)
        if self._server.stalls_new:
            self.stall()

    def connection_lost(self, exc: BaseException | None) -> None:
        """A client has gone."""
        super().connection_lost(exc)
        self._server.links.discard(self)

    def send_goaway(self) -> None:
        """Have the client go elsewhere with new calls."""
        self._calls.closing = True
        # By hand: once h2 has sent the frame itself, it sends nothing more.
        goaway = GoAwayFrame(0, last_stream_id=self.h2.highest_inbound_stream_id)
        self.transport.write(goaway.serialize())

    def stall(self) -> None:
        """Let nothing through any more."""
        self.transport.pause_reading()
        self.connection.pause_writing()

    def resume(self) -> None:
        """Let everything through again."""
        self.transport.resume_reading()
        self.connection.resume_writing()

    def say_goodbye(self) -> None:
        """Tell the client that there will be no more answers, and close."""
        try:
            self.h2.close_connection()
            self.connection.flush()
        except (ProtocolError, AttributeError) as exc:
            log.debug("goodbye_not_said", error=repr(exc))
        self.processor.close("the server has stopped")


class UnixServer:
    """A server that serves, and what can befall its connections.

    Attributes:
        links: the connections there are.
        max_send: bytes that a message may have.
        stalls_new: connections are stalled from their beginning.
    """

    def __init__(
        self, services: Iterable[Servable], tasks: TaskGroup, max_send: int | None
    ) -> None:
        self.mapping = {
            path: handler for service in services for path, handler in service.__mapping__().items()
        }
        self.tasks = tasks
        self.max_send = max_send
        self.links: set[_ServerLink] = set()
        self.stalls_new = False
        self.killed = False

    def goaway(self) -> None:
        """Tell all clients to make new connections; what they have asked is still answered."""
        for link in self.links:
            link.send_goaway()

    def stall(self, *, new: bool = False) -> None:
        """Let no byte through any more, either way, as on a dead line.

        Args:
            new: on connections to come, too, as with a server that is frozen.
        """
        self.stalls_new = new
        for link in self.links:
            link.stall()

    def resume(self) -> None:
        """Undo :meth:`stall`."""
        self.stalls_new = False
        for link in self.links:
            link.resume()

    def drop(self) -> None:
        """Close all connections at once, without a word."""
        for link in tuple(self.links):
            link.abort()

    def kill(self) -> None:
        """Be as if killed: drop all connections; the socket file stays behind on leaving."""
        self.killed = True
        self.drop()

    def greet(self) -> _ServerLink:
        """Take a new connection."""
        return _ServerLink(self)

    async def close_links(self) -> None:
        """End all connections in order."""
        links = tuple(self.links)
        for link in links:
            if not self.killed:
                link.say_goodbye()
        with anyio.move_on_after(_GOODBYE, shield=True) as scope:
            for link in links:
                await link.lost.wait()
        if scope.cancelled_caught:
            for link in links:
                link.abort()


@asynccontextmanager
async def serve_unix(
    services: Iterable[Servable],
    path: str | os.PathLike[str],
    *,
    mode: int = 0o600,
    max_send: int | None = None,
) -> AsyncIterator[UnixServer]:
    """Serve gRPC on a unix socket while inside the context.

    A socket file that nobody listens on is replaced. On leaving, running handlers are
    cancelled and awaited, clients are told and disconnected, and the socket file is removed.

    Args:
        services: instances of generated server bases.
        path: where the socket is made; its directory must exist.
        mode: permissions of the socket file.
        max_send: refuse to send a message of more bytes, as servers in Go do; None for no limit.

    Raises:
        ValueError: the path is too long for a socket.
        OSError: the path is in use, is no socket, or cannot be made.
    """
    text = check_path(path)
    await to_thread.run_sync(clear, text)
    # Quick, and on the loop: a thread's result is lost when this task is cancelled meanwhile.
    sock = bind(text, mode)
    server: UnixServer | None = None
    inode = 0
    try:
        inode = await to_thread.run_sync(lambda: Path(text).lstat().st_ino)
        async with background() as tasks:
            server = UnixServer(services, tasks, max_send)
            listener = await asyncio.get_running_loop().create_unix_server(server.greet, sock=sock)
            try:
                yield server
            finally:
                for _ in range(_ACCEPT_TURNS):
                    # asyncio leaks a connection that it is accepting while its server closes.
                    await anyio.lowlevel.cancel_shielded_checkpoint()
                listener.close()
    finally:
        sock.close()
        if server is not None:
            await server.close_links()
        if server is None or not server.killed:
            with CancelScope(shield=True):
                await to_thread.run_sync(unlink, text, inode)
