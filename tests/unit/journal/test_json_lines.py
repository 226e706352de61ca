"""JSON lines show every value, however odd."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.journal import json_line

numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
plain = st.none() | st.booleans() | numbers | st.text()
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)


@given(st.dictionaries(st.text(), values, max_size=4))
def test_plain_values_are_read_back_from_one_line(entry: dict[str, Any]) -> None:
    line = json_line(entry)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == entry


@given(st.dictionaries(st.text(st.characters(exclude_categories=())), st.text(), max_size=3))
def test_text_of_any_code_points_gives_json(entry: dict[str, str]) -> None:
    line = json_line({"a": entry, "b": list(entry)}).decode()
    assert json.loads(line) == {"a": entry, "b": list(entry)}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Path("/etc/x"), "/etc/x"),
        (ValueError("bad"), "bad"),
        ({1: "a"}, {"1": "a"}),
        ({(1, 2): "a"}, {"(1, 2)": "a"}),
        (2**80, 2**80),
        (math.nan, None),
        ([math.inf, "\udcff"], [None, "\udcff"]),
        ("a\nb", "a\nb"),
        ({"deep": ["\udcff", Path("/p")]}, {"deep": ["\udcff", "/p"]}),
    ],
)
def test_values_that_json_does_not_know_are_shown(value: Any, shown: Any) -> None:
    assert json.loads(json_line({"v": value})) == {"v": shown}


def test_endless_nesting_is_cut() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert json.loads(json_line({"v": loop}))["v"]
