"""Hashes that tell whether a container is still what its spec says."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Final

_OFFSET_32: Final = 0x811C9DC5
_PRIME_32: Final = 0x01000193
_OFFSET_64: Final = 0xCBF29CE484222325
_PRIME_64: Final = 0x100000001B3

# What the reference encoder escapes in JSON strings beyond the standard's needs.
_HTML_ESCAPES: Final = {
    ord("<"): "\\u003c",
    ord(">"): "\\u003e",
    ord("&"): "\\u0026",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


def fnv1a_32(data: bytes) -> int:
    """FNV-1a, 32 bits."""
    value = _OFFSET_32
    for byte in data:
        value = ((value ^ byte) * _PRIME_32) & 0xFFFFFFFF
    return value


def fnv_64a(data: bytes) -> int:
    """FNV-1a, 64 bits."""
    value = _OFFSET_64
    for byte in data:
        value = ((value ^ byte) * _PRIME_64) & 0xFFFFFFFFFFFFFFFF
    return value


@lru_cache(maxsize=4096)
def container_hash(name: str, image: str) -> str:
    """The hash that a container carries as an annotation (docs/behaviour/runtime.md, "Hash").

    Only name and image count: no other change of the spec restarts a container.

    Returns:
        Lowercase hexadecimal without padding.
    """
    text = json.dumps({"image": image, "name": name}, ensure_ascii=False, separators=(",", ":"))
    encoded = text.translate(_HTML_ESCAPES).encode()
    dumped = "([]uint8)[" + " ".join(map(str, encoded)) + "]"
    return f"{fnv1a_32(dumped.encode()):x}"
