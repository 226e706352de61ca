"""RFC 3339 times as Kubernetes writes them: whole seconds, microseconds, nanoseconds."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)", re.ASCII
)
_SECOND: Final = 10**9
"""In nanoseconds."""


def parse_nanoseconds(text: str) -> int:
    """Return the nanoseconds since 1970 of an RFC 3339 time.

    Raises:
        ValueError: It is not an RFC 3339 time with a zone; the message quotes it.
    """
    match = _RFC3339.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        day, clock, fraction, zone = match.groups()
        moment = datetime.fromisoformat(f"{day}T{clock}{zone}")
    except ValueError:
        msg = f"{text[:64]!r} is not a time like 2006-01-02T15:04:05Z"
        raise ValueError(msg) from None
    since = moment - _EPOCH
    nanoseconds = int((fraction or "")[:9].ljust(9, "0"))
    return (since.days * 86400 + since.seconds) * _SECOND + nanoseconds


def parse_time(text: str) -> datetime:
    """Return an RFC 3339 time in UTC, with microseconds.

    Raises:
        ValueError: It is not an RFC 3339 time with a zone; the message quotes it.
    """
    nanoseconds = parse_nanoseconds(text)
    try:
        return _EPOCH + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        msg = f"{text[:64]!r} is outside the years 1 to 9999"
        raise ValueError(msg) from None


def whole_seconds(moment: datetime) -> datetime:
    """Return the time in UTC cut to whole seconds, the precision of Kubernetes' ``Time``."""
    return moment.astimezone(UTC).replace(microsecond=0)


def format_time(moment: datetime) -> str:
    """Write a time as ``2006-01-02T15:04:05Z``; what is finer than a second is cut off."""
    return _format(moment, "seconds")


def format_micro_time(moment: datetime) -> str:
    """Write a time as ``2006-01-02T15:04:05.000000Z``, as leases and events have it."""
    return _format(moment, "microseconds")


def rfc3339_nano(nanoseconds: int) -> str:
    """Write nanoseconds since 1970 with nine decimals: ``2006-01-02T15:04:05.000000000Z``."""
    seconds, rest = divmod(nanoseconds, _SECOND)
    moment = _EPOCH + timedelta(seconds=seconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def _format(moment: datetime, precision: str) -> str:
    text = moment.astimezone(UTC).isoformat(timespec=precision)
    return text.removesuffix("+00:00") + "Z"
