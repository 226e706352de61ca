"""A call that is cancelled from outside may end, if it ends soon."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from nodeagent.aio import linger

pytestmark = pytest.mark.anyio


class Call:
    """Takes its time; knows whether it came to its end."""

    def __init__(self, seconds: float, error: Exception | None = None) -> None:
        self.seconds = seconds
        self.error = error
        self.ended = False

    async def __call__(self) -> str:
        await anyio.sleep(self.seconds)
        self.ended = True
        if self.error is not None:
            raise self.error
        return "made"


async def test_the_answer_and_the_error_come_out_as_they_are() -> None:
    assert await linger(Call(400), 5) == "made"
    with pytest.raises(ZeroDivisionError):
        await linger(Call(1, ZeroDivisionError()), 5)


async def test_a_cancelled_call_ends_if_it_ends_soon() -> None:
    call = Call(3)
    with anyio.move_on_after(1) as scope:
        await linger(call, 5)
    assert scope.cancelled_caught
    assert call.ended
    assert anyio.current_time() == 3


async def test_a_cancelled_call_that_hangs_is_given_up() -> None:
    call = Call(600)
    with anyio.move_on_after(1) as scope:
        await linger(call, 5)
    assert scope.cancelled_caught
    assert not call.ended
    assert anyio.current_time() == 6


async def test_an_error_after_the_cancellation_is_still_a_cancellation() -> None:
    with anyio.move_on_after(1) as scope:
        await linger(Call(2, ZeroDivisionError()), 5)
    assert scope.cancelled_caught


async def test_a_task_cancelled_by_asyncio_lets_the_call_end_too() -> None:
    call = Call(3)
    task = asyncio.ensure_future(linger(call, 5))
    await anyio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert call.ended
