"""The event feed of CRI: hints, gaps, and runtimes without it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from tests.unit.cri.fake_runtime import FakeRuntime, sandbox_status
from tests.unit.cri.feed_recorder import OPENED, Recorder, listen

from nodeagent import rpc
from nodeagent.cri import CRIClient, CRIEventFeed, RuntimeHint
from nodeagent.cri.events import Effect
from nodeagent.proto.runtime import v1

pytestmark = pytest.mark.anyio

STOPPED = v1.ContainerEventResponse(
    container_id="c1",
    container_event_type=v1.ContainerEventType.CONTAINER_STOPPED_EVENT,
    created_at=7,
    pod_sandbox_status=sandbox_status("s1"),
)
HINT = RuntimeHint("u1", "c1", "s1", "CONTAINER_STOPPED_EVENT", Effect.ENDED, 7)


@pytest.fixture
def path() -> Iterator[str]:
    with TemporaryDirectory(prefix="cri") as directory:
        yield str(Path(directory, "cri.sock"))


async def test_an_event_is_a_hint_with_pod_container_and_sandbox(path: str) -> None:
    runtime = FakeRuntime()
    runtime.stall("GetContainerEvents")
    deleted = v1.ContainerEventType.CONTAINER_DELETED_EVENT
    runtime.events = [
        STOPPED,
        v1.ContainerEventResponse(container_id="c2"),
        v1.ContainerEventResponse(container_id="c3", container_event_type=deleted),
    ]
    async with rpc.serve_unix([runtime], path), CRIClient(f"unix://{path}") as client:
        heard = await listen(CRIEventFeed(client), 1000)
    assert heard.told == [
        OPENED,
        HINT,
        RuntimeHint("", "c2", "", "CONTAINER_CREATED_EVENT"),
        RuntimeHint("", "c3", "", "CONTAINER_DELETED_EVENT", Effect.GONE),
    ]
    assert runtime.calls["GetContainerEvents"] == 1


async def test_each_stream_is_told_so_that_what_was_missed_is_looked_for(path: str) -> None:
    runtime = FakeRuntime()
    runtime.stall("GetContainerEvents")
    runtime.events = [STOPPED, rpc.Unavailable("restarting"), STOPPED]
    async with rpc.serve_unix([runtime], path), CRIClient(f"unix://{path}") as client:
        told = (await listen(CRIEventFeed(client), 10)).told
    assert told[:2] == [OPENED, HINT]
    assert "restarting" in str(told[2])
    assert told[3:] == [OPENED, HINT]


async def test_the_feed_outlives_the_runtime(path: str) -> None:
    recorder = Recorder()
    async with CRIClient(f"unix://{path}") as client, anyio.create_task_group() as tasks:
        tasks.start_soon(CRIEventFeed(client).run, recorder)
        await anyio.sleep(100)
        assert OPENED not in recorder.told
        assert "there is no such socket" in str(recorder.told[-1])
        runtime = FakeRuntime()
        runtime.events = [STOPPED]
        async with rpc.serve_unix([runtime], path):
            await anyio.sleep(60)
        assert recorder.hints == [HINT]
        tasks.cancel_scope.cancel()


async def test_a_runtime_that_is_back_is_asked_at_once(path: str) -> None:
    recorder = Recorder()
    async with CRIClient(f"unix://{path}") as client, anyio.create_task_group() as tasks:
        feed = CRIEventFeed(client)
        tasks.start_soon(feed.run, recorder)
        await anyio.sleep(100)
        runtime = FakeRuntime()
        runtime.events = [STOPPED]
        runtime.stall("GetContainerEvents")
        async with rpc.serve_unix([runtime], path):
            feed.try_now()
            await anyio.sleep(0.1)
            assert recorder.hints == [HINT]
            tasks.cancel_scope.cancel()


async def test_a_runtime_that_ends_every_stream_is_asked_ever_less_often(path: str) -> None:
    runtime = FakeRuntime()
    async with rpc.serve_unix([runtime], path), CRIClient(f"unix://{path}") as client:
        await listen(CRIEventFeed(client), 3600)
    assert 3600 / 45 <= runtime.calls["GetContainerEvents"] <= 3600 / 30 + 9


async def test_a_runtime_without_events_says_so(path: str) -> None:
    async with (
        rpc.serve_unix([v1.ImageServiceBase()], path),
        CRIClient(f"unix://{path}") as client,
    ):
        with pytest.raises(rpc.Unimplemented, match="GetContainerEvents"):
            await listen(CRIEventFeed(client), 10)
