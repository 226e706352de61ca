"""What pods and the node use: collected once for all who ask (docs/behaviour/stats.md)."""

from nodeagent.stats.collector import StatsCollector, StatsError, StatsSides
from nodeagent.stats.places import Places
from nodeagent.stats.records import Fs, Snapshot, VolumeFigures

__all__ = [
    "Fs",
    "Places",
    "Snapshot",
    "StatsCollector",
    "StatsError",
    "StatsSides",
    "VolumeFigures",
]
