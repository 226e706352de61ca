"""docs/behaviour/pleg.md, "Inspection": few calls, side by side, and none that is not needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest

from nodeagent.api import ContainerUser, LinuxContainerUser
from nodeagent.cri.inspection import Inspector, container_status
from nodeagent.model import (
    ContainerID,
    ContainerState,
    PodRuntimeStatus,
    PodUID,
    RuntimeContainer,
    RuntimePod,
    RuntimeSandbox,
    SandboxID,
    SandboxState,
)
from nodeagent.proto.runtime import v1
from nodeagent.rpc import NotFound, Unavailable

pytestmark = pytest.mark.anyio

RUNNING, EXITED, UNKNOWN = ContainerState.RUNNING, ContainerState.EXITED, ContainerState.UNKNOWN
WIRE = {RUNNING: 1, EXITED: 2, UNKNOWN: 3}


def box(id_: str, state: SandboxState = SandboxState.READY, attempt: int = 0) -> RuntimeSandbox:
    return RuntimeSandbox(SandboxID(id_), attempt, state)


def one(id_: str, state: ContainerState = RUNNING, name: str = "web", n: int = 0) -> Any:
    return RuntimeContainer(ContainerID(id_), name, n, state, SandboxID("s"), hash="listed")


def pod(*parts: RuntimeSandbox | RuntimeContainer) -> RuntimePod:
    boxes = tuple(part for part in parts if isinstance(part, RuntimeSandbox))
    containers = tuple(part for part in parts if isinstance(part, RuntimeContainer))
    return RuntimePod(PodUID("u"), "web", "default", boxes, containers)


def details(id_: str, state: ContainerState = RUNNING, **changes: Any) -> v1.ContainerStatus:
    values: dict[str, Any] = {
        "id": id_,
        "metadata": v1.ContainerMetadata(name="web"),
        "state": v1.ContainerState(WIRE[state]),
        "created_at": 1,
        "finished_at": 9 if state is EXITED else 0,
        "exit_code": 3 if state is EXITED else 0,
        "image": v1.ImageSpec(image="nginx"),
        "image_ref": "sha256:1",
    }
    return v1.ContainerStatus(**{**values, **changes})


class Runtime:
    """Answers after 10 ms; ``states`` of containers, RUNNING when not told."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.states: dict[str, ContainerState] = {}
        self.boxes: dict[str, int] = {}
        self.ip = ""
        self.gone: set[str] = set()
        self.supplied: list[v1.ContainerStatus] = []
        self.hanging: set[str] = set()
        self.failing: set[str] = set()
        self.at_once = self.most_at_once = 0

    async def _answer(self, id_: str) -> None:
        self.calls[id_] += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if id_ in self.hanging:
                await anyio.sleep_forever()
            await anyio.sleep(0.01)
        finally:
            self.at_once -= 1
        if id_ in self.gone:
            raise NotFound("gone")
        if id_ in self.failing:
            raise Unavailable("away")

    async def pod_sandbox_status(self, pod_sandbox_id: str) -> v1.PodSandboxStatusResponse:
        await self._answer(pod_sandbox_id)
        state = v1.PodSandboxState(self.boxes.get(pod_sandbox_id, 0))
        network = v1.PodSandboxNetworkStatus(ip=self.ip)
        status = v1.PodSandboxStatus(id=pod_sandbox_id, state=state, network=network)
        return v1.PodSandboxStatusResponse(status=status, containers_statuses=self.supplied)

    async def container_status(self, container_id: str) -> v1.ContainerStatusResponse:
        await self._answer(container_id)
        state = self.states.get(container_id, RUNNING)
        return v1.ContainerStatusResponse(status=details(container_id, state))


async def test_calls_are_made_side_by_side_four_at_a_time() -> None:
    """docs/behaviour/pleg.md, "Inspection", side by side."""
    runtime = Runtime()
    began = anyio.current_time()
    status = await Inspector(runtime).inspect(pod(box("s"), *(one(f"c{n}") for n in range(7))))
    assert runtime.most_at_once == 4
    assert anyio.current_time() - began == pytest.approx(0.02)
    assert [c.id for c in status.containers] == [f"c{n}" for n in range(7)]


async def test_the_failure_of_one_call_ends_the_others() -> None:
    """docs/behaviour/pleg.md, "Inspection", side by side: the error comes out as it is."""
    runtime = Runtime()
    runtime.hanging, runtime.failing = {"c0"}, {"c1"}
    with pytest.raises(Unavailable, match="away"):
        await Inspector(runtime).inspect(pod(box("s"), one("c0"), one("c1")))
    assert runtime.at_once == 0


