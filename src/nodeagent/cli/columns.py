"""In which column of its line a problem stands. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from nodeagent.api.problems import FieldProblem

_LAST_NAME: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*|\[[A-Za-z_][^\]\"]*\])(?:\[\d+\])*$")
_ITEM: Final = re.compile(r"\s*(?:-\s+)*")


def with_column(problem: FieldProblem, lines: Sequence[str]) -> FieldProblem:
    """The problem with the column of its key, or of what stands first in its line.

    Args:
        problem: its line is known, or nothing is done.
        lines: of the file.
    """
    if problem.column or not 0 < problem.line <= len(lines):
        return problem
    return replace(problem, column=_column(problem.path, lines[problem.line - 1]))


def _column(path: str, line: str) -> int:
    name = _LAST_NAME.search(path)
    if name is not None:
        key = re.escape(name[1].strip("[]"))
        found = list(re.finditer(rf"(?<![\w./'\"-])(['\"]?){key}\1\s*:", line))
        if len(found) == 1:
            return found[0].start() + 1
    start = _ITEM.match(line)
    return (start.end() if start is not None else 0) + 1
