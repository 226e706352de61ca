"""Jitter, and the limiter that stuck holders cannot exhaust."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.aio import (
    PatientLimiter,
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


async def hold(
    limiter: PatientLimiter, name: str, seconds: float, seen: list[tuple[str, float]]
) -> None:
    async with limiter.slot():
        seen.append((name, anyio.current_time()))
        await anyio.sleep(seconds)


async def test_no_more_than_the_total_run_side_by_side_in_order_of_arrival() -> None:
    limiter, seen = PatientLimiter(2, patience=100), list[tuple[str, float]]()
    start = anyio.current_time()
    async with anyio.create_task_group() as tg:
        for name in "abcde":
            tg.start_soon(hold, limiter, name, 10, seen)
    assert [(n, t - start) for n, t in seen] == [
        ("a", 0),
        ("b", 0),
        ("c", 10),
        ("d", 10),
        ("e", 20),
    ]
    assert limiter.overdue == 0


async def test_a_stuck_holder_gives_its_slot_up_and_goes_on() -> None:
    limiter, seen = PatientLimiter(1, patience=5), list[tuple[str, float]]()
    start = anyio.current_time()
    async with anyio.create_task_group() as tg:
        tg.start_soon(hold, limiter, "stuck", 60, seen)
        tg.start_soon(hold, limiter, "next", 1, seen)
        await anyio.sleep(30)
        assert [(n, t - start) for n, t in seen] == [("stuck", 0), ("next", 5)]
        assert limiter.overdue == 1
    assert limiter.overdue == 0
    assert anyio.current_time() - start == 60


async def test_many_stuck_holders_starve_nobody() -> None:
    limiter, seen = PatientLimiter(2, patience=3), list[tuple[str, float]]()
    start = anyio.current_time()
    async with anyio.create_task_group() as tg:
        for number in range(40):
            tg.start_soon(hold, limiter, f"stuck{number}", 1e6, seen)
        tg.start_soon(hold, limiter, "last", 0, seen)
        await anyio.sleep(61)
        assert seen[-1] == ("last", start + 60)
        assert limiter.overdue == 40
        tg.cancel_scope.cancel()
    assert limiter.overdue == 0


async def test_a_slot_that_was_given_up_is_not_given_back_twice() -> None:
    limiter, seen = PatientLimiter(1, patience=5), list[tuple[str, float]]()
    await hold(limiter, "stuck", 10, seen)
    start = anyio.current_time()
    async with anyio.create_task_group() as tg:
        tg.start_soon(hold, limiter, "a", 2, seen)
        tg.start_soon(hold, limiter, "b", 2, seen)
    assert [(n, t - start) for n, t in seen[1:]] == [("a", 0), ("b", 2)]


async def test_cancelled_and_failed_holders_give_their_slots_back() -> None:
    limiter, seen = PatientLimiter(1, patience=5), list[tuple[str, float]]()
    with anyio.move_on_after(1):
        await hold(limiter, "cancelled", 10, seen)
    with pytest.raises(ValueError, match="failed"):
        async with limiter.slot():
            raise ValueError("failed")
    start = anyio.current_time()
    await hold(limiter, "next", 10, seen)
    assert seen[-1] == ("next", start)
    assert limiter.overdue == 0


async def test_one_that_is_cancelled_while_it_waits_takes_nothing() -> None:
    limiter, seen = PatientLimiter(1, patience=100), list[tuple[str, float]]()
    start = anyio.current_time()
    async with anyio.create_task_group() as tg:
        tg.start_soon(hold, limiter, "first", 10, seen)
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(1):
            await hold(limiter, "impatient", 1, seen)
        tg.start_soon(hold, limiter, "third", 1, seen)
    assert [(n, t - start) for n, t in seen] == [("first", 0), ("third", 10)]


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
