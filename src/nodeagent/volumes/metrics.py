"""How full claimed volumes are, for Prometheus (docs/metrics.md, "Claimed volumes")."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nodeagent.volumes.stats import StatsService
from nodeagent.volumes.usage import VolumeUsage

_LABELS: Final = ("namespace", "persistentvolumeclaim")
_FIGURES: Final[tuple[tuple[str, str, Callable[[VolumeUsage], int | None]], ...]] = (
    ("capacity_bytes", "Bytes of the volume", lambda usage: usage.capacity),
    ("available_bytes", "Bytes of the volume that are free", lambda usage: usage.available),
    ("used_bytes", "Bytes of the volume that are used", lambda usage: usage.used),
    ("inodes", "Inodes of the volume", lambda usage: usage.inodes),
    ("inodes_free", "Inodes of the volume that are free", lambda usage: usage.inodes_free),
    ("inodes_used", "Inodes of the volume that are used", lambda usage: usage.inodes_used),
    (
        "health_status_abnormal",
        "Whether the driver says that something is wrong with the volume",
        lambda usage: None if usage.abnormal is None else int(usage.abnormal),
    ),
)


class ClaimMetrics(Collector):
    """Shows what was last measured of volumes with a claim, and has them measured again.

    Args:
        stats: measures them.
    """

    def __init__(self, stats: StatsService) -> None:
        self._stats = stats
        self._asked = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Measure, after somebody has asked, what is not fresh any more; until cancelled."""
        task_status.started()
        while True:
            await self._asked.wait()
            self._asked = anyio.Event()
            await self._stats.measure_claims()

    def describe(self) -> Iterable[Metric]:
        """The names, for the registry."""
        return [_family(name, text) for name, text, _ in _FIGURES]

    def collect(self) -> Iterable[Metric]:
        """One sample of each figure for each claim, of whichever pod has it."""
        self._asked.set()
        claims = {one.claim: one.usage for one in self._stats.known() if one.claim is not None}
        for name, text, figure in _FIGURES:
            family = _family(name, text)
            for claim, usage in claims.items():
                value = figure(usage)
                if value is not None:
                    family.add_metric(claim, value)
            yield family


def _family(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"kubelet_volume_stats_{name}", text, labels=_LABELS)
