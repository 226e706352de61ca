"""Figures of the agent's own process, under the names that all programs have for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property

from anyio import to_thread
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_GAUGES = (
    "process_virtual_memory_bytes",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_open_fds",
    "process_max_fds",
)


class ProcessMetrics(Collector):
    """Shows what was read when metrics were last asked for.

    Nothing is read before: the kernel counts pages and descriptors for an answer, and an agent
    is made on the event loop.

    Args:
        registry: where it is shown, unless that of an embedder shows the process already.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seen: Sequence[Metric] = ()
        with suppress(ValueError):
            registry.register(self)

    async def refresh(self) -> None:
        """Read again."""
        self._seen = await to_thread.run_sync(self._read)

    def collect(self) -> Iterable[Metric]:
        """What was read; reads now when an embedder asks the registry before anybody else."""
        if not self._seen:
            self._seen = self._read()
        return self._seen

    def describe(self) -> Iterable[Metric]:
        """The names, so that some of them can be asked for alone."""
        for name in _GAUGES:
            yield GaugeMetricFamily(name, "")
        yield CounterMetricFamily("process_cpu_seconds", "")

    @cached_property
    def _collector(self) -> ProcessCollector:
        return ProcessCollector(registry=None)

    def _read(self) -> Sequence[Metric]:
        return tuple(self._collector.collect())
