"""Percentiles, verdicts and tables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.bench import idle
from nodeagent.bench.figures import flat, not_measured, percentile, ratio, spread
from nodeagent.bench.table import lines, markdown, number
from nodeagent.bench.targets import TARGETS, Target, at, judge, quotient

MACHINE = {"cpu": "a processor", "cores": 2, "kernel": "6.1", "python": "3.11", "date": "today"}


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300), st.floats(0, 1))
def test_a_percentile_is_the_smallest_value_that_enough_do_not_exceed(
    values: list[float], share: float
) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)
    below = [value for value in values if value < found]
    assert not below or len(below) < max(1, share * len(values))


def test_of_a_hundred_values_the_99th_is_not_the_worst() -> None:
    values = [float(number) for number in range(1, 101)]
    assert spread("took_ms", values) == {
        "took_p50_ms": 50.0,
        "took_p99_ms": 99.0,
        "took_worst_ms": 100.0,
    }


def test_without_a_stem_the_unit_is_all_of_the_name() -> None:
    assert spread("ms", [1.0]) == {"p50_ms": 1.0, "p99_ms": 1.0, "worst_ms": 1.0}


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_nothing_is_divided_by_nothing() -> None:
    assert ratio(1, 0) is None
    assert ratio(1, 4) == 0.25


def test_nested_rows_become_dotted_names() -> None:
    assert flat({"a": 1, "b": {"c": 2, "d": {"e": "x"}}}) == [("a", 1), ("b.c", 2), ("b.d.e", "x")]


def test_a_verdict_compares_the_figure_with_its_limit() -> None:
    targets = (
        Target("idle", "rss", at("small", "rss_mb"), 70),
        Target("idle", "cpu", at("small", "cpu"), 1),
        Target("idle", "ratio", quotient("a", "b"), 4),
        Target("other", "x", at("x"), 1),
        Target("third", "x", at("x"), 1),
    )
    rows: dict[str, Any] = {
        "idle": {"small": {"rss_mb": 70.0, "cpu": 1.5}, "a": 3, "b": 0},
        "other": not_measured("no root"),
    }
    verdicts = judge(rows, targets)
    assert [(v.value, v.met) for v in verdicts] == [
        (70.0, True),
        (1.5, False),
        (None, None),
        (None, None),
        (None, None),
    ]
    assert [v.why for v in verdicts[2:]] == ["the row has no such figure", "no root", "not run"]


def test_what_was_not_measured_says_why_in_the_table_and_shows_no_figure() -> None:
    result = {"machine": MACHINE, "rows": {"relist": not_measured("no containerd")}}
    shown = [line for line in lines(result) if line.startswith("relist ")]
    assert shown
    assert all(line.endswith("not measured: no containerd") for line in shown)
    assert len(lines(result)) == len(TARGETS) + 1


def test_the_page_has_the_machine_the_verdicts_and_every_figure() -> None:
    rows = {
        "relist": {"interned_ms": 1.0, "decode_ms": 100.0, "c_protobuf_ms": None},
        "idle": {"small": {"cpu_percent": 2.0, "rss_mb": 65}, "ok": True},
    }
    page = markdown({"machine": MACHINE, "rows": rows})
    assert "cpu: a processor, cores: 2, kernel: 6.1" in page
    assert "| relist | interned_ms / decode_ms | 0.01 | 0.02 | met |" in page
    assert "| idle | cpu_percent | 2 | 1 | NOT MET |" in page
    assert "| `small.rss_mb` | 65 |" in page
    assert "| `c_protobuf_ms` | - |" in page
    assert "| `ok` | yes |" in page


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (0.02, "0.02"), (1.2345, "1.23"), (1234.5, "1234"), (0.00001, "0.000010")],
)
def test_numbers_have_three_digits_and_no_exponent(value: float, shown: str) -> None:
    assert number(value) == shown


def test_two_sizes_are_compared_by_their_ratios() -> None:
    small = {"pods": 110, "cpu_percent": 0.5, "rss_mb": 60.0}
    large = {"pods": 500, "cpu_percent": 1.5, "rss_mb": 90.0}
    row = idle.compare(small, large)
    assert (row["cpu_ratio"], row["rss_ratio"], row["pods_ratio"]) == (3.0, 1.5, 4.545)
