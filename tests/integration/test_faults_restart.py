"""An agent that is killed leaves nothing behind that another agent would not take up.

docs/behaviour/runtime.md, "At most once", "Crash back-off".
"""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from itertools import count, pairwise
from pathlib import Path

import anyio
import pytest
from clocks import AdjustableClock
from killing import Kill, KillHooks, Unhurried, When, World, running, world
from ring import Ring, phase

from nodeagent.embedded import Script, SimulatedBackend
from nodeagent.testing import MemorySource, make_container, make_pod

pytestmark = pytest.mark.anyio

WEB = make_pod("web", make_container("a"), make_container("b"))
JOB = make_pod("job", make_container("a"), make_container("b"), restart="Never")
JOB_SCRIPTS = {
    "a": Script(exits=[(1.0, 0)], repeat=True),
    "b": Script(exits=[(2.0, 3)], repeat=True),
}


async def life_of_a_server(home: Path, *kills: Kill) -> KillHooks:
    """Start, crash, restart, deletion; the same ids throughout, and nothing twice."""
    backend, hooks, source = SimulatedBackend(), KillHooks(*kills), MemorySource(WEB)
    async with world(home, backend, hooks, source) as node:
        await node.until(lambda ring: phase(ring.pod("web")) == "Running")
        (a,) = running(node.records("uid-web", "a"))
        (b,) = running(node.records("uid-web", "b"))
        backend.end(a, 1)
        await node.until(
            lambda ring: (
                phase(ring.pod("web")) == "Running"
                and ring.status("web", "a").restart_count == 1
                and ring.status("web", "a").ready
                and ring.status("web", "b").ready
            )
        )
        assert running(node.records("uid-web", "b")) == [b]
        source.set()
        await node.until(lambda ring: not ring.runtime.core.state.sandboxes)
        check_counts(node, "uid-web", {"a": 2, "b": 1})
    return hooks


async def life_of_a_job(home: Path, *kills: Kill) -> KillHooks:
    """What may run once runs once, also when the runtime forgets that it has."""
    backend = SimulatedBackend(JOB_SCRIPTS)
    hooks, source = KillHooks(*kills), MemorySource(JOB)
    async with world(home, backend, hooks, source) as node:
        await node.until(lambda ring: phase(ring.pod("job")) == "Failed")
        for name in "ab":
            for record in node.records("uid-job", name):
                await node.runtime.core.remove(record)
        await node.until(lambda ring: phase(ring.pod("job")) == "Failed")
        await anyio.sleep(5)
        await node.until(lambda ring: phase(ring.pod("job")) == "Failed")
        check_counts(node, "uid-job", {"a": 1, "b": 1})
    return hooks


def check_counts(node: World, uid: str, starts: dict[str, int]) -> None:
    story = node.hooks.killed_at
    made = {name: node.effects("CreateContainer", name) for name in starts}
    started = {name: node.effects("StartContainer", name) for name in starts}
    assert (made, started) == (starts, starts), story
    assert node.effects("RunPodSandbox") == 1, story
    assert node.most == {(uid, name): 1 for name in ("", *starts)}, story


Life = Callable[..., Awaitable[KillHooks]]


async def life_in_stages(home: Path, *kills: Kill) -> KillHooks:
    """An init container that ends, a sidecar, and a job: each starts once, in this order."""
    order = ["init", "side", "main"]
    pod = make_pod(
        "stages",
        make_container("main"),
        restart="OnFailure",
        init_containers=(
            make_container("init"),
            make_container("side", restart_policy="Always"),
        ),
    )
    backend = SimulatedBackend({"init": JOB_SCRIPTS["a"], "main": JOB_SCRIPTS["a"]})
    hooks, source = KillHooks(*kills), MemorySource(pod)
    async with world(home, backend, hooks, source) as node:
        await node.until(lambda ring: phase(ring.pod("stages")) == "Succeeded")
        check_counts(node, "uid-stages", dict.fromkeys(order, 1))
        assert [c for m, _, c in hooks.effects if m == "StartContainer"] == order
    return hooks


