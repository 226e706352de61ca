"""PLEG: looks at the runtime, names what happened, and keeps the cache that workers read."""

from nodeagent.pleg.cache import PodCache
from nodeagent.pleg.calls import Lister
from nodeagent.pleg.errors import InspectionError
from nodeagent.pleg.event_metrics import EventMetrics
from nodeagent.pleg.evented import EventWatch
from nodeagent.pleg.events import compute_events
from nodeagent.pleg.health import DegradedPod, PlegHealth, Trouble
from nodeagent.pleg.metrics import PlegMetrics
from nodeagent.pleg.pleg import Pleg
from nodeagent.pleg.settings import PlegSettings

__all__ = [
    "DegradedPod",
    "EventMetrics",
    "EventWatch",
    "InspectionError",
    "Lister",
    "Pleg",
    "PlegHealth",
    "PlegMetrics",
    "PlegSettings",
    "PodCache",
    "Trouble",
    "compute_events",
]
