"""A client's connection to a gRPC server, and one call on it.

Whoever waits on a call does so inside an anyio scope, and a call that is cut wakes through that
scope, so calls can be nested in scopes and task groups like anything else.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Final

from grpclib.metadata import decode_grpc_message

from nodeagent.log import Log
from nodeagent.rpc.errors import Code, Internal, ResourceExhausted, error_for
from nodeagent.rpc.headers import Headers, encode_headers
from nodeagent.rpc.http2 import STREAM_WINDOW, Http2Client
from nodeagent.rpc.http2_frames import NO_ERROR

if TYPE_CHECKING:
    from anyio import CancelScope

log = Log("rpc")

PREFIX: Final = struct.Struct(">BI")
"""What stands before each message: whether it is compressed, and its length."""

_PING: Final = b"nodeagnt"
_SILENCE: Final = 5.0
"""Seconds without a byte, while calls wait, after which the other side is pinged; and then, after
which a connection that stays silent is given up."""
_PING_PERIOD: Final = 330.0
"""Servers in Go hang up on pings that come, without data between them, within five minutes."""
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


def frame(payload: bytes) -> bytes:
    """Put gRPC's five-byte prefix before a message."""
    return PREFIX.pack(0, len(payload)) + payload


class Link(Http2Client):
    """A client's connection.

    Attributes:
        calls: the calls in flight.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: set[Call] = set()
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
        return not (self.closed or self._retired or self.transport.is_closing())

    def begin(self, call: Call) -> None:
        """A call is made: from now on this connection must make progress."""
        self.calls.add(call)
        if self._watch is None:
            self._heard_before, self._pinged = self.heard, False
            self._watch = self.loop.call_later(_SILENCE, self._check)

    def _check(self) -> None:
        self._watch = None
        if not self.calls or self.transport.is_closing() or self._probe is not None:
            return
        if self.heard != self._heard_before:
            self._pinged = False
        elif self._pinged:
            self.end("the connection made no progress")
            self.abort()
            return
        elif self._may_ping():
            self.ping(_PING)
            self._pinged, self._pinged_at = True, self.loop.time()
            self._progress_at_ping = self.progress
        self._heard_before = self.heard
        self._watch = self.loop.call_later(_SILENCE, self._check)

    def _may_ping(self) -> bool:
        fresh = self.progress != self._progress_at_ping
        return fresh or self.loop.time() - self._pinged_at >= _PING_PERIOD

    def going_away(self, last: int, code: int) -> None:
        """Make new calls elsewhere; those that the server has taken are answered."""
        if code != NO_ERROR:
            super().going_away(last, code)
            return
        self._retired = True
        for call in tuple(self.calls):
            if call.number == 0 or call.number > last:
                call.untaken = True
                call.terminate("the server takes no more calls on this connection")
        if not self.calls:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake all calls, those still waiting to be sent included."""
        super().connection_lost(exc)
        for timer in (self._probe, self._watch):
            if timer is not None:
                timer.cancel()
        for call in tuple(self.calls):
            call.terminate("the connection was lost")

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
        self.ping(_PING)
        self._probe = self.loop.call_later(patience, self._judge, self.heard)

    def _judge(self, heard_before: int) -> None:
        if self.heard == heard_before:
            self.end("the other side has stopped answering")
            self.abort()

    def forget(self, call: Call) -> None:
        """A call is over."""
        self.calls.discard(call)
        if self._retired and not self.calls:
            self.abort()


