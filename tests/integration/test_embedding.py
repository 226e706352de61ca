"""The agent as a library inside somebody else's application."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine, Generator
from pathlib import Path
from typing import Any, Generic, TypeVar

import anyio
import pytest
from ring import phase, simulated

from nodeagent import AgentConfig, NodeAgent, StartError
from nodeagent.embedded import Call, NoFaults, SimulatedBackend, Work, open_embedded
from nodeagent.rpc import Unavailable
from nodeagent.testing import (
    ApiStore,
    MemorySource,
    VirtualTimeLoop,
    make_pod,
    store_clients,
)

pytestmark = pytest.mark.anyio

T = TypeVar("T")

MANIFEST = """apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: main, image: busybox, command: [sleep, "1000"]}]}
"""


def config(home: Path, **settings: object) -> AgentConfig:
    base: dict[str, object] = {
        "container_runtime_endpoint": "embedded:simulated",
        "root_dir": home / "root",
        "pod_logs_dir": home / "logs",
        "node_name": "n1",
        "node_ip": "10.0.0.1",
    }
    return AgentConfig(**{**base, **settings})  # type: ignore[arg-type]


class Refusing(NoFaults):
    """A runtime that answers nothing."""

    async def around(self, call: Call, work: Work[T]) -> T:
        raise Unavailable("not today", call.method)


async def running(agent: NodeAgent, count: int = 1) -> None:
    with anyio.fail_after(60), agent.journal.follower() as records:
        while [phase(p) for p in agent.pods()] != ["Running"] * count:
            with anyio.move_on_after(0.5):
                await records.receive()


def test_it_lives_in_a_plain_asyncio_application(tmp_path: Path) -> None:
    """No anyio in sight: asyncio.run, asyncio.timeout, asyncio tasks."""
    manifests = tmp_path / "m"
    manifests.mkdir()
    (manifests / "web.yaml").write_text(MANIFEST)
    seen: list[str] = []

    async def application() -> None:
        ticks = asyncio.create_task(asyncio.sleep(3600))
        async with asyncio.timeout(30):
            async with NodeAgent(config(tmp_path, static_pod_path=manifests)) as agent:
                await agent.ready()
                async for record in agent.journal.follow():
                    if record.what == "PhaseRunning":
                        seen.append(record.pod)
                        break
        ticks.cancel()

    asyncio.run(application())
    assert len(seen) == 1


async def test_two_agents_share_a_process_and_nothing_else(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with (
        NodeAgent(config(one), sources=[MemorySource(make_pod("a"))]) as first,
        NodeAgent(config(two), sources=[MemorySource(make_pod("b"))]) as second,
    ):
        await running(first)
        await running(second)
        assert [p.metadata.name for p in first.pods()] == ["a"]
        assert [p.metadata.name for p in second.pods()] == ["b"]
        assert first.registry is not second.registry


async def test_one_agent_after_the_other(tmp_path: Path) -> None:
    agent = NodeAgent(config(tmp_path), sources=[MemorySource(make_pod("a"))])
    async with agent:
        await running(agent)
    with pytest.raises(RuntimeError, match="does not run"):
        agent.pods()
    async with NodeAgent(config(tmp_path), sources=[MemorySource(make_pod("a"))]) as again:
        await running(again)


async def test_the_runtime_may_be_the_callers_own(tmp_path: Path) -> None:
    source = MemorySource(make_pod("a"))
    async with (
        open_embedded(SimulatedBackend()) as mine,
        NodeAgent(
            config(tmp_path, container_runtime_endpoint="unix:///nowhere.sock"),
            runtime=mine.runtime,
            images=mine.images,
            sources=[source],
        ) as agent,
    ):
        await running(agent)
        assert mine.core.calls["RunPodSandbox"] == 1


async def test_a_runtime_of_the_callers_own_that_does_not_answer_is_named(tmp_path: Path) -> None:
    async with open_embedded(SimulatedBackend(), hooks=Refusing()) as mine:
        agent = NodeAgent(config(tmp_path), runtime=mine.runtime, images=mine.images)
        with pytest.raises(StartError, match="given runtime does not answer Version: not today"):
            async with agent:
                pass


async def test_an_error_of_the_caller_comes_out_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with NodeAgent(config(tmp_path), sources=[MemorySource()]):
            raise ZeroDivisionError


async def test_signals_and_logging_stay_the_callers(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    handlers = list(logging.getLogger("nodeagent").handlers)
    async with NodeAgent(config(tmp_path), sources=[MemorySource()]):
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
        assert logging.getLogger("nodeagent").handlers == handlers


async def test_nothing_answers_at_the_endpoint(tmp_path: Path) -> None:
    agent = NodeAgent(
        config(tmp_path, container_runtime_endpoint=f"unix://{tmp_path}/none.sock"), sources=[]
    )
    with pytest.raises(StartError, match=r"none\.sock"):
        async with agent:
            pass


async def test_a_root_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    agent = NodeAgent(config(tmp_path, root_dir=tmp_path / "file" / "root"))
    with pytest.raises(StartError, match="--root-dir"):
        async with agent:
            pass


async def test_entering_twice_is_refused(tmp_path: Path) -> None:
    async with NodeAgent(config(tmp_path), sources=[MemorySource()]) as agent:
        with pytest.raises(RuntimeError, match="runs already"):
            await agent.__aenter__()


class CutAt(Generic[T]):
    """Runs a coroutine and cancels its task while it is suspended for the n-th time."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], at: int) -> None:
        self._coroutine = coroutine
        self._at = at

    def __await__(self) -> Generator[Any, Any, T]:
        inner = self._coroutine.__await__()
        suspended = 0
        error: BaseException | None = None
        while True:
            try:
                waiting = inner.send(None) if error is None else inner.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            suspended += 1
            task = asyncio.current_task()
            if suspended == self._at and task is not None:
                asyncio.get_running_loop().call_soon(task.cancel)
            error = None
            try:
                yield waiting
            except BaseException as thrown:  # noqa: BLE001 - it belongs to the coroutine
                error = thrown


