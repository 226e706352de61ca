"""The whole ring while PLEG cannot see well: hung, silent, lying, or far too much to see."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from ring import FaultyRing, agent_on, faulty_ring, phase

from nodeagent.api import Pod
from nodeagent.channels import Channel, SyncChannels, WhenFull
from nodeagent.embedded import SimulatedBackend, populate
from nodeagent.embedded.records import RunState
from nodeagent.model import PodLifecycleEvent
from nodeagent.rpc import Code
from nodeagent.server.health import healthy, render_text
from nodeagent.testing import (
    Drop,
    Fail,
    Fault,
    FaultPlan,
    Hang,
    Hold,
    Late,
    MemorySource,
    Show,
    make_container,
    make_pod,
    serve_faulty,
)
from nodeagent.wiring import ring as wiring

pytestmark = pytest.mark.anyio

MIB = 2**20
STATUS = ("ContainerStatus", "PodSandboxStatus")
RELISTS: dict[str, Any] = {"relist_period": 10.0, "evented_relist_period": 10.0}
TWO_RELISTS = 2 * 10.0 + 2.0
"""Seconds: two periods, and what the relists, looks and calls between them take."""
NEVER: dict[str, Any] = {"relist_period": 600.0, "evented_relist_period": 600.0}
SOON = 60.0
"""Seconds: not before a relist that hardly ever comes."""
NO_EVENTS = Fault("", Drop(), name="no events")
FAILED = "the runtime is not well"


def pods(count: int, name: str = "web") -> list[Pod]:
    return [make_pod(f"{name}-{number}") for number in range(count)]


def names(wanted: Sequence[Pod]) -> list[str]:
    return [pod.metadata.name for pod in wanted]


async def all_running(node: FaultyRing, wanted: Sequence[Pod], seconds: float = 120.0) -> None:
    await node.until(
        lambda: all(phase(node.pod(name)) == "Running" for name in names(wanted)), seconds
    )


def kill(node: FaultyRing, *of: str) -> None:
    """End what runs in each of these pods, all at the same moment."""
    backend = node.server.core.backend
    assert isinstance(backend, SimulatedBackend)
    for pod in of:
        for running in node.containers(pod, running=True):
            backend.end(running, 1)


async def end_sandboxes(node: FaultyRing) -> None:
    """End all sandboxes, with what is in them."""
    core = node.server.core
    for sandbox in tuple(core.state.sandboxes.values()):
        await core.stop_sandbox(sandbox.id)


def restarted(node: FaultyRing, *of: str) -> bool:
    """Whether each of these pods runs the second instance of its containers, and only those."""
    return all(
        len(running := node.containers(pod, running=True))
        == len({record.metadata.name for record in node.containers(pod)})
        and all(record.metadata.attempt == 1 for record in running)
        for pod in of
    )


# -- one that hangs


@pytest.mark.parametrize("method", STATUS)
async def test_nineteen_pods_are_seen_while_the_inspection_of_one_hangs(
    tmp_path: Path, method: str
) -> None:
    wanted = pods(20)
    # Only relists: without an event feed, all twenty deaths are found at the same time.
    async with faulty_ring(tmp_path, *wanted, plan=FaultPlan(NO_EVENTS), **RELISTS) as node:
        await all_running(node, wanted)
        await anyio.sleep(10)
        node.plan.add(Fault(method, Hang(), pod="web-0", name="stuck"))
        began = anyio.current_time()
        if method == "PodSandboxStatus":
            # A ready sandbox is known; what became of one that has ended is asked.
            await end_sandboxes(node)
        else:
            kill(node, *names(wanted))
        await node.until(lambda: restarted(node, *names(wanted)[1:]), TWO_RELISTS)
        assert not restarted(node, "web-0")
        await anyio.sleep(20)
        ((_, health),) = node.agent._running_parts().checks.one("pleg")
        assert health.level.value == "degraded"
        assert health.cause.startswith(
            f"cannot inspect pod default/web-0: {method} has not answered for "
        )
        (culprit,) = health.details
        assert (culprit["pod"], culprit["rpc"]) == ("default/web-0", method)
        assert culprit["since"] == pytest.approx(anyio.current_time() - began, abs=TWO_RELISTS)
        # The whole is well: nobody restarts the agent for the sake of one pod.
        whole = node.agent.parts.checks.of("healthz")
        assert healthy(whole)
        assert f"[+]pleg ok, degraded: {health.cause}" in render_text(
            "healthz", whole, verbose=True
        )
        node.plan.remove("stuck")
        await node.until(lambda: restarted(node, "web-0"), 30)
        assert node.health("pleg") == ""


async def test_forty_hung_inspections_hold_nobody_up(tmp_path: Path) -> None:
    stuck, fine = pods(40, "stuck"), pods(10, "fine")
    async with faulty_ring(tmp_path, *stuck, *fine, **RELISTS) as node:
        await all_running(node, [*stuck, *fine])
        await anyio.sleep(20)
        hang = node.plan.add(Fault(STATUS, Hang(), pod="stuck-*"))
        kill(node, *names(stuck))
        await anyio.sleep(20)  # three batches of sixteen, each for five seconds
        kill(node, *names(fine))
        await node.until(lambda: restarted(node, *names(fine)), TWO_RELISTS)
        node.source.add(make_pod("latecomer"))
        await node.until(lambda: phase(node.pod("latecomer")) == "Running", TWO_RELISTS)
        assert node.health("pleg").endswith("and 39 more")
        assert node.health("syncloop") == ""
        hang.remove()
        await node.until(lambda: restarted(node, *names(stuck)), 60)
        assert node.health("pleg") == ""
        assert len(node.ids()) == 51


# -- a channel that is full


class Narrow(Channel[PodLifecycleEvent]):
    """Room for one event, and a loop that may be busy with something else."""

    def __init__(self) -> None:
        super().__init__("pleg", 1, WhenFull.COALESCE)
        self._busy = False
        self._news = anyio.Event()

    def send_nowait(self, item: PodLifecycleEvent) -> bool:
        put = super().send_nowait(item)
        self._news.set()
        return put

    async def receive(self) -> PodLifecycleEvent:
        # Not at the stream itself: what is sent to somebody who waits there needs no room.
        while True:
            with suppress(anyio.WouldBlock):
                if not self._busy:
                    return self.receive_nowait()
            self._news = anyio.Event()
            await self._news.wait()

    async def busy_until_full(self, node: FaultyRing) -> None:
        self._busy = True
        await node.until(lambda: node.recorded("EventsPutOff"), TWO_RELISTS)
        self._busy = False
        self._news.set()


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents with room for one event."""
    monkeypatch.setattr(wiring, "SyncChannels", lambda: SyncChannels(pleg=Narrow()))


