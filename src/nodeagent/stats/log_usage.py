"""How much the logs of containers take, as a metric.

docs/metrics.md, "/metrics".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import anyio
from anyio import to_thread
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

MAX_AGE: Final = 10.0
"""Seconds for which sizes are good enough."""
_NAME: Final = "kubelet_container_log_filesystem_used_bytes"
_LABELS: Final = ("uid", "namespace", "pod", "container")


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where the logs of a container lie."""

    uid: str
    namespace: str
    pod: str
    container: str
    directory: str


class LogUsage(Collector):
    """Shows the sizes of logs; they are measured when metrics are asked for, and only then.

    Args:
        registry: where the metric is registered.
        places: the logs that there are.
    """

    def __init__(
        self, registry: CollectorRegistry, places: Callable[[], Sequence[LogPlace]]
    ) -> None:
        self._places = places
        self._sizes: Sequence[tuple[LogPlace, int]] = ()
        self._measured_at = -math.inf
        self._lock: anyio.Lock | None = None
        registry.register(self)

    async def refresh(self) -> None:
        """Measure, unless that was done a moment ago."""
        self._lock = self._lock or anyio.Lock()
        async with self._lock:
            if anyio.current_time() - self._measured_at < MAX_AGE:
                return
            self._sizes = await to_thread.run_sync(_measure, self._places())
            self._measured_at = anyio.current_time()

    def describe(self) -> Iterable[Metric]:
        """The name, for the registry."""
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        """One sample for each container."""
        family = self._family()
        for place, size in self._sizes:
            family.add_metric((place.uid, place.namespace, place.pod, place.container), size)
        return [family]

    @staticmethod
    def _family() -> GaugeMetricFamily:
        return GaugeMetricFamily(_NAME, "Bytes that the logs of a container take", labels=_LABELS)


def _measure(places: Sequence[LogPlace]) -> list[tuple[LogPlace, int]]:
    from nodeagent.stats.machine import directory_size

    return [(place, directory_size(place.directory)[0]) for place in places]
