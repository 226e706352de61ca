"""docs/metrics.md has a row for each metric that the source defines.

That the rows say the right thing is tested with whole agents, in tests/integration/test_metrics.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.docs.metric_names import documented, without_meaning

SOURCE = Path(__file__).parents[3] / "src" / "nodeagent"
_KINDS = {
    "Counter": "counter",
    "Gauge": "gauge",
    "Histogram": "histogram",
    "PlainCounter": "unknown",
    "CounterMetricFamily": "counter",
    "GaugeMetricFamily": "gauge",
}


def named(path: Path, text: str) -> Iterator[tuple[str, str]]:
    """Names and types; a name that a class of its own shows stands in ``_NAME``, without type."""
    for node in ast.walk(ast.parse(text, str(path))):
        match node:
            case ast.Call(func=ast.Name(id=kind), args=[ast.Constant(value=str(name)), *_]) if (
                kind in _KINDS
            ):
                yield name, _KINDS[kind]
            case (
                ast.Assign(targets=[ast.Name(id="_NAME")], value=ast.Constant(value=str(name)))
                | ast.AnnAssign(target=ast.Name(id="_NAME"), value=ast.Constant(value=str(name)))
            ):
                yield name, ""


def defined() -> Iterator[tuple[str, str, str]]:
    """Name, type and file of each metric whose name stands in the source."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "prometheus_client" not in text and "PlainCounter" not in text:
            continue
        for name, kind in named(path, text):
            shown = f"{name.removesuffix('_total')}_total" if kind == "counter" else name
            yield shown, kind, str(path.relative_to(SOURCE))


DEFINED = sorted(set(defined()))


def test_there_are_many() -> None:
    assert len(DEFINED) > 60


@pytest.mark.parametrize(("name", "kind", "where"), DEFINED, ids=[name for name, *_ in DEFINED])
def test_each_metric_has_a_row(name: str, kind: str, where: str) -> None:
    page = documented()
    assert name in page, f"{name} of {where} has no row in docs/metrics.md"
    assert kind in (page[name].kind, "")
    assert name not in without_meaning()


def bucketless(text: str) -> Iterator[str]:
    """Names of histograms for which the library would choose the buckets."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(
                func=ast.Name(id="Histogram"),
                args=[ast.Constant(value=str(name)), *_],
                keywords=more,
            ) if "buckets" not in {keyword.arg for keyword in more}:
                yield name


def test_each_histogram_says_its_buckets() -> None:
    """Those of the library are others than the kubelet's, and quantiles would be, too."""
    texts = [path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")]
    assert [name for text in texts for name in bucketless(text)] == []
    assert list(bucketless('Histogram("x", "y", ["z"])')) == ["x"]
