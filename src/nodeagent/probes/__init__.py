"""Probes: whether containers have started, are alive, and can serve."""

from nodeagent.probes.manager import ProbeManager
from nodeagent.probes.metrics import ProbeMetrics
from nodeagent.probes.prober import Prober
from nodeagent.probes.setup import make_prober

__all__ = ["ProbeManager", "ProbeMetrics", "Prober", "make_prober"]
