"""Errors that an embedder sees."""

from __future__ import annotations


class StartError(Exception):
    """The agent cannot start. One sentence: what, why, and what to do."""
