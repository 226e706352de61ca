"""nodeagent: the Kubernetes node agent as an asyncio, event-driven system.

    async with NodeAgent(AgentConfig(static_pod_path="manifests")) as agent:
        async for record in agent.journal.follow():
            ...

See docs/architecture.md for how it works and README.md for the first steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nodeagent._version import __version__

if TYPE_CHECKING:
    from nodeagent.agent import NodeAgent
    from nodeagent.config import AgentConfig, ConfigError
    from nodeagent.errors import StartError
    from nodeagent.journal import Journal, JournalRecord
    from nodeagent.model import Snapshot
    from nodeagent.sources import Source

__all__ = [
    "AgentConfig",
    "ConfigError",
    "Journal",
    "JournalRecord",
    "NodeAgent",
    "Snapshot",
    "Source",
    "StartError",
    "__version__",
]

_HOMES = {
    "AgentConfig": "nodeagent.config",
    "ConfigError": "nodeagent.config",
    "Journal": "nodeagent.journal",
    "JournalRecord": "nodeagent.journal",
    "NodeAgent": "nodeagent.agent",
    "Snapshot": "nodeagent.model",
    "Source": "nodeagent.sources",
    "StartError": "nodeagent.errors",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that importing one part stays cheap."""
    home = _HOMES.get(name)
    if home is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module

    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
