"""What becomes of a file of state on a bad disk, or by another version of the agent."""

from __future__ import annotations

import re
from collections.abc import Callable

_VERSION = re.compile(rb'("version":|"apiVersion":"[a-z0-9.]+/v)[0-9]+(?:beta[0-9]+)?')

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "NUL-filled": lambda good: bytes(len(good)),
    "truncated": lambda good: good[: len(good) // 2],
    "one byte short": lambda good: good[:-1],
    "binary": lambda _: bytes(range(256)) * 16,
    "another form": lambda _: b"[]",
    "of a future version": lambda good: _VERSION.sub(rb"\g<1>99", good),
    "nested without end": lambda _: b"[" * 100_000,
}
