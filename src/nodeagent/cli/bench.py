"""``nodeagent bench``: measurements, as ratios within one run."""

from __future__ import annotations

import json
from typing import Any

import click


@click.group()
def bench() -> None:
    """Measure; every figure is a ratio within one run or comes with what it is compared to."""


@bench.command()
@click.option("--pods", default=125, show_default=True, type=click.IntRange(1, 5000))
@click.option("--containers-per-pod", default=4, show_default=True, type=click.IntRange(1, 100))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def relist(pods: int, containers_per_pod: int, as_json: bool) -> None:
    """What one relist of an unchanged node costs in decoding, with and without interning."""
    from nodeagent.bench import relist as measured

    show(measured.run(pods, containers_per_pod), as_json=as_json)


@bench.command(name="all")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def run_all(as_json: bool) -> None:
    """Every measurement there is, with its default settings."""
    from nodeagent.bench import relist as measured

    show({"relist": measured.run(125, 4)}, as_json=as_json)


def show(figures: dict[str, Any], *, as_json: bool) -> None:
    """Print figures as JSON or as lines for people."""
    if as_json:
        click.echo(json.dumps(figures))
        return
    for name, value in _flat(figures):
        click.echo(f"{name:<32} {value:.3f}" if isinstance(value, float) else f"{name:<32} {value}")


def _flat(figures: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in figures.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{name}.")
        else:
            rows.append((prefix + name, value))
    return rows