class Call:
    """One call. Whoever waits on it sets ``scope``; a cut cancels that scope.

    Attributes:
        number: of its stream; 0 until it is sent.
        began: loop time at which it was made.
        cut: why it was cut short, or None.
        untaken: the server said that it has not begun with it, so it may be made again.
        scope: the scope of the wait in progress.
    """

    def __init__(self, link: Link, scope: CancelScope) -> None:
        self.number = 0
        self.link = link
        self.scope = scope
        self.began = link.loop.time()
        self._progress_before = link.progress
        self.cut: str | None = None
        self.untaken = False
        self._answer: dict[str, str] | None = None
        self._trailers: dict[str, str] | None = None
        self._ended = False
        self._data = b""
        self._unread = 0
        self._news: asyncio.Future[None] | None = None
        link.begin(self)

    # -- what comes from the connection

    def take_headers(self, headers: dict[str, str], *, end: bool) -> None:
        """Headers have come."""
        if end:
            self._trailers, self._ended = headers, True
            if self._answer is None:
                self._answer = headers
        elif self._answer is None and not headers.get(":status", "").startswith("1"):
            self._answer = headers
        self._wake()

    def take_data(self, data: bytes, *, end: bool) -> None:
        """Bytes have come; the server may go on sending for as long as somebody reads."""
        self._data = self._data + data if self._data else data
        self._unread += len(data)
        self._ended = end
        if self._news is not None:
            self._make_room()
        self._wake()

    def take_reset(self, code: int) -> None:
        """The server ended the call."""
        self.terminate(f"the server reset the call (error {code})")

    def terminate(self, reason: str) -> None:
        """Cut the call, unless it has ended: what has arrived whole can still be read."""
        if self.cut is None and not self._ended:
            self.cut = reason
            self.scope.cancel()

    def _wake(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)

    async def _wait(self) -> None:
        """Wait until anything has come."""
        self._news = self.link.loop.create_future()
        await self._news

    def _make_room(self) -> None:
        if self._unread >= STREAM_WINDOW // 2:
            self.link.open_window(self.number, self._unread)
            self._unread = 0

    # -- what the caller does

    async def send(self, headers: Headers, payload: bytes) -> None:
        """Send the request, whole, or as much of it as the server wants."""
        await self.link.open(self, encode_headers(headers), frame(payload))

    async def receive(self, limit: int | None = None) -> bytes | None:
        """Wait for one message of the reply; None when there are no more.

        Args:
            limit: bytes that it may have; None for any size.

        Raises:
            RpcError: the server answered with an error status, with more than ``limit`` bytes, or
                with something that is no message.
        """
        while self._answer is None:
            await self._wait()
        _check_headers(self._answer)
        size = PREFIX.size
        while len(self._data) < size:
            if self._ended:
                if self._data:
                    raise Internal("the stream ends inside a message")
                await self.finish()
                return None
            await self._more()
            if len(self._data) >= PREFIX.size:
                size = PREFIX.size + _length(self._data, limit)
        size = PREFIX.size + _length(self._data, limit)
        if len(self._data) < size:
            await self._collect(size)
        message = self._data[PREFIX.size : size]
        self._data = self._data[size:]
        return message

    async def _more(self) -> None:
        self._make_room()
        await self._wait()

    async def _collect(self, size: int) -> None:
        """Wait until so many bytes are there; put large messages together once."""
        parts, have = [self._data], len(self._data)
        self._data = b""
        while have < size:
            if self._ended:
                raise Internal("the stream ends inside a message")
            await self._more()
            parts.append(self._data)
            have += len(self._data)
            self._data = b""
        self._data = b"".join(parts)

    async def finish(self) -> None:
        """Wait for the status.

        Raises:
            RpcError: it is not OK, or there is none.
        """
        while not self._ended:
            await self._wait()
        headers = self._trailers
        if headers is None or "grpc-status" not in headers:
            raise Internal("the reply ends without a status")
        _check_status(headers)

    def drop(self) -> None:
        """Give the call up or put it away; the server hears of it if it is not over."""
        if self.number:
            self.link.give_up(self.number)
        self.link.forget(self)

    @property
    def silent(self) -> bool:
        """Whether no answer at all has made progress on the connection since the call was made."""
        unanswered = not self._ended and self.cut is None
        return unanswered and self.link.progress == self._progress_before


def _length(data: bytes, limit: int | None) -> int:
    """The length of the message that the bytes begin with."""
    compressed, length = PREFIX.unpack_from(data)
    if compressed:
        raise Internal("the message is compressed, which was not negotiated")
    if limit is not None and length > limit:
        msg = f"the message has {length} bytes, more than {limit}"
        raise ResourceExhausted(msg)
    return int(length)


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
