"""The event feed of CRI: hints, gaps, and runtimes without it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from tests.unit.cri.fake_runtime import FakeRuntime, sandbox_status

from nodeagent import rpc
from nodeagent.cri import CRIClient, CRIEventFeed, RuntimeHint
from nodeagent.proto.runtime import v1

pytestmark = pytest.mark.anyio

STOPPED = v1.ContainerEventResponse(
    container_id="c1",
    container_event_type=v1.ContainerEventType.CONTAINER_STOPPED_EVENT,
    pod_sandbox_status=sandbox_status("s1"),
)
HINT = RuntimeHint("u1", "c1", "s1", "CONTAINER_STOPPED_EVENT")
GAP = RuntimeHint(what="reconnected")


@pytest.fixture
def path() -> Iterator[str]:
    with TemporaryDirectory(prefix="cri") as directory:
        yield str(Path(directory, "cri.sock"))


async def listen(client: CRIClient, seconds: float) -> list[RuntimeHint]:
    hints: list[RuntimeHint] = []
    with anyio.move_on_after(seconds):
        await CRIEventFeed(client).run(hints.append)
    return hints


async def test_an_event_is_a_hint_with_pod_container_and_sandbox(path: str) -> None:
    runtime = FakeRuntime()
    runtime.stall("GetContainerEvents")
    runtime.events = [STOPPED, v1.ContainerEventResponse(container_id="c2")]
    async with rpc.serve_unix([runtime], path), CRIClient(f"unix://{path}") as client:
        hints = await listen(client, 1000)
    assert hints == [HINT, RuntimeHint("", "c2", "", "CONTAINER_CREATED_EVENT")]
    assert not hints[0].concerns_all
    assert runtime.calls["GetContainerEvents"] == 1


async def test_after_a_gap_everything_is_worth_a_look(path: str) -> None:
    runtime = FakeRuntime()
    runtime.stall("GetContainerEvents")
    runtime.events = [STOPPED, rpc.Unavailable("restarting"), STOPPED]
    async with rpc.serve_unix([runtime], path), CRIClient(f"unix://{path}") as client:
        assert await listen(client, 10) == [HINT, GAP, HINT]
    assert GAP.concerns_all


async def test_the_feed_outlives_the_runtime(path: str) -> None:
    hints: list[RuntimeHint] = []
    async with CRIClient(f"unix://{path}") as client, anyio.create_task_group() as tasks:
        tasks.start_soon(CRIEventFeed(client).run, hints.append)
        await anyio.sleep(100)
        runtime = FakeRuntime()
        runtime.events = [STOPPED]
        async with rpc.serve_unix([runtime], path):
            await anyio.sleep(60)
        assert hints[:2] == [GAP, HINT]
        tasks.cancel_scope.cancel()


async def test_a_runtime_that_ends_every_stream_is_asked_ever_less_often(path: str) -> None:
    runtime = FakeRuntime()
    async with rpc.serve_unix([runtime], path), CRIClient(f"unix://{path}") as client:
        await listen(client, 3600)
    assert 3600 / 45 <= runtime.calls["GetContainerEvents"] <= 3600 / 30 + 6


async def test_a_runtime_without_events_says_so(path: str) -> None:
    async with (
        rpc.serve_unix([v1.ImageServiceBase()], path),
        CRIClient(f"unix://{path}") as client,
    ):
        with pytest.raises(rpc.Unimplemented, match="GetContainerEvents"):
            await listen(client, 10)
