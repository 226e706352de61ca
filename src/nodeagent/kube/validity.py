"""When a certificate begins and ends, read without cryptography, which is large. Pure."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_PEM: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----\s*([A-Za-z0-9+/=\s]+?)-----END CERTIFICATE-----"
)
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18


@dataclass(frozen=True, slots=True)
class Validity:
    """From when to when a certificate is good."""

    begins: datetime
    ends: datetime


def validity_of(pem: bytes) -> Validity | None:
    """Of the first certificate in a PEM text; None when there is none that can be read."""
    found = _PEM.search(pem)
    if found is None:
        return None
    try:
        der = base64.b64decode(b"".join(found[1].split()), validate=True)
        return _validity(der)
    except (ValueError, IndexError):
        return None


def _validity(der: bytes) -> Validity:
    """RFC 5280, 4.1: Certificate, TBSCertificate, and the validity in it."""
    _, certificate, _ = _element(der, _SEQUENCE)
    _, to_be_signed, _ = _element(certificate, _SEQUENCE)
    tag, _, rest = _element(to_be_signed)
    # The version is left out in certificates of version 1.
    skipped = 3 if tag == _VERSION else 2
    for _ in range(skipped):
        _, _, rest = _element(rest)
    _, both, _ = _element(rest, _SEQUENCE)
    first_tag, begins, rest = _element(both)
    second_tag, ends, _ = _element(rest)
    return Validity(_time(first_tag, begins), _time(second_tag, ends))


def _element(data: bytes, wanted: int | None = None) -> tuple[int, bytes, bytes]:
    """Tag and content of the first element, and what follows it."""
    tag, length, start = data[0], data[1], 2
    if wanted is not None and tag != wanted:
        raise ValueError("another element is expected")
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start], "big")
    end = start + length
    if end > len(data):
        raise ValueError("cut off")
    return tag, data[start:end], data[end:]


def _time(tag: int, content: bytes) -> datetime:
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        # Two digits of the year: 50 to 99 are of the last century.
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
