"""Ends pods that take more of the node than they may (docs/behaviour/eviction.md)."""

from nodeagent.eviction.local_storage import ContainerUse, PodUse
from nodeagent.eviction.manager import EvictionManager, EvictionSides
from nodeagent.eviction.metrics import EvictionMetrics

__all__ = ["ContainerUse", "EvictionManager", "EvictionMetrics", "EvictionSides", "PodUse"]
