"""Durations as Go writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.duration import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("-0", 0),
        ("+0", 0),
        ("0s", 0),
        ("20s", 20),
        ("+20s", 20),
        ("-1.5h", -5400),
        ("1m30s", 90),
        ("1h0m5s", 3605),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        (".5s", 0.5),
        ("1.s", 1),
        ("100us", 1e-4),
        ("100µs", 1e-4),
        ("100μs", 1e-4),
        ("7ns", 7e-9),
        ("1s1s", 2),
        ("9223372036s", 9223372036),
    ],
)
def test_what_go_reads_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "+",
        "20",
        "1",
        "s",
        ".s",
        ".",
        "1x",
        "1 s",
        " 1s",
        "1s ",
        "1m 30s",
        "--5s",
        "+-5s",
        "1-s",
        "1e3s",
        "1S",
        "٣s",
        "1m30",
        "inf",
        "nan",
        "9223372037s",
        "99999999999999999999h",
    ],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration") as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)
    assert "1m30s" in str(caught.value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (180, "3m0s"),
        (3605, "1h0m5s"),
        (1.5, "1.5s"),
        (61.25, "1m1.25s"),
        (0.02, "20ms"),
        (0.0015, "1.5ms"),
        (1e-6, "1µs"),
        (5e-9, "5ns"),
        (-90, "-1m30s"),
        (-0.02, "-20ms"),
        (0.9999999996, "1s"),
        (59.9999999996, "1m0s"),
        (86400, "24h0m0s"),
        (100, "1m40s"),
        (1e-12, "0s"),
        (-1e-12, "0s"),
    ],
)
def test_durations_print_as_go_prints_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_what_is_printed_is_read_back(nanoseconds: int) -> None:
    seconds = nanoseconds / 1e9
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=1e-12)


@given(st.text(alphabet="0123456789.+-hmsuµn ", max_size=12))
def test_any_text_is_a_finite_number_or_an_error(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert abs(seconds) < 1e10
