"""A call for another thread, and the future that tells how it ended."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


def pending(
    fn: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Future[T], Callable[[], None]]:
    """A future, and what makes the call and tells it; nothing once it was cancelled."""
    future: Future[T] = Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = fn(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            future.set_exception(error)
        else:
            future.set_result(result)

    return future, run
