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
import stat
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import anyio
from anyio import CancelScope, create_task_group, to_thread
from grpclib.exceptions import GRPCError
from grpclib.metadata import decode_metadata, decode_timeout, encode_grpc_message
from grpclib.protocol import AbstractHandler, Stream
from h2.exceptions import ProtocolError, StreamClosedError
from h2.settings import SettingCodes

from nodeagent.log import Log
from nodeagent.rpc.channel import check_path, decode
from nodeagent.rpc.errors import Code, Internal, InvalidArgument, RpcError
from nodeagent.rpc.link import Watched, frame, read_frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from anyio.abc import TaskGroup
    from grpclib.const import Handler

log = Log("rpc.server")

_MAX_STREAMS: Final = 10_000
_GOODBYE: Final = 5.0
_ACCEPT_TURNS: Final = 4


class Servable(Protocol):
    """A service: what the generated server bases are."""

    def __mapping__(self) -> Mapping[str, Handler]:
        """Handlers by the full name of their method."""
        ...


class ServerCall:
    """One call as its handler sees it; the part of grpclib's stream that handlers use.

    Attributes:
        metadata: the headers that the client sent along.
        path: the full name of the method.
    """

    def __init__(self, stream: Stream, handler: Handler, headers: list[tuple[str, str]]) -> None:
        self.path = dict(headers)[":path"]
        self.metadata = decode_metadata(headers)
        self._stream = stream
        self._handler = handler
        self._headers_sent = False
        self._messages = 0

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
        """Send a message to the client."""
        if not self._headers_sent:
            self._headers_sent = True
            await self._stream.send_headers(
                [(":status", "200"), ("content-type", "application/grpc")]
            )
        self._messages += 1
        await self._stream.send_data(frame(bytes(message)))

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

    def __init__(self, mapping: Mapping[str, Handler], tasks: TaskGroup) -> None:
        self._mapping = mapping
        self._tasks = tasks
        self._scopes: dict[Stream, CancelScope] = {}

    def accept(
        self, stream: Stream, headers: list[tuple[str, str]], release_stream: Callable[[], None]
    ) -> None:
        """Start to answer a call."""
        self._scopes[stream] = scope = CancelScope()
        self._tasks.start_soon(self._answer, stream, headers, release_stream, scope)

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
        handler = self._mapping.get(path)
        if handler is None:
            text = f"unknown method {path}"
            await send_status(stream, Code.UNIMPLEMENTED, text, first=True)
            return
        try:
            if "grpc-timeout" in table:
                scope.deadline = anyio.current_time() + decode_timeout(table["grpc-timeout"])
        except ValueError as exc:
            await send_status(stream, Code.INVALID_ARGUMENT, str(exc), first=True)
            return
        call = ServerCall(stream, handler, headers)
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

    def __init__(self, server: _Server) -> None:
        super().__init__(_Connection(server.mapping, server.tasks), client_side=False)
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet a client."""
        super().connection_made(transport)
        self.h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: _MAX_STREAMS})
        self.connection.flush()
        self._server.links.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """A client has gone."""
        super().connection_lost(exc)
        self._server.links.discard(self)

    def say_goodbye(self) -> None:
        """Tell the client that there will be no more answers, and close."""
        try:
            self.h2.close_connection()
            self.connection.flush()
        except (ProtocolError, AttributeError) as exc:
            log.debug("goodbye_not_said", error=repr(exc))
        self.processor.close("the server has stopped")


class _Server:
    def __init__(self, services: Iterable[Servable], tasks: TaskGroup) -> None:
        self.mapping = {
            path: handler for service in services for path, handler in service.__mapping__().items()
        }
        self.tasks = tasks
        self.links: set[_ServerLink] = set()

    def greet(self) -> _ServerLink:
        return _ServerLink(self)

    async def close_links(self) -> None:
        links = tuple(self.links)
        for link in links:
            link.say_goodbye()
        with anyio.move_on_after(_GOODBYE, shield=True) as scope:
            for link in links:
                await link.lost.wait()
        if scope.cancelled_caught:
            for link in links:
                link.abort()


@asynccontextmanager
async def serve_unix(
    services: Iterable[Servable], path: str | os.PathLike[str], *, mode: int = 0o600
) -> AsyncIterator[None]:
    """Serve gRPC on a unix socket while inside the context.

    A socket file that nobody listens on is replaced. On leaving, running handlers are
    cancelled and awaited, clients are told and disconnected, and the socket file is removed.

    Args:
        services: instances of generated server bases.
        path: where the socket is made; its directory must exist.
        mode: permissions of the socket file.

    Raises:
        ValueError: the path is too long for a socket.
        OSError: the path is in use, is no socket, or cannot be made.
    """
    text = check_path(path)
    await to_thread.run_sync(_clear, text)
    # Quick, and on the loop: a thread's result is lost when this task is cancelled meanwhile.
    sock = _bind(text, mode)
    fault: Exception | None = None
    server: _Server | None = None
    inode = 0
    try:
        inode = await to_thread.run_sync(lambda: Path(text).lstat().st_ino)
        async with create_task_group() as tasks:
            server = _Server(services, tasks)
            listener = await asyncio.get_running_loop().create_unix_server(server.greet, sock=sock)
            try:
                yield
            except Exception as exc:  # noqa: BLE001 - raised again below, outside the group
                fault = exc
            finally:
                for _ in range(_ACCEPT_TURNS):
                    # asyncio leaks a connection that it is accepting while its server closes.
                    await anyio.lowlevel.cancel_shielded_checkpoint()
                listener.close()
                tasks.cancel_scope.cancel()
    finally:
        sock.close()
        if server is not None:
            await server.close_links()
        with CancelScope(shield=True):
            await to_thread.run_sync(_unlink, text, inode)
    if fault is not None:
        raise fault


def _bind(path: str, mode: int) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The file takes over the mode that the socket has when it is bound.
        os.fchmod(sock.fileno(), mode)
        try:
            sock.bind(path)
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, path) from exc
        sock.listen(128)
    except BaseException:
        sock.close()
        raise
    return sock


def _clear(path: str) -> None:
    """Remove a socket that nobody listens on."""
    try:
        found = Path(path).lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        msg = f"{path} exists and is not a socket: choose another path or remove it"
        raise FileExistsError(msg)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
            return
        except FileNotFoundError:
            return
    msg = f"{path} is in use: another server listens on it"
    raise OSError(msg)


def _unlink(path: str, inode: int) -> None:
    # A successor may have put its own socket there meanwhile.
    with contextlib.suppress(FileNotFoundError):
        if Path(path).lstat().st_ino == inode:
            Path(path).unlink()
