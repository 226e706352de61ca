"""The composition root: how the parts of one agent are wired."""

from nodeagent.wiring.ring import build_parts

__all__ = ["build_parts"]
