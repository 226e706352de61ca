"""Which image the runtime makes sandboxes with: it must never be removed.

Runtimes that pin it say so in the list of images. Others tell it in their verbose status.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

_KEYS: Final = frozenset({"sandboximage", "sandbox_image", "pauseimage", "pause_image"})
_DEEP: Final = 8


def sandbox_images(info: Mapping[str, str]) -> frozenset[str]:
    """The names in a runtime's verbose status; none when it does not tell.

    Args:
        info: texts by key; JSON where they are structured.
    """
    return frozenset(name for text in info.values() for name in _named(_parsed(text), _DEEP))


def looks_like_one(name: str) -> bool:
    """Whether an image is called as sandbox images are: ``registry.k8s.io/pause:3.9``."""
    path = name.rpartition("/")[2]
    return path.partition("@")[0].partition(":")[0] == "pause"


def _parsed(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _named(value: Any, depth: int) -> Iterator[str]:
    if depth == 0:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, str) and inner and key.lower() in _KEYS:
                yield inner
            elif key.lower() == "pinnedimages" and isinstance(inner, dict):
                yield from (name for name in inner.values() if isinstance(name, str) and name)
            else:
                yield from _named(inner, depth - 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _named(inner, depth - 1)
