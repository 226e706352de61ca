"""Rules strike the calls and events that they name, as often and as long as they say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from nodeagent import rpc
from nodeagent.embedded import Embedded, Script, SimulatedBackend, open_embedded
from nodeagent.embedded.events import EventHub
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Code
from nodeagent.testing import (
    Cut,
    Delay,
    Drop,
    Duplicate,
    Fail,
    FailAfter,
    Fault,
    FaultPlan,
    Hang,
    Hold,
    Late,
    Reorder,
)
from nodeagent.testing.cri_configs import IMAGE, container_config, sandbox_config

pytestmark = pytest.mark.anyio

Event = v1.ContainerEventResponse


@asynccontextmanager
async def opened(plan: FaultPlan) -> AsyncIterator[Embedded]:
    async with open_embedded(SimulatedBackend(default=Script()), hooks=plan) as embedded:
        embedded.core.images.pull(IMAGE)
        yield embedded


async def seconds(embedded: Embedded, pod: str = "web") -> float:
    """How long a sandbox takes."""
    began = anyio.current_time()
    await embedded.runtime.run_pod_sandbox(sandbox_config(pod))
    return anyio.current_time() - began


async def outcome(embedded: Embedded) -> str:
    """What a list call ends in."""
    try:
        await embedded.runtime.list_containers()
    except rpc.RpcError as exc:
        return exc.code.name
    return "OK"


async def outcomes(embedded: Embedded, number: int) -> list[bool]:
    """Which of some list calls succeed."""
    return [await outcome(embedded) == "OK" for _ in range(number)]


@pytest.mark.parametrize("pod", ["uid-web", "web", "default/web", "we*", "default/w*"])
async def test_a_pod_is_named_by_uid_name_or_namespace(pod: str) -> None:
    async with opened(FaultPlan(Fault("RunPodSandbox", Delay(3.0), pod=pod))) as embedded:
        assert await seconds(embedded, "web") == 3.0
        assert await seconds(embedded, "db") == 0.0


async def test_a_container_and_an_image_can_be_named() -> None:
    plan = FaultPlan(
        Fault("CreateContainer", Fail(), pod="web", container="side*"),
        Fault("PullImage", Fail(Code.NOT_FOUND, "no such image"), image="nginx:*"),
    )
    async with opened(plan) as embedded:
        sandbox = await embedded.runtime.run_pod_sandbox(sandbox_config("web"))
        await embedded.runtime.create_container(sandbox, container_config("main"))
        with pytest.raises(rpc.Unavailable, match="injected"):
            await embedded.runtime.create_container(sandbox, container_config("sidecar"))
        with pytest.raises(rpc.NotFound, match="no such image"):
            await embedded.images.pull_image(v1.ImageSpec(image="nginx:1"))
        await embedded.images.pull_image(v1.ImageSpec(image="redis:1"))


async def test_what_hangs_goes_on_when_it_is_released() -> None:
    plan = FaultPlan()
    hung = plan.add(Fault("RunPodSandbox", Hang(), pod="web"))
    async with opened(plan) as embedded, anyio.create_task_group() as tasks:
        tasks.start_soon(seconds, embedded, "web")
        await anyio.sleep(1000)
        assert hung.waiting == 1
        assert not embedded.core.state.sandboxes
        assert await seconds(embedded, "db") == 0.0
        hung.release()
        await anyio.wait_all_tasks_blocked()
        assert (hung.waiting, hung.fired) == (0, 1)
        assert len(embedded.core.state.sandboxes) == 2


async def test_faults_of_one_gate_are_released_together_and_the_gate_can_be_closed() -> None:
    plan = FaultPlan(
        Fault("RunPodSandbox", Hang(gate="g"), pod="a"),
        Fault("RunPodSandbox", Late(gate="g"), pod="b"),
    )
    async with opened(plan) as embedded, anyio.create_task_group() as tasks:
        for pod in "ab":
            tasks.start_soon(seconds, embedded, pod)
        await anyio.sleep(5)
        # What is late has been done; what hangs has not.
        assert [s.metadata.name for s in embedded.core.state.sandboxes.values()] == ["b"]
        plan.release("g")
        await anyio.wait_all_tasks_blocked()
        assert len(embedded.core.state.sandboxes) == 2
        plan.close("g")
        with anyio.move_on_after(7) as scope:
            await embedded.runtime.run_pod_sandbox(sandbox_config("a", uid="another"))
        assert scope.cancelled_caught


async def test_taking_a_rule_out_lets_go_what_it_holds() -> None:
    plan = FaultPlan()
    hung = plan.add(Fault("RunPodSandbox", Hang()))
    async with opened(plan) as embedded, anyio.create_task_group() as tasks:
        tasks.start_soon(seconds, embedded, "a")
        await anyio.sleep(5)
        hung.remove()
        await anyio.wait_all_tasks_blocked()
        assert len(embedded.core.state.sandboxes) == 1
        assert await seconds(embedded, "b") == 0.0
        assert plan.faults == {}
        assert plan.fired == {"fault-1": 1}


async def test_work_can_be_done_with_an_error_or_too_late_for_an_answer() -> None:
    plan = FaultPlan(
        Fault("RunPodSandbox", FailAfter(), pod="a"), Fault("RunPodSandbox", Late(300.0), pod="b")
    )
    async with opened(plan) as embedded:
        with pytest.raises(rpc.DeadlineExceeded):
            await embedded.runtime.run_pod_sandbox(sandbox_config("a"))
        with anyio.move_on_after(10):
            await embedded.runtime.run_pod_sandbox(sandbox_config("b"))
        assert len(embedded.core.state.sandboxes) == 2


@pytest.mark.parametrize("apart", [True, False])
async def test_work_apart_is_done_although_the_caller_has_gone(apart: bool) -> None:
    async with opened(FaultPlan(Fault("RunPodSandbox", Delay(30.0, apart=apart)))) as embedded:
        with anyio.move_on_after(10):
            await embedded.runtime.run_pod_sandbox(sandbox_config("a"))
        assert not embedded.core.state.sandboxes
        await anyio.sleep(30)
        assert len(embedded.core.state.sandboxes) == int(apart)


async def test_work_apart_answers_like_any_other() -> None:
    plan = FaultPlan(Fault("RunPodSandbox", Delay(1.0, apart=True)))
    async with opened(plan) as embedded:
        assert await embedded.runtime.run_pod_sandbox(sandbox_config("a"))
        with pytest.raises(rpc.AlreadyExists, match="is reserved for"):
            await embedded.runtime.run_pod_sandbox(sandbox_config("a"))


async def test_the_end_of_the_runtime_ends_work_apart() -> None:
    plan = FaultPlan(Fault("RunPodSandbox", Hang(apart=True)))
    errors: list[rpc.RpcError] = []

    async def call(embedded: Embedded) -> None:
        try:
            await embedded.runtime.run_pod_sandbox(sandbox_config("a"))
        except rpc.RpcError as exc:
            errors.append(exc)

    async with anyio.create_task_group() as tasks, opened(plan) as embedded:
        tasks.start_soon(call, embedded)
        await anyio.sleep(1)
    assert [type(error) for error in errors] == [rpc.Unavailable]


async def test_limits_say_which_matches_are_struck() -> None:
    plan = FaultPlan(Fault("ListContainers", Fail(), skip=1, every=2, count=2))
    async with opened(plan) as embedded:
        wanted = [True, True, False, True, False, True, True, True]
        assert await outcomes(embedded, 8) == wanted
    assert plan.fired == {"fault-1": 2}
    assert plan.faults["fault-1"].matched == 8


async def test_a_fault_has_its_time() -> None:
    plan = FaultPlan(Fault("ListContainers", Fail(), after=10, lasts=5))
    async with opened(plan) as embedded:
        seen = []
        for _ in range(20):
            seen.append(await outcome(embedded) == "OK")
            await anyio.sleep(1)
    assert [second for second, fine in enumerate(seen) if not fine] == [10, 11, 12, 13, 14]


async def test_the_same_seed_throws_the_same_dice() -> None:
    async def seen(seed: int) -> list[bool]:
        plan = FaultPlan(Fault("ListContainers", Fail(), probability=0.5), seed=seed)
        async with opened(plan) as embedded:
            return await outcomes(embedded, 40)

    first = await seen(1)
    assert first == await seen(1)
    assert first != await seen(2)
    assert 5 < first.count(True) < 35


async def test_all_rules_that_match_strike_in_turn() -> None:
    plan = FaultPlan(
        Fault("", Delay(2.0)),
        Fault("ListContainers", Delay(3.0)),
        Fault("ListContainers", Fail(Code.INTERNAL)),
        Fault("ListContainers", Fail(Code.ABORTED)),
    )
    async with opened(plan) as embedded:
        began = anyio.current_time()
        assert await outcome(embedded) == "INTERNAL"
        assert anyio.current_time() - began == 5.0


async def test_a_rule_of_the_same_name_takes_the_place_of_the_first() -> None:
    plan = FaultPlan(Fault("ListContainers", Fail(Code.INTERNAL), name="x"))
    plan.add(Fault("ListContainers", Fail(Code.ABORTED), name="x"))
    async with opened(plan) as embedded:
        assert await outcome(embedded) == "ABORTED"
        plan.remove("x")
        plan.remove("x")
        assert await outcome(embedded) == "OK"
        plan.add(Fault("ListContainers", Fail()))
        plan.clear()
        assert await outcome(embedded) == "OK"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fault("RunSandbox", Fail()), "on: 'RunSandbox' is not the name of a CRI method"),
        (lambda: Fault("StopContainer", Drop()), "on: 'StopContainer' is not the name of an event"),
        (lambda: Fault("", Fail(), probability=2), "probability: must be between 0 and 1, is 2"),
        (lambda: Fault("", Fail(), every=0), "every: must be at least 1, is 0"),
        (lambda: Fault("", Fail(), count=0), "count: must be at least 1, is 0"),
        (lambda: Fault("", Fail(), skip=-1), "skip: must not be negative, is -1"),
        (lambda: Fault("", Delay(-1)), "seconds: must not be negative, is -1"),
        (lambda: Fault("", Duplicate(0)), "times: must be at least 1, is 0"),
        (lambda: Fault("", Reorder(0)), "within: must be greater than 0, is 0"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()


# -- events


async def life(plan: FaultPlan, number: int) -> list[tuple[float, str]]:
    """When a subscriber hears what, of a container's life with seconds between its steps."""
    heard: list[tuple[float, str]] = []
    hub = EventHub(plan)
    with hub.subscribe() as events:
        for kind in v1.ContainerEventType:
            hub.publish(event(kind))
            await anyio.sleep(1)
        for _ in range(number):
            with anyio.move_on_after(100):
                one = await anext(events)
                heard.append((anyio.current_time(), one.container_event_type.name[10:-6]))
    return heard


