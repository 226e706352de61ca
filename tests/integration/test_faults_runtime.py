"""The whole ring on a runtime that fails: late, wrong, forgetful, silent or gone."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from ring import FaultyRing, faulty_ring, phase

from nodeagent.api import ExecAction, Pod, Probe
from nodeagent.embedded import LogLine, Script, SimulatedBackend
from nodeagent.rpc import Code
from nodeagent.testing import (
    Delay,
    Fail,
    Fault,
    FaultPlan,
    Hang,
    Late,
    Show,
    make_container,
    make_pod,
)

pytestmark = pytest.mark.anyio

RESERVED = 'failed to reserve container name "main": name "main" is reserved for "0815"'


def pods(count: int, **options: object) -> list[Pod]:
    return [make_pod(f"web-{number}", **options) for number in range(count)]  # type: ignore[arg-type]


async def all_running(node: FaultyRing, wanted: list[Pod], seconds: float = 120.0) -> None:
    names = [pod.metadata.name for pod in wanted]
    await node.until(lambda: all(phase(node.pod(name)) == "Running" for name in names), seconds)


def attempts(node: FaultyRing, pod: str) -> list[int]:
    return [record.metadata.attempt for record in node.containers(pod)]


def ready_sandboxes(node: FaultyRing, pod: str) -> list[str]:
    sandboxes = node.server.core.state.sandboxes.values()
    return [one.id for one in sandboxes if one.ready and one.metadata.name == pod]


# -- names that are taken


@pytest.mark.parametrize("code", [Code.ALREADY_EXISTS, Code.UNKNOWN])
async def test_a_name_that_is_reserved_raises_the_attempt(tmp_path: Path, code: Code) -> None:
    plan = FaultPlan(Fault("CreateContainer", Fail(code, RESERVED), count=1))
    async with faulty_ring(tmp_path, make_pod("web"), plan=plan) as node:
        await node.running("web")
        assert attempts(node, "web") == [1]
        assert plan.fired == {"fault-1": 1}
        await anyio.sleep(60)
        assert attempts(node, "web") == [1]


async def test_a_sandbox_name_that_is_reserved_raises_the_attempt(tmp_path: Path) -> None:
    taken = RESERVED.replace("container", "sandbox")
    plan = FaultPlan(Fault("RunPodSandbox", Fail(Code.UNKNOWN, taken), count=1))
    async with faulty_ring(tmp_path, make_pod("web"), plan=plan) as node:
        await node.running("web")
        (sandbox,) = node.server.core.state.sandboxes.values()
        assert sandbox.metadata.attempt == 1


# -- calls that time out and succeed


@pytest.mark.parametrize("method", ["RunPodSandbox", "CreateContainer", "StartContainer"])
@pytest.mark.parametrize("effect", [Late(1000.0), Delay(30.0, apart=True), Delay(15.0, apart=True)])
async def test_what_timed_out_but_was_done_is_adopted_and_never_two(
    tmp_path: Path, method: str, effect: Late | Delay
) -> None:
    plan = FaultPlan(Fault(method, effect, count=1))
    async with faulty_ring(
        tmp_path, make_pod("web"), plan=plan, runtime_request_timeout=10.0
    ) as node:
        most = 0
        for _ in range(600):
            await anyio.sleep(0.5)
            most = max(most, len(node.ids("web")))
        assert phase(node.pod("web")) == "Running"
        assert most == 1
        assert len(node.ids("web")) == 1
        assert len(ready_sandboxes(node, "web")) == 1
        if isinstance(effect, Late):
            # What had been done was taken.
            assert attempts(node, "web") == [0]
            assert len(node.server.core.state.sandboxes) == 1


# -- containers that cannot be stopped


async def test_a_stop_that_never_answers_harms_nobody_else(tmp_path: Path) -> None:
    """The deadline is the agent's own here."""
    plan = FaultPlan(Fault(("StopContainer", "StopPodSandbox"), Hang(), pod="stuck", name="hangs"))
    wanted = [make_pod("stuck"), make_pod("other"), make_pod("third")]
    async with faulty_ring(tmp_path, *wanted, plan=plan, runtime_request_timeout=10.0) as node:
        await all_running(node, wanted)
        third = node.ids("third")
        node.source.set(make_pod("third"), make_pod("new"))
        await node.until(lambda: not node.ids("other"), 10)
        await node.running("new")
        await anyio.sleep(600)
        tries = [r.at for r in node.recorded("SyncTerminatingPod", "stuck")]
        waits = [later - earlier for earlier, later in pairwise(tries)]
        assert 5 <= len(tries) <= 20
        # Each of them waits for its deadline, and the last of them longer than that.
        assert all(10 <= wait <= 120 for wait in waits)
        assert waits[-1] > 3 * waits[0]
        told = node.health("stopping")
        assert told.startswith("cannot stop pod default/stuck: container main: ")
        assert f"({len(tries)} tries in " in told or f"({len(tries) - 1} tries in " in told
        assert len(node.ids("stuck")) == 1
        assert node.ids("third") == third
        node.plan.remove("hangs")
        await node.until(lambda: not node.ids("stuck") and not ready_sandboxes(node, "stuck"), 120)
        await anyio.sleep(5)
        assert node.health("stopping") == ""
        assert node.recorded("PodTerminated", "stuck")


