"""Channels as messages of a WebSocket. No I/O.

The first byte of a message is the number of its channel. A message may come in parts: only its
first one has that byte.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from nodeagent.streaming.protocols import BASE64, V5

CLOSE: Final = 255
"""In version 5 the message ``CLOSE n`` ends channel ``n``."""
MOST_BASE64: Final = 4 * 2**20
"""Bytes of a message that has to be whole before it can be decoded."""


class MessageError(ValueError):
    """The other side does not keep to the protocol; the connection is of no more use."""


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a channel; ``end``: there will be no more."""

    channel: int
    data: bytes
    end: bool = False


class MessageReader:
    """Makes parts of channels out of parts of messages.

    Args:
        protocol: as agreed on.
    """

    def __init__(self, protocol: str) -> None:
        self._encoded = protocol in BASE64
        self._closes = protocol == V5
        self._channel: int | None = None
        self._held = b""

    def read(self, data: bytes, finished: bool) -> Part | None:
        """Take in a part of a message.

        Args:
            data: its bytes.
            finished: whether it was the last part.

        Raises:
            MessageError: it is none of the protocol's.
        """
        if self._encoded or (self._closes and self._channel in (None, CLOSE)):
            return self._read_held(data, finished)
        return self._read_part(data, finished)

    def _read_held(self, data: bytes, finished: bool) -> Part | None:
        self._held += data
        if self._closes and self._held and self._held[0] != CLOSE:
            data, self._held = self._held, b""
            return self._read_part(data, finished)
        if self._closes and self._held:
            self._channel = CLOSE
        if len(self._held) > (2 if self._closes else MOST_BASE64):
            raise MessageError("a message is too long")
        if not finished:
            return None
        whole, self._held, self._channel = self._held, b"", None
        if self._closes:
            return self._end(whole)
        return self._decoded(whole)

    def _end(self, whole: bytes) -> Part | None:
        if not whole:
            return None
        if len(whole) != 2:
            raise MessageError("a signal to close names no channel")
        return Part(whole[1], b"", end=True)

    def _decoded(self, whole: bytes) -> Part | None:
        if not whole:
            return None
        number = whole[0] - ord("0")
        if not 0 <= number < 10:
            raise MessageError("a message does not begin with the digit of a channel")
        try:
            return Part(number, base64.b64decode(whole[1:], validate=True))
        except binascii.Error as error:
            raise MessageError("a message is not in base64") from error

    def _read_part(self, data: bytes, finished: bool) -> Part | None:
        channel = self._channel
        if channel is None:
            if not data:
                return None
            channel, data = data[0], data[1:]
        self._channel = None if finished else channel
        return Part(channel, data)


def message(protocol: str, channel: int, data: bytes) -> bytes:
    """A message of a channel."""
    if protocol in BASE64:
        return bytes([ord("0") + channel]) + base64.b64encode(data)
    return bytes([channel]) + data


def closing(channel: int) -> bytes:
    """The message that ends a channel in version 5."""
    return bytes([CLOSE, channel])
