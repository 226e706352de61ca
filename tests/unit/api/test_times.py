"""Times are read and written as Kubernetes does."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.api.times import (
    format_micro_time,
    format_time,
    parse_nanoseconds,
    parse_time,
    rfc3339_nano,
    whole_seconds,
)

_NOON = datetime(2024, 2, 29, 12, 0, 1, 250_000, tzinfo=UTC)


def test_times_are_written_in_utc_with_the_precision_of_their_kind() -> None:
    there = _NOON.astimezone(timezone(timedelta(hours=2)))
    assert format_time(there) == "2024-02-29T12:00:01Z"
    assert format_micro_time(there) == "2024-02-29T12:00:01.250000Z"
    assert format_micro_time(_NOON.replace(microsecond=0)) == "2024-02-29T12:00:01.000000Z"
    assert whole_seconds(there) == _NOON.replace(microsecond=0)
    assert rfc3339_nano(1_000_000_001) == "1970-01-01T00:00:01.000000001Z"


def test_zones_and_fractions_are_read() -> None:
    assert parse_time("2024-02-29T14:00:01.25+02:00") == _NOON
    assert parse_time("2024-02-29T12:00:01.2500009Z") == _NOON
    assert parse_nanoseconds("1970-01-01T00:00:01.0000000019Z") == 1_000_000_001


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2024-02-29",
        "2024-02-29T12:00:01",
        "2024-02-30T12:00:01Z",
        "2024-02-29 12:00:01Z",
        "2024-02-29T12:00:61Z",
        "2024-02-29T12:00:01.Z",
        "2024-02-29T12:00:01+2",
        "\u0662024-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:00",
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a time|outside the years"):
        parse_time(text)


@given(st.integers(0, 2**62))
def test_nanoseconds_survive(nanoseconds: int) -> None:
    assert parse_nanoseconds(rfc3339_nano(nanoseconds)) == nanoseconds


@given(st.datetimes(timezones=st.just(UTC)))
def test_microseconds_survive(moment: datetime) -> None:
    assert parse_time(format_micro_time(moment)) == moment
