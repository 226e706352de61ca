"""What embedders and our own tests share: virtual time, builders, sources, scripted runtimes."""

from nodeagent.embedded import (
    Cut,
    Delay,
    Drop,
    Duplicate,
    Fail,
    FailAfter,
    Fault,
    FaultPlan,
    Hang,
    Hold,
    Injected,
    Late,
    Reorder,
)
from nodeagent.testing.builders import make_container, make_pod
from nodeagent.testing.memory_source import MemorySource
from nodeagent.testing.virtual_time import VirtualTimeLoop

__all__ = [
    "Cut",
    "Delay",
    "Drop",
    "Duplicate",
    "Fail",
    "FailAfter",
    "Fault",
    "FaultPlan",
    "Hang",
    "Hold",
    "Injected",
    "Late",
    "MemorySource",
    "Reorder",
    "VirtualTimeLoop",
    "make_container",
    "make_pod",
]