async def test_a_stop_that_always_times_out_backs_off_and_harms_nobody_else(
    tmp_path: Path,
) -> None:
    timeout = Fail(Code.DEADLINE_EXCEEDED, "context deadline exceeded")
    plan = FaultPlan(Fault(("StopContainer", "StopPodSandbox"), timeout, pod="stuck"))
    wanted = [make_pod("stuck"), make_pod("other"), make_pod("third")]
    async with faulty_ring(tmp_path, *wanted, plan=plan) as node:
        await all_running(node, wanted)
        began = anyio.current_time()
        node.source.set(make_pod("third"), make_pod("new"))
        # Others stop and start as if nothing were.
        await node.until(lambda: not node.ids("other"), 10)
        await node.running("new")
        assert anyio.current_time() - began < 15
        await anyio.sleep(600)
        tries = [r.at for r in node.recorded("SyncTerminatingPod", "stuck")]
        assert len(tries) >= 12
        # It is tried less and less often, but tried.
        waits = [later - earlier for earlier, later in pairwise(tries)]
        assert all(1 <= wait <= 6 for wait in waits[:5])
        assert 10 <= waits[5] <= 17
        assert all(60 <= wait <= 92 for wait in waits[8:])
        told = "cannot stop pod default/stuck: container main: context deadline exceeded; sandbox"
        assert node.health("stopping").startswith(told)
        assert f"({len(tries)} tries in 10m" in node.health("stopping")
        assert len(node.ids("stuck")) == 1
        # What ends it is noticed at once.
        (record,) = node.containers("stuck", running=True)
        plan.clear()
        backend = node.server.core.backend
        assert isinstance(backend, SimulatedBackend)
        backend.end(record, 0)
        await node.until(lambda: not ready_sandboxes(node, "stuck"), 5)
        await anyio.sleep(5)
        assert node.health("stopping") == ""
        assert node.recorded("PodTerminated", "stuck")


# -- a runtime that is gone


async def test_pods_live_through_a_runtime_that_is_gone_for_30_seconds(tmp_path: Path) -> None:
    wanted = pods(100)
    async with faulty_ring(tmp_path, *wanted) as node:
        await all_running(node, wanted)
        before = node.ids()
        assert len(before) == 100
        await anyio.sleep(5)
        await node.server.die()
        backend = node.server.core.backend
        assert isinstance(backend, SimulatedBackend)
        await anyio.sleep(10)
        (died,) = node.containers("web-7", running=True)
        backend.end(died, 1)
        node.source.add(make_pod("late"))
        await anyio.sleep(20)
        await node.server.start()
        back = anyio.current_time()
        await node.until(lambda: node.ids("web-7") and phase(node.pod("late")) == "Running", 10)
        assert anyio.current_time() - back <= 2.0
        await anyio.sleep(60)
        assert not node.recorded("PhaseFailed")
        assert node.calls("StopContainer") == 0
        assert node.calls("StopPodSandbox") == 0
        assert set(before) - set(node.ids()) == {died.id}
        assert len(node.ids()) == 101
        assert {phase(pod) for pod in node.agent.pods()} == {"Running"}


