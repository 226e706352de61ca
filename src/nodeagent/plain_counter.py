"""Metrics as the kubelet has them where our library would have them otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Buckets of durations for which the kubelet names none; the library here has more of them."""


class PlainCounter(Collector):
    """One figure, shown at scrape time under a name without the ``_total`` of the library.

    Args:
        name: the metric's name, as it is shown.
        help_: what it counts.
        value: the figure.
    """

    def __init__(self, name: str, help_: str, value: Callable[[], float]) -> None:
        self._name = name
        self._help = help_
        self._value = value

    def describe(self) -> Iterable[Metric]:
        """The name, for the registry."""
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        """One sample."""
        family = self._family()
        family.add_sample(self._name, {}, self._value())
        return [family]

    def _family(self) -> Metric:
        return Metric(self._name, self._help, "unknown")
