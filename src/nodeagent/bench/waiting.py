"""Waiting for other processes with a deadline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from nodeagent.bench.figures import BenchError

T = TypeVar("T")


async def until(
    what: str,
    look: Callable[[], Awaitable[T | None]],
    *,
    timeout: float,
    pause: float = 0.05,
    explain: Callable[[], str] = str,
) -> T:
    """Call ``look`` until it gives something true, and return that.

    Args:
        what: what is waited for, in words.
        look: looks.
        timeout: seconds.
        pause: seconds between two looks.
        explain: more about what went wrong, for the error.

    Raises:
        BenchError: it did not within ``timeout`` seconds.
    """
    with anyio.move_on_after(timeout):
        while True:
            if seen := await look():
                return seen
            await anyio.sleep(pause)
    msg = f"{what}: not within {timeout:g} s {explain()}".rstrip()
    raise BenchError(msg)