PARTS = 4


async def walk(life: Life, when: When, part: int, home: Path) -> None:
    """Kill at one call after the other, until a whole life passes without reaching that call."""
    for at in count(part, PARTS):
        hooks = await life(home / str(at), Kill(at, when))
        if not hooks.all_struck:
            break
    assert at > 20


@pytest.mark.parametrize("part", range(1, PARTS + 1))
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("life", [life_of_a_server, life_of_a_job, life_in_stages])
async def test_an_agent_may_be_killed_between_any_two_calls(
    life: Life, when: When, part: int, tmp_path: Path
) -> None:
    await walk(life, when, part, tmp_path)


@pytest.mark.parametrize("seed", range(24))
async def test_an_agent_may_be_killed_again_and_again(seed: int, tmp_path: Path) -> None:
    """Several kills in one life, with pauses in which nobody looks."""
    dice = random.Random(seed)
    kills = [
        Kill(dice.randint(1, 40), dice.choice(["before", "after"]), dice.choice([0.0, 0.0, 7.0]))
        for _ in range(dice.randint(2, 6))
    ]
    lives = (life_of_a_server, life_of_a_job, life_in_stages)
    await lives[seed % 3](tmp_path, *kills)


async def server_on_an_unhurried_runtime(home: Path, kill: Kill) -> KillHooks:
    """The runtime is still at work for the dead agent when the next one begins."""
    hooks, source = KillHooks(kill), MemorySource(WEB)
    async with world(home, Unhurried(), hooks, source) as node:
        await node.until(lambda ring: phase(ring.pod("web")) == "Running")
        await anyio.sleep(15)
        ready = [s for s in node.runtime.core.state.sandboxes.values() if s.ready]
        kept = {name: [r.id for r in running(node.records("uid-web", name))] for name in "ab"}
        assert (len(ready), len(kept["a"]), len(kept["b"])) == (1, 1, 1), hooks.killed_at
        assert {node.most["uid-web", name] for name in "ab"} == {1}, hooks.killed_at
        source.set()
        await node.until(lambda ring: not ring.runtime.core.state.sandboxes)
        assert not node.runtime.core.state.containers
    return hooks


async def job_on_an_unhurried_runtime(home: Path, kill: Kill) -> KillHooks:
    """What may run once runs once, also if its start was still under way."""
    hooks, source = KillHooks(kill), MemorySource(JOB)
    backend = Unhurried(JOB_SCRIPTS)
    async with world(home, backend, hooks, source) as node:
        await node.until(lambda ring: phase(ring.pod("job")) == "Failed")
        await anyio.sleep(15)
        assert [node.effects("StartContainer", name) for name in "ab"] == [1, 1], hooks.killed_at
    return hooks


@pytest.mark.parametrize("part", range(1, PARTS + 1))
@pytest.mark.parametrize("life", [server_on_an_unhurried_runtime, job_on_an_unhurried_runtime])
async def test_an_agent_may_be_killed_during_any_call(
    life: Life, part: int, tmp_path: Path
) -> None:
    await walk(life, "during", part, tmp_path)


async def test_a_crash_back_off_outlives_an_agent_that_is_killed_after_each_restart(
    tmp_path: Path,
) -> None:
    """The delays double as if there had been one agent, and count on while there is none."""
    hooks, source = KillHooks(), MemorySource(make_pod("web"))
    backend = SimulatedBackend({"main": Script(exits=[(0.5, 1)], repeat=True)})
    async with world(tmp_path, backend, hooks, source) as node:
        for number in range(1, 6):
            await node.reached("StartContainer", number)
            # Its exit has been seen when the agent is killed.
            await anyio.sleep(2)
            hooks.kill(rest=5.0)
        await node.until(
            lambda ring: ring.pod("web") is not None and ring.status("web").restart_count == 4
        )
        gaps = [later - earlier for earlier, later in pairwise(node.times("StartContainer"))]
    # The first restart comes at once; the others count from the exit.
    assert gaps[0] < 2
    for gap, delay in zip(gaps[1:], (10, 20, 40), strict=True):
        assert delay + 0.5 <= gap < delay + 2.5, gaps


