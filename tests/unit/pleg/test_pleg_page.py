"""Every row of docs/behaviour/pleg.md has a test that names its section and the row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

UNIT = Path(__file__).parents[1]
PAGE = UNIT.parents[1] / "docs" / "behaviour" / "pleg.md"


def rows() -> Iterator[tuple[str, str]]:
    section = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("|") and not re.match(r"\| (row )?\||\|-|\| row ", line):
            yield section, line.split("|")[1].strip()


def test_every_row_of_the_page_is_named_by_a_test() -> None:
    files = [*(UNIT / "pleg").glob("test_*.py"), UNIT / "cri" / "test_pods.py"]
    text = " ".join(" ".join(file.read_text() for file in files).split())
    found = list(rows())
    assert len(found) > 60
    missing = [
        (section, row)
        for section, row in found
        if f'"{section}", {row}' not in text and not (row[0] == "`" and row.strip("`") in text)
    ]
    assert missing == []
