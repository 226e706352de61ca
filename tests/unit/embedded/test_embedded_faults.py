"""Every call and every event passes through the hooks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar, cast

import anyio
import pytest

from nodeagent import rpc
from nodeagent.cri import CRIClient
from nodeagent.embedded import (
    Call,
    Embedded,
    Hooks,
    NoFaults,
    SimulatedBackend,
    Work,
    open_embedded,
    serve_embedded,
)
from nodeagent.embedded.events import EventHub
from nodeagent.proto.runtime import v1
from nodeagent.testing.cri_configs import IMAGE, container_config, sandbox_config

pytestmark = pytest.mark.anyio

T = TypeVar("T")
Event = v1.ContainerEventResponse
CREATED = v1.ContainerEventType.CONTAINER_CREATED_EVENT
STARTED = v1.ContainerEventType.CONTAINER_STARTED_EVENT
STOPPED = v1.ContainerEventType.CONTAINER_STOPPED_EVENT
DELETED = v1.ContainerEventType.CONTAINER_DELETED_EVENT


class Scripted(NoFaults):
    """Notes all calls; fails, delays and changes what a test asks for."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.before_error: dict[str, rpc.RpcError] = {}
        self.after_error: dict[str, rpc.RpcError] = {}
        self.late: dict[str, float] = {}
        self.answers: dict[str, object] = {}
        self.deliveries: list[float] = [0.0]

    async def around(self, call: Call, work: Work[T]) -> T:
        self.calls.append(call)
        if error := self.before_error.get(call.method):
            raise error
        answer = await work()
        await anyio.sleep(self.late.get(call.method, 0.0))
        if error := self.after_error.get(call.method):
            raise error
        return cast("T", self.answers.get(call.method, answer))

    def deliver(self, event: Event) -> Iterable[tuple[float, Event]]:
        return [(delay, event) for delay in self.deliveries]


@asynccontextmanager
async def served(hooks: Hooks) -> AsyncIterator[tuple[CRIClient, Embedded]]:
    with TemporaryDirectory(prefix="cri") as directory:
        path = Path(directory, "s.sock")
        async with (
            serve_embedded(path, SimulatedBackend(), hooks=hooks) as embedded,
            CRIClient(f"unix://{path}") as client,
        ):
            await client.pull_image(v1.ImageSpec(image=IMAGE))
            yield client, embedded


async def start(client: CRIClient) -> tuple[str, str]:
    sandbox = sandbox_config()
    sandbox_id = await client.run_pod_sandbox(sandbox)
    container_id = await client.create_container(sandbox_id, container_config(), sandbox)
    await client.start_container(container_id)
    return sandbox_id, container_id


async def test_a_hook_knows_method_pod_and_container() -> None:
    hooks = Scripted()
    async with served(hooks) as (client, _):
        sandbox_id, container_id = await start(client)
        await client.stop_container(container_id, 1)
        await client.pod_sandbox_status(sandbox_id)
        await client.list_containers()
        one_pod = {"io.kubernetes.pod.uid": "uid-pod"}
        await client.list_containers(v1.ContainerFilter(label_selector=one_pod))
        await client.stop_container("unknown", 1)
    pod = ("pod", "default")
    assert hooks.calls == [
        Call("PullImage", subject=IMAGE),
        Call("RunPodSandbox", "uid-pod", "", "", *pod),
        Call("CreateContainer", "uid-pod", "main", sandbox_id, *pod),
        Call("StartContainer", "uid-pod", "main", container_id, *pod),
        Call("StopContainer", "uid-pod", "main", container_id, *pod),
        Call("PodSandboxStatus", "uid-pod", "", sandbox_id, *pod),
        Call("ListContainers"),
        Call("ListContainers", "uid-pod"),
        Call("StopContainer", "", "", "unknown"),
    ]


async def test_an_error_before_means_that_nothing_was_done() -> None:
    hooks = Scripted()
    hooks.before_error["RunPodSandbox"] = rpc.Unavailable("injected")
    async with served(hooks) as (client, embedded):
        with pytest.raises(rpc.Unavailable, match="injected"):
            await client.run_pod_sandbox(sandbox_config())
        assert embedded.core.state.sandboxes == {}


