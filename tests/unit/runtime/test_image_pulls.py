"""Pulls that take long (docs/behaviour/images.md, "Pulls")."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import anyio
import pytest
from tests.unit.runtime.conftest import LoopClock
from tests.unit.runtime.fakes import make_pod

from nodeagent.api import Pod
from nodeagent.journal import Journal
from nodeagent.model import PodUID
from nodeagent.runtime.errors import ContainerStartError, Waiting
from nodeagent.runtime.image_pulls import PullQueue, PullTimes
from nodeagent.runtime.settings import ImageSettings

pytestmark = pytest.mark.anyio

SLOW = make_pod(uid="slow", name="slow")
NEXT = make_pod(uid="next", name="next")


class Disk:
    """An image file system that grows by a megabyte a second."""

    def __init__(self) -> None:
        self.hangs = False

    async def used(self) -> int | None:
        if self.hangs:
            await anyio.sleep_forever()
        return round(anyio.current_time()) * 1_000_000


class Queue:
    """A queue of pulls, and what was told of them."""

    def __init__(self, **settings: Any) -> None:
        self.journal = Journal(monotonic=anyio.current_time)
        self.disk = Disk()
        self.noted: list[PodUID] = []
        self.queue = PullQueue(
            settings=ImageSettings(**settings),
            journal=self.journal,
            clock=LoopClock(),
            on_note=self.noted.append,
            used_bytes=self.disk.used,
        )

    async def pull(self, pod: Pod, seconds: float) -> PullTimes:
        return await self.queue.run(pod, "web", f"{pod.metadata.name}:1", sleeper(seconds))

    def note(self, pod: Pod) -> str:
        return self.queue.note(PodUID(pod.metadata.uid), "web")

    def lines(self, pod: Pod) -> list[tuple[str, float, object]]:
        return [
            (r.what, round(r.duration or 0), (r.fields or {}).get("disk_bytes"))
            for r in self.journal.select(pod.metadata.uid)
        ]


def sleeper(seconds: float) -> Callable[[], Awaitable[None]]:
    return lambda: anyio.sleep(seconds)


def stamp(seconds: float) -> str:
    """The wall time at a loop time of this test."""
    return f"2030-01-01T00:{int(seconds) // 60:02}:{int(seconds) % 60:02}Z"


async def test_iq8_iq10_a_long_pull_says_that_it_goes_on() -> None:
    queue, began = Queue(), anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(queue.pull, SLOW, 95)
        await anyio.sleep(9)
        assert queue.note(SLOW) == ""
        await anyio.sleep(2)
        assert queue.note(SLOW) == f'pulling image "slow:1" since {stamp(began)}'
    assert queue.note(SLOW) == ""
    assert queue.noted == ["slow", "slow"]
    assert queue.lines(SLOW) == [
        ("ImagePullProgress", 30, 20_000_000),
        ("ImagePullProgress", 60, 50_000_000),
        ("ImagePullProgress", 90, 80_000_000),
    ]


async def test_iq9_iq10_one_that_waits_says_for_whom() -> None:
    queue, began = Queue(), anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(queue.pull, SLOW, 40)
        await anyio.sleep(1)
        tasks.start_soon(queue.pull, NEXT, 20)
        await anyio.sleep(11)
        assert queue.note(NEXT) == (
            f'waiting since {stamp(began + 1)} to pull image "next:1": '
            f'"slow:1" of pod default/slow has been pulled since {stamp(began)}'
        )
        await anyio.sleep(30)
        assert queue.note(NEXT).startswith("waiting")
        assert [line[:2] for line in queue.lines(NEXT)] == [("ImagePullWaits", 30)]
        waits = queue.journal.select("next")[0]
        assert waits.fields is not None
        assert waits.fields["place"] == 1
    assert [line[:2] for line in queue.lines(NEXT)] == [("ImagePullWaits", 30)]
    assert queue.note(NEXT) == ""


async def test_iq9_the_note_changes_when_its_turn_has_come() -> None:
    queue = Queue(progress_period=5.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(queue.pull, SLOW, 12)
        tasks.start_soon(queue.pull, NEXT, 30)
        await anyio.sleep(11)
        assert queue.note(NEXT).startswith("waiting")
        await anyio.sleep(5)
        assert queue.note(NEXT).startswith('pulling image "next:1"')


async def test_iq10_a_disk_that_does_not_answer_holds_nothing_up() -> None:
    queue = Queue()
    queue.disk.hangs = True
    times = await queue.pull(SLOW, 65)
    assert times == PullTimes(65, 65)
    assert [line[2] for line in queue.lines(SLOW)] == [None]


async def test_a_short_pull_says_nothing() -> None:
    queue = Queue()
    assert await queue.pull(SLOW, 3) == PullTimes(3, 3)
    assert queue.noted == []
    assert queue.lines(SLOW) == []


async def test_iq1_the_time_of_waiting_is_told_apart() -> None:
    queue = Queue()
    times: list[PullTimes] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(queue.pull, SLOW, 5)
        await anyio.sleep(1)
        times.append(await queue.pull(NEXT, 2))
    assert times == [PullTimes(2, 6)]


async def test_iq7_a_pull_without_a_deadline_goes_on() -> None:
    assert (await Queue().pull(SLOW, 7200)).took == 7200


async def test_iq7_a_pull_may_have_a_deadline() -> None:
    queue = Queue(pull_timeout=3600)
    with pytest.raises(ContainerStartError) as caught:
        await queue.pull(SLOW, 7200)
    assert caught.value.reason == "ErrImagePull"
    assert caught.value.message == "the pull did not end within 1h0m0s"
    assert queue.note(SLOW) == ""


async def test_the_span_of_a_pods_pulls_reaches_from_the_first_question_to_the_last_end() -> None:
    queue, began = Queue(), LoopClock().now()
    uid = PodUID(NEXT.metadata.uid)
    assert queue.queue.span(uid) is None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(queue.pull, SLOW, 10)
        await anyio.lowlevel.checkpoint()
        tasks.start_soon(queue.pull, NEXT, 5)
    await anyio.sleep(20)
    with pytest.raises(ContainerStartError):
        await queue.queue.run(NEXT, "web", "next:2", failing)
    assert queue.queue.span(uid) == (began, began + timedelta(seconds=35))
    queue.queue.forget_pod(uid)
    assert queue.queue.span(uid) is None


async def failing() -> None:
    raise ContainerStartError(Waiting.IMAGE_PULL, "no")
