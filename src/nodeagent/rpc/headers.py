"""Header blocks of HTTP/2 for a client that sends and gets the same few over and over.

What we send is written without the dynamic table, so that the same headers are always the same
bytes and are encoded once. What we get is decoded by hpack; a block that only points into the
tables says the same again until something enters the dynamic table, and is then just looked up.
"""

from __future__ import annotations

import functools
from typing import Final, TypeAlias

from hpack import Decoder

Headers: TypeAlias = tuple[tuple[str, str], ...]

_WHOLE: Final = {(":method", "POST"): 3, (":scheme", "http"): 6, (":scheme", "https"): 7}
"""Headers that stand in the static table with their value (RFC 7541, appendix A)."""
_NAMES: Final = {":authority": 1, ":path": 4, "content-type": 31, "user-agent": 58}
_MOST_KNOWN: Final = 64


@functools.lru_cache(maxsize=512)
def encode_headers(headers: Headers) -> bytes:
    """The header block of some headers; names in lower case, all of it ASCII.

    Raises:
        UnicodeEncodeError: something is not ASCII.
    """
    out = bytearray()
    for name, value in headers:
        whole = _WHOLE.get((name, value))
        if whole is not None:
            out.append(0x80 | whole)
            continue
        known = _NAMES.get(name)
        # A literal that is not to enter the dynamic table.
        out += _integer(known or 0, 4)
        if known is None:
            out += _text(name)
        out += _text(value)
    return bytes(out)


def _text(text: str) -> bytes:
    data = text.encode("ascii")
    return _integer(len(data), 7) + data


def _integer(number: int, bits: int) -> bytes:
    """A number in a byte's lowest ``bits`` and, if it does not fit, in further bytes."""
    most = (1 << bits) - 1
    if number < most:
        return bytes((number,))
    out = bytearray((most,))
    number -= most
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class HeaderReader:
    """Decodes the header blocks of one connection, in the order in which they came."""

    def __init__(self) -> None:
        self._decoder = Decoder()
        self._known: dict[bytes, dict[str, str]] = {}

    def read(self, block: bytes) -> dict[str, str]:
        """The headers of a block, to be read only; of several with one name, the last.

        Raises:
            Exception: the block is damaged; the connection cannot go on.
        """
        known = self._known.get(block)
        if known is not None:
            return known
        headers = {str(name): str(value) for name, value in self._decoder.decode(block)}
        # Bytes from 0x80 to 0xfe are whole headers of the tables, which stay as they are.
        if not all(0x80 <= byte < 0xFF for byte in block):
            self._known.clear()
        elif len(self._known) < _MOST_KNOWN:
            self._known[block] = headers
        return headers