async def test_a_runtime_that_comes_back_without_a_part_gets_what_it_lost(tmp_path: Path) -> None:
    wanted = pods(10)
    async with faulty_ring(tmp_path, *wanted) as node:
        await all_running(node, wanted)
        before = set(node.ids())
        await node.server.die()
        lost = set(await node.server.lose(share=0.3, seed=1))
        gone = await node.server.lose(pod="web-9", sandboxes=True)
        assert len(lost) == 3
        assert len(gone) == 1
        await anyio.sleep(5)
        await node.server.start()
        back = anyio.current_time()
        await node.until(lambda: len(node.ids()) == 10, 30)
        assert anyio.current_time() - back < 15
        assert before - set(node.ids()) >= lost
        await anyio.sleep(30)
        assert len(node.ids()) == 10
        assert {phase(pod) for pod in node.agent.pods()} == {"Running"}


# -- answers that are wrong


# Of all, so that times say nothing; of what runs, so that they say the wrong thing.
@pytest.mark.parametrize("only", ["", "RUNNING"])
@pytest.mark.parametrize("created_at", [0, 1, 5 * 10**9])
async def test_attempts_decide_where_creation_times_are_of_no_use(
    tmp_path: Path, created_at: int, only: str
) -> None:
    backend = SimulatedBackend({"main": Script(exits=[(5.0, 1)] * 3)})
    plan = FaultPlan(Fault("", Show(created_at=created_at, only=only)))
    async with faulty_ring(tmp_path, make_pod("web"), plan=plan, backend=backend) as node:
        most = 0
        for _ in range(300):
            await anyio.sleep(0.5)
            most = max(most, len(node.ids("web")))
        status = node.status("web")
        assert most == 1
        assert status.ready
        assert status.restart_count == 3
        (running,) = node.containers("web", running=True)
        assert running.metadata.attempt == 3
        assert status.container_id.endswith(running.id)
        assert node.calls("StartContainer") == 4


async def test_states_that_flip_to_unknown_restart_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Also those whose readiness is asked for each second.
    asked = Probe(exec=ExecAction(command=("true",)), period_seconds=1)
    probed = make_pod("web-2", make_container(readiness_probe=asked))
    async with faulty_ring(tmp_path, *pods(2), probed) as node:
        await all_running(node, pods(3))
        await node.until(lambda: node.status("web-2").ready)
        before = node.ids()
        flips = node.plan.add(Fault("", Show("UNKNOWN", only="RUNNING", flip=1.0)))
        ready: set[tuple[bool, ...]] = set()
        for _ in range(240):
            await anyio.sleep(0.25)
            ready.add(tuple(node.status(f"web-{number}").ready for number in range(3)))
        flips.remove()
        await anyio.sleep(30)
        assert ready == {(True, True, True)}
        assert node.ids() == before
        assert node.calls("StartContainer") == 3
        assert node.calls("StopContainer") == 0
        warned = [r for r in caplog.records if r.getMessage() == "container_state_unknown"]
        assert len(warned) == 3


