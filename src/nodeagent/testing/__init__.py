"""What embedders and our own tests share: virtual time, builders, sources, scripted runtimes."""

from nodeagent.testing.builders import make_container, make_pod
from nodeagent.testing.memory_source import MemorySource
from nodeagent.testing.virtual_time import VirtualTimeLoop

__all__ = ["MemorySource", "VirtualTimeLoop", "make_container", "make_pod"]
