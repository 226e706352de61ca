"""The figures of one run as a table, for terminals and for Markdown. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodeagent.bench.figures import flat
from nodeagent.bench.targets import TARGETS, Verdict, judge


def lines(result: Mapping[str, Any]) -> list[str]:
    """The verdicts of a run, one a line, aligned."""
    rows = [("bench", "figure", "value", "at most", "")]
    rows += [_cells(verdict) for verdict in judge(result["rows"])]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    shown = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        shown.append("  ".join([*cells, row[4]]).rstrip())
    return shown


def _cells(verdict: Verdict) -> tuple[str, str, str, str, str]:
    target = verdict.target
    value = "-" if verdict.value is None else number(verdict.value)
    word = {True: "met", False: "NOT MET", None: f"not measured: {verdict.why}"}[verdict.met]
    return target.row, target.says, value, number(target.limit), word


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.6f}"


def markdown(result: Mapping[str, Any]) -> str:
    """A page with the machine, the verdicts and all figures of a run."""
    about = result["machine"]
    parts = [
        "# Results of one run",
        "",
        "Written by `bench/run.py --markdown`; [benchmarks](../docs/benchmarks.md) explains it.",
        "",
        ", ".join(f"{name}: {about[name]}" for name in about) + ".",
        "",
        "| bench | figure | value | at most | |",
        "|---|---|---|---|---|",
        *("| " + " | ".join(_cells(v)) + " |" for v in judge(result["rows"], TARGETS)),
        "",
        "## All figures",
        "",
    ]
    for name, row in result["rows"].items():
        parts += [f"### {name}", "", "| figure | value |", "|---|---|"]
        parts += [f"| `{key}` | {_shown(value)} |" for key, value in flat(row)]
        parts.append("")
    return "\n".join(parts)


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    return number(value) if isinstance(value, int | float) else str(value)
