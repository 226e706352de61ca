"""SPDY/3.1 as exec, attach and port-forward use it: one connection, many streams. No I/O.

Windows are neither kept nor granted: no peer of this protocol in Kubernetes does, and one that
waited for a grant would wait for ever. What holds a sender up is the connection.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nodeagent.streaming.spdy_headers import HeaderError, HeaderReader, HeaderWriter

MOST_CONTROL: Final = 64 * 1024
"""Bytes of a control frame. Data frames may have any size: they are passed on in parts."""
MOST_STREAMS: Final = 1024
"""Streams that the other side may have open at a time."""
MOST_DATA: Final = 32 * 1024
"""Bytes of a data frame that is sent."""
_HEAD: Final = struct.Struct("!II")
_ID: Final = struct.Struct("!I")
_PAIR: Final = struct.Struct("!II")
_CONTROL: Final = 0x80000000
_VERSION: Final = 3
_FIN: Final = 0x01
_SYN_STREAM, _SYN_REPLY, _RST, _SETTINGS, _PING, _GOAWAY, _HEADERS, _WINDOW = (
    1, 2, 3, 4, 6, 7, 8, 9,
)  # fmt: skip
_IGNORED: Final = (_SETTINGS, _WINDOW)
PROTOCOL_ERROR: Final = 1
REFUSED: Final = 3
CANCEL: Final = 5


class SpdyError(ValueError):
    """The other side does not keep to the protocol; the connection is of no more use."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The other side has opened a stream; it waits for a reply."""

    stream: int
    headers: Mapping[str, str]
    fin: bool


@dataclass(frozen=True, slots=True)
class Replied:
    """The other side has taken a stream that was opened here."""

    stream: int
    headers: Mapping[str, str]
    fin: bool


@dataclass(frozen=True, slots=True)
class Data:
    """Bytes of a stream, whole frames or parts; ``fin``: the last ones."""

    stream: int
    data: bytes
    fin: bool


@dataclass(frozen=True, slots=True)
class Reset:
    """A stream is over in both directions."""

    stream: int
    status: int


@dataclass(frozen=True, slots=True)
class GoneAway:
    """The other side opens and takes no more streams."""


Event = Opened | Replied | Data | Reset | GoneAway


@dataclass(slots=True)
class _Stream:
    own: bool
    ended_here: bool = False
    ended_there: bool = False


@dataclass(slots=True)
class _Part:
    """A data frame that is being received."""

    stream: int
    left: int
    fin: bool


