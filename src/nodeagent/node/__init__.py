"""The node as a whole: state of its container runtime, its address, events about pods."""

from nodeagent.node.addresses import host_address, primary_address
from nodeagent.node.event_recorder import EventRecorder, EventSink
from nodeagent.node.events import JournalEvents
from nodeagent.node.runtime_state import RuntimeInfo, RuntimeState, RuntimeStatusSource

__all__ = [
    "EventRecorder",
    "EventSink",
    "JournalEvents",
    "RuntimeInfo",
    "RuntimeState",
    "RuntimeStatusSource",
    "host_address",
    "primary_address",
]
