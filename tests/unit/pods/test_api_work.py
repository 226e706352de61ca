"""Work for the API server: side by side, in order per key, until it is done."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import anyio
import pytest

from nodeagent.kube import ApiError, KubeError, UndecodableError, UnreachableError
from nodeagent.pods.api_work import ApiWork, is_server_trouble

pytestmark = pytest.mark.anyio


class Bench:
    """Work that a test watches."""

    def __init__(self, *, period: float = 1e9, at_once: int = 3) -> None:
        self.began: list[tuple[str, float]] = []
        self.running = 0
        self.most = 0
        self.errors: list[Exception] = []
        self.takes = 0.0
        self.ticks: list[float] = []
        self.spared = ""
        self.work: ApiWork[str] = ApiWork(
            "tests",
            self._work,
            tick=lambda: self.ticks.append(anyio.current_time() - self.zero),
            period=period,
            at_once=at_once,
            jitter=lambda seconds: seconds,
        )
        self.zero = 0.0

    async def _work(self, key: str) -> None:
        self.began.append((key, anyio.current_time() - self.zero))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await anyio.sleep(self.takes)
            if self.errors and key != self.spared:
                raise self.errors.pop(0)
        finally:
            self.running -= 1

    def want(self, *keys: str) -> None:
        for key in keys:
            self.work.want(key)

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        self.zero = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            await tasks.start(self.work.run)
            with anyio.fail_after(10_000):
                yield
            tasks.cancel_scope.cancel()


async def test_keys_are_worked_on_side_by_side_up_to_a_bound() -> None:
    bench = Bench()
    bench.takes = 1.0
    async with bench.at_work():
        bench.want(*"abcdefg", *"abc")
        await bench.work.drained()
    assert bench.began == [(k, float(i // 3)) for i, k in enumerate("abcdefg")]
    assert bench.most == 3


async def test_a_key_is_never_worked_on_twice_at_a_time() -> None:
    bench = Bench()
    bench.takes = 1.0
    async with bench.at_work():
        bench.want("a")
        await anyio.sleep(0.5)
        bench.want("a", "a", "a")
        await bench.work.drained()
    assert bench.began == [("a", 0.0), ("a", 1.0)]
    assert bench.most == 1


async def test_what_can_wait_is_done_with_what_comes_next() -> None:
    bench = Bench()
    async with bench.at_work():
        bench.work.want("a", within=2.0)
        bench.work.want("b", within=2.0)
        await anyio.sleep(1.0)
        bench.want("a")
        bench.work.want("b", within=2.0)
        await anyio.sleep(10.0)
        assert bench.work.done
    assert bench.began == [("a", 1.0), ("b", 2.0)]


async def test_what_can_wait_does_not_hurry_after_the_work_that_goes_on() -> None:
    bench = Bench()
    bench.takes = 1.0
    async with bench.at_work():
        bench.want("a", "b")
        await anyio.sleep(0.5)
        bench.work.want("a", within=2.0)
        bench.work.want("b", within=2.0)
        bench.want("b")
        await anyio.sleep(10.0)
    assert bench.began == [("a", 0.0), ("b", 0.0), ("b", 1.0), ("a", 3.0)]


async def test_at_the_end_nothing_waits_for_more() -> None:
    bench = Bench()
    async with bench.at_work():
        bench.work.want("a", within=2.0)
        bench.work.want("c", within=2.0)
        bench.work.forget("c")
        await bench.work.drained()
        bench.work.want("b", within=2.0)
        await bench.work.drained()
    assert bench.began == [("a", 0.0), ("b", 0.0)]


async def test_a_key_that_fails_waits_longer_and_longer_and_alone() -> None:
    bench = Bench()
    bench.errors, bench.spared = [ApiError(422, "Invalid", "")] * 8, "b"
    async with bench.at_work():
        bench.want("a")
        await anyio.sleep(0.5)
        bench.want("a", "b")
        await bench.work.drained()
    assert ("b", 0.5) in bench.began
    assert [at for key, at in bench.began if key == "a"] == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    assert bench.work.done


async def test_a_fault_of_ours_ends_nothing() -> None:
    bench = Bench()
    bench.errors = [ZeroDivisionError()]
    async with bench.at_work():
        bench.want("a")
        await bench.work.drained()
    assert bench.began == [("a", 0.0), ("a", 1.0)]


async def test_while_the_server_is_in_trouble_one_tries_for_all() -> None:
    bench = Bench()
    bench.errors = [UnreachableError("no")] * 6
    async with bench.at_work():
        bench.want(*"abcd")
        await bench.work.drained()
    times = [at for _, at in bench.began]
    # Three at once, then alone after 1, 2 and 4 s more; then it is back.
    assert times[:6] == [0, 0, 0, 1, 3, 7]
    assert set(times[6:]) == {15.0}
    assert {key for key, _ in bench.began} == set("abcd")


async def test_a_server_that_says_when_is_believed() -> None:
    bench = Bench()
    bench.errors = [ApiError(429, "TooManyRequests", "", retry_after=30.0)]
    async with bench.at_work():
        bench.want("a")
        await bench.work.drained()
    assert bench.began == [("a", 0.0), ("a", 30.0)]


async def test_a_server_that_wants_an_hour_gets_two_minutes() -> None:
    bench = Bench()
    bench.errors = [ApiError(503, "ServiceUnavailable", "", retry_after=3600.0)]
    async with bench.at_work():
        bench.want("a")
        await bench.work.drained()
    assert bench.began == [("a", 0.0), ("a", 120.0)]


async def test_a_tick_that_breaks_ends_nothing() -> None:
    bench = Bench(period=10.0)

    def broken() -> None:
        bench.ticks.append(anyio.current_time() - bench.zero)
        raise ZeroDivisionError

    bench.work._tick = broken
    async with bench.at_work():
        await anyio.sleep(25)
        bench.want("a")
        await bench.work.drained()
    assert bench.ticks == [10, 20]
    assert bench.began == [("a", 25.0)]


async def test_a_server_that_is_back_is_asked_at_once() -> None:
    bench = Bench()
    bench.errors = [ApiError(422, "Invalid", ""), UnreachableError("no")]
    async with bench.at_work():
        bench.want("a")
        await anyio.sleep(0.25)
        bench.want("b")
        await anyio.sleep(0.25)
        bench.work.retry_now()
        await bench.work.drained()
    assert {at for _, at in bench.began} == {0, 0.25, 0.5}


async def test_what_is_forgotten_is_not_tried_again() -> None:
    bench = Bench()
    bench.errors = [ApiError(422, "Invalid", "")]
    async with bench.at_work():
        bench.want("a")
        await anyio.sleep(0.5)
        bench.work.forget("a")
        assert bench.work.done
        await anyio.sleep(100)
    assert bench.began == [("a", 0.0)]


async def test_it_ticks() -> None:
    bench = Bench(period=10.0)
    async with bench.at_work():
        await anyio.sleep(35)
    assert bench.ticks == [10, 20, 30]


async def test_what_is_wanted_before_it_runs_is_done_then() -> None:
    bench = Bench()
    bench.want("a")
    async with bench.at_work():
        await bench.work.drained()
    assert bench.began == [("a", 0.0)]


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (UnreachableError("no"), True),
        (ApiError(401, "Unauthorized", ""), True),
        (ApiError(429, "", ""), True),
        (ApiError(500, "", ""), True),
        (ApiError(503, "", ""), True),
        (ApiError(403, "Forbidden", ""), False),
        (ApiError(404, "NotFound", ""), False),
        (ApiError(422, "Invalid", ""), False),
        (UndecodableError("html"), False),
    ],
)
def test_what_is_trouble_of_the_server(error: KubeError, trouble: bool) -> None:
    assert is_server_trouble(error) is trouble