async def test_what_has_ended_is_not_asked_about_again() -> None:
    """docs/behaviour/pleg.md, "Inspection", ended."""
    runtime = Runtime()
    inspector = Inspector(runtime)
    runtime.states = {"c0": EXITED}
    runtime.boxes = {"s0": 1}
    seen = pod(box("s1", attempt=1), box("s0", SandboxState.NOT_READY), one("c0", EXITED))
    first = await inspector.inspect(seen)
    again = await inspector.inspect(seen, known=first)
    assert again == first
    assert again.containers[0].exit_code == 3
    assert runtime.calls == {"s0": 1, "c0": 1, "s1": 2}


async def test_a_ready_sandbox_whose_address_is_known_is_not_asked_about_again() -> None:
    """docs/behaviour/pleg.md, "Inspection", ready."""
    runtime = Runtime()
    runtime.ip = "10.0.0.7"
    inspector = Inspector(runtime)
    first = await inspector.inspect(pod(box("s"), one("c")))
    assert first.ips == ("10.0.0.7",)
    assert await inspector.inspect(pod(box("s"), one("c")), known=first) == first
    assert runtime.calls == {"s": 1, "c": 2}


@pytest.mark.parametrize("change", [{"ips": ()}, {"attempt": 1}, {"state": SandboxState.NOT_READY}])
async def test_a_ready_sandbox_is_asked_about_until_all_is_known(change: dict[str, Any]) -> None:
    """docs/behaviour/pleg.md, "Inspection", ready."""
    runtime = Runtime()
    runtime.ip = "10.0.0.7"
    inspector = Inspector(runtime)
    first = await inspector.inspect(pod(box("s")))
    known = replace(first, sandboxes=(replace(first.sandboxes[0], **change),))
    assert await inspector.inspect(pod(box("s")), known=known) == first
    assert runtime.calls == {"s": 2}


async def test_what_was_running_when_it_was_known_is_asked_about() -> None:
    """docs/behaviour/pleg.md, "Inspection", ended: not before its end was seen."""
    runtime = Runtime()
    inspector = Inspector(runtime)
    first = await inspector.inspect(pod(box("s"), one("c")))
    runtime.states = {"c": EXITED}
    runtime.boxes = {"s": 1}
    ended = pod(box("s", SandboxState.NOT_READY), one("c", EXITED))
    second = await inspector.inspect(ended, known=first)
    assert second.containers[0].exit_code == 3
    assert second.sandboxes[0].state is SandboxState.NOT_READY


async def test_an_end_without_a_time_is_asked_about_again() -> None:
    """docs/behaviour/pleg.md, "Inspection", ended: the runtime may not have known it yet."""
    runtime = Runtime()
    known = await Inspector(runtime).inspect(pod(one("c")))
    listed = pod(one("c", EXITED))
    early = await Inspector(runtime).inspect(listed, known=known)
    runtime.states = {"c": EXITED}
    assert (await Inspector(runtime).inspect(listed, known=early)).containers[0].exit_code == 3


@pytest.mark.parametrize(
    "odd",
    [
        {"metadata": v1.ContainerMetadata(name="web", attempt=7)},
        {"state": v1.ContainerState.CONTAINER_CREATED},
    ],
    ids=["attempt", "state"],
)
async def test_an_answer_that_does_not_go_with_the_list_is_not_kept(odd: dict[str, Any]) -> None:
    """docs/behaviour/pleg.md, "Inspection", ended: a runtime that answered oddly once."""
    runtime = Runtime()
    runtime.states, runtime.boxes = {"c": EXITED}, {"s": 1}
    listed = pod(box("s", SandboxState.NOT_READY), one("c", EXITED))
    good = await Inspector(runtime).inspect(listed)
    answer = details("c", EXITED)
    for field, value in odd.items():
        setattr(answer, field, value)
    container = container_status(answer, one("c", EXITED))
    sandbox = replace(good.sandboxes[0], attempt=9)
    known = replace(good, containers=(container,), sandboxes=(sandbox,))
    assert await Inspector(runtime).inspect(listed, known=known) == good
    assert runtime.calls == {"s": 2, "c": 2}


