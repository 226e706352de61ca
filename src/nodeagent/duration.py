"""Durations as Go and Kubernetes write them: ``1m30s``, ``500ms``, ``3m0s``."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_UNITS: Final = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),
    "μs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_LONGEST: Final = Decimal(2**63 - 1) * _UNITS["ns"]
"""Go counts nanoseconds in 64 bits: about 292 years."""


def parse_duration(text: str) -> float:
    """Seconds in a Go duration such as ``1m30s``; a bare ``0`` is allowed.

    Raises:
        ValueError: not a duration; says what one looks like.
    """
    body = text[1:] if text.startswith(("+", "-")) else text
    if body == "0":
        return 0.0
    total, at = Decimal(0), 0
    for part in _PART.finditer(body):
        if part.start() != at:
            break
        total += Decimal(part[1]) * _UNITS[part[2]]
        at = part.end()
    if not body or at != len(body) or total > _LONGEST:
        msg = f"{text!r} is not a duration (write it like 20s, 1m30s or 500ms)"
        raise ValueError(msg)
    return float(-total if text.startswith("-") else total)


def format_duration(seconds: float) -> str:
    """The way Go prints it: ``3m0s``, ``1h0m5s``, ``1.5s``, ``20ms``, ``0s``."""
    nanos = round(abs(seconds) * 1e9)
    if nanos == 0:
        return "0s"
    sign = "-" if seconds < 0 else ""
    for unit, size in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)):
        if nanos < size * 1000:
            return f"{sign}{_trim(Decimal(nanos) / size)}{unit}"
    minutes, rest = divmod(nanos, 60_000_000_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{_trim(Decimal(rest) / 1_000_000_000)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else f"{sign}{text}"


def _trim(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
