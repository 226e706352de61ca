"""Figures of the agent's own process, under the names that all programs have for them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric


class _Process(ProcessCollector):
    """Tells its names, so that some of them can be asked for alone."""

    def describe(self) -> Iterable[Metric]:
        return self.collect()


def register_process(registry: CollectorRegistry) -> None:
    """Have the process shown, unless a registry of the embedder's own shows it already."""
    with suppress(ValueError):
        _Process(registry=registry)
