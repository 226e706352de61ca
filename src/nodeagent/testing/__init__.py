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
    OldPod,
    Reorder,
    RuntimeServer,
    Show,
    list_size,
    populate,
    serve_faulty,
)
from nodeagent.testing.api_client import StoreClient, store_clients
from nodeagent.testing.api_store import ApiStore
from nodeagent.testing.builders import make_container, make_pod
from nodeagent.testing.memory_source import MemorySource
from nodeagent.testing.mounter import RecordedMounter
from nodeagent.testing.virtual_time import VirtualTimeLoop

__all__ = [
    "ApiStore",
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
    "OldPod",
    "RecordedMounter",
    "Reorder",
    "RuntimeServer",
    "Show",
    "StoreClient",
    "VirtualTimeLoop",
    "list_size",
    "make_container",
    "make_pod",
    "populate",
    "serve_faulty",
    "store_clients",
]