@dataclass(slots=True)
class SpdyConnection:
    """One side of a connection.

    Args:
        client: whether it is the side that has asked for the upgrade.
    """

    client: bool
    _streams: dict[int, _Stream] = field(default_factory=dict)
    _in: bytearray = field(default_factory=bytearray)
    _out: list[bytes] = field(default_factory=list)
    _part: _Part | None = None
    _last_own: int = 0
    _last_other: int = 0
    _reader: HeaderReader = field(default_factory=HeaderReader)
    _writer: HeaderWriter = field(default_factory=HeaderWriter)

    # -- sending -----------------------------------------------------------------------------

    def take(self) -> bytes:
        """What is to be sent; it is forgotten here."""
        out = b"".join(self._out)
        self._out.clear()
        return out

    def open(self, headers: Mapping[str, str], *, fin: bool = False) -> int:
        """Open a stream; returns its id."""
        self._last_own = self._last_own + 2 if self._last_own else (1 if self.client else 2)
        stream = self._last_own
        self._streams[stream] = _Stream(own=True, ended_here=fin)
        body = _PAIR.pack(stream, 0) + b"\0\0" + self._writer.write(headers)
        self._control(_SYN_STREAM, body, _FIN if fin else 0)
        return stream

    def reply(self, stream: int, headers: Mapping[str, str] | None = None) -> None:
        """Take a stream that the other side has opened."""
        if stream in self._streams:
            self._control(_SYN_REPLY, _ID.pack(stream) + self._writer.write(headers or {}))

    def send(self, stream: int, data: bytes, *, fin: bool = False) -> None:
        """Send bytes of a stream, and with ``fin`` its end. Nothing goes to one that is over."""
        found = self._streams.get(stream)
        if found is None or found.ended_here:
            return
        for at in range(0, len(data), MOST_DATA):
            part = data[at : at + MOST_DATA]
            last = fin and at + MOST_DATA >= len(data)
            self._out.append(_HEAD.pack(stream, (_FIN << 24 if last else 0) | len(part)) + part)
        if fin and not data:
            self._out.append(_HEAD.pack(stream, _FIN << 24))
        if fin:
            found.ended_here = True
            self._forget_if_over(stream)

    def reset(self, stream: int, status: int = CANCEL) -> None:
        """End a stream in both directions."""
        if self._streams.pop(stream, None) is not None:
            self._control(_RST, _PAIR.pack(stream, status))

    def go_away(self) -> None:
        """Say that there will be no more streams."""
        self._control(_GOAWAY, _PAIR.pack(self._last_other, 0))

    def _control(self, kind: int, body: bytes, flags: int = 0) -> None:
        first = _CONTROL | _VERSION << 16 | kind
        self._out.append(_HEAD.pack(first, flags << 24 | len(body)) + body)

    # -- receiving ---------------------------------------------------------------------------

    def receive(self, data: bytes) -> list[Event]:
        """Take in what the other side has sent; what follows from it.

        Raises:
            SpdyError: it does not keep to the protocol.
        """
        self._in += data
        events: list[Event] = []
        try:
            while self._step(events):
                pass
        except HeaderError as error:
            raise SpdyError(str(error)) from error
        except struct.error as error:
            raise SpdyError("a frame ends too early") from error
        return events

    def _step(self, events: list[Event]) -> bool:
        """Read one frame, or the part of one that is there; False when that is too little."""
        if self._part is not None:
            return self._read_part(self._part, events)
        if len(self._in) < _HEAD.size:
            return False
        first, second = _HEAD.unpack_from(self._in)
        flags, size = second >> 24, second & 0xFFFFFF
        if not first & _CONTROL:
            del self._in[: _HEAD.size]
            self._part = _Part(first, size, bool(flags & _FIN))
            return True
        if first >> 16 & 0x7FFF != _VERSION:
            msg = f"a frame of version {first >> 16 & 0x7FFF}: only SPDY/3.1 is known"
            raise SpdyError(msg)
        if size > MOST_CONTROL:
            msg = f"a control frame of {size} bytes: {MOST_CONTROL} are allowed"
            raise SpdyError(msg)
        if len(self._in) < _HEAD.size + size:
            return False
        body = bytes(self._in[_HEAD.size : _HEAD.size + size])
        del self._in[: _HEAD.size + size]
        self._read_control(first & 0xFFFF, flags, body, events)
        return True

    def _read_part(self, part: _Part, events: list[Event]) -> bool:
        data = bytes(self._in[: part.left])
        if part.left and not data:
            return False
        del self._in[: part.left]
        part.left -= len(data)
        last = part.fin and not part.left
        if not part.left:
            self._part = None
        self._on_data(part.stream, data, last, events)
        return True

    def _on_data(self, stream: int, data: bytes, fin: bool, events: list[Event]) -> None:
        found = self._streams.get(stream)
        if found is None:
            return  # it was reset a moment ago
        if found.ended_there:
            self.reset(stream, PROTOCOL_ERROR)
            events.append(Reset(stream, PROTOCOL_ERROR))
            return
        if data or fin:
            events.append(Data(stream, data, fin))
        if fin:
            self._end_there(stream)

    def _read_control(self, kind: int, flags: int, body: bytes, events: list[Event]) -> None:
        fin = bool(flags & _FIN)
        if kind == _SYN_STREAM:
            self._on_open(body, fin, events)
        elif kind in (_SYN_REPLY, _HEADERS):
            (stream,) = _ID.unpack_from(body)
            headers = self._reader.read(body[_ID.size :])  # also of no use: blocks build on others
            if stream in self._streams and kind == _SYN_REPLY:
                events.append(Replied(stream, headers, fin))
            if fin and stream in self._streams:
                events.append(Data(stream, b"", fin=True))
                self._end_there(stream)
        elif kind == _RST:
            stream, status = _PAIR.unpack(body)
            if self._streams.pop(stream, None) is not None:
                events.append(Reset(stream, status))
        elif kind == _PING:
            (number,) = _ID.unpack(body)
            if bool(number % 2) != self.client:
                self._control(_PING, body)
        elif kind == _GOAWAY:
            events.append(GoneAway())
        elif kind not in _IGNORED:
            return  # unknown ones are to be ignored

    def _on_open(self, body: bytes, fin: bool, events: list[Event]) -> None:
        stream, _ = _PAIR.unpack_from(body)
        headers = self._reader.read(body[_PAIR.size + 2 :])
        if bool(stream % 2) == self.client or stream <= self._last_other or stream & _CONTROL:
            msg = f"the other side must not open a stream {stream} now"
            raise SpdyError(msg)
        self._last_other = stream
        if sum(not one.own for one in self._streams.values()) >= MOST_STREAMS:
            self._control(_RST, _PAIR.pack(stream, REFUSED))
            return
        self._streams[stream] = _Stream(own=False, ended_there=fin)
        events.append(Opened(stream, headers, fin))

    def _end_there(self, stream: int) -> None:
        self._streams[stream].ended_there = True
        self._forget_if_over(stream)

    def _forget_if_over(self, stream: int) -> None:
        found = self._streams[stream]
        if found.ended_here and found.ended_there:
            del self._streams[stream]
