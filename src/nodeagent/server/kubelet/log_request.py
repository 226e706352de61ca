"""What a request for a container's log asks for. No I/O.

docs/behaviour/server.md, "Container logs".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from nodeagent.server.app import Request

T = TypeVar("T")

_FALSE: Final = ("0", "false")
_STREAMS: Final = {"All": "", "Stdout": "stdout", "Stderr": "stderr"}
_MOST: Final = 2**63 - 1
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d{1,30}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class UndecodableQueryError(ValueError):
    """A parameter is not written as it must be."""


class InvalidQueryError(ValueError):
    """The parameters make no sense; says which."""


@dataclass(frozen=True, slots=True)
class LogRequest:
    """What of a log is wanted, and how.

    Attributes:
        follow: go on when the end is reached, until the container ends.
        previous: the log of the run before.
        timestamps: put the time before each line.
        since: only lines from this moment on, nanoseconds since the epoch; None for all.
        tail: only so many lines from the end; None for all.
        limit: only so many bytes; None for all.
        stream: ``stdout`` or ``stderr`` only; "" for both.
    """

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    since: int | None = None
    tail: int | None = None
    limit: int | None = None
    stream: str = ""


def log_request(request: Request, now: datetime) -> LogRequest:
    """Read the parameters of a request.

    Args:
        request: the request.
        now: wall time, for an age.

    Raises:
        UndecodableQueryError: one is not written as it must be.
        InvalidQueryError: they make no sense.
    """
    since_seconds = _number(request, "sinceSeconds", least=1)
    since_time = _time(request.value("sinceTime"))
    if since_seconds is not None and since_time is not None:
        raise InvalidQueryError("at most one of sinceTime or sinceSeconds may be specified")
    name = "tailLines" if request.has("tailLines") else "tail"
    tail = None if request.value(name) == "all" else _number(request, name, least=0)
    stream = request.value("stream")
    if stream and stream not in _STREAMS:
        msg = f"stream: {stream!r} is not All, Stdout or Stderr"
        raise InvalidQueryError(msg)
    if _STREAMS.get(stream) and tail is not None:
        raise InvalidQueryError("tailLines and a specific stream are mutually exclusive")
    return LogRequest(
        follow=_flag(request, "follow"),
        previous=_flag(request, "previous"),
        timestamps=_flag(request, "timestamps"),
        since=since_time if since_seconds is None else _ago(now, since_seconds),
        tail=tail,
        limit=_number(request, "limitBytes", least=1),
        stream=_STREAMS.get(stream, ""),
    )


def _flag(request: Request, name: str) -> bool:
    return request.has(name) and request.value(name).lower() not in _FALSE


def _number(request: Request, name: str, *, least: int) -> int | None:
    text = request.value(name)
    if not text:
        return None
    if not _INTEGER.fullmatch(text):
        msg = f"{name}: {text!r} is not a number"
        raise UndecodableQueryError(msg)
    value = int(text)
    if not -_MOST <= value <= _MOST:
        msg = f"{name}: {text} is out of range"
        raise UndecodableQueryError(msg)
    if value < least:
        msg = f"{name}: must be at least {least}"
        raise InvalidQueryError(msg)
    return value


def _time(text: str) -> int | None:
    if not text:
        return None
    found = parse_time(text)
    if found is None:
        msg = f"sinceTime: {text!r} is not a time (RFC 3339)"
        raise UndecodableQueryError(msg)
    return found


def _ago(now: datetime, seconds: int) -> int:
    # An age that reaches back before any container began is all of the log.
    return max(nanoseconds(now) - seconds * 10**9, 0)


def nanoseconds(moment: datetime) -> int:
    """A moment in nanoseconds since the epoch."""
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000


def parse_time(text: str) -> int | None:
    """A time as RFC 3339 writes it, in nanoseconds since the epoch; None when it is none."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    day, clock, fraction, zone = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in 'Zz' else zone}")
    except ValueError:
        return None
    whole = (moment - _EPOCH) // timedelta(seconds=1)
    return whole * 10**9 + int((fraction or "").ljust(9, "0")[:9])
