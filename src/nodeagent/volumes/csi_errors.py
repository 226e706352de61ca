"""How what a driver says becomes the text of an event."""

from __future__ import annotations

from typing import Final

from nodeagent.rpc import RpcError

_NAMES: Final = {"CANCELLED": "Canceled"}


def describe(error: Exception) -> str:
    """An error, for people; one of a driver as gRPC libraries write it."""
    if isinstance(error, RpcError):
        name = error.code.name
        words = "".join(word.capitalize() for word in name.split("_"))
        return f"rpc error: code = {_NAMES.get(name, words)} desc = {error.message}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
