"""The limiter that stuck holders cannot exhaust."""

from __future__ import annotations

import anyio
import pytest

from nodeagent.limiter import PatientLimiter

pytestmark = pytest.mark.anyio


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
