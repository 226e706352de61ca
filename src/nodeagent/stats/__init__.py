"""What pods and the node use: collected once for all who ask (docs/behaviour/stats.md).

Only what waits for questions is loaded with the package; the rest comes with the first one.
"""

from nodeagent.stats.collector import StatsCollector, StatsError, StatsSides
from nodeagent.stats.places import Places

__all__ = ["Places", "StatsCollector", "StatsError", "StatsSides"]
