"""The behaviour pages promise tests: of each row, or of each section, there is one that names it.

A test names a row by its number, in its own name (``test_o7_...``), its docstring, or the id of a
parameter; a row without number by its section and first column (``"Relist", first``).
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[1]
BEHAVIOUR = UNIT.parents[1] / "docs" / "behaviour"
_NUMBER = r"[A-Z]{1,2}\d+"

NUMBERED = {
    # page: where its tests are, and about how many rows it has
    "merge.md": (("sources",), 14),
    "sources.md": (("sources",), 30),
    "api-source.md": (("sources", "kube"), 32),
    "phase.md": (("pods", "cri"), 45),
    "status.md": (("pods",), 35),
    "workers.md": (("pods", "node"), 90),
    "images.md": (("runtime",), 50),
    "garbage.md": (("runtime", "pods"), 20),
    "node.md": (("node", "config"), 55),
    "probes.md": (("probes", "pods", "node"), 45),
    "admission.md": (("pods",), 36),
    "eviction.md": (("eviction", "../integration"), 7),
    "events.md": (("node", "runtime", "pods", "probes"), 35),
    "cluster.md": (("kube",), 12),
    "server.md": (("server", "kube", "../integration"), 73),
    "stats.md": (("stats", "server", "../integration"), 35),
    "objects.md": (("objects", "runtime", "sources", "../integration"), 20),
    "csi.md": (("csi", "volumes", "runtime", "../integration"), 50),
}
NAMED = {"pleg.md": (("pleg", "cri"), 60)}
BY_SECTION = {"decoding.md": (("api",), 8), "runtime.md": (("runtime", "volumes", "cri"), 25)}


@dataclass
class Told:
    """What the tests of some packages say of themselves."""

    names: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    """Docstrings and decorators of tests and their classes, whitespace folded."""
    strings: set[str] = field(default_factory=set)
    """Texts that tests work with."""
    modules: list[str] = field(default_factory=list)

    def numbers(self) -> set[str]:
        """The numbers of rows that a test names."""
        found = {n.upper() for name in self.names for n in _parts(name)}
        return found.union(*(re.findall(rf"\b{_NUMBER}\b", text) for text in self.words))


def _parts(name: str) -> Iterator[str]:
    """The numbers at the beginning of a test's name: ``test_o7_o8_...``."""
    return itertools.takewhile(
        lambda part: re.fullmatch(_NUMBER, part, re.IGNORECASE), name.split("_")[1:]
    )


def told_by(packages: tuple[str, ...]) -> Told:
    told = Told()
    for package in packages:
        for path in sorted((UNIT / package).glob("test_*.py")):
            module = ast.parse(path.read_text(encoding="utf-8"))
            told.modules.append(_folded(ast.get_docstring(module)))
            for node in ast.walk(module):
                if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                    told.words.append(_folded(ast.get_docstring(node)))
                elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    _listen(node, told)
    return told


def _listen(test: ast.FunctionDef | ast.AsyncFunctionDef, told: Told) -> None:
    if not test.name.startswith("test_"):
        return
    told.names.append(test.name)
    told.words.append(_folded(ast.get_docstring(test)))
    for decorator in test.decorator_list:
        told.words += map(_folded, _strings(decorator))
    told.strings.update(_strings(*test.body[1:]))


def _strings(*nodes: ast.AST) -> Iterator[str]:
    for node in itertools.chain.from_iterable(map(ast.walk, nodes)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _folded(text: str | None) -> str:
    return " ".join((text or "").split())


def rows(page: str) -> list[tuple[str, str]]:
    """Section and first column of every row of a page's tables."""
    found, section, header = [], "", True
    for line in (BEHAVIOUR / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            section = line.lstrip("#").strip()
        if not line.startswith("|"):
            header = True
        elif line.startswith("|-"):
            header = False
        elif not header:
            found.append((section, line.split(" |")[0].strip("| ")))
    return found


@pytest.mark.parametrize("page", NUMBERED)
def test_every_numbered_row_is_named_by_a_test(page: str) -> None:
    packages, some = NUMBERED[page]
    found = rows(page)
    assert len(found) >= some
    without = [(section, row) for section, row in found if not re.fullmatch(_NUMBER, row)]
    assert without == [], "every row of this page has a number"
    named = told_by(packages).numbers()
    assert [row for _, row in found if row not in named] == []


def test_a_number_means_one_row() -> None:
    numbers = [row for page in NUMBERED for _, row in rows(page)]
    assert [row for row in set(numbers) if numbers.count(row) > 1] == []


@pytest.mark.parametrize("page", NAMED)
def test_every_row_is_named_by_a_test_with_its_section(page: str) -> None:
    packages, some = NAMED[page]
    told = told_by(packages)
    words = " ".join(told.words)
    found = rows(page)
    assert len(found) >= some
    missing = [
        (section, row)
        for section, row in found
        if f'"{section}", {row}' not in words
        # A metric is named by whoever reads it; of a histogram that is its count.
        and not {row.strip("`"), f"{row.strip('`')}_count"} & told.strings
    ]
    assert missing == []


@pytest.mark.parametrize("page", BY_SECTION)
def test_every_section_is_named_by_a_test(page: str) -> None:
    packages, some = BY_SECTION[page]
    told = told_by(packages)
    naming = " ".join(text for text in (*told.modules, *told.words) if page in text)
    text = (BEHAVIOUR / page).read_text(encoding="utf-8")
    sections = re.findall(r"^##+ (.+)$", text, re.MULTILINE)
    assert len(sections) >= some
    assert [section for section in sections if f'"{section}"' not in naming] == []
