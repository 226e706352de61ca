"""nodeagent: the Kubernetes node agent as an asyncio, event-driven system."""

from nodeagent._version import __version__

__all__ = ["__version__"]