def test_it_may_be_cancelled_at_any_await(tmp_path: Path) -> None:
    """Cancelling while it starts, works or stops never leaves a task behind.

    Each round cancels the application one await later, until a whole life of the agent fits.
    """
    at = 1
    while True:
        home = tmp_path / str(at)
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            if runner.run(cancelled(at, home)):
                break
        at += 1
    assert at > 30


async def cancelled(at: int, home: Path) -> bool:
    """Whether the application was done before its ``at``-th await."""
    before = asyncio.all_tasks()

    async def application() -> None:
        source = MemorySource(make_pod("web"))
        async with NodeAgent(config(home), sources=[source]) as agent:
            await running(agent)

    async def cut() -> None:
        await CutAt(application(), at)

    task = asyncio.ensure_future(cut())
    done = False
    try:
        await task
        done = True
    except asyncio.CancelledError:
        pass
    assert asyncio.all_tasks() == before
    return done


async def test_a_simulated_node_needs_no_socket(tmp_path: Path) -> None:
    async with (
        simulated(tmp_path) as (runtime, _endpoint),
        NodeAgent(
            config(tmp_path),
            runtime=runtime.runtime,
            images=runtime.images,
            sources=[MemorySource(*(make_pod(f"p{i}") for i in range(20)))],
        ) as agent,
    ):
        await running(agent, 20)


async def test_the_embedded_runtime_follows_a_scenario(tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "latency: {StartContainer: 5s}\n"
        "containers: [{pod: web, lives: [{runs: 3s, exit: 4}]}]\n"
        "timeline: [{at: 60s, down: 30s}]\n"
    )
    settings = config(tmp_path, embedded_scenario=scenario)
    async with NodeAgent(settings, sources=[MemorySource(make_pod("web"))]) as agent:
        await running(agent)
        assert anyio.current_time() >= 5
        with anyio.fail_after(60):
            while agent.pods()[0].status.container_statuses[0].restart_count < 1:
                await anyio.sleep(0.5)
        await anyio.sleep_until(120)
        said = [(r.what, r.at) for r in agent.journal.select()]
        away = next(at for what, at in said if what == "StatusFailed")
        assert 60 <= away <= 70
        back = next(at for what, at in said if what == "RuntimeReady" and at > away)
        assert 90 <= back <= 95


async def test_an_embedder_may_bring_an_api_server(tmp_path: Path) -> None:
    store, settings = ApiStore(), config(tmp_path, make_iptables_util_chains=False)
    store.create(make_pod("web", node_name=settings.node_name))
    async with NodeAgent(settings, cluster=store_clients(store)) as agent:
        await agent.ready()
        await running(agent)
        names = [node["metadata"]["name"] for node in store.all("nodes")]
        assert names == [settings.node_name]


async def test_a_scenario_that_cannot_be_followed_keeps_the_agent_from_starting(
    tmp_path: Path,
) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text("faults: [{drop: maybe}]")
    with pytest.raises(StartError, match=r"s\.yaml: faults\[0\]\.drop: expected true or false"):
        async with NodeAgent(config(tmp_path, embedded_scenario=scenario)):
            pass
    scenario.write_text("containers: [{}]")
    settings = config(
        tmp_path, embedded_scenario=scenario, container_runtime_endpoint="embedded:process"
    )
    with pytest.raises(StartError, match="the process backend follows no script"):
        async with NodeAgent(settings):
            pass