def channel(node: FaultyRing) -> Narrow:
    found = node.agent._running_parts().channels.pleg
    assert isinstance(found, Narrow)
    return found


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("count", [1, 5])
async def test_deaths_that_do_not_fit_into_the_channel_are_told_later(
    tmp_path: Path, count: int
) -> None:
    # The deaths in one pod are told in one breath, whenever the answers about other pods come:
    # one to the loop, which waits, one into the channel, and one does not fit.
    containers = [make_container(name) for name in ("one", "two", "three")]
    wanted = [make_pod(f"web-{number}", *containers) for number in range(count)]
    async with faulty_ring(tmp_path, *wanted, plan=FaultPlan(NO_EVENTS), **RELISTS) as node:
        await all_running(node, wanted)
        await anyio.sleep(10)
        kill(node, *names(wanted))
        with anyio.fail_after(TWO_RELISTS):
            await channel(node).busy_until_full(node)
            await node.until(lambda: restarted(node, *names(wanted)))


@pytest.mark.usefixtures("narrow")
async def test_a_full_channel_and_an_unhealthy_runtime_block_nobody(tmp_path: Path) -> None:
    wanted = pods(10)
    async with faulty_ring(tmp_path, *wanted) as node:
        await all_running(node, wanted)
        unwell = node.plan.add(Fault("Status", Fail(Code.UNKNOWN, FAILED)))
        await node.until(lambda: FAILED in node.health("runtime"), 10)
        kill(node, *names(wanted))
        await channel(node).busy_until_full(node)
        await anyio.sleep(30)
        assert node.ids() == []
        assert channel(node).depth == 0  # the loop drains it
        unwell.remove()
        await node.until(lambda: restarted(node, *names(wanted)), TWO_RELISTS)
        assert node.health("syncloop") == ""


# -- far too much to see


