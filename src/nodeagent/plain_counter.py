"""Counters under the kubelet's own names, which lack the ``_total`` that the library adds."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import Metric
from prometheus_client.registry import Collector


class PlainCounter(Collector):
    """Shows one figure at scrape time.

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
