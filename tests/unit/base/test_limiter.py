"""How many go at once, who goes first, and that what hangs holds up nobody."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.limiter import AdaptiveLimiter, _Pace

pytestmark = pytest.mark.anyio


class Work:
    """Things made through a limiter; each takes as long as it would with so many at once."""

    def __init__(self, limiter: AdaptiveLimiter, seconds: float, *, shared: bool = False) -> None:
        self.limiter = limiter
        self.seconds = seconds
        self.shared = shared
        self.now = 0
        self.most = 0
        self.done: list[int] = []

    async def make(self, number: int, place: int) -> None:
        async with self.limiter.slot(place):
            self.now += 1
            self.most = max(self.most, self.now)
            # Shared: one processor for all, so that more at once take longer each.
            await anyio.sleep(self.seconds * (self.now if self.shared else 1))
            self.now -= 1
            self.done.append(number)

    async def make_all(self, count: int) -> float:
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(self.make, number, self.limiter.place())
        return anyio.current_time() - began


async def test_what_only_waits_goes_more_and_more_at_once() -> None:
    work = Work(AdaptiveLimiter(4, 16, 100), 1.0)
    took = await work.make_all(100)
    assert work.most == 16
    assert took < 12  # 25 with four at a time
    assert work.limiter.limit == 4  # the next rush begins anew


async def test_what_shares_a_processor_stays_at_the_least() -> None:
    work = Work(AdaptiveLimiter(4, 16, 100), 1.0, shared=True)
    await work.make_all(100)
    assert work.most <= 8  # once tried, once given up
    late = [work.limiter.limit]
    assert late == [4]


async def test_there_are_never_more_than_the_most() -> None:
    work = Work(AdaptiveLimiter(2, 3, 100), 1.0)
    await work.make_all(50)
    assert work.most == 3


async def test_who_came_first_goes_first_also_with_a_second_thing() -> None:
    limiter = AdaptiveLimiter(1, 1, 100)
    order: list[str] = []

    async def pod(name: str, place: int) -> None:
        for part in ("sandbox", "container"):
            async with limiter.slot(place, part):
                await anyio.sleep(1)
                order.append(f"{name} {part}")

    async with anyio.create_task_group() as tasks:
        for name in "abcd":
            tasks.start_soon(pod, name, limiter.place())
    # While a comes back for its container, b has got the slot; nobody else goes before a.
    first = {step: number for number, step in enumerate(order)}
    assert first["a container"] < first["c sandbox"] < first["d sandbox"]
    assert first["b container"] < first["d sandbox"]


async def test_a_holder_that_hangs_gives_its_slot_up() -> None:
    limiter = AdaptiveLimiter(2, 2, patience=5)
    done: list[float] = []

    async def hang() -> None:
        async with limiter.slot(limiter.place()):
            await anyio.sleep(1000)

    async def quick() -> None:
        async with limiter.slot(limiter.place()):
            await anyio.sleep(1)
        done.append(anyio.current_time())

    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(hang)
        await anyio.sleep(0.1)
        began = anyio.current_time()
        for _ in range(4):
            tasks.start_soon(quick)
        await anyio.sleep(10)
        assert limiter.overdue == 2
        assert [round(at - began) for at in done] == [6, 6, 7, 7]
        tasks.cancel_scope.cancel()
    assert limiter.overdue == 0
    with anyio.fail_after(1):
        async with limiter.slot(limiter.place()), limiter.slot(limiter.place()):
            pass


async def test_one_that_is_cancelled_while_it_waits_takes_no_turn() -> None:
    limiter = AdaptiveLimiter(1, 1, 100)
    async with anyio.create_task_group() as tasks:
        scope = anyio.CancelScope()

        async def leave() -> None:
            with scope:
                async with limiter.slot(limiter.place()):
                    raise AssertionError

        async with limiter.slot(limiter.place()):
            tasks.start_soon(leave)
            await anyio.sleep(1)
            scope.cancel()
            await anyio.sleep(1)
        async with limiter.slot(limiter.place()):
            pass


@pytest.mark.parametrize("turns", range(6))
async def test_a_turn_that_comes_together_with_a_cancellation_is_passed_on(turns: int) -> None:
    limiter = AdaptiveLimiter(1, 1, 100)
    async with anyio.create_task_group() as tasks:
        scope = anyio.CancelScope()

        async def maybe() -> None:
            with scope:
                async with limiter.slot(limiter.place()):
                    await anyio.sleep(1)

        async with limiter.slot(limiter.place()):
            tasks.start_soon(maybe)
            await anyio.sleep(1)
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        scope.cancel()
    with anyio.fail_after(1):
        async with limiter.slot(limiter.place()):
            pass


async def test_one_that_is_cancelled_as_it_takes_a_free_slot_gives_it_back() -> None:
    limiter = AdaptiveLimiter(1, 1, 100)
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with limiter.slot(limiter.place()):
            raise AssertionError
    with anyio.fail_after(1):
        async with limiter.slot(limiter.place()):
            pass


async def test_an_error_of_the_holder_is_no_progress_and_frees_the_slot() -> None:
    limiter = AdaptiveLimiter(1, 8, 100)
    for _ in range(5):
        with pytest.raises(ZeroDivisionError):
            async with limiter.slot(limiter.place()):
                raise ZeroDivisionError
    async with limiter.slot(limiter.place()):
        assert limiter.limit == 1


@given(
    st.integers(1, 8),
    st.integers(1, 64),
    st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 10)), max_size=300),
)
def test_the_limit_stays_between_the_least_and_the_most(
    least: int, most: int, taken: list[tuple[str, float]]
) -> None:
    most = max(least, most)
    pace, limit = _Pace(), least
    for kind, took in taken:
        limit = pace.next_limit(kind, took, limit, most)
        assert least <= limit <= most


def test_only_things_of_one_kind_are_compared() -> None:
    pace, limit = _Pace(), 4
    for _ in range(3):
        limit = pace.next_limit("quick", 0.1, limit, 64)
    assert limit == 8
    for _ in range(4):
        limit = pace.next_limit("slow", 9.0, limit, 64)
    assert limit == 16
    for _ in range(8):
        limit = pace.next_limit("slow", 14.0, limit, 64)
    assert limit == 8
    for _ in range(50):
        assert pace.next_limit("slow", 1.0, limit, 64) == 8


async def test_who_gives_up_waiting_just_when_its_turn_would_come_takes_nothing() -> None:
    limiter, ended = AdaptiveLimiter(1, 1, 100), list[str]()
    patience = anyio.CancelScope()

    async def wait() -> None:
        with patience:
            async with limiter.slot(limiter.place()):
                ended.append("had its turn")
        ended.append("gave up")

    async with anyio.create_task_group() as tasks, limiter.slot(limiter.place()):
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        patience.cancel()
    assert ended == ["gave up"]
    with anyio.fail_after(1):
        async with limiter.slot(limiter.place()):
            pass
