"""Jitter, groups of errors, and waiting in step."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.aio import (
    in_step,
    jitter,
    keeping_step,
    leaves,
    setting,
    sleep_in_step,
)

pytestmark = pytest.mark.anyio


@given(st.floats(min_value=1e-6, max_value=1e6), st.floats(min_value=0.01, max_value=2))
def test_jitter_lies_between_the_delay_and_its_stretch(seconds: float, factor: float) -> None:
    found = jitter(seconds, factor)
    assert seconds <= found <= seconds * (1 + factor)


def test_jitter_spreads_and_leaves_zero_alone() -> None:
    assert len({jitter(10) for _ in range(50)}) > 10
    assert jitter(0) == 0


def test_a_group_of_errors_stands_for_its_leaves() -> None:
    one, two, three = ValueError("1"), KeyError("2"), OSError("3")
    group = ExceptionGroup("outer", [one, ExceptionGroup("inner", [two, three])])
    assert list(leaves(group)) == [one, two, three]
    assert list(leaves(one)) == [one]


@given(
    st.floats(min_value=0, max_value=1e5),
    st.floats(min_value=0, max_value=1e5),
    st.floats(min_value=0, max_value=600),
)
def test_who_waits_in_step_is_never_late_and_not_much_too_early(
    start: float, since_start: float, wait: float
) -> None:
    now = start + since_start
    at = in_step(now + wait, now, start)
    assert now + 0.249 * wait <= at <= now + wait + 1e-5


@given(st.floats(min_value=0, max_value=1e5), st.floats(min_value=0, max_value=0.24))
def test_who_works_for_a_while_each_second_gets_in_step(began: float, work: float) -> None:
    ends = began
    for _ in range(4):
        ends = in_step(ends + 1.0, ends, 0.0) + work
    assert abs((ends - work) - round(ends - work)) < 1e-4


async def test_tasks_in_step_wake_up_at_the_same_moment() -> None:
    woken: list[float] = []

    async def sleep(after: float, seconds: float) -> None:
        await anyio.sleep(after)
        await sleep_in_step(seconds)
        woken.append(anyio.current_time())

    with keeping_step():
        begun = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sleep, 0.0, 5.0)
            tasks.start_soon(sleep, 0.25, 5.0)
            tasks.start_soon(sleep, 3.5, 1.75)
    assert [round(at - begun, 6) for at in woken] == [5.0, 5.0, 5.0]


async def test_tasks_that_do_not_keep_step_sleep_as_long_as_they_say() -> None:
    begun = anyio.current_time()
    await sleep_in_step(1.75)
    assert round(anyio.current_time() - begun, 6) == 1.75


async def test_nothing_is_set_once_the_block_is_left() -> None:
    event, other = anyio.Event(), anyio.Event()
    with keeping_step():
        due = anyio.current_time() + 1.0
        with setting(other, due):
            with setting(event, due):
                pass
            await other.wait()
    await anyio.sleep(2.0)
    assert not event.is_set()
