"""Header blocks of SPDY/3.1: pairs of texts, compressed over the whole connection. No I/O."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Final

MOST_PLAIN: Final = 256 * 1024
"""Bytes of one header block after decompression."""
_COUNT: Final = struct.Struct("!I")
_WORDS: Final = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language"
    " accept-ranges age allow authorization cache-control connection content-base"
    " content-encoding content-language content-length content-location content-md5"
    " content-range content-type date etag expect expires from host if-match"
    " if-modified-since if-none-match if-range if-unmodified-since last-modified location"
    " max-forwards pragma proxy-authenticate proxy-authorization range referer retry-after"
    " server te trailer transfer-encoding upgrade user-agent vary via warning"
    " www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie"
    " keep-alive origin"
)
_TAIL: Final = (
    b"100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    b"203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
    b"401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
    b"503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00"
    b" Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,"
    b"application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,"
    b"deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _counted(data: bytes) -> bytes:
    return _COUNT.pack(len(data)) + data


DICTIONARY: Final = (
    b"".join(_counted(word.replace("_", " ").encode()) for word in _WORDS.split()) + _TAIL
)
"""What both sides know before the first header, as SPDY/3 section 2.6.10.1 has it."""


class HeaderError(ValueError):
    """A header block cannot be read; the connection is of no more use."""


class HeaderWriter:
    """Makes header blocks, in the order in which they are sent."""

    def __init__(self) -> None:
        self._zip = zlib.compressobj(zdict=DICTIONARY)

    def write(self, headers: Mapping[str, str]) -> bytes:
        """One block; names are made lower case."""
        plain = _COUNT.pack(len(headers)) + b"".join(
            _counted(name.lower().encode("latin-1")) + _counted(value.encode("latin-1"))
            for name, value in headers.items()
        )
        return self._zip.compress(plain) + self._zip.flush(zlib.Z_SYNC_FLUSH)


class HeaderReader:
    """Reads header blocks, in the order in which they come."""

    def __init__(self) -> None:
        self._zip = zlib.decompressobj(zdict=DICTIONARY)

    def read(self, block: bytes) -> dict[str, str]:
        """The headers of one block, by lower-case names; of several values the first.

        Raises:
            HeaderError: it is none, or too large.
        """
        try:
            plain = self._zip.decompress(block, MOST_PLAIN)
        except zlib.error as error:
            msg = f"a header block cannot be decompressed: {error}"
            raise HeaderError(msg) from error
        if self._zip.unconsumed_tail:
            msg = f"a header block is larger than {MOST_PLAIN} bytes"
            raise HeaderError(msg)
        texts = list(_texts(plain))
        return {
            name.lower(): value.partition("\0")[0]
            for name, value in zip(texts[::2], texts[1::2], strict=True)
        }


def _texts(plain: bytes) -> Iterator[str]:
    """Names and values by turns."""
    try:
        (pairs,) = _COUNT.unpack_from(plain)
        at = _COUNT.size
        for _ in range(2 * pairs):
            (size,) = _COUNT.unpack_from(plain, at)
            at += _COUNT.size
            if at + size > len(plain):
                raise HeaderError("a header block ends within a text")
            yield plain[at : at + size].decode("latin-1")
            at += size
    except struct.error as error:
        raise HeaderError("a header block ends too early") from error
    if at != len(plain):
        raise HeaderError("a header block is longer than it says")
