"""Waiting for another process with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(what: str, look: Callable[[], T | None], *, timeout: float = 30.0) -> T:
    """Call ``look`` until it returns something true, and return that.

    Raises:
        TimeoutError: names ``what`` and the last thing seen, after ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    pause = 0.01
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout:g} s (last seen: {seen!r})")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)


def stays(what: str, holds: Callable[[], bool], *, seconds: float) -> None:
    """Check over and over, for a while, that something that must not change does not.

    Raises:
        AssertionError: names ``what`` as soon as it no longer holds.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert holds(), f"no longer true: {what}"
        time.sleep(0.1)
