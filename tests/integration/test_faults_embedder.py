"""Sources, runtimes and readers of an embedder's own that are slow, silent or stuck."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from ring import phase

from nodeagent import AgentConfig, NodeAgent, watch
from nodeagent.embedded import EmbeddedRuntime, SimulatedBackend, open_embedded
from nodeagent.model import Snapshot
from nodeagent.proto.runtime import v1
from nodeagent.sources import Publish
from nodeagent.testing import MemorySource, make_pod

pytestmark = pytest.mark.anyio


class Stopwatch:
    """Real time, which passes when somebody computes; in these tests they say how long."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    clock = Stopwatch()
    monkeypatch.setattr(watch, "stopwatch", clock)
    return clock


def config(home: Path) -> AgentConfig:
    return AgentConfig(
        root_dir=home / "root", pod_logs_dir=home / "logs", node_name="n1", node_ip="10.0.0.1"
    )


async def running(agent: NodeAgent, *names: str) -> None:
    with anyio.fail_after(60):
        while not {p.metadata.name for p in agent.pods() if phase(p) == "Running"} >= {*names}:
            await anyio.sleep(0.1)


def named(caplog: pytest.LogCaptureFixture, event: str, field: str) -> list[str]:
    return [getattr(r, "fields", {})[field] for r in caplog.records if r.getMessage() == event]


async def test_a_source_that_computes_for_long_is_named(
    tmp_path: Path, real: Stopwatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Slow(MemorySource):
        async def run(
            self, publish: Publish, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED
        ) -> None:
            real.now += 3.0
            await super().run(publish, task_status=task_status)

    async with (
        open_embedded(SimulatedBackend()) as mine,
        NodeAgent(
            config(tmp_path),
            runtime=mine.runtime,
            images=mine.images,
            sources=[Slow(make_pod("web"), name="fleet")],
        ) as agent,
    ):
        await running(agent, "web")
    (name,) = named(caplog, "slow_callback", "callback")
    assert name.endswith("Slow.run of the source fleet")


async def test_a_source_that_does_not_start_holds_up_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Stuck:
        name = "stuck"

        async def run(
            self, publish: Publish, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED
        ) -> None:
            await anyio.sleep(100)
            task_status.started()
            await publish(Snapshot(self.name, (make_pod("late"),)))
            await anyio.sleep_forever()

    async with (
        open_embedded(SimulatedBackend()) as mine,
        NodeAgent(
            config(tmp_path),
            runtime=mine.runtime,
            images=mine.images,
            sources=[Stuck(), MemorySource(make_pod("web"))],
        ) as agent,
    ):
        assert named(caplog, "source_slow_to_start", "source") == ["stuck"]
        await running(agent, "web")
        (_, result) = agent.parts.checks.one("sources")[0]
        assert result.cause == "has not spoken yet: stuck"
        await anyio.sleep(100)
        await running(agent, "web", "late")


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ("pods", "source odd published an object of type str, not a Snapshot"),
        (
            Snapshot("odd", ("web",)),  # type: ignore[arg-type]  # that is what is wrong
            "source odd published a Snapshot whose pods[0] is of type str, not a Pod",
        ),
    ],
)
async def test_a_source_that_publishes_something_else_ends_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, given: Any, cause: str
) -> None:
    class Odd:
        name = "odd"

        async def run(
            self, publish: Publish, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED
        ) -> None:
            await publish(Snapshot(self.name, (make_pod("early"),)))
            task_status.started()
            await publish(given)

    async with (
        open_embedded(SimulatedBackend()) as mine,
        NodeAgent(
            config(tmp_path),
            runtime=mine.runtime,
            images=mine.images,
            sources=[Odd(), MemorySource(make_pod("web"))],
        ) as agent,
    ):
        await running(agent, "web", "early")
        assert named(caplog, "source_failed", "cause") == [cause]


async def test_a_pod_with_an_impossible_name_is_refused_and_its_last_good_version_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = MemorySource(make_pod("web"), make_pod("a/b"))
    async with (
        open_embedded(SimulatedBackend()) as mine,
        NodeAgent(
            config(tmp_path), runtime=mine.runtime, images=mine.images, sources=[source]
        ) as agent,
    ):
        await running(agent, "web")
        assert [pod.metadata.name for pod in agent.pods()] == ["web"]
        source.set(make_pod("w/eb", uid="uid-web"), make_pod("other"))
        await running(agent, "web", "other")
        assert named(caplog, "pod_refused", "pod") == ["default/a/b", "default/w/eb"]


async def test_a_runtime_of_the_embedders_own_that_computes_for_long_is_named(
    tmp_path: Path, real: Stopwatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Slow(EmbeddedRuntime):
        async def create_container(
            self,
            pod_sandbox_id: str,
            config: v1.ContainerConfig,
            sandbox_config: v1.PodSandboxConfig | None = None,
        ) -> str:
            real.now += 1.0
            return await super().create_container(pod_sandbox_id, config, sandbox_config)

    async with (
        open_embedded(SimulatedBackend()) as mine,
        NodeAgent(
            config(tmp_path),
            runtime=Slow(mine.core),
            images=mine.images,
            sources=[MemorySource(make_pod("web"))],
        ) as agent,
    ):
        await running(agent, "web")
        assert [r.why for r in agent.journal.select() if r.what == "SlowCallback"]
    (name,) = named(caplog, "slow_callback", "callback")
    assert name.endswith("Slow.create_container")


async def test_a_reader_of_the_journal_that_sleeps_misses_records_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        open_embedded(SimulatedBackend()) as mine,
        NodeAgent(
            config(tmp_path),
            runtime=mine.runtime,
            images=mine.images,
            sources=[MemorySource(*(make_pod(f"p{number}") for number in range(20)))],
        ) as agent,
    ):
        with agent.journal.follower(8, name="the embedder's page"):
            await running(agent, *(f"p{number}" for number in range(20)))
        assert agent.journal.missed > 0
    assert named(caplog, "follower_slow", "follower") == ["the embedder's page"]


async def test_a_reader_that_waits_for_something_else_holds_up_nobody(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def slow(agent: NodeAgent) -> None:
        async for record in agent.journal.follow(100_000):
            seen.append(record)
            await anyio.sleep(10)

    async with (
        open_embedded(SimulatedBackend()) as mine,
        NodeAgent(
            config(tmp_path),
            runtime=mine.runtime,
            images=mine.images,
            sources=[MemorySource(make_pod("web"))],
        ) as agent,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(slow, agent)
        with anyio.fail_after(5):
            await running(agent, "web")
        tasks.cancel_scope.cancel()
    assert len(seen) < 3