async def test_an_error_after_means_that_it_was_done_all_the_same() -> None:
    hooks = Scripted()
    hooks.after_error["RunPodSandbox"] = rpc.DeadlineExceeded("injected")
    async with served(hooks) as (client, embedded):
        with pytest.raises(rpc.DeadlineExceeded):
            await client.run_pod_sandbox(sandbox_config())
        assert len(embedded.core.state.sandboxes) == 1


async def test_work_is_done_and_stays_done_when_the_answer_comes_too_late() -> None:
    hooks = Scripted()
    hooks.late["RunPodSandbox"] = 1000.0
    async with served(hooks) as (client, embedded):
        with pytest.raises(rpc.DeadlineExceeded):
            await client.run_pod_sandbox(sandbox_config(), timeout=5)
        assert len(embedded.core.state.sandboxes) == 1


async def test_an_answer_can_be_replaced() -> None:
    hooks = Scripted()
    async with served(hooks) as (client, _):
        await start(client)
        strange = v1.Container(id="strange", state=v1.ContainerState.CONTAINER_UNKNOWN)
        hooks.answers["ListContainers"] = [strange]
        assert list(await client.list_containers()) == [strange]


async def test_events_tell_the_life_of_a_pod() -> None:
    async with (
        open_embedded(SimulatedBackend()) as embedded,
        embedded.runtime.get_container_events() as events,
    ):
        runtime = embedded.runtime
        await embedded.images.pull_image(v1.ImageSpec(image=IMAGE))
        sandbox_id = await runtime.run_pod_sandbox(sandbox_config())
        container_id = await runtime.create_container(sandbox_id, container_config())
        await runtime.start_container(container_id)
        await runtime.remove_pod_sandbox(sandbox_id)
        with anyio.fail_after(5):
            seen = [await anext(events) for _ in range(8)]
    assert [(one.container_id, one.container_event_type) for one in seen] == [
        (sandbox_id, CREATED),
        (sandbox_id, STARTED),
        (container_id, CREATED),
        (container_id, STARTED),
        (container_id, STOPPED),
        (sandbox_id, STOPPED),
        (container_id, DELETED),
        (sandbox_id, DELETED),
    ]
    stopped = seen[4]
    assert stopped.pod_sandbox_status is not None
    assert stopped.pod_sandbox_status.id == sandbox_id
    assert [one.exit_code for one in stopped.containers_statuses] == [137]


async def test_events_reach_a_client_on_the_socket() -> None:
    async with served(NoFaults()) as (client, embedded), client.get_container_events() as events:
        while not embedded.core.events.has_subscribers:
            await anyio.lowlevel.checkpoint()
        sandbox_id = await client.run_pod_sandbox(sandbox_config())
        with anyio.fail_after(5):
            event = await anext(events)
        assert (event.container_id, event.container_event_type) == (sandbox_id, CREATED)


async def test_events_can_be_lost_repeated_and_delayed() -> None:
    hooks = Scripted()
    hub = EventHub(hooks)
    with hub.subscribe() as events:
        hooks.deliveries = []
        hub.publish(Event(container_id="lost"))
        hooks.deliveries = [0.0, 0.0]
        hub.publish(Event(container_id="twice"))
        hooks.deliveries = [10.0]
        hub.publish(Event(container_id="late"))
        hooks.deliveries = [0.0]
        hub.publish(Event(container_id="in time"))
        seen = [(await anext(events)).container_id for _ in range(4)]
        assert seen == ["twice", "twice", "in time", "late"]
        assert anyio.current_time() >= 10


async def test_a_subscriber_that_does_not_keep_up_is_cut_off_with_an_error() -> None:
    hub = EventHub(NoFaults(), capacity=2)
    with hub.subscribe() as events:
        for number in range(5):
            hub.publish(Event(container_id=str(number)))
        assert [(await anext(events)).container_id for _ in range(2)] == ["0", "1"]
        with pytest.raises(rpc.ResourceExhausted):
            await anext(events)
    assert not hub.has_subscribers


async def test_streams_can_be_cut() -> None:
    hub = EventHub(NoFaults())
    with hub.subscribe() as events:
        hub.cut(rpc.Unavailable("gone"))
        with pytest.raises(rpc.Unavailable, match="gone"):
            await anext(events)


async def test_calls_are_counted() -> None:
    async with served(NoFaults()) as (client, embedded):
        for _ in range(3):
            await client.list_containers()
        assert embedded.core.calls["ListContainers"] == 3