async def test_among_5000_dead_containers_the_running_pods_come_first(tmp_path: Path) -> None:
    wanted, socket = pods(30), tmp_path / "cri.sock"
    source = MemorySource(*wanted)
    async with serve_faulty(socket, SimulatedBackend()) as server:
        async with agent_on(server.embedded, f"unix://{socket}", tmp_path, source) as found:
            first = FaultyRing(found.agent, server, source)
            await all_running(first, wanted)
            before = first.ids()
        populate(server.core, 5000)
        calls = dict(server.core.calls)
        async with agent_on(server.embedded, f"unix://{socket}", tmp_path, source) as found:
            node = FaultyRing(found.agent, server, source)
            with anyio.fail_after(30):
                await node.agent.ready()
                await node.until(lambda: len(node.recorded("SyncPod")) >= 30)
            assert node.health("pleg") == ""
            # Nobody asks for the details of what is dead and not wanted.
            made = {name: count - calls.get(name, 0) for name, count in server.core.calls.items()}
            assert made["ContainerStatus"] <= 2 * 30
            assert made["PodSandboxStatus"] <= 2 * 30
            assert made.get("StartContainer", 0) == made.get("StopContainer", 0) == 0
            assert node.ids() == before
            await anyio.sleep(30)
            assert node.ids() == before
            assert node.health("pleg") == ""


@pytest.mark.timeout(300)
async def test_200_pods_that_come_and_go_within_5_seconds_leave_nothing(tmp_path: Path) -> None:
    backend = SimulatedBackend(latency=dict.fromkeys(STATUS, 0.05))
    wanted = pods(200)
    async with faulty_ring(tmp_path, make_pod("stays"), backend=backend) as node:
        await node.running("stays")
        for count in range(0, 200, 20):
            node.source.set(make_pod("stays"), *wanted[max(0, count - 60) : count + 20])
            await anyio.sleep(0.5)
        node.source.set(make_pod("stays"))
        assert node.calls("StartContainer") > 150  # they have lived, too
        await node.until(lambda: names(node.agent.pods()) == ["stays"], 120)
        await node.until(lambda: len(node.server.core.state.sandboxes) == 1, 180)
        (left,) = node.containers()
        assert left.state is RunState.RUNNING
        assert node.health("pleg") == ""
        pleg = node.agent._running_parts().pleg
        await node.until(lambda: pleg.tracked == 1, 5)
        assert node.status("stays").restart_count == 0


# -- lists of any size


@pytest.mark.parametrize("size", [4, 16, 17])
@pytest.mark.parametrize("limit", [None, 16])
async def test_a_node_is_seen_whatever_the_size_of_its_lists(
    tmp_path: Path, size: int, limit: int | None
) -> None:
    backend, socket = SimulatedBackend(), tmp_path / "cri.sock"
    source = MemorySource(*pods(3))
    max_send = limit and limit * MIB
    async with serve_faulty(socket, backend, max_send=max_send) as server:
        populate(server.core, 500, list_bytes=size * MIB - 2048)
        async with agent_on(server.embedded, f"unix://{socket}", tmp_path, source) as found:
            node = FaultyRing(found.agent, server, source)
            await all_running(node, pods(3))
            kill(node, "web-0")
            await node.until(lambda: restarted(node, "web-0"), TWO_RELISTS)
            assert node.health("pleg") == ""
            streamed = size > 16 and limit is not None
            assert (node.calls("StreamContainers") > 0) is streamed
            before = node.calls("StreamContainers"), node.calls("ListContainers")
            await anyio.sleep(30)
            if streamed:
                assert node.calls("StreamContainers") >= before[0] + 25
                assert node.calls("ListContainers") < before[1] + 10
            pleg = node.agent._running_parts().pleg
            assert len(await pleg.list_pods()) == 103


# -- events


async def test_events_around_a_slow_start_start_one_container(tmp_path: Path) -> None:
    """CREATED comes while StartContainer runs, STARTED long after it has ended."""
    slow = Fault("StartContainer", Late(2.0), name="slow")
    late = Fault("STARTED", Hold(5.0), name="late")
    async with faulty_ring(tmp_path, make_pod("web"), plan=FaultPlan(slow, late)) as node:
        await node.running("web")
        await anyio.sleep(30)
        assert [record.metadata.attempt for record in node.containers("web")] == [0]
        assert node.calls("StartContainer") == node.calls("CreateContainer") == 1
        assert node.status("web").restart_count == 0


async def test_an_end_that_is_announced_too_early_is_seen_all_the_same(tmp_path: Path) -> None:
    async with faulty_ring(tmp_path, make_pod("web"), **NEVER) as node:
        await node.running("web")
        await anyio.sleep(700)
        # For a third of a second after the event the runtime says that it runs.
        node.plan.add(Fault("", Show("RUNNING", only="EXITED"), lasts=0.3))
        kill(node, "web")
        await node.until(lambda: restarted(node, "web"), SOON)


async def test_with_events_a_death_does_not_wait_for_the_relist(tmp_path: Path) -> None:
    wanted = pods(5)
    async with faulty_ring(tmp_path, *wanted, **NEVER) as node:
        await all_running(node, wanted)
        await anyio.sleep(5)
        kill(node, *names(wanted))
        await node.until(lambda: restarted(node, *names(wanted)), SOON)


