"""How many pods were ended for what they took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector


class EvictionMetrics(Collector):
    """Counts evictions under the kubelet's name, which lacks the ``_total`` of the library.

    Args:
        registry: where they are shown.
    """

    _NAME = "kubelet_evictions"

    def __init__(self, registry: CollectorRegistry) -> None:
        self._tally: Counter[str] = Counter()
        registry.register(self)

    def evicted(self, signal: str) -> None:
        """A pod is ended."""
        self._tally[signal] += 1

    @property
    def counts(self) -> Mapping[str, int]:
        """How many, by signal."""
        return self._tally

    def describe(self) -> Iterable[Metric]:
        """The name, for the registry."""
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        """One sample for each signal."""
        family = self._family()
        for signal, count in self._tally.items():
            family.add_sample(self._NAME, {"eviction_signal": signal}, count)
        return [family]

    def _family(self) -> Metric:
        return Metric(self._NAME, "Pods that took too much of the node", "unknown")
