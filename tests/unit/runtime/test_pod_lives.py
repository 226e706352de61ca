"""Whole lives of random pods: decisions, performed on a model of a runtime, keep their promises.

docs/behaviour/runtime.md, "Actions", "Init containers".
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runtime.fakes import UID, make_container, make_pod

from nodeagent.api import Container, Pod, Probe
from nodeagent.model import (
    ContainerID,
    ContainerRuntimeStatus,
    ContainerState,
    PodRuntimeStatus,
    ProbeResult,
    SandboxID,
    SandboxRuntimeStatus,
    SandboxState,
)
from nodeagent.model.actions import PodActions
from nodeagent.model.probes import ProbeResults
from nodeagent.runtime.actions import compute_pod_actions
from nodeagent.runtime.hash import container_hash

RUNNING, EXITED = ContainerState.RUNNING, ContainerState.EXITED
READY, NOT_READY = SandboxState.READY, SandboxState.NOT_READY


@dataclass
class Model:
    """A pod in a runtime that does at once what it is told."""

    pod: Pod
    sandboxes: list[SandboxRuntimeStatus] = field(default_factory=list)
    records: list[ContainerRuntimeStatus] = field(default_factory=list)
    startup: dict[str, ProbeResult] = field(default_factory=dict)
    came_up: set[str] = field(default_factory=set)
    """Ids of sidecars that have started, whatever became of them."""

    @property
    def status(self) -> PodRuntimeStatus:
        newest_first = sorted(self.records, key=lambda c: c.attempt, reverse=True)
        return PodRuntimeStatus(
            UID, sandboxes=tuple(reversed(self.sandboxes)), containers=tuple(newest_first)
        )

    def decide(self) -> PodActions:
        return compute_pod_actions(
            self.pod, self.status, probes=ProbeResults(startup=dict(self.startup))
        )

    def perform(self, actions: PodActions) -> None:
        if actions.kill_pod:
            self.lose_sandbox()
            if not actions.create_sandbox:
                return
            inits = {c.name for c in self.pod.spec.init_containers}
            self.records = [r for r in self.records if r.name not in inits]
            sandbox = SandboxID(f"s{actions.attempt}")
            self.sandboxes.append(
                SandboxRuntimeStatus(sandbox, actions.attempt, READY, ips=("10.0.0.1",))
            )
        for kill in actions.containers_to_kill:
            self.end(kill.id, 137)
        for name in (*actions.init_containers_to_start, *actions.containers_to_start):
            self.start(name)

    def start(self, name: str) -> None:
        latest = self.status.latest(name)
        assert latest is None or latest.state is not RUNNING, f"{name} runs already"
        attempt = latest.attempt + 1 if latest is not None else 0
        self.records.append(
            ContainerRuntimeStatus(
                ContainerID(f"{name}-{attempt}-{len(self.sandboxes)}"),
                name,
                RUNNING,
                sandbox_id=self.sandboxes[-1].id,
                attempt=attempt,
                hash=container_hash(name, make_container().image),
            )
        )

    def end(self, cid: str, code: int) -> None:
        self.records = [
            replace(r, state=EXITED, exit_code=code) if r.id == cid and r.state is RUNNING else r
            for r in self.records
        ]

    def lose_sandbox(self) -> None:
        for record in self.status.running:
            self.end(record.id, 137)
        self.sandboxes = [replace(s, state=NOT_READY) for s in self.sandboxes]

    def here(self, name: str) -> ContainerRuntimeStatus | None:
        """The newest record of the container in the newest sandbox."""
        latest = self.status.latest(name)
        if latest is None or not self.sandboxes or latest.sandbox_id != self.sandboxes[-1].id:
            return None
        return latest


def done(model: Model, container: Container) -> bool:
    """Whether an init container lets the next one start: a sidecar that once came up does."""
    latest = model.here(container.name)
    if latest is None:
        return False
    if container.restart_policy != "Always":
        return latest.state is EXITED and latest.exit_code == 0
    return any(
        r.id in model.came_up or container.startup_probe is None
        for r in model.records
        if r.name == container.name and r.sandbox_id == latest.sandbox_id
    )


def check_starts(model: Model, actions: PodActions) -> None:
    """Nothing starts before its turn; ``model`` is as it was before."""
    if actions.create_sandbox:
        inits = model.pod.spec.init_containers
        assert actions.init_containers_to_start == tuple(c.name for c in inits[:1])
        assert not (inits and actions.containers_to_start)
        return
    regular = [c.name for c in model.pod.spec.containers]
    begun = any(model.here(name) for name in regular)
    before: list[Container] = []
    for container in model.pod.spec.init_containers:
        plain = container.restart_policy != "Always"
        if container.name in actions.init_containers_to_start:
            again = model.here(container.name) is not None
            assert again or begun or all(done(model, c) for c in before)
            alive = any((r := model.here(n)) and r.state is RUNNING for n in regular)
            assert not (plain and alive), "a plain init container beside a regular one"
        before.append(container)
    if actions.containers_to_start and not begun:
        assert all(done(model, c) for c in before)


def check_rest(model: Model) -> None:
    """A pod for which nothing is to be done has ended, or something of it still runs."""
    actions = model.decide()
    assert actions.nothing_to_do or (actions.kill_pod and not actions.create_sandbox)
    names = [r.name for r in model.status.running]
    assert len(names) == len(set(names)), "two instances of one container"


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    kinds = draw(st.lists(st.sampled_from(["plain", "sidecar", "probed"]), max_size=3))
    inits = tuple(
        make_container(
            f"i{n}",
            restart_policy=None if kind == "plain" else "Always",
            startup_probe=Probe() if kind == "probed" else None,
        )
        for n, kind in enumerate(kinds)
    )
    regular = tuple(make_container(f"c{n}") for n in range(draw(st.integers(1, 2))))
    policy = draw(st.sampled_from(["Always", "OnFailure", "Never"]))
    return make_pod(*regular, init_containers=inits, restart_policy=policy)


happenings = st.tuples(
    st.sampled_from(["exit 0", "exit 1", "started", "lost", "nothing"]), st.integers(0, 5)
)


def settle(model: Model) -> None:
    for _ in range(20):
        actions = model.decide()
        check_starts(model, actions)
        if actions.nothing_to_do or (actions.kill_pod and not actions.create_sandbox):
            model.perform(actions)
            check_rest(model)
            return
        model.perform(actions)
    raise AssertionError("the pod does not come to rest")


@settings(max_examples=300)
@given(pods(), st.lists(happenings, max_size=25))
def test_every_life_keeps_the_order_and_comes_to_rest(
    pod: Pod, life: list[tuple[str, int]]
) -> None:
    model = Model(pod)
    settle(model)
    for what, whom in life:
        running = sorted(model.status.running, key=lambda r: r.name)
        if what == "lost":
            model.lose_sandbox()
        elif running and what != "nothing":
            record = running[whom % len(running)]
            if what == "started":
                model.startup[record.id] = ProbeResult.SUCCESS
                model.came_up.add(record.id)
            else:
                model.end(record.id, int(what.split()[1]))
        settle(model)
