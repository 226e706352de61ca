"""Agents that are killed at a chosen call to the runtime, and what follows them.

A kill leaves no time for anything: what the agent would still do on its way out neither reaches
the runtime (its calls hang) nor the disk (which is put back as it was at that moment).
"""

from __future__ import annotations

import inspect
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import anyio
from anyio.abc import TaskGroup
from ring import Ring

from nodeagent.agent import NodeAgent
from nodeagent.clock import Clock
from nodeagent.config import AgentConfig
from nodeagent.cri import ImageService, RuntimeService
from nodeagent.embedded import Call, Embedded, SimulatedBackend, Work, open_embedded
from nodeagent.embedded.records import ContainerRecord, RunState, SandboxRecord
from nodeagent.proto.runtime import v1
from nodeagent.rpc import RpcError, Unavailable
from nodeagent.testing import MemorySource

T = TypeVar("T")
When = Literal["before", "after", "during"]
POD_UID = "io.kubernetes.pod.uid"
EFFECTS = frozenset(
    {
        "RunPodSandbox",
        "StopPodSandbox",
        "RemovePodSandbox",
        "CreateContainer",
        "StartContainer",
        "StopContainer",
        "RemoveContainer",
        "PullImage",
    }
)


_PERIODIC = frozenset({"ListPodSandbox", "ListContainers", "Status"})
_ROUND = 4


@dataclass(frozen=True)
class Kill:
    """A kill at a call of one agent's life.

    Attributes:
        at: the call's number in that life, from 1. An agent at rest makes the same few calls
            again and again: of these only the first round counts.
        when: before the call reaches the runtime; after it had its effect, without the answer;
            or in the middle: then the runtime goes on with it, while the next agent looks around.
        rest: seconds until the next agent starts.
    """

    at: int
    when: When
    rest: float = 0.0


class KillHooks:
    """Hooks that kill one agent after the other, and let nothing of the dead through.

    Args:
        kills: where; an agent for which none is left lives on.
    """

    def __init__(self, *kills: Kill) -> None:
        self._kills = list(kills)
        self._idle = 0
        self._number = 0
        self.dead = anyio.Event()
        self.rest = 0.0
        self.killed_at: list[str] = []
        self.calls: list[str] = []
        self.effects: list[tuple[str, str, str]] = []
        """Calls that had an effect: method, pod and container."""
        self.effect_times: list[float] = []
        self.on_effect: Callable[[], None] = lambda: None
        self.waiting: set[anyio.Event] = set()
        """Calls of the living agent that have no answer yet."""

    @property
    def all_struck(self) -> bool:
        return not self._kills

    def kill(self, rest: float = 0.0) -> None:
        """Kill the agent now."""
        self.killed_at.append("now")
        self._bury(rest)

    def live_again(self) -> None:
        """Another agent begins."""
        self.dead = anyio.Event()
        self._number = self._idle = 0

    async def around(self, call: Call, work: Work[T]) -> T:
        self.calls.append(call.method)
        self._idle = self._idle + 1 if call.method in _PERIODIC else 0
        self._number += self._idle <= _ROUND
        kill = self._kills[0] if self._kills and self._idle <= _ROUND else None
        if kill is None or kill.at != self._number:
            return await self._done(call, work)
        if kill.when == "after":
            answer = await self._done(call, work)
            if not self.dead.is_set():
                self._die(kill, call)
            return answer
        self._die(kill, call)
        if kill.when == "before":
            raise Unavailable("killed", call.method)
        return await self._done(call, work)

    async def _done(self, call: Call, work: Work[T]) -> T:
        answer = await work()
        if call.method in EFFECTS:
            self.effects.append((call.method, call.pod_uid, call.container))
            self.effect_times.append(anyio.current_time())
            self.on_effect()
        return answer

    def deliver(
        self, event: v1.ContainerEventResponse
    ) -> Iterable[tuple[float, v1.ContainerEventResponse]]:
        return ((0.0, event),)

    def _die(self, kill: Kill, call: Call) -> None:
        self._kills.remove(kill)
        self.killed_at.append(f"{kill.when} {call.method} {call.container}".rstrip())
        self._bury(kill.rest)

    def _bury(self, rest: float) -> None:
        self.rest = rest
        self.dead.set()
        for call_under_way in self.waiting:
            call_under_way.set()

    def check_alive(self) -> None:
        """Neither calls nor answers cross the grave."""
        if self.dead.is_set():
            raise Unavailable("the agent is dead")


class OwnTasks:
    """A runtime that finishes what it has begun, whether or not the caller still lives."""

    def __init__(self, service: object, tasks: TaskGroup, hooks: KillHooks) -> None:
        self._service = service
        self._tasks = tasks
        self._hooks = hooks

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._service, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **options: Any) -> Any:
            outcome: list[Any] = []
            answered = anyio.Event()

            async def work() -> None:
                try:
                    outcome.append(await method(*args, **options))
                except RpcError as error:
                    outcome.append(error)
                answered.set()

            self._hooks.check_alive()
            self._hooks.waiting.add(answered)
            self._tasks.start_soon(work)
            try:
                await answered.wait()
            finally:
                self._hooks.waiting.discard(answered)
            self._hooks.check_alive()
            if isinstance(outcome[0], RpcError):
                raise outcome[0]
            return outcome[0]

        return call


