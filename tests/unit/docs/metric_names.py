"""What metrics there are: of an agent's registry, and of docs/metrics.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


@dataclass(frozen=True, slots=True)
class Named:
    """A metric. ``labels`` is None where only a sample could tell."""

    name: str
    kind: str
    labels: tuple[str, ...] | None = None


def registered(registry: CollectorRegistry) -> Iterator[Named]:
    """All metrics of a registry, by the names that are shown."""
    for collector in registry._collector_to_names:
        if isinstance(collector, MetricWrapperBase):
            (family,) = collector.describe()
            labels = tuple(sorted(collector._labelnames))
            yield Named(_shown(family.name, family.type), family.type, labels)
            continue
        describe = getattr(collector, "describe", None)
        for family in describe() if describe is not None else ():
            yield Named(_shown(family.name, family.type), family.type)


def _shown(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" else name


def section(title: str) -> list[list[str]]:
    """The rows of the tables of a section of the page, without their heads."""
    page = PAGE.read_text(encoding="utf-8")
    text = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    return [row for row in rows if row[0] != "name" and not set(row[0]) <= set("-")]


def names_in(cell: str) -> list[str]:
    """What stands in backquotes."""
    return re.findall(r"`([^`]+)`", cell)


def documented() -> dict[str, Named]:
    """The metrics of ``/metrics`` on the page, by name."""
    found = {}
    for row in section("/metrics"):
        kind = "unknown" if row[1] == "untyped" else row[1]
        for name in names_in(row[0]):
            found[name] = Named(name, kind, tuple(sorted(names_in(row[2]))))
    return found


def without_meaning() -> set[str]:
    """The kubelet's metrics that are not here."""
    return {name for row in section("Not here") for name in names_in(row[0])}


def samples_of(named: Named) -> list[str]:
    """The names that the samples of a metric may have."""
    if named.kind == "histogram":
        return [f"{named.name}{ending}" for ending in ("_bucket", "_count", "_sum", "_created")]
    return [named.name, f"{named.name.removesuffix('_total')}_created"]
