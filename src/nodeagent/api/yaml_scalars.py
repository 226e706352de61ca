"""What an unquoted YAML word means, read as Kubernetes reads it.

Kubernetes turns YAML into JSON with a YAML 1.1 reader of its own dialect before it decodes a
manifest. The table of that dialect stands in docs/behaviour/decoding.md, "Scalars".
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from decimal import Decimal
from typing import Final, NamedTuple

_PREFIX: Final = "tag:yaml.org,2002:"
STR: Final = _PREFIX + "str"
BOOL: Final = _PREFIX + "bool"
INT: Final = _PREFIX + "int"
FLOAT: Final = _PREFIX + "float"
NULL: Final = _PREFIX + "null"
TIMESTAMP: Final = _PREFIX + "timestamp"
BINARY: Final = _PREFIX + "binary"
MERGE: Final = _PREFIX + "merge"

_RESOLVED_TAGS: Final = frozenset({BOOL, INT, FLOAT, NULL, TIMESTAMP})


class Resolved(NamedTuple):
    """A scalar's meaning: its tag, its value and, for numbers, its JSON text."""

    tag: str
    value: str | float | bool | None
    number: str | None = None


def _words() -> dict[str, Resolved]:
    words: dict[str, dict[float | bool | None, str]] = {
        BOOL: {
            True: "y Y yes Yes YES true True TRUE on On ON",
            False: "n N no No NO false False FALSE off Off OFF",
        },
        NULL: {None: "~ null Null NULL"},
        FLOAT: {
            math.inf: ".inf .Inf .INF +.inf +.Inf +.INF",
            -math.inf: "-.inf -.Inf -.INF",
            math.nan: ".nan .NaN .NAN",
        },
    }
    table = {"": Resolved(NULL, None)}
    for tag, values in words.items():
        for value, spellings in values.items():
            number = str(value) if tag == FLOAT else None
            for word in spellings.split():
                table[word] = Resolved(tag, value, number)
    return table


_WORDS: Final = _words()
_NUMBER_STARTS: Final = frozenset("+-.0123456789")
_INTEGER: Final = re.compile(
    r"[-+]?(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bin>[01]+)|0[oO]?(?P<oct>[0-7]+)"
    r"|(?P<dec>0|[1-9][0-9]{0,19}))\Z"
)
_ODD_BINARY: Final = re.compile(r"(?P<outer>-?)0b(?P<inner>[-+]?)(?P<bits>[01]{1,64})\Z")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_TIMESTAMP: Final = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
    r"(?:[Tt][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]+)?(?:Z|[-+][0-9]{2}:[0-9]{2})"
    r"| [0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]+)?)?\Z"
)


def resolve_plain(text: str) -> Resolved:
    """The meaning of an unquoted scalar without a tag."""
    known = _WORDS.get(text)
    if known is not None:
        return known
    if text[0] in _NUMBER_STARTS:
        return _resolve_number(text) or Resolved(STR, text)
    return Resolved(STR, text)


def resolve_tagged(tag: str, text: str) -> Resolved:
    """The meaning of a scalar with an explicit tag.

    A tag that is not one of YAML's own scalar tags leaves the text a string.

    Raises:
        ValueError: If the text does not fit the tag.
    """
    if tag == BINARY:
        return Resolved(STR, _decode_binary(text))
    if tag not in _RESOLVED_TAGS:
        return Resolved(STR, text)
    if tag == TIMESTAMP and _TIMESTAMP.match(text):
        return Resolved(STR, text)  # dates stay strings
    found = resolve_plain(text)
    if found.tag == tag:
        return found
    if tag == FLOAT and found.tag == INT:
        value = float(found.value or 0)
        return Resolved(FLOAT, value, json_float(value))
    short = tag.removeprefix(_PREFIX)
    message = f"{text[:40]!r} is not a value of type !!{short}"
    raise ValueError(message)


def key_text(resolved: Resolved) -> str:
    """The text that a key becomes, since JSON objects know only text.

    Raises:
        ValueError: If Kubernetes takes no such key (null, integers beyond 64 bits).
    """
    value = resolved.value
    if value is None:
        raise ValueError("null cannot be a key; put it in quotes")
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if value >= 1 << 63:
            raise ValueError("an integer this large cannot be a key; put it in quotes")
        return str(value)
    return _float_key(value)


def json_float(value: float) -> str:
    """The text that Kubernetes' JSON encoder gives a finite float (shortest form)."""
    text = repr(value)
    magnitude = abs(value)
    if magnitude and (magnitude < 1e-6 or magnitude >= 1e21):
        mantissa, _, exponent = text.partition("e")
        sign = exponent[0] if exponent[0] in "+-" else "+"
        return f"{mantissa}e{sign}{exponent.lstrip('+-').lstrip('0')}"
    text = format(Decimal(text), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _resolve_number(text: str) -> Resolved | None:
    if text[0] == ".":
        return _resolve_float(text)  # underscores count only after a digit or sign
    plain = text.replace("_", "")
    match = _INTEGER.match(plain)
    if match is not None:
        value = _integer(match, negative=plain[0] == "-")
        unsigned = plain[0] not in "+-"
        if -(1 << 63) <= value < (1 << 64 if unsigned else 1 << 63):
            return Resolved(INT, value, str(value))
    found = _resolve_float(plain)
    if found is not None:
        return found
    odd = _ODD_BINARY.match(plain)
    if odd is None or (odd["outer"] and odd["inner"]):
        return None
    value = int(odd["bits"], 2) * (-1 if "-" in (odd["outer"], odd["inner"]) else 1)
    return Resolved(INT, value, str(value))


def _integer(match: re.Match[str], *, negative: bool) -> int:
    bases = {"hex": 16, "bin": 2, "oct": 8, "dec": 10}
    group = match.lastgroup or "dec"
    value = int(match[group], bases[group])
    return -value if negative else value


def _resolve_float(text: str) -> Resolved | None:
    if not _FLOAT.match(text):
        return None
    value = float(text)
    if math.isinf(value):
        return None  # too large for a float: Kubernetes leaves it a string
    return Resolved(FLOAT, value, json_float(value))


def _decode_binary(text: str) -> str:
    compact = text.replace("\n", "").replace("\r", "")
    try:
        data = base64.b64decode(compact, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("a !!binary value must be base64") from None
    return data.decode("utf-8", "replace")


def _float_key(value: float) -> str:
    """A float key in the shortest form that survives 32 bits, as Kubernetes writes it."""
    single = _to_single(value)
    if math.isnan(single):
        return ".nan"
    if math.isinf(single):
        return ".inf" if single > 0 else "-.inf"
    candidates = (f"{single:.{digits}e}" for digits in range(17))
    scientific = next(text for text in candidates if _to_single(float(text)) == single)
    mantissa, _, exponent = scientific.partition("e")
    power = int(exponent)
    if power < -4 or power >= 6:
        return f"{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"
    return format(Decimal(scientific), "f")


def _to_single(value: float) -> float:
    """The nearest 32-bit float."""
    try:
        single: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return single
