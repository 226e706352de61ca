"""The node as a whole. For now: the state of its container runtime."""

from nodeagent.node.runtime_state import RuntimeInfo, RuntimeState, RuntimeStatusSource

__all__ = ["RuntimeInfo", "RuntimeState", "RuntimeStatusSource"]
