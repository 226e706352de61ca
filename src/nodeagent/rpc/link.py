"""One HTTP/2 connection, and one call on it, seen from the client.

grpclib's own client wakes a waiting call by cancelling its task, which leaves the task's
cancel count raised. Here a call that is cut wakes through an anyio scope instead, so calls
can be nested in scopes and task groups like anything else.
"""

from __future__ import annotations

import asyncio
import functools
import struct
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from grpclib.config import Configuration
from grpclib.metadata import decode_grpc_message
from grpclib.protocol import AbstractHandler, H2Protocol, Stream
from h2.config import H2Configuration
from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, StreamEnded, StreamReset
from h2.exceptions import ProtocolError, StreamClosedError
from hyperframe.frame import GoAwayFrame

from nodeagent.log import Log
from nodeagent.rpc.corked import Corked
from nodeagent.rpc.errors import Code, Internal, ResourceExhausted, error_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio import CancelScope
    from h2.connection import H2Connection

log = Log("rpc")

# One stream that nobody reads may hold its own window back, never the whole connection.
_STREAM_WINDOW: Final = 4 * 2**20
_CONNECTION_WINDOW: Final = 2**30
_PING: Final = b"nodeagnt"
_SILENCE: Final = 5.0
"""Seconds without a byte, while calls wait, after which the other side is pinged; and then, after
which a connection that stays silent is given up."""
_PING_PERIOD: Final = 330.0
"""Servers in Go hang up on pings that come, without data between them, within five minutes."""
_PREFIX: Final = struct.Struct(">BI")
_STATUS_OF_HTTP: Final = {
    "400": Code.INTERNAL,
    "401": Code.UNAUTHENTICATED,
    "403": Code.PERMISSION_DENIED,
    "404": Code.UNIMPLEMENTED,
    "429": Code.UNAVAILABLE,
    "502": Code.UNAVAILABLE,
    "503": Code.UNAVAILABLE,
    "504": Code.UNAVAILABLE,
}


def h2_settings(*, client_side: bool) -> H2Configuration:
    """Settings of the HTTP/2 state machine: no validation of what gRPC peers send anyway."""
    return H2Configuration(
        client_side=client_side,
        header_encoding="ascii",
        validate_inbound_headers=False,
        validate_outbound_headers=False,
        normalize_inbound_headers=False,
        normalize_outbound_headers=False,
    )


@functools.cache
def link_settings(*, client_side: bool) -> Configuration:
    """Window sizes, for either side. Checking them costs more than a small call."""
    config = Configuration(
        http2_connection_window_size=_CONNECTION_WINDOW, http2_stream_window_size=_STREAM_WINDOW
    )
    return config.__for_client__() if client_side else config.__for_server__()


def frame(payload: bytes) -> bytes:
    """Put gRPC's five-byte prefix before a message."""
    return _PREFIX.pack(0, len(payload)) + payload


async def read_frame(stream: Stream, limit: int | None = None) -> bytes | None:
    """Read one message from a stream; None at its end.

    Args:
        stream: the stream.
        limit: bytes that the message may have; None for any size.

    Raises:
        Internal: the stream ends inside a message, or the message is compressed.
        ResourceExhausted: the message is larger than allowed.
    """
    try:
        prefix = await stream.recv_data(_PREFIX.size)
        if not prefix:
            return None
        compressed, length = _PREFIX.unpack(prefix)
        if compressed:
            raise Internal("the message is compressed, which was not negotiated")
        if limit is not None and length > limit:
            msg = f"the message has {length} bytes, more than {limit}"
            raise ResourceExhausted(msg)
        payload = await stream.recv_data(length)
    except AssertionError as exc:  # grpclib's word for a stream that ends too early
        raise Internal("the stream ends inside a message") from exc
    if len(payload) != length:
        raise Internal("the stream ends inside a message")
    return payload


