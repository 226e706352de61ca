"""Figures: percentiles, and what stands where something could not be measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

Figures: TypeAlias = dict[str, Any]
"""One row: names with their unit as suffix (``_ms``, ``_s``, ``_mb``, ``_percent``) and values."""

NOT_MEASURED: Final = "not_measured"


class BenchError(Exception):
    """A measurement could not be made; says what did not do its part, and why."""


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that at least ``share`` (0 to 1) of them do not exceed.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values were measured")
    rank = max(1, math.ceil(share * len(values)))
    return sorted(values)[rank - 1]


def spread(name: str, values: Sequence[float], *, digits: int = 3) -> Figures:
    """``NAME_p50``, ``NAME_p99`` and ``NAME_worst``; the unit in the name stays its suffix.

    ``spread("react_ms", ...)`` gives ``react_p50_ms``. An empty stem gives ``p50_ms``.
    """
    stem, _, unit = name.rpartition("_")
    lead = f"{stem}_" if stem else ""
    points = {"p50": 0.5, "p99": 0.99, "worst": 1.0}
    return {
        f"{lead}{point}_{unit}": round(percentile(values, share), digits)
        for point, share in points.items()
    }


def not_measured(why: str) -> Figures:
    """The row of something that this machine cannot measure."""
    return {NOT_MEASURED: why}


def ratio(above: float, below: float, digits: int = 3) -> float | None:
    """``above / below``; None when there is nothing to divide by."""
    return round(above / below, digits) if below else None


def flat(figures: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested rows as ``(dotted name, value)``."""
    rows: list[tuple[str, Any]] = []
    for name, value in figures.items():
        if isinstance(value, Mapping):
            rows += flat(value, f"{prefix}{name}.")
        else:
            rows.append((prefix + name, value))
    return rows
