"""Figures of the agent's own process, under the names that all programs have for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from anyio import to_thread
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric


class ProcessMetrics(ProcessCollector):
    """Shows what was read when metrics were last asked for.

    Args:
        registry: where it is shown, unless that of an embedder shows the process already.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._read: Sequence[Metric] = ()
        super().__init__(registry=None)
        self._read = tuple(super().collect())
        with suppress(ValueError):
            registry.register(self)

    async def refresh(self) -> None:
        """Read again."""
        self._read = await to_thread.run_sync(lambda: tuple(super(ProcessMetrics, self).collect()))

    def collect(self) -> Iterable[Metric]:
        """What was read."""
        return self._read

    def describe(self) -> Iterable[Metric]:
        """The names, so that some of them can be asked for alone."""
        return self._read
