"""The client's side of an HTTP/2 connection (RFC 9113), as far as gRPC over a socket needs it.

A general HTTP/2 library takes five times as long for a call. Here a call is one write of frames
that are mostly the same each time, and one pass over the bytes that come back.

What a stream's reader has not taken holds back that stream's window only: the window of the
connection is opened again for whatever arrives, also for streams that were given up.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

import anyio

from nodeagent.log import Log
from nodeagent.rpc.corked import Corked
from nodeagent.rpc.headers import HeaderReader
from nodeagent.rpc.http2_frames import (
    ACK,
    CANCEL,
    DATA,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW,
    FRAME,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    INITIAL_WINDOW,
    LARGEST_WINDOW,
    LAST_STREAM,
    LONG,
    MAGIC,
    MAX_FRAME,
    MAX_STREAMS,
    MORE,
    MOST_HEADERS,
    PING,
    PUSH,
    RST_STREAM,
    SETTING,
    SETTINGS,
    TWO_LONGS,
    WINDOW,
    Fault,
    frame,
    unpadded,
)
from nodeagent.rpc.http2_stream import Receiver, Stream

log = Log("rpc")

STREAM_WINDOW: Final = 4 * 2**20
"""Bytes that a stream may be ahead of its reader."""
CONNECTION_WINDOW: Final = 2**30


class Http2Client(asyncio.Protocol):
    """One connection. Subclasses decide what calls do with it.

    Attributes:
        transport: the socket.
        heard: how many times bytes have arrived.
        progress: how many times something of an answer has arrived: its bytes, or its end.
            Headers do not count: they get through although flow control lets nothing else.
        lost: set once the socket is closed.
        closed: no new stream may be opened, for whatever reason.
        unreturned: bytes that arrived and were not given back to the connection's window yet.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.transport: Corked
        self.heard = 0
        self.progress = 0
        self.lost = anyio.Event()
        self.closed = False
        self.unreturned = 0
        self._streams: dict[int, Stream] = {}
        self._next_stream = 1
        self._rest = b""
        self._headers = HeaderReader()
        self._block: tuple[int, int, list[bytes]] | None = None
        self._greeted = False
        self._window = FIRST_WINDOW
        self._first_window = FIRST_WINDOW
        self._max_frame = 16_384
        self._max_streams = LAST_STREAM
        self._paused = False
        self._changed: asyncio.Future[None] | None = None

    # -- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport = Corked(cast("asyncio.Transport", transport), self.loop)
        settings = b"".join(
            SETTING.pack(key, value)
            for key, value in (
                (ENABLE_PUSH, 0),
                (INITIAL_WINDOW, STREAM_WINDOW),
                (MAX_FRAME, FRAME),
            )
        )
        self.transport.write(MAGIC + frame(SETTINGS, 0, 0, settings))
        self._open_window(0, CONNECTION_WINDOW - FIRST_WINDOW)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        del exc
        self.end("the connection was lost")
        self.lost.set()

    def eof_received(self) -> None:
        """The server sends nothing more: close."""

    def pause_writing(self) -> None:
        """The server takes nothing at the moment."""
        self._paused = True

    def resume_writing(self) -> None:
        """It does again."""
        self._paused = False
        self._notify()

    def abort(self) -> None:
        """Close the socket now; what was not sent yet is dropped."""
        self.transport.abort()

    def end(self, reason: str) -> None:
        """Open no more streams, and end those that are open."""
        self.closed = True
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            if not stream.ended:
                stream.receiver.terminate(reason)
        self._notify()

    def data_received(self, data: bytes) -> None:
        """Take in bytes; whatever they break ends this connection and nothing else."""
        self.heard += 1
        try:
            self._read(self._rest + data if self._rest else data)
        except Exception as exc:  # noqa: BLE001 - header blocks break in many ways
            log.debug("connection_unreadable", error=repr(exc))
            self.end(f"what arrived is not HTTP/2: {exc}")
            self.transport.abort()

    # -- sending

    async def open(self, receiver: Receiver, block: bytes, body: bytes) -> None:
        """Open a stream, send its headers and the whole of its body.

        Args:
            receiver: gets its number, and what comes back, while this waits, too.
            block: the header block.
            body: all that is ever sent on the stream.

        Raises:
            ConnectionError: no stream can be opened.
        """
        while self._paused or len(self._streams) >= self._max_streams:
            self._refuse_if_closed()
            await self._change()
        self._refuse_if_closed()
        number, self._next_stream = self._next_stream, self._next_stream + 2
        if self._next_stream > LAST_STREAM:
            self.closed = True
        stream = self._streams[number] = Stream(receiver, self._first_window)
        receiver.number = number
        self._send_headers(number, block)
        if len(body) <= min(self._max_frame, self._window, stream.window):
            self._send_data(number, stream, body, end=True)
        else:
            await self._send_slowly(number, stream, body)

    def give_up(self, number: int) -> None:
        """Forget a stream; the server hears of it unless it is over."""
        stream = self._streams.pop(number, None)
        if stream is None:
            return
        if not (stream.ended and stream.sent_all) and not self.transport.is_closing():
            self.transport.write(frame(RST_STREAM, 0, number, LONG.pack(CANCEL)))
        self._notify()

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return len(self._streams)

    def open_window(self, number: int, size: int) -> None:
        """Let the server send so many more bytes on a stream."""
        stream = self._streams.get(number)
        if stream is not None and not stream.ended:
            self._open_window(number, size)

    def ping(self, payload: bytes) -> None:
        """Ask for a sign of life; 8 bytes."""
        self.transport.write(frame(PING, 0, 0, payload))

    def _send_headers(self, number: int, block: bytes) -> None:
        first, rest = block[: self._max_frame], block[self._max_frame :]
        self.transport.write(frame(HEADERS, 0 if rest else END_HEADERS, number, first))
        while rest:
            first, rest = rest[: self._max_frame], rest[self._max_frame :]
            self.transport.write(frame(MORE, 0 if rest else END_HEADERS, number, first))

    def _send_data(self, number: int, stream: Stream, part: bytes, *, end: bool) -> None:
        self._window -= len(part)
        stream.window -= len(part)
        stream.sent_all = end
        self.transport.write(frame(DATA, END_STREAM if end else 0, number, part))

    async def _send_slowly(self, number: int, stream: Stream, body: bytes) -> None:
        """Send a body as the windows allow; stop when the server does not want the rest."""
        position = 0
        while not stream.ended and self._streams.get(number) is stream:
            room = min(self._max_frame, self._window, stream.window)
            if room <= 0 or self._paused:
                await self._change()
                continue
            part = body[position : position + room]
            position += len(part)
            self._send_data(number, stream, part, end=position == len(body))
            if position == len(body):
                return

    def _open_window(self, number: int, size: int) -> None:
        self.transport.write(frame(WINDOW, 0, number, LONG.pack(size)))

    def _refuse_if_closed(self) -> None:
        if self.closed or self.transport.is_closing():
            raise ConnectionResetError("the connection was closed meanwhile")

    async def _change(self) -> None:
        """Wait until something has changed that may let us send."""
        if self._changed is None:
            self._changed = self.loop.create_future()
        await asyncio.shield(self._changed)

    def _notify(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)

    # -- receiving

    def _read(self, data: bytes) -> None:
        position, size = 0, len(data)
        while size - position >= 9:
            length = int.from_bytes(data[position : position + 3], "big")
            kind = data[position + 3]
            if length > FRAME or not (self._greeted or kind == SETTINGS):
                msg = f"a frame of kind {kind} with {length} bytes"
                raise Fault(msg)
            end = position + 9 + length
            if end > size:
                break
            flags = data[position + 4]
            number = int.from_bytes(data[position + 5 : position + 9], "big") & LAST_STREAM
            self._take(kind, flags, number, data[position + 9 : end])
            position = end
        self._rest = data[position:] if position < size else b""
        if self.unreturned > CONNECTION_WINDOW // 2:
            self._open_window(0, self.unreturned)
            self.unreturned = 0

    def _take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._block is not None and kind != MORE:
            raise Fault("a header block without its end")
        if kind == DATA:
            self._take_data(flags, number, payload)
        elif kind == HEADERS:
            self._take_headers(flags, number, payload)
        elif kind == RST_STREAM:
            self._take_reset(number, *LONG.unpack(payload))
        elif kind == WINDOW:
            self._take_window(number, *LONG.unpack(payload))
        elif kind == MORE:
            self._take_more(flags, number, payload)
        else:
            self._take_control(kind, flags, payload)

    def _take_control(self, kind: int, flags: int, payload: bytes) -> None:
        """Take in what is about the connection. Of priorities and extensions we know nothing."""
        if kind == SETTINGS:
            self._take_settings(flags, payload)
        elif kind == PING and not flags & ACK:
            self.transport.write(frame(PING, ACK, 0, payload))
        elif kind == GOAWAY:
            last, code = TWO_LONGS.unpack(payload[:8])
            self.going_away(last & LAST_STREAM, code)
        elif kind == PUSH:
            raise Fault("a promise, which was not asked for")

    def going_away(self, last: int, code: int) -> None:
        """The server takes no streams after ``last``."""
        del last
        self.end(f"the server ended the connection with GOAWAY, error {code}")
        self.transport.close()

    def _known(self, number: int) -> Stream | None:
        """A stream that is open; None for one that we have given up."""
        if number % 2 == 0 or number >= self._next_stream:
            msg = f"something about stream {number}, which was never opened"
            raise Fault(msg)
        return self._streams.get(number)

    def _take_data(self, flags: int, number: int, payload: bytes) -> None:
        self.unreturned += len(payload)
        stream = self._known(number)
        if stream is None or stream.ended:
            return
        end = bool(flags & END_STREAM)
        stream.ended = end
        self.progress += 1
        stream.receiver.take_data(unpadded(flags, payload), end=end)
        if end:
            self._over(number, stream)

    def _take_headers(self, flags: int, number: int, payload: bytes) -> None:
        block = unpadded(flags, payload)
        if flags & HAS_PRIORITY:
            block = block[5:]
        if flags & END_HEADERS:
            self._take_block(flags, number, block)
        else:
            self._block = (number, flags, [block])

    def _take_more(self, flags: int, number: int, payload: bytes) -> None:
        if self._block is None or self._block[0] != number:
            raise Fault("more of a header block that was not begun")
        _, first_flags, parts = self._block
        parts.append(payload)
        if sum(map(len, parts)) > MOST_HEADERS:
            raise Fault("a header block without measure")
        if flags & END_HEADERS:
            self._block = None
            self._take_block(first_flags, number, b"".join(parts))

    def _take_block(self, flags: int, number: int, block: bytes) -> None:
        headers = self._headers.read(block)  # for its effect on the tables, whoever it is for
        stream = self._known(number)
        if stream is None or stream.ended:
            return
        end = bool(flags & END_STREAM)
        stream.ended = end
        self.progress += end
        stream.receiver.take_headers(headers, end=end)
        if end:
            self._over(number, stream)

    def _take_reset(self, number: int, code: int) -> None:
        stream = self._known(number)
        if stream is None:
            return
        self.progress += 1
        stream.sent_all = True  # the server wants nothing more
        if not stream.ended:
            stream.ended = True
            stream.receiver.take_reset(code)
        self._over(number, stream)

    def _over(self, number: int, stream: Stream) -> None:
        if stream.sent_all:
            self._streams.pop(number, None)
        self._notify()

    def _take_settings(self, flags: int, payload: bytes) -> None:
        self._greeted = True
        if flags & ACK:
            return
        for key, value in SETTING.iter_unpack(payload):
            if key == INITIAL_WINDOW:
                for stream in self._streams.values():
                    stream.window += value - self._first_window
                self._first_window = value
            elif key == MAX_FRAME:
                self._max_frame = min(max(value, 16_384), 2**24 - 1)
            elif key == MAX_STREAMS:
                self._max_streams = value
        self.transport.write(frame(SETTINGS, ACK, 0))
        self._notify()

    def _take_window(self, number: int, size: int) -> None:
        size &= LAST_STREAM
        if number == 0:
            self._window += size
            if self._window > LARGEST_WINDOW:
                raise Fault("a window that is too large")
        elif (stream := self._known(number)) is not None:
            stream.window += size
        self._notify()