class Unhurried(SimulatedBackend):
    """A backend that takes its time to make and start things."""

    async def create_sandbox(self, sandbox: SandboxRecord) -> None:
        await anyio.sleep(2.0)

    async def create(self, container: ContainerRecord, sandbox: SandboxRecord) -> None:
        await anyio.sleep(1.0)
        await super().create(container, sandbox)

    async def start(self, container: ContainerRecord, sandbox: SandboxRecord) -> int:
        await anyio.sleep(1.0)
        return await super().start(container, sandbox)


@dataclass
class World:
    """A runtime, what is wanted, and the agent that happens to be alive."""

    home: Path
    runtime: Embedded
    hooks: KillHooks
    source: MemorySource
    tasks: TaskGroup
    settings: dict[str, object] = field(default_factory=dict)
    clock: Clock | None = None
    ring: Ring | None = None
    on_death: Callable[[], None] = lambda: None
    most: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many instances of a container, or sandboxes of a pod, ran side by side at most."""

    def count(self) -> None:
        """Take note of what runs side by side; after each call that had an effect."""
        state = self.runtime.core.state
        now = Counter((r.pod_uid, r.name) for r in running(state.containers.values()))
        now.update((s.pod_uid, "") for s in state.sandboxes.values() if s.ready)
        self.most |= now

    async def until(self, check: Callable[[Ring], object], seconds: float = 300.0) -> None:
        """Wait until ``check`` holds of the agent that is alive then."""
        with anyio.fail_after(seconds):
            while not (self.ring is not None and check(self.ring)):
                await anyio.sleep(0.05)

    async def reached(self, method: str, count: int) -> None:
        """Wait until calls of that method have had their effect so often."""
        await self.until(lambda _ring: self.effects(method) == count, 600)

    async def agents(self) -> None:
        """Run one agent after another, each until it is killed."""
        while True:
            async with anyio.create_task_group() as life:
                life.start_soon(self._agent)
                await self.hooks.dead.wait()
                self.ring = None
                disk = copy_of(self.home / "root")
                life.cancel_scope.cancel()
            put_back(disk, self.home / "root")
            self.on_death()
            await anyio.sleep(self.hooks.rest)
            self.hooks.live_again()

    async def _agent(self) -> None:
        config = AgentConfig(
            root_dir=self.home / "root",
            pod_logs_dir=self.home / "logs",
            node_name="node1",
            node_ip="10.0.0.1",
            **self.settings,  # type: ignore[arg-type]
        )
        agent = NodeAgent(
            config,
            runtime=cast(RuntimeService, OwnTasks(self.runtime.runtime, self.tasks, self.hooks)),
            images=cast(ImageService, OwnTasks(self.runtime.images, self.tasks, self.hooks)),
            sources=[self.source],
            clock=self.clock,
        )
        try:
            async with agent:
                if not self.hooks.dead.is_set():
                    self.ring = Ring(agent, self.runtime, self.source)
                await anyio.sleep_forever()
        except Exception:
            if not self.hooks.dead.is_set():
                raise

    def records(self, uid: str, name: str) -> list[ContainerRecord]:
        """The instances of one container that the runtime has."""
        return [
            record
            for record in self.runtime.core.state.containers.values()
            if record.pod_uid == uid and record.name == name
        ]

    def ids_of(self, pod: str) -> list[str]:
        """Ids of the containers that run of a pod."""
        found = running(self.runtime.core.state.containers.values())
        return [r.id for r in found if r.config.labels["io.kubernetes.pod.name"] == pod]

    def effects(self, method: str, container: str = "") -> int:
        """How often calls of that method had an effect."""
        return sum(m == method and container in ("", c) for m, _, c in self.hooks.effects)

    def times(self, method: str, container: str = "") -> list[float]:
        """When calls of that method had their effect."""
        done = zip(self.hooks.effects, self.hooks.effect_times, strict=True)
        return [at for (m, _, c), at in done if m == method and container in ("", c)]


def running(records: Iterable[ContainerRecord]) -> list[ContainerRecord]:
    return [record for record in records if record.state is RunState.RUNNING]


def copy_of(root: Path) -> Path:
    """The agent's directory as it is now; its threads may still be at work in there."""
    copy = root.with_name("as-it-was")
    for place, _directories, files in os.walk(root):
        target = copy / Path(place).relative_to(root)
        target.mkdir(parents=True)
        for name in files:
            with suppress(FileNotFoundError):
                shutil.copyfile(Path(place) / name, target / name)
    return copy


def put_back(copy: Path, root: Path) -> None:
    """What was written since is lost."""
    shutil.rmtree(root)
    copy.rename(root)


@asynccontextmanager
async def world(
    home: Path,
    backend: SimulatedBackend,
    hooks: KillHooks,
    source: MemorySource,
    *,
    clock: Clock | None = None,
    **settings: object,
) -> AsyncIterator[World]:
    """A runtime with agents on it, one after the other."""
    home.mkdir(parents=True, exist_ok=True)
    async with (
        open_embedded(backend, hooks=hooks, clock=clock) as runtime,
        anyio.create_task_group() as tasks,
    ):
        made = World(home, runtime, hooks, source, tasks, settings, clock)
        hooks.on_effect = made.count
        tasks.start_soon(made.agents)
        try:
            yield made
        finally:
            tasks.cancel_scope.cancel()