@pytest.mark.parametrize("jump", [-40.0, 600.0, -3e8])
async def test_the_wall_clock_jumps_while_there_is_no_agent(tmp_path: Path, jump: float) -> None:
    """Same ids, same counts, and back-offs as long as they would have been."""
    clock = AdjustableClock()
    backend = SimulatedBackend({"a": Script(exits=[(0.5, 1)], repeat=True)}, clock=clock)
    hooks, source = KillHooks(), MemorySource(WEB)
    async with world(tmp_path, backend, hooks, source, clock=clock) as node:
        await node.until(lambda ring: crashed(ring, 3), 600)
        restarted = anyio.current_time()
        await anyio.sleep(1)
        before = node.records("uid-web", "b")
        node.on_death = lambda: clock.jump(jump)
        hooks.kill()
        await node.until(lambda ring: ring.pod("web") is not None and crashed(ring, 3))
        await node.until(lambda ring: crashed(ring, 4), 600)
        # The third restart is followed by a back-off of 40 s.
        assert 40 <= anyio.current_time() - restarted < 45
        assert running(node.records("uid-web", "b")) == before
        assert node.effects("RunPodSandbox") == 1
        assert node.effects("StartContainer", "b") == 1
        assert node.most == {("uid-web", name): 1 for name in ("", "a", "b")}


def crashed(ring: Ring, times: int) -> bool:
    return phase(ring.pod("web")) == "Running" and ring.status("web", "a").restart_count == times


async def test_an_active_deadline_goes_on_over_a_restart_of_the_agent(tmp_path: Path) -> None:
    clock, hooks = AdjustableClock(), KillHooks()
    source = MemorySource(make_pod("web", active_deadline_seconds=60))
    backend = SimulatedBackend(clock=clock)
    async with world(tmp_path, backend, hooks, source, clock=clock) as node:
        await node.until(lambda ring: phase(ring.pod("web")) == "Running")
        began, shown = anyio.current_time(), start_time(node)
        for jump in (-40.0, 600.0):
            await anyio.sleep(20)
            node.on_death = lambda jump=jump: clock.jump(jump)  # type: ignore[misc]
            hooks.kill(rest=2.0)
            await anyio.sleep(1)
            await node.until(lambda ring: phase(ring.pod("web")) == "Running")
            assert start_time(node) == shown
        await node.until(lambda ring: phase(ring.pod("web")) == "Failed")
        assert 60 <= anyio.current_time() - began < 65


def start_time(node: World) -> datetime | None:
    assert node.ring is not None
    pod = node.ring.pod("web")
    assert pod is not None
    return pod.status.start_time


async def test_nothing_is_remembered_of_pods_that_went_while_no_agent_ran(tmp_path: Path) -> None:
    hooks, source = KillHooks(), MemorySource(JOB, make_pod("stays", restart="Never"), WEB)
    backend = SimulatedBackend({"a": Script(exits=[(1.0, 1)], repeat=True)})
    async with world(tmp_path, backend, hooks, source) as node:
        await node.until(lambda ring: ring.pod("web") is not None and crashed(ring, 2))
        await anyio.sleep(6)
        assert set(uids_in(tmp_path)) == {"uid-job", "uid-stays", "uid-web"}

        def forget() -> None:
            source.set(make_pod("stays", restart="Never"))
            state = node.runtime.core.state
            for record in list(state.containers.values()):
                if record.pod_uid != "uid-stays":
                    state.drop(record.id)
            for sandbox in list(state.sandboxes.values()):
                if sandbox.pod_uid != "uid-stays":
                    state.drop(sandbox.id)

        node.on_death = forget
        hooks.kill()
        await anyio.sleep(15)
        assert set(uids_in(tmp_path)) == {"uid-stays"}


def uids_in(home: Path) -> list[str]:
    text = (home / "root" / "checkpoints" / "runtime.json").read_text()
    return re.findall(r"uid-\w+", text)