def event(kind: v1.ContainerEventType, pod: str = "web", container: str = "main") -> Event:
    return Event(
        container_id="c",
        container_event_type=kind,
        pod_sandbox_status=v1.PodSandboxStatus(metadata=sandbox_config(pod).metadata),
        containers_statuses=[
            v1.ContainerStatus(id="c", metadata=v1.ContainerMetadata(name=container))
        ],
    )


async def kinds(plan: FaultPlan, number: int) -> list[str]:
    return [kind for _, kind in await life(plan, number)]


async def test_events_are_lost_by_kind_pod_and_container() -> None:
    plan = FaultPlan(Fault(("CREATED", "STOPPED"), Drop(), pod="web", container="main"))
    assert await kinds(plan, 3) == ["STARTED", "DELETED"]
    assert await kinds(FaultPlan(Fault("CREATED", Drop(), pod="db")), 5) == [
        "CREATED",
        "STARTED",
        "STOPPED",
        "DELETED",
    ]
    assert await kinds(FaultPlan(Fault("", Drop(), container="side")), 1) == ["CREATED"]


async def test_a_stream_may_be_silent_for_a_time() -> None:
    assert await kinds(FaultPlan(Fault("", Drop(), after=1, lasts=2)), 3) == ["CREATED", "DELETED"]


