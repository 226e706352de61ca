"""Calls side by side: bounded, in order, and the first error ends the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from nodeagent.aio import side_by_side

pytestmark = pytest.mark.anyio


def after(seconds: float, value: int) -> Callable[[], Awaitable[int]]:
    async def call() -> int:
        await anyio.sleep(seconds)
        return value

    return call


def failing(seconds: float) -> Callable[[], Awaitable[int]]:
    async def call() -> int:
        await anyio.sleep(seconds)
        raise LookupError(seconds)

    return call


async def test_results_come_in_the_order_of_the_calls() -> None:
    assert await side_by_side([after(3, 1), after(1, 2), after(2, 3)]) == [1, 2, 3]
    assert anyio.current_time() == pytest.approx(3, abs=0.1)


async def test_nothing_and_one_need_no_task() -> None:
    assert await side_by_side([]) == []
    assert await side_by_side([after(0, 7)]) == [7]
    with pytest.raises(LookupError):
        await side_by_side([failing(0)])


async def test_no_more_than_told_run_at_once() -> None:
    began = anyio.current_time()
    await side_by_side([after(1, n) for n in range(6)], 2)
    assert anyio.current_time() - began == pytest.approx(3, abs=0.1)


async def test_the_first_error_cancels_the_rest_and_comes_out_bare() -> None:
    with pytest.raises(LookupError, match=r"^1$"):
        await side_by_side([after(1000, 1), failing(2), failing(1)])
    assert anyio.current_time() < 2


async def test_cancelling_the_caller_cancels_all() -> None:
    with anyio.move_on_after(1) as scope:
        await side_by_side([after(1000, 1), after(1000, 2)])
    assert scope.cancelled_caught
