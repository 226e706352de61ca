"""The loop on virtual time: it stands while there is work, then jumps to the next timer."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import aiohttp
import anyio
import pytest
from aiohttp import web
from anyio import to_thread
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.testing.virtual_time import VirtualTimeLoop

pytestmark = pytest.mark.anyio

HOUR = 3600.0


def play(main: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await main()

    anyio.run(run, backend_options={"loop_factory": VirtualTimeLoop})


def test_a_new_loop_starts_at_zero() -> None:
    async def main() -> None:
        assert anyio.current_time() == 0
        assert asyncio.get_running_loop().time() == 0

    play(main)


async def test_the_tests_of_this_project_run_on_it() -> None:
    assert isinstance(asyncio.get_running_loop(), VirtualTimeLoop)


@pytest.mark.realtime
async def test_tests_in_real_time_do_not() -> None:
    assert not isinstance(asyncio.get_running_loop(), VirtualTimeLoop)


async def test_a_long_sleep_takes_exactly_its_time() -> None:
    start = anyio.current_time()
    await anyio.sleep(1000 * HOUR)
    assert anyio.current_time() - start == 1000 * HOUR


async def test_time_stands_still_while_there_is_work() -> None:
    start = anyio.current_time()
    for _ in range(1000):
        await anyio.lowlevel.checkpoint()
    await anyio.sleep(0)
    began = time.monotonic()
    while time.monotonic() == began:
        """Real time passes, and must not count."""
    await anyio.lowlevel.checkpoint()
    assert anyio.current_time() == start


async def test_an_hour_of_ticks_is_3600_ticks() -> None:
    start, ticks = anyio.current_time(), 0
    with anyio.move_on_after(HOUR + 0.5):
        while True:
            await anyio.sleep(1)
            ticks += 1
    assert ticks == 3600
    assert anyio.current_time() - start == HOUR + 0.5


async def test_deadlines_fire_at_their_time() -> None:
    start = anyio.current_time()
    with pytest.raises(TimeoutError):
        with anyio.fail_after(90):
            await anyio.sleep_forever()
    assert anyio.current_time() - start == 90


@given(st.lists(st.integers(0, 10_000).map(lambda n: n / 16), min_size=1, max_size=30))
def test_sleepers_wake_in_order_each_at_its_time(delays: list[float]) -> None:
    woken: list[tuple[float, float]] = []

    async def sleeper(delay: float) -> None:
        await anyio.sleep(delay)
        woken.append((delay, anyio.current_time()))

    async def main() -> None:
        async with anyio.create_task_group() as tg:
            for delay in delays:
                tg.start_soon(sleeper, delay)

    play(main)
    assert [at for _, at in woken] == sorted(delays)
    assert all(delay == at for delay, at in woken)


async def test_sleepers_of_one_moment_wake_at_one_moment() -> None:
    woken = []

    async def sleeper() -> None:
        await anyio.sleep(5)
        woken.append(anyio.current_time())

    start = anyio.current_time()
    async with anyio.create_task_group() as tg:
        for _ in range(5):
            tg.start_soon(sleeper)
    assert woken == [start + 5] * 5


async def test_bytes_on_a_socket_beat_a_timer() -> None:
    loop, start = asyncio.get_running_loop(), anyio.current_time()
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)

    async def echo() -> None:
        while True:
            await loop.sock_sendall(right, await loop.sock_recv(right, 100))

    with left, right:
        async with anyio.create_task_group() as tg:
            tg.start_soon(echo)
            for number in range(200):
                with anyio.fail_after(1e-9):
                    await loop.sock_sendall(left, b"%d" % number)
                    assert await loop.sock_recv(left, 100) == b"%d" % number
            tg.cancel_scope.cancel()
    assert anyio.current_time() == start


async def test_http_on_loopback_takes_no_time() -> None:
    async def hello(_request: web.Request) -> web.Response:
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_get("/", hello)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    start = anyio.current_time()
    async with aiohttp.ClientSession() as session:
        for _ in range(50):
            async with session.get(f"http://127.0.0.1:{runner.addresses[0][1]}/") as reply:
                assert await reply.text() == "hello"
    assert anyio.current_time() == start
    await runner.cleanup()


async def held_up(block: Callable[[threading.Event], Awaitable[None]]) -> list[str]:
    """What comes first while a thread waits: a timer far away, or the end of the thread.

    The thread goes on only after a short timer has fired, so it is certain that the loop had
    reason to move its clock while the thread was at work.
    """
    order: list[str] = []
    release = threading.Event()

    async def far() -> None:
        await anyio.sleep(HOUR)
        order.append("timer")

    async def near() -> None:
        await anyio.sleep(0.01)
        release.set()

    async with anyio.create_task_group() as tg:
        tg.start_soon(far)
        tg.start_soon(near)
        await block(release)
        order.append("thread")
        tg.cancel_scope.cancel()
    return order


async def test_while_a_worker_thread_runs_time_does_not_jump() -> None:
    async def block(release: threading.Event) -> None:
        await to_thread.run_sync(release.wait)

    start = anyio.current_time()
    assert await held_up(block) == ["thread"]
    assert anyio.current_time() - start < HOUR


async def test_while_an_executor_job_runs_time_does_not_jump() -> None:
    async def block(release: threading.Event) -> None:
        await asyncio.get_running_loop().run_in_executor(None, release.wait)

    assert await held_up(block) == ["thread"]
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    assert loop.jobs == set()


@pytest.mark.parametrize("limit", [None, HOUR / 2])
def test_while_a_loop_that_closes_waits_for_its_threads_time_does_not_jump(
    limit: float | None,
) -> None:
    async def block(release: threading.Event) -> None:
        loop, executor = asyncio.get_running_loop(), ThreadPoolExecutor()
        assert isinstance(loop, VirtualTimeLoop)
        loop.set_default_executor(executor)
        executor.submit(release.wait)  # the loop does not know of it
        await loop.shutdown_default_executor(limit)

    async def main() -> None:
        assert await held_up(block) == ["thread"]
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        assert loop.jobs == set()
        assert loop.now < HOUR / 2

    play(main)


async def test_after_a_thread_time_jumps_again() -> None:
    await to_thread.run_sync(time.monotonic)
    before = anyio.current_time()
    await anyio.sleep(HOUR)
    assert anyio.current_time() - before == HOUR


async def test_a_call_from_a_thread_wakes_the_loop() -> None:
    loop, called = asyncio.get_running_loop(), asyncio.Event()
    thread = threading.Thread(target=loop.call_soon_threadsafe, args=(called.set,))
    thread.start()
    await called.wait()
    thread.join()


async def test_cancelling_leaves_no_timer_behind() -> None:
    start = anyio.current_time()
    with anyio.move_on_after(1):
        await anyio.sleep(HOUR)
    await anyio.sleep(1)
    assert anyio.current_time() - start == 2
