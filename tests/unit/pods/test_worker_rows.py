"""docs/behaviour/workers.md promises a test for each of its rows."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "behaviour" / "workers.md"


def test_every_row_of_the_page_is_named_by_a_test() -> None:
    rows = re.findall(r"^\| ([A-Z]\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    tests = "".join(
        path.read_text(encoding="utf-8")
        for path in (*HERE.glob("test_*.py"), *(HERE.parent / "node").glob("test_*.py"))
    )
    untested = [row for row in rows if not re.search(rf"_{row.lower()}_|\b{row}\b", tests)]
    assert len(rows) > 90
    assert untested == []