class Watched(H2Protocol):
    """A connection that notes when it last heard anything and can be waited for.

    Attributes:
        heard: how many times bytes have arrived.
        lost: set once the socket is closed.
    """

    def __init__(self, handler: AbstractHandler, *, client_side: bool) -> None:
        config = link_settings(client_side=client_side)
        super().__init__(handler, config, h2_settings(client_side=client_side))
        self._loop = asyncio.get_running_loop()
        self.heard = 0
        self.lost = anyio.Event()
        self.transport: Corked

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start HTTP/2 on a fresh socket."""
        self.transport = Corked(cast("asyncio.Transport", transport), self._loop)
        super().connection_made(self.transport)

    @property
    def h2(self) -> H2Connection:
        """The HTTP/2 state machine."""
        return self.connection._connection

    def data_received(self, data: bytes) -> None:
        """Take in bytes; whatever they break ends this connection and nothing else."""
        self.heard += 1
        try:
            super().data_received(data)
        except Exception as exc:  # noqa: BLE001 - garbage breaks h2 in many ways
            log.debug("connection_unreadable", error=repr(exc))
            self.processor.close(f"what arrived is not HTTP/2: {exc!r}")

    def connection_lost(self, exc: BaseException | None) -> None:
        """End everything that still waits on this connection."""
        super().connection_lost(exc)
        self.lost.set()

    def abort(self) -> None:
        """Close the socket now; what was not sent yet is dropped."""
        self.transport.abort()


class _ClientHandler(AbstractHandler):
    closed = False

    def accept(self, stream: Stream, headers: object, release_stream: object) -> None:
        """Refuse what a server has no business to send."""
        raise NotImplementedError("a server does not open streams")

    def cancel(self, stream: Stream) -> None:
        """Nothing to do: the call itself was told."""

    def close(self) -> None:
        """Remember that no further call can go here."""
        self.closed = True


class Link(Watched):
    """A client's connection.

    Attributes:
        calls: the calls in flight.
        progress: how many times something of an answer has arrived: its bytes, or its end.
            Headers do not count: they get through although flow control lets nothing else.
    """

    def __init__(self) -> None:
        self._handler = _ClientHandler()
        super().__init__(self._handler, client_side=True)
        self.calls: set[Call] = set()
        self.progress = 0
        self._retired = False
        self._probe: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._heard_before = 0
        self._pinged = False
        self._progress_at_ping = -1
        self._pinged_at = 0.0

    @property
    def usable(self) -> bool:
        """Whether a new call may go here."""
        return not (self._handler.closed or self._retired or self.transport.is_closing())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start, and take GOAWAY as other gRPC clients do.

        h2 ends the connection at a GOAWAY. It only means that new calls go elsewhere: calls
        that the server has taken are answered.
        """
        super().connection_made(transport)
        processors: dict[type, Any] = self.processor.processors
        for kind in (DataReceived, StreamEnded, StreamReset):
            processors[kind] = self._counted(processors[kind])
        table = self.h2._frame_dispatch_table
        end = table[GoAwayFrame]

        def receive(frame: GoAwayFrame) -> object:
            if frame.error_code != ErrorCodes.NO_ERROR:
                return end(frame)
            self._go_away(frame.last_stream_id)
            return [], []

        table[GoAwayFrame] = receive

    def _counted(self, process: Callable[[Event], None]) -> Callable[[Event], None]:
        def count(event: Event) -> None:
            self.progress += 1
            process(event)

        return count

    def begin(self, call: Call) -> None:
        """A call is made: from now on this connection must make progress."""
        self.calls.add(call)
        if self._watch is None:
            self._heard_before, self._pinged = self.heard, False
            self._watch = self._loop.call_later(_SILENCE, self._check)

    def _check(self) -> None:
        self._watch = None
        if not self.calls or self.transport.is_closing() or self._probe is not None:
            return
        if self.heard != self._heard_before:
            self._pinged = False
        elif self._pinged:
            self.processor.close("the connection made no progress")
            self.abort()
            return
        elif self._may_ping():
            self.h2.ping(_PING)
            self.connection.flush()
            self._pinged, self._pinged_at = True, self._loop.time()
            self._progress_at_ping = self.progress
        self._heard_before = self.heard
        self._watch = self._loop.call_later(_SILENCE, self._check)

    def _may_ping(self) -> bool:
        fresh = self.progress != self._progress_at_ping
        return fresh or self._loop.time() - self._pinged_at >= _PING_PERIOD

    def _go_away(self, last: int) -> None:
        self._retired = True
        for call in tuple(self.calls):
            if call.id is None or call.id > last:
                call.untaken = True
                call.__terminated__("the server takes no more calls on this connection")
        if not self.calls:
            self.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Wake all calls, those still waiting to be sent included."""
        super().connection_lost(exc)
        for timer in (self._probe, self._watch):
            if timer is not None:
                timer.cancel()
        for call in tuple(self.calls):
            call.__terminated__("the connection was lost")

    def retire(self, patience: float) -> None:
        """Take no more calls; close when the last one ends, or when a ping stays unanswered.

        Args:
            patience: seconds that the other side has to answer the ping.
        """
        if self._retired or self.transport.is_closing():
            return
        self._retired = True
        if not self.calls:
            self.abort()
            return
        self.h2.ping(_PING)
        self.connection.flush()
        self._probe = self._loop.call_later(patience, self._judge, self.heard)

    def _judge(self, heard_before: int) -> None:
        if self.heard == heard_before:
            self.processor.close("the other side has stopped answering")
            self.abort()

    def forget(self, call: Call) -> None:
        """A call is over."""
        self.calls.discard(call)
        if self._retired and not self.calls:
            self.abort()


class Call(Stream):
    """One call. Whoever waits on it sets ``scope``; a cut cancels that scope.

    Attributes:
        began: loop time at which it was made.
        cut: why it was cut short, or None.
        untaken: the server said that it has not begun with it, so it may be made again.
        scope: the scope of the wait in progress.
    """

    def __init__(self, link: Link, scope: CancelScope) -> None:
        super().__init__(link.connection, link.h2, link.transport)
        self.link = link
        self.scope = scope
        self.began = anyio.current_time()
        self._progress_before = link.progress
        self.cut: str | None = None
        self.untaken = False
        self._ended = False
        self._release: Callable[[], None] | None = None
        link.begin(self)

    def __ended__(self) -> None:
        super().__ended__()
        self._ended = True
        self.trailers_received.set()

    def __terminated__(self, reason: str) -> None:
        # What has arrived whole can still be read: a late reset takes nothing away.
        if self.cut is None and not self._ended:
            self.cut = reason
            self.scope.cancel()

    async def send(self, headers: list[tuple[str, str]], payload: bytes) -> None:
        """Send the request, whole."""
        self._release = await self.send_request(headers, _processor=self.link.processor)
        try:
            await self.send_data(frame(payload), end_stream=True)
        except StreamClosedError:
            log.debug("answered_before_the_request_was_sent")

    async def receive(self, limit: int | None = None) -> bytes | None:
        """Wait for one message of the reply; None when there are no more.

        Raises:
            RpcError: the server answered with an error status, or with more than ``limit`` bytes.
        """
        headers = dict(await self.recv_headers())
        _check_headers(headers)
        payload = await read_frame(self, limit)
        if payload is None:
            await self.finish()
        return payload

    async def finish(self) -> None:
        """Wait for the status.

        Raises:
            RpcError: it is not OK, or there is none.
        """
        await self.trailers_received.wait()
        headers = dict(self.trailers or ())
        if "grpc-status" not in headers:
            raise Internal("the reply ends without a status")
        _check_status(headers)

    def drop(self) -> None:
        """Give the call up or put it away; the server hears of it if it is not over."""
        if self._release is not None:
            # Each step for itself: what is not released holds back the window of all calls.
            for step in (self._give_up, self._release):
                try:
                    step()
                except (ProtocolError, AttributeError) as exc:  # the connection is gone already
                    log.debug("call_ended_after_its_connection", error=repr(exc))
        self.link.forget(self)

    def _give_up(self) -> None:
        if self.closable:
            self.reset_nowait(ErrorCodes.CANCEL)

    @property
    def silent(self) -> bool:
        """Whether no answer at all has made progress on the connection since the call was made."""
        unanswered = not self._ended and self.cut is None
        return unanswered and self.link.progress == self._progress_before


def _check_headers(headers: dict[str, str]) -> None:
    status = headers.get(":status", "")
    if status != "200" and "grpc-status" not in headers:
        code = _STATUS_OF_HTTP.get(status, Code.UNKNOWN)
        raise error_for(code, f"the other side answered HTTP {status or 'without a status'}")
    if "grpc-status" in headers:
        _check_status(headers)
    kind = headers.get("content-type", "")
    if not kind.startswith("application/grpc"):
        raise error_for(Code.UNKNOWN, f"the other side does not speak gRPC (it sent {kind!r})")


def _check_status(headers: dict[str, str]) -> None:
    text = headers["grpc-status"]
    if text == "0":
        return
    message = decode_grpc_message(headers.get("grpc-message", ""))
    if not text.isdecimal():
        message = f"unreadable status {text!r} {message}".rstrip()
    raise error_for(int(text) if text.isdecimal() else Code.UNKNOWN, message)