async def test_containers_removed_behind_the_agents_back_are_replaced(tmp_path: Path) -> None:
    wanted = [make_pod("web", make_container("a"), make_container("b")), make_pod("other")]
    # They write logs, as real ones do: these tell how often a container ran before.
    backend = SimulatedBackend(default=Script(log=[LogLine("hello")]))
    async with faulty_ring(tmp_path, *wanted, backend=backend) as node:
        await all_running(node, wanted)
        before, other = node.ids("web"), node.ids("other")

        def counts() -> list[int]:
            return [node.status("web", name).restart_count for name in "ab"]

        def all_ready() -> bool:
            ready = all(node.status("web", name).ready for name in "ab")
            return ready and len(node.ids("web")) == 2

        await node.server.lose(pod="web", container="a")
        await node.until(lambda: all_ready() and counts() == [1, 0], 30)
        assert len(set(before) & set(node.ids("web"))) == 1
        await node.server.lose(pod="web", sandboxes=True)
        await node.until(lambda: all_ready() and counts() == [2, 1], 30)
        await anyio.sleep(60)
        assert all_ready()
        assert counts() == [2, 1]
        assert node.ids("other") == other


# -- calls that hang


async def test_ten_hung_sandbox_creations_hold_nobody_up(tmp_path: Path) -> None:
    stuck, fine = pods(10), [make_pod(f"fine-{number}") for number in range(30)]
    plan = FaultPlan(Fault("RunPodSandbox", Hang(), pod="web-*"))
    async with faulty_ring(tmp_path, *stuck, *fine, plan=plan) as node:
        await all_running(node, fine, 30)
        await anyio.sleep(60)
        node.source.add(make_pod("latecomer"))
        began = anyio.current_time()
        await node.running("latecomer")
        assert anyio.current_time() - began < 5
        assert node.plan.faults["fault-1"].waiting == 10
        plan.release("fault-1")
        await all_running(node, stuck, 60)
        assert len(node.ids()) == 41
        await anyio.sleep(300)
        assert len(node.ids()) == 41
        assert all(len(ready_sandboxes(node, pod.metadata.name)) == 1 for pod in stuck)


# -- connections


async def test_goaway_during_streams_and_calls_is_not_noticed(tmp_path: Path) -> None:
    wanted = pods(5)
    plan = FaultPlan(Fault("CreateContainer", Delay(3.0), pod="late"))
    async with faulty_ring(tmp_path, *wanted, plan=plan) as node:
        await all_running(node, wanted)
        node.source.add(make_pod("late"))
        await node.until(lambda: node.calls("CreateContainer") == 6)
        node.server.goaway()
        await node.running("late")
        assert node.calls("CreateContainer") == 6
        backend = node.server.core.backend
        assert isinstance(backend, SimulatedBackend)
        (record,) = node.containers("web-2", running=True)
        backend.end(record, 1)
        began = anyio.current_time()
        await node.until(lambda: node.ids("web-2"))
        assert anyio.current_time() - began < 2
        assert node.recorded("RelistFailed") == []


async def test_connections_that_stall_are_replaced(tmp_path: Path) -> None:
    wanted = pods(5)
    async with faulty_ring(tmp_path, *wanted) as node:
        await all_running(node, wanted)
        await anyio.sleep(10)
        node.server.stall()
        backend = node.server.core.backend
        assert isinstance(backend, SimulatedBackend)
        (record,) = node.containers("web-2", running=True)
        backend.end(record, 1)
        began = anyio.current_time()
        await node.until(lambda: node.ids("web-2"), 60)
        assert anyio.current_time() - began < 20
        assert {phase(pod) for pod in node.agent.pods()} == {"Running"}


async def test_a_pod_that_could_not_be_looked_at_is_stopped_when_it_can_be(tmp_path: Path) -> None:
    """Also when its manifest has gone meanwhile, so that no source names it any more."""
    broken = Fault("ContainerStatus", Fail(Code.INTERNAL, "broken"), pod="web")
    async with faulty_ring(tmp_path, make_pod("web"), plan=FaultPlan(broken)) as node:
        await node.until(lambda: node.ids("web"))
        node.source.set()
        await node.until(lambda: node.recorded("StatusUnknown"))
        await anyio.sleep(3)
        assert node.ids("web")
        node.plan.clear()
        # A look comes with the next relist, and the worker does not wait for its own back-off.
        await node.until(lambda: not node.ids("web"), seconds=3)
        await node.until(lambda: not node.containers("web"), seconds=5)
