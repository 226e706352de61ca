"""No interval, order or back-off depends on the wall clock: it is only shown."""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from clocks import AdjustableClock, WildClock
from killing import KillHooks, world
from ring import Ring, phase

import nodeagent
from nodeagent.agent import NodeAgent
from nodeagent.api import Pod
from nodeagent.clock import Clock
from nodeagent.config import AgentConfig
from nodeagent.embedded import Script, SimulatedBackend, open_embedded
from nodeagent.testing import MemorySource, make_container, make_pod

pytestmark = pytest.mark.anyio

PACKAGE = Path(nodeagent.__file__).parent
WALL_TIME = {
    "time": {"time", "time_ns", "ctime", "localtime", "gmtime", "asctime", "strftime"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}
ALLOWED = {
    "clock.py": "the one clock",
    "bench": "no part of an agent",
    # Processes of their own beside the containers: they stamp logs and exits.
    "embedded/process/launcher/monitor.py": "stamps",
    "embedded/process/launcher/logs.py": "stamps",
}


def wall_time_readings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if node.attr in WALL_TIME.get(owner, ()):
                yield f"{owner}.{node.attr} in line {node.lineno}"
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            found = WALL_TIME["time"] & {alias.name for alias in node.names}
            yield from (f"import of time.{name} in line {node.lineno}" for name in sorted(found))


def test_wall_time_is_read_in_one_place() -> None:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        if str(place) not in ALLOWED and place.parts[0] not in (*ALLOWED, "proto"):
            found[str(place)] = list(wall_time_readings(path))
    assert {place: readings for place, readings in found.items() if readings} == {}
    assert len(found) > 100
    assert list(wall_time_readings(PACKAGE / "clock.py"))


@asynccontextmanager
async def node_with(clock: Clock, home: Path, *pods: Pod, **scripts: Script) -> AsyncIterator[Ring]:
    """An agent and a runtime that share a clock."""
    backend = SimulatedBackend(scripts, clock=clock)
    settings = AgentConfig(
        root_dir=home / "root", pod_logs_dir=home / "logs", node_name="n1", node_ip="10.0.0.1"
    )
    source = MemorySource(*pods)
    async with (
        open_embedded(backend, clock=clock) as runtime,
        NodeAgent(
            settings,
            runtime=runtime.runtime,
            images=runtime.images,
            sources=[source],
            clock=clock,
        ) as agent,
    ):
        yield Ring(agent, runtime, source)


async def story(clock: Clock, home: Path) -> dict[str, list[float]]:
    """When each container of a busy node was started, as far as anything depends on time."""
    pods = [
        make_pod("crash", make_container("crash")),
        make_pod("late", make_container("crash"), active_deadline_seconds=30),
        make_pod("job", make_container("once"), restart="Never"),
        make_pod("calm", make_container("calm")),
    ]
    scripts = {
        "crash": Script(exits=[(0.5, 1)], repeat=True),
        "once": Script(exits=[(5.0, 0)], repeat=True),
    }
    async with node_with(clock, home, *pods, **scripts) as node:
        starts: dict[str, list[float]] = {}
        began = anyio.current_time()
        with node.agent.journal.follower(100_000) as records, anyio.move_on_after(400):
            async for record in records:
                if record.what == "ContainerStarted" and record.component == "runtime":
                    starts.setdefault(record.pod, []).append(record.at - began)
        node.source.remove("uid-calm")
        gone = anyio.current_time()
        await node.until(lambda: not node.ids("calm"))
        starts["calm stopped"] = [anyio.current_time() - gone]
        starts["phases"] = [float(phase(node.pod(p)) == w) for p, w in WANTED.items()]
    return starts


WANTED = {"crash": "Running", "late": "Failed", "job": "Succeeded"}


async def test_a_wall_clock_that_is_another_one_at_each_look_changes_nothing(
    tmp_path: Path,
) -> None:
    expected = await story(AdjustableClock(), tmp_path / "calm")
    found = await story(WildClock(), tmp_path / "wild")
    assert expected["phases"] == [1.0, 1.0, 1.0]
    assert len(expected["uid-crash"]) == 7
    assert {who: len(times) for who, times in found.items()} == {
        who: len(times) for who, times in expected.items()
    }
    for who, times in expected.items():
        # Threads take real time, which is not the same twice.
        assert found[who] == pytest.approx(times, abs=2.5), who


@pytest.mark.parametrize("jump", [-40.0, 600.0])
async def test_the_wall_clock_jumps_while_a_container_waits_for_its_next_start(
    tmp_path: Path, jump: float
) -> None:
    clock = AdjustableClock()
    crash = Script(exits=[(0.5, 1)], repeat=True)
    async with node_with(clock, tmp_path, make_pod("web"), main=crash) as node:
        await restarted(node, 3)
        began = anyio.current_time()
        await anyio.sleep(5)
        waiting = node.status("web").state.waiting
        assert waiting is not None
        clock.jump(jump)
        await anyio.sleep(5)
        # What is shown stays as it was said, too.
        assert node.status("web").state.waiting == waiting
        await restarted(node, 4)
        assert 40 <= anyio.current_time() - began < 44


async def test_instances_are_put_in_order_by_attempt(tmp_path: Path) -> None:
    """Each instance is stamped an hour before the one it replaces."""
    clock = AdjustableClock()
    crash = Script(exits=[(0.5, 7)], repeat=True)
    async with node_with(clock, tmp_path, make_pod("web"), main=crash) as node:
        for count in range(1, 4):
            clock.jump(-3600)
            await restarted(node, count)
        await anyio.sleep(2)
        newest = max(node.containers("web"), key=lambda record: record.metadata.attempt)
        assert newest.metadata.attempt == 3
        last = node.status("web").last_state.terminated or node.status("web").state.terminated
        assert last is not None
        assert last.container_id.endswith(newest.id)
        assert node.runtime.core.calls["RunPodSandbox"] == 1


async def restarted(node: Ring, count: int) -> None:
    await node.until(lambda: phase(node.pod("web")) and node.status("web").restart_count == count)


MANIFEST = """apiVersion: v1
kind: Pod
metadata: {{name: web}}
spec: {{containers: [{{name: main, image: "busybox:{tag}"}}]}}
"""


async def test_manifests_are_read_whatever_the_wall_clock_says_of_their_age(
    tmp_path: Path,
) -> None:
    """A file may seem to be of tomorrow or of another decade at each look."""
    file = tmp_path / "manifests" / "web.yaml"
    file.parent.mkdir()
    file.write_text(MANIFEST.format(tag="1.0"))
    clock, hooks = WildClock(), KillHooks()
    async with world(
        tmp_path,
        SimulatedBackend(clock=clock),
        hooks,
        MemorySource(),
        clock=clock,
        static_pod_path=file.parent,
    ) as node:
        await node.until(lambda ring: phase(ring.pod("web-node1")) == "Running", 30)
        before = node.ids_of("web-node1")
        hooks.kill()
        await anyio.sleep(1)
        await node.until(lambda ring: phase(ring.pod("web-node1")) == "Running", 30)
        await anyio.sleep(60)
        assert node.ids_of("web-node1") == before
        file.write_text(MANIFEST.format(tag="2.0"))
        await node.until(lambda _ring: node.ids_of("web-node1") not in ([], before), 60)
        assert node.effects("StartContainer") == 2
