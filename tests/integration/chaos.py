"""Random faults at random moments, from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from nodeagent.api import Pod
from nodeagent.embedded import RuntimeServer, SimulatedBackend
from nodeagent.embedded.fault_rules import CallEffect, EventEffect
from nodeagent.embedded.records import RunState
from nodeagent.rpc import Code
from nodeagent.testing import (
    Cut,
    Delay,
    Drop,
    Duplicate,
    Fail,
    FailAfter,
    Fault,
    Hang,
    Hold,
    Late,
    MemorySource,
    Reorder,
    make_container,
    make_pod,
)

METHODS = (
    "ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus", "Status",
    "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer", "StartContainer",
    "StopContainer", "RemoveContainer", "ImageStatus", "PullImage",
)  # fmt: skip
CODES = (
    Code.UNAVAILABLE, Code.INTERNAL, Code.UNKNOWN, Code.DEADLINE_EXCEEDED,
    Code.RESOURCE_EXHAUSTED, Code.ABORTED,
)  # fmt: skip


def new_pod(number: int, version: int = 1) -> Pod:
    containers = [make_container("a", image=f"busybox:{version}"), make_container("b")]
    return make_pod(f"p{number}", *containers[: 1 + number % 2])


@dataclass
class Chaos:
    """What goes wrong, and what is wanted meanwhile."""

    server: RuntimeServer
    backend: SimulatedBackend
    source: MemorySource
    tasks: TaskGroup
    dice: random.Random
    wanted: dict[str, Pod] = field(default_factory=dict)
    killed: set[str] = field(default_factory=set)
    story: list[str] = field(default_factory=list)

    async def reign(self, seconds: float) -> None:
        """Do harm for so long, and then set right what does not right itself."""
        end = anyio.current_time() + seconds
        deeds: list[Callable[[], object]] = [
            self.call_fault, self.call_fault, self.call_fault, self.event_fault,
            self.crash, self.connection, self.want,
        ]  # fmt: skip
        while anyio.current_time() < end:
            await anyio.sleep(self.dice.uniform(0.1, 1.5))
            self.dice.choice(deeds)()
        # The longest pause of the server.
        await anyio.sleep(2.0)
        self.server.plan.clear()
        self.server.resume()
        await self.server.start()

    def note(self, what: str) -> None:
        self.story.append(f"{anyio.current_time():.1f} {what}")

    def call_fault(self) -> None:
        dice = self.dice
        seconds = dice.uniform(0.1, 3.0)
        effects: list[CallEffect] = [
            Delay(seconds),
            Delay(seconds, apart=True),
            Hang(apart=dice.random() < 0.5),
            Fail(dice.choice(CODES)),
            FailAfter(dice.choice(CODES)),
            Late(seconds),
        ]
        fault = Fault(
            dice.sample(METHODS, dice.randint(1, 3)),
            dice.choice(effects),
            pod=dice.choice(["", "p1*", f"p{dice.randint(0, 19)}"]),
            probability=dice.choice([0.2, 0.5, 1.0]),
        )
        self._for_a_while(fault, dice.uniform(0.5, 6.0))

    def event_fault(self) -> None:
        dice = self.dice
        effects: list[EventEffect] = [Drop(), Duplicate(3, 0.1), Hold(1.0), Reorder(0.5), Cut()]
        fault = Fault("", dice.choice(effects), probability=0.7)
        self._for_a_while(fault, dice.uniform(0.5, 6.0))

    def _for_a_while(self, fault: Fault, seconds: float) -> None:
        injected = self.server.plan.add(fault)
        self.note(
            f"{fault.on} {fault.effect} pod={fault.pod!r} p={fault.probability} {seconds:.1f}s"
        )

        async def pass_by() -> None:
            await anyio.sleep(seconds)
            injected.remove()

        self.tasks.start_soon(pass_by)

    def crash(self) -> None:
        """A container ends; each only once, since a second time it would have to wait."""
        running = [
            r
            for r in self.server.core.state.containers.values()
            if r.state is RunState.RUNNING and (r.pod_uid + r.name) not in self.killed
        ]
        if running:
            record = self.dice.choice(running)
            self.killed.add(record.pod_uid + record.name)
            self.note(f"crash {record.pod_uid} {record.name}")
            self.backend.end(record, self.dice.choice([0, 1, 137]))

    def connection(self) -> None:
        what = self.dice.choice(["restart", "goaway", "drop", "stall", "cut"])
        self.note(what)
        match what:
            case "restart":
                self.tasks.start_soon(self.server.restart, self.dice.uniform(0.0, 2.0))
            case "goaway":
                self.server.goaway()
            case "drop":
                self.server.drop_connections()
            case "stall":
                self.tasks.start_soon(self._stall, self.dice.uniform(0.1, 2.0))
            case _:
                self.server.cut_streams()

    async def _stall(self, seconds: float) -> None:
        self.server.stall(new=self.dice.random() < 0.5)
        await anyio.sleep(seconds)
        self.server.resume()

    def want(self) -> None:
        """Want another pod, one less, or another version of one."""
        number = self.dice.randint(0, 24)
        pod = new_pod(number, self.dice.randint(1, 2))
        uid = pod.metadata.uid
        if uid in self.wanted and self.dice.random() < 0.5:
            del self.wanted[uid]
            self.note(f"away with {uid}")
        else:
            self.wanted[uid] = pod
            self.note(f"wanted {uid}")
        self.source.set(*self.wanted.values())
