"""The frames of HTTP/2 (RFC 9113), as far as a client of gRPC needs them."""

from __future__ import annotations

import struct
from typing import Final

MAGIC: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA: Final = 0
HEADERS: Final = 1
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW: Final = 8
MORE: Final = 9
END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
HAS_PRIORITY: Final = 0x20
MAX_STREAMS: Final = 0x3
INITIAL_WINDOW: Final = 0x4
MAX_FRAME: Final = 0x5
ENABLE_PUSH: Final = 0x2
SETTING: Final = struct.Struct(">HI")
LONG: Final = struct.Struct(">I")
TWO_LONGS: Final = struct.Struct(">II")

NO_ERROR: Final = 0x0
CANCEL: Final = 0x8

FIRST_WINDOW: Final = 65_535
LARGEST_WINDOW: Final = 2**31 - 1
FRAME: Final = 2**20
"""Bytes of a frame that we take; servers in Go never send more than 16 KiB in one."""
MOST_HEADERS: Final = 2**20
LAST_STREAM: Final = 2**31 - 1


class Fault(Exception):  # noqa: N818 - ends the connection with a reason
    """What arrived cannot be understood."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame."""
    head = (len(payload) << 8 | kind).to_bytes(4, "big")
    return head + bytes((flags,)) + stream.to_bytes(4, "big") + payload


def unpadded(flags: int, payload: bytes) -> bytes:
    """What a frame carries, without its padding.

    Raises:
        Fault: there is more padding than frame.
    """
    if not flags & PADDED:
        return payload
    padding = payload[0]
    if padding >= len(payload):
        raise Fault("more padding than frame")
    return payload[1 : len(payload) - padding]
