"""Tickers keep their rhythm and never queue what was missed."""

from __future__ import annotations

import math

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.channels import Ticker
from nodeagent.testing.virtual_time import VirtualTimeLoop

pytestmark = pytest.mark.anyio


async def test_the_first_tick_comes_one_period_after_the_first_wait() -> None:
    ticker = Ticker(2)
    await anyio.sleep(10)
    start = anyio.current_time()
    assert [await anext(ticker) - start for _ in range(3)] == [2, 4, 6]
    assert anyio.current_time() - start == 6
    assert ticker.skipped == 0


async def test_a_slow_consumer_keeps_the_rhythm() -> None:
    ticker = Ticker(2)
    start = anyio.current_time()
    seen = []
    async for _ in ticker:
        seen.append(anyio.current_time() - start)
        if len(seen) == 4:
            break
        await anyio.sleep(1.5)
    assert seen == [2, 4, 6, 8]


async def test_missed_ticks_are_skipped_and_counted() -> None:
    ticker = Ticker(1)
    start = anyio.current_time()
    assert await anext(ticker) - start == 1
    await anyio.sleep(5.25)
    assert await anext(ticker) - start == 6
    assert anyio.current_time() - start == 6.25
    assert ticker.skipped == 4
    assert await anext(ticker) - start == 7
    assert anyio.current_time() - start == 7


async def test_a_cancelled_wait_loses_no_tick() -> None:
    ticker = Ticker(10)
    start = anyio.current_time()
    await anext(ticker)
    with anyio.move_on_after(3):
        await anext(ticker)
    assert await anext(ticker) - start == 20


async def test_a_late_tick_still_lets_others_run() -> None:
    ticker, ran = Ticker(1), list[bool]()
    await anext(ticker)
    await anyio.sleep(10)

    async def other() -> None:
        ran.append(True)

    async with anyio.create_task_group() as tg:
        tg.start_soon(other)
        await anext(ticker)
        assert ran


@pytest.mark.parametrize("period", [0, -1, math.nan])
async def test_a_period_must_be_positive(period: float) -> None:
    with pytest.raises(ValueError, match="needs a positive period"):
        Ticker(period)


@given(
    st.sampled_from([0.25, 1.0, 2.0, 7.5]),
    st.lists(st.integers(0, 80).map(lambda n: n / 4), min_size=1, max_size=15),
)
def test_ticks_lie_on_the_grid_and_no_more_than_one_period_back(
    period: float, pauses: list[float]
) -> None:
    async def play() -> None:
        ticker = Ticker(period)
        start, last, count = anyio.current_time(), 0.0, 0
        for pause in pauses:
            due = await anext(ticker) - start
            count += 1
            late = anyio.current_time() - start - due
            assert due > last
            assert due % period == 0
            assert 0 <= late < period
            last = due
            await anyio.sleep(pause)
        assert last == (count + ticker.skipped) * period

    anyio.run(play, backend_options={"loop_factory": VirtualTimeLoop})
