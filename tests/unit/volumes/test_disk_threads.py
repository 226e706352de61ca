"""Threads for work on disks are used again, and one that hangs is nobody's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import anyio
import anyio.to_thread
import pytest

from nodeagent.volumes import threads
from nodeagent.volumes.threads import DiskThreads

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]


@pytest.fixture
def held() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


async def test_work_that_comes_one_by_one_is_done_by_few_threads() -> None:
    disk = DiskThreads()
    idents = {await disk.run(threading.get_ident) for _ in range(50)}
    # The next call may come a moment before its thread waits for it.
    assert len(idents) < 10


async def test_work_beside_a_call_that_hangs_is_done_by_another_thread(
    held: threading.Event,
) -> None:
    disk = DiskThreads()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(disk.run, held.wait)
        await anyio.wait_all_tasks_blocked()
        assert await disk.run(lambda: 7) == 7
        held.set()


async def test_a_thread_without_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_SPARE_FOR", 0.001)
    disk = DiskThreads()
    thread = await disk.run(threading.current_thread)
    await anyio.to_thread.run_sync(thread.join, 10)
    assert not thread.is_alive()
    assert await disk.run(lambda: 7) == 7


async def test_no_call_is_lost_while_threads_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_SPARE_FOR", 0.0)
    disk = DiskThreads()
    done: list[int] = []

    async def some() -> None:
        for number in range(100):
            done.append(await disk.run(partial(int, number)))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(some)
    assert len(done) == 400