def test_who_a_container_runs_as_is_known_where_the_runtime_tells() -> None:
    """docs/behaviour/phase.md, PS21."""
    answer = details("c", EXITED)
    assert container_status(answer, one("c", EXITED)).user is None
    answer.user = v1.ContainerUser()
    assert container_status(answer, one("c", EXITED)).user is None
    answer.user = v1.ContainerUser(
        linux=v1.LinuxContainerUser(uid=5, gid=6, supplemental_groups=[6, 7])
    )
    known = container_status(answer, one("c", EXITED)).user
    assert known == ContainerUser(
        linux=LinuxContainerUser(uid=5, gid=6, supplemental_groups=(6, 7))
    )


def test_what_is_read_only_all_the_way_down_is_known() -> None:
    """docs/behaviour/phase.md, PS21."""
    answer = details("c", EXITED)
    assert container_status(answer, one("c", EXITED)).recursive_read_only == ()
    answer.mounts = [
        v1.Mount(container_path="/a", readonly=True),
        v1.Mount(container_path="/b", readonly=True, recursive_read_only=True),
    ]
    assert container_status(answer, one("c", EXITED)).recursive_read_only == ("/b",)


async def test_of_many_dead_containers_the_newest_are_asked_about() -> None:
    """docs/behaviour/pleg.md, "Inspection", many dead."""
    runtime = Runtime()
    names = ("web", "db")
    dead = [one(f"{name}{n}", EXITED, name, n) for name in names for n in reversed(range(100))]
    runtime.states = {c.id: EXITED for c in dead}
    status = await Inspector(runtime).inspect(pod(one("live", n=100), *dead))
    assert sorted(runtime.calls) == ["db98", "db99", "live", "web98", "web99"]
    assert [c.id for c in status.containers] == ["live", *(c.id for c in dead)]
    oldest = status.by_id("web0")
    assert oldest is not None
    assert (oldest.state, oldest.hash, oldest.restart_count) == (EXITED, "listed", 0)


async def test_what_comes_along_with_the_sandbox_saves_calls() -> None:
    """docs/behaviour/pleg.md, "Inspection", supplied."""
    runtime = Runtime()
    runtime.ip = "10.0.0.7"
    inspector = Inspector(runtime)
    runtime.supplied = [details("c0", EXITED), details("c1")]
    seen = pod(box("s"), one("c0"), one("c1"))
    await inspector.inspect(seen)
    runtime.calls.clear()
    status = await inspector.inspect(seen, known=await inspector.inspect(seen))
    assert runtime.calls == {"s": 2}
    assert [c.state for c in status.containers] == [EXITED, RUNNING]


@pytest.mark.parametrize(
    "supplied",
    [
        details("c", RUNNING),
        details("c", UNKNOWN),
        details("c", EXITED, image_ref=""),
        details("other", EXITED),
    ],
    ids=["behind the list", "unknown", "not whole", "another"],
)
async def test_what_comes_along_and_is_not_fresh_is_asked_for(
    supplied: v1.ContainerStatus,
) -> None:
    """docs/behaviour/pleg.md, "Inspection", supplied: only if it is not older than the list."""
    runtime = Runtime()
    inspector = Inspector(runtime)
    runtime.supplied = [supplied]
    runtime.states = {"c": EXITED}
    for _ in range(2):
        status = await inspector.inspect(pod(box("s"), one("c", EXITED)))
        assert status.containers[0].exit_code == 3
    assert runtime.calls["c"] == 2


@pytest.mark.parametrize(
    ("id_", "ended"),
    [("live", False), ("dead", True), ("gone", True), ("box", False), ("dead-box", True)],
)
async def test_one_call_tells_whether_something_has_ended(id_: str, ended: bool) -> None:
    runtime = Runtime()
    runtime.states = {"dead": EXITED}
    runtime.boxes = {"dead-box": 1}
    runtime.gone = {"gone"}
    seen = pod(box("box"), box("dead-box"), one("live"), one("dead"), one("gone"))
    watched = []

    @contextmanager
    def watch(rpc: str) -> Iterator[None]:
        watched.append(rpc)
        yield

    end = await Inspector(runtime).end_of(seen, id_, watch)
    assert (end is not None) is ended
    assert (end is not None and end.details is not None) is (id_ == "dead")
    assert watched == ["PodSandboxStatus" if "box" in id_ else "ContainerStatus"]


async def test_nothing_known_is_nothing_spared() -> None:
    runtime = Runtime()
    empty = PodRuntimeStatus(PodUID("u"))
    status = await Inspector(runtime).inspect(pod(box("s"), one("c")), known=empty)
    assert runtime.calls == {"s": 1, "c": 1}
    assert status.uid == "u"
