"""The page about faults names tests, and they exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "what-survives.md"
_NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")


def rows() -> list[list[str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    table = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return [row for row in table if row[0] != "fault"]


@cache
def functions_of(name: str) -> frozenset[str]:
    """Functions of the test files of that name."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob(name)]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    return frozenset(node.name for node in nodes if isinstance(node, kinds))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:40])
def test_each_fault_names_what_happens_and_a_test_that_exists(row: list[str]) -> None:
    _fault, outcome, tests = row
    assert outcome
    named = _NAMED.findall(tests)
    assert named
    assert {test for file, test in named if test not in functions_of(file)} == set()


def test_every_fault_of_the_list_is_there() -> None:
    assert len(rows()) > 40