async def test_events_come_twice() -> None:
    plan = FaultPlan(Fault("STOPPED", Duplicate(times=3)))
    assert (await kinds(plan, 6))[1:] == ["STARTED", "STOPPED", "STOPPED", "STOPPED", "DELETED"]


async def test_events_come_late_and_otherwise_in_order() -> None:
    plan = FaultPlan(Fault("STARTED", Hold(60.0)))
    heard = await life(plan, 4)
    assert [kind for _, kind in heard] == ["CREATED", "STOPPED", "DELETED", "STARTED"]
    assert heard[-1][0] == 61.0


async def test_events_of_a_stretch_come_in_reverse() -> None:
    plan = FaultPlan(Fault("", Reorder(within=10.0)))
    assert await kinds(plan, 4) == ["DELETED", "STOPPED", "STARTED", "CREATED"]


async def test_a_stream_is_cut_where_a_rule_says_so() -> None:
    hub = EventHub(FaultPlan(Fault("STOPPED", Cut(Code.INTERNAL, "cut here"))))
    with hub.subscribe() as events:
        for kind in v1.ContainerEventType:
            hub.publish(event(kind))
        assert [(await anext(events)).container_event_type.value for _ in range(2)] == [0, 1]
        with pytest.raises(rpc.Internal, match="cut here"):
            await anext(events)


@given(st.lists(st.floats(0.01, 3.0), min_size=1, max_size=12), st.floats(0.05, 5.0))
async def test_reordering_loses_nothing_and_is_bounded(gaps: list[float], within: float) -> None:
    hub = EventHub(FaultPlan(Fault("", Reorder(within=within))))
    sent: list[float] = []
    heard: list[tuple[int, float]] = []
    with hub.subscribe() as events:

        async def listen() -> None:
            for _ in gaps:
                number = int((await anext(events)).container_id)
                heard.append((number, anyio.current_time()))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await checkpoint()
            for number, gap in enumerate(gaps):
                sent.append(anyio.current_time())
                hub.publish(Event(container_id=str(number)))
                await anyio.sleep(gap)
    assert sorted(number for number, _ in heard) == list(range(len(gaps)))
    assert all(at - sent[number] <= 2 * within + 1e-3 for number, at in heard)
