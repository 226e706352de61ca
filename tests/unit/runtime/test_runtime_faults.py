"""Whatever fails and whenever the agent restarts, pods converge and nothing runs twice.

docs/behaviour/runtime.md, "At most once".
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TypeAlias

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runtime.fakes import (
    EXITED,
    NOT_READY,
    READY,
    RUNNING,
    FakeRuntime,
    make_container,
    make_pod,
    make_settings,
)

from nodeagent.api import Pod
from nodeagent.rpc import (
    AlreadyExists,
    Cancelled,
    DeadlineExceeded,
    Internal,
    RpcError,
    Unavailable,
    Unknown,
)
from nodeagent.runtime import RuntimeManager
from nodeagent.testing.virtual_time import VirtualTimeLoop

Step: TypeAlias = tuple[str, str, int]

METHODS = [
    "run_pod_sandbox",
    "stop_pod_sandbox",
    "pod_sandbox_status",
    "list_pod_sandbox",
    "create_container",
    "start_container",
    "stop_container",
    "list_containers",
    "image_status",
    "pull_image",
]
CHANGES = ["run_pod_sandbox", "create_container", "start_container"]
ERRORS: list[RpcError] = [
    DeadlineExceeded("no answer"),
    Unavailable("connection lost"),
    Cancelled("given up"),
    Internal("broken"),
    Unknown('name "x" is reserved for "y"'),
    AlreadyExists("there is one"),
]
LATE = ERRORS[:3]

steps = st.one_of(
    st.tuples(st.just("fail"), st.sampled_from(METHODS), st.integers(0, len(ERRORS) - 1)),
    st.tuples(st.just("late"), st.sampled_from(CHANGES), st.integers(0, len(LATE) - 1)),
    st.tuples(st.just("slow"), st.sampled_from(CHANGES[:2]), st.sampled_from([1, 20, 500])),
    st.tuples(st.just("cancel"), st.sampled_from(METHODS), st.just(0)),
    st.tuples(st.just("exit"), st.sampled_from("ab"), st.integers(0, 1)),
    st.tuples(st.just("lose"), st.sampled_from("ab"), st.just(0)),
    st.tuples(st.just("sandbox dies"), st.just(""), st.just(0)),
    st.tuples(st.just("agent restarts"), st.just(""), st.just(0)),
    st.tuples(st.just("time passes"), st.just(""), st.sampled_from([1, 30, 400])),
)


class World:
    """One pod, one runtime, and an agent that comes and goes."""

    def __init__(self, root: Path, policy: str) -> None:
        self.runtime = FakeRuntime()
        self.runtime.add_image()
        self.root = root
        self.manager = self.agent()
        self.pod: Pod = make_pod(make_container("a"), make_container("b"), restart_policy=policy)

    def agent(self) -> RuntimeManager:
        return RuntimeManager(self.runtime, self.runtime, make_settings(self.root))

    async def sync(self) -> None:
        await self.manager.sync_pod(self.pod, await self.runtime.status(), {})

    async def apply(self, step: Step) -> None:
        kind, what, number = step
        match kind:
            case "fail":
                self.runtime.fail(what, ERRORS[number])
            case "late":
                self.runtime.fail_late(what, LATE[number])
            case "slow":
                self.runtime.slow(what, number)
            case "cancel":
                self.runtime.hang(what)
                with anyio.move_on_after(5):
                    await self.sync()
                self.runtime.unhang()
            case "exit":
                self.exit(what, number)
            case "lose":
                self.lose(what)
            case "sandbox dies":
                for sandbox in self.runtime.sandboxes.values():
                    sandbox.state = NOT_READY
                for name in "ab":
                    self.exit(name, 137)
            case "agent restarts":
                saved = self.manager.snapshot()
                self.manager = self.agent()
                self.manager.restore(saved)
            case _:
                await anyio.sleep(number)

    def exit(self, name: str, code: int) -> None:
        for made in self.runtime.containers.values():
            if made.name == name and made.state is RUNNING:
                made.state, made.exit_code = EXITED, code

    def lose(self, name: str) -> None:
        for cid in [c.id for c in self.runtime.containers.values() if c.name == name]:
            del self.runtime.containers[cid]

    def running(self) -> list[str]:
        return sorted(c.name for c in self.runtime.containers.values() if c.state is RUNNING)


async def live(policy: str, life: list[Step], *, at_rest: bool) -> World:
    """Lead one life; the invariants hold after every step."""
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory), policy)
        for step in life:
            await world.apply(step)
            await world.sync()
            running = world.running()
            assert len(running) == len(set(running)), step
            if policy == "Never":
                assert all(count <= 1 for count in world.runtime.starts.values()), step
        if at_rest:
            world.runtime.heal()
            for _ in range(6):
                await world.sync()
                await anyio.sleep(400)
        return world


def run(policy: str, life: list[Step], *, at_rest: bool = False) -> World:
    async def main() -> World:
        return await live(policy, life, at_rest=at_rest)

    return anyio.run(main, backend_options={"loop_factory": VirtualTimeLoop})


lives = st.lists(steps, max_size=12)


@settings(max_examples=100, deadline=None)
@given(lives)
def test_a_pod_that_restarts_always_comes_to_run_once(life: list[Step]) -> None:
    world = run("Always", life, at_rest=True)
    assert world.running() == ["a", "b"]
    ready = [s.id for s in world.runtime.sandboxes.values() if s.state is READY]
    assert len(ready) == 1
    assert all(
        made.sandbox == ready[0]
        for made in world.runtime.containers.values()
        if made.state is RUNNING
    )


@settings(max_examples=100, deadline=None)
@given(lives)
def test_a_pod_that_never_restarts_runs_at_most_once(life: list[Step]) -> None:
    run("Never", life)