async def test_own_changes_are_seen_without_event_or_relist(tmp_path: Path) -> None:
    async with faulty_ring(tmp_path, plan=FaultPlan(NO_EVENTS), **NEVER) as node:
        node.source.add(make_pod("web"))
        await node.until(lambda: phase(node.pod("web")) == "Running", SOON)
        node.source.set()
        await node.until(lambda: not node.containers("web", running=True), SOON)
        await node.until(lambda: names(node.agent.pods()) == [], SOON)


async def test_an_event_stream_that_is_open_but_silent_is_noticed(tmp_path: Path) -> None:
    wanted = pods(3)
    async with faulty_ring(tmp_path, *wanted) as node:
        await all_running(node, wanted)
        await anyio.sleep(10)
        pleg = node.agent._running_parts().pleg
        assert pleg.healthy().events == "events from cri"
        silent = node.plan.add(NO_EVENTS)
        kill(node, "web-0")
        await node.until(lambda: restarted(node, "web-0"), TWO_RELISTS)
        await node.until(lambda: node.recorded("FeedDistrusted"), 5)
        assert node.recorded("EventMissed", "web-0")
        assert "have been missing" in pleg.healthy().events
        before = node.calls("ListContainers")
        await anyio.sleep(10)
        assert node.calls("ListContainers") - before >= 35  # quick relists
        kill(node, "web-1")
        await node.until(lambda: restarted(node, "web-1"), TWO_RELISTS)
        silent.remove()
        kill(node, "web-2")
        await node.until(lambda: restarted(node, "web-2"), TWO_RELISTS)
        assert node.recorded("FeedRecovered")
        assert pleg.healthy().events == "events from cri"
        await anyio.sleep(10)
        before = node.calls("ListContainers")
        await anyio.sleep(10)
        assert node.calls("ListContainers") - before <= 12


async def test_a_stream_outlives_goaway(tmp_path: Path) -> None:
    async with faulty_ring(tmp_path, make_pod("web"), **NEVER) as node:
        await node.running("web")
        await anyio.sleep(5)
        node.server.goaway()
        await anyio.sleep(1)
        kill(node, "web")
        await node.until(lambda: restarted(node, "web"), SOON)
        assert node.recorded("FeedInterrupted") == []


@pytest.mark.parametrize("how", ["cut", "drop"])
async def test_what_happens_while_the_stream_is_broken_is_found_when_it_is_back(
    tmp_path: Path, how: str
) -> None:
    async with faulty_ring(tmp_path, make_pod("web"), **NEVER) as node:
        await node.running("web")
        await anyio.sleep(5)
        node.server.cut_streams() if how == "cut" else node.server.drop_connections()
        kill(node, "web")
        await node.until(lambda: restarted(node, "web"), SOON)
        assert node.recorded("FeedInterrupted")
        assert node.recorded("FeedOpened")


async def test_connections_on_which_nothing_moves_are_replaced(tmp_path: Path) -> None:
    wanted = pods(2)
    async with faulty_ring(tmp_path, *wanted, runtime_request_timeout=10.0) as node:
        await all_running(node, wanted)
        await anyio.sleep(5)
        node.server.stall()  # what is connected hears nothing any more, and is not told
        kill(node, "web-0")
        await node.until(lambda: restarted(node, "web-0"), SOON)
        # The event stream too: cut with its connection, or given up because it missed this.
        await node.until(lambda: len(node.recorded("FeedOpened")) == 2, SOON)
        kill(node, "web-1")
        await node.until(lambda: restarted(node, "web-1"), SOON)
        assert node.agent._running_parts().pleg.healthy().events == "events from cri"
        assert node.health("pleg") == ""


async def test_without_an_event_feed_relists_are_quick_while_something_goes_on(
    tmp_path: Path,
) -> None:
    none = Fault("GetContainerEvents", Fail(Code.UNIMPLEMENTED, "unknown method"))
    async with faulty_ring(tmp_path, make_pod("web"), plan=FaultPlan(none)) as node:
        await node.running("web")
        await anyio.sleep(20)
        pleg = node.agent._running_parts().pleg
        assert pleg.healthy().events == "no events, the relist finds every change"
        before = node.calls("ListContainers")
        await anyio.sleep(10)
        assert node.calls("ListContainers") - before <= 12
        kill(node, "web")
        await node.until(lambda: restarted(node, "web"), TWO_RELISTS)
        before = node.calls("ListContainers")
        await anyio.sleep(4)
        assert node.calls("ListContainers") - before >= 15
