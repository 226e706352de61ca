"""Started and ready, from the results of probes (docs/behaviour/probes.md, "Status")."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace
from tests.unit.pods.status_builders import (
    NOW,
    UID,
    Clock,
    condition,
    container_status,
    look,
    make_pod,
    record,
    running,
    sandbox,
    waiting,
)
from tests.unit.pods.test_pod_sync import Neighbours

from nodeagent.api import Container, ContainerStatus, Pod, PodStatus, Probe
from nodeagent.model import ContainerState as Seen
from nodeagent.model import PodUID, ProbeResult
from nodeagent.model.probes import ProbeResults
from nodeagent.pods.container_statuses import StatusContext, with_readiness
from nodeagent.pods.protocols import NoProbes
from nodeagent.pods.status_manager import StatusManager
from nodeagent.pods.sync import PodSync

pytestmark = pytest.mark.anyio

SUCCESS, FAILURE, UNKNOWN = ProbeResult.SUCCESS, ProbeResult.FAILURE, ProbeResult.UNKNOWN
BOTH = Container(name="a", startup_probe=Probe(), readiness_probe=Probe())
STARTUP = Container(name="a", startup_probe=Probe())
READINESS = Container(name="a", readiness_probe=Probe())


def shown(started_at: datetime = NOW, cid: str = "containerd://c1") -> ContainerStatus:
    state = running()
    assert state.running is not None
    state = replace(state, running=replace(state.running, started_at=started_at))
    return replace(container_status("a", state), container_id=cid)


def before(*, ready: bool = False, started: bool = False, cid: str = "c1") -> ContainerStatus:
    old = container_status("a", running(), ready=ready, started=started)
    return replace(old, container_id=f"containerd://{cid}")


def context(
    startup: ProbeResult | None = None,
    readiness: ProbeResult | None = None,
    *,
    agent_started: datetime = NOW,
    was_ready: bool = True,
) -> StatusContext:
    results = ProbeResults(
        startup={} if startup is None else {"c1": startup},
        readiness={} if readiness is None else {"c1": readiness},
    )
    return StatusContext(
        "containerd",
        lambda _name: None,
        probes=results,
        agent_started=agent_started,
        was_ready=was_ready,
    )


def flags(status: ContainerStatus) -> tuple[bool, bool]:
    return bool(status.started), status.ready


@pytest.mark.parametrize(
    ("container", "startup", "readiness", "wanted"),
    [
        (Container(name="a"), None, None, (True, True)),
        (STARTUP, None, None, (False, False)),
        (STARTUP, UNKNOWN, None, (False, False)),
        (STARTUP, FAILURE, None, (False, False)),
        (STARTUP, SUCCESS, None, (True, True)),
        (READINESS, None, None, (True, False)),
        (READINESS, None, FAILURE, (True, False)),
        (READINESS, None, SUCCESS, (True, True)),
        (BOTH, SUCCESS, FAILURE, (True, False)),
        (BOTH, SUCCESS, SUCCESS, (True, True)),
        (BOTH, None, SUCCESS, (False, False)),
    ],
)
def test_bs1_bs2_results_say_whether_it_has_started_and_is_ready(
    container: Container,
    startup: ProbeResult | None,
    readiness: ProbeResult | None,
    wanted: tuple[bool, bool],
) -> None:
    found = with_readiness(shown(), container, None, context(startup, readiness))
    assert flags(found) == wanted


def test_bs1_what_has_started_stays_so_until_it_is_another_container() -> None:
    nothing = context()
    assert flags(with_readiness(shown(), STARTUP, before(started=True), nothing)) == (True, True)
    other = before(started=True, cid="c0")
    assert flags(with_readiness(shown(), STARTUP, other, nothing)) == (False, False)


def test_what_does_not_run_has_not_started_and_is_not_ready() -> None:
    good = context(SUCCESS, SUCCESS)
    for container in (BOTH, Container(name="a")):
        still = replace(shown(), state=waiting())
        old = before(ready=True, started=True)
        assert flags(with_readiness(still, container, old, good)) == (False, False)


@pytest.mark.parametrize(
    ("age", "was_ready", "ready", "wanted"),
    [
        (11, True, True, True),
        (10, True, True, False),
        (11, False, True, False),
        (11, True, False, False),
        (-60, True, True, False),
    ],
)
def test_bs3_a_container_older_than_the_agent_stays_ready(
    age: int, was_ready: bool, ready: bool, wanted: bool
) -> None:
    status = shown(NOW - timedelta(seconds=age))
    old = before(ready=ready, started=True)
    found = with_readiness(status, READINESS, old, context(was_ready=was_ready))
    assert found.ready is wanted
    answered = context(readiness=FAILURE, was_ready=was_ready)
    assert not with_readiness(status, READINESS, old, answered).ready


# -- results that arrive ----------------------------------------------------------------------


def stored(pod: Pod, *statuses: ContainerStatus) -> tuple[StatusManager, list[PodUID], Clock]:
    clock, changed = Clock(), list[PodUID]()
    manager = StatusManager(clock, changed.append)
    kinds = ("Ready", "ContainersReady", "PodScheduled")
    status = PodStatus(
        phase="Running",
        container_statuses=statuses,
        conditions=tuple(condition(kind, "True") for kind in kinds),
    )
    manager.set(pod, status)
    changed.clear()
    return manager, changed, clock


def conditions(manager: StatusManager) -> dict[str, str]:
    status = manager.get(UID)
    assert status is not None
    return {c.type: c.status for c in status.conditions}


def test_bs4_readiness_is_noted_with_its_conditions() -> None:
    pod = make_pod("a", "b")
    good = before(ready=True, started=True)
    other = replace(good, name="b", container_id="containerd://c2")
    manager, changed, clock = stored(pod, good, other)
    clock.move(10)
    manager.set_container_readiness(UID, "c1", ready=False)
    assert conditions(manager) == {
        "Ready": "False",
        "ContainersReady": "False",
        "PodScheduled": "True",
    }
    status = manager.get(UID)
    assert status is not None
    assert [s.ready for s in status.container_statuses] == [False, True]
    ready = next(c for c in status.conditions if c.type == "Ready")
    assert ready.message == "containers with unready status: [a]"
    assert ready.last_transition_time == NOW + timedelta(seconds=10)
    manager.set_container_readiness(UID, "c1", ready=True)
    assert set(conditions(manager).values()) == {"True"}
    assert changed == [UID, UID]


def test_bs4_what_is_not_shown_or_changes_nothing_is_no_change() -> None:
    manager, changed, _ = stored(make_pod("a"), before(ready=True, started=True))
    manager.set_container_readiness(UID, "c9", ready=False)
    manager.set_container_readiness(PodUID("nobody"), "c1", ready=False)
    manager.set_container_readiness(UID, "c1", ready=True)
    manager.set_container_startup(UID, "c1", started=True)
    assert changed == []


def test_bs4_startup_is_noted() -> None:
    manager, changed, _ = stored(make_pod("a"), before())
    manager.set_container_startup(UID, "c1", started=True)
    status = manager.get(UID)
    assert status is not None
    assert status.container_statuses[0].started
    assert changed == [UID]


# -- sync calls ---------------------------------------------------------------------------------


class Probes(NoProbes):
    """Notes what the sync calls ask for."""

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def add_pod(self, pod: Pod) -> None:
        self.calls.append(f"probe {pod.metadata.name}")

    def stop_liveness_and_startup(self, uid: PodUID) -> None:
        self.calls.append("stop liveness and startup")

    def remove_pod(self, uid: PodUID) -> None:
        self.calls.append("stop all probes")

    def trigger_readiness(self, uid: PodUID, containers: Iterable[str]) -> None:
        self.calls.append(f"ask {' '.join(containers)}")


def with_probes() -> tuple[Neighbours, Probes]:
    around = Neighbours()
    probes = Probes(around.calls)
    around.sync = PodSync(
        runtime=around,
        ran_once=lambda _uid: {},
        start_error=lambda _uid, _name: None,
        volumes=around,
        statuses=around.statuses,
        inspect=around.inspect,
        record=around.record,
        unsupported=lambda _pod: (),
        qos_class=lambda _pod: "BestEffort",
        network_error=str,
        runtime_name=lambda: "containerd",
        node=around.sync._node,
        clock=around.clock,
        journal=around.journal,
        probes=probes,
    )
    return around, probes


def readiness_pod() -> Pod:
    pod = make_pod("a", "b")
    a, b = pod.spec.containers
    return replace(pod, spec=replace(pod.spec, containers=(replace(a, readiness_probe=Probe()), b)))


async def test_bw3_bd4_probes_begin_before_the_runtime_is_turned_to() -> None:
    around, probes = with_probes()
    up = look(record("a"), record("b", id_="c2"), sandboxes=(sandbox(),))
    await around.bring_up(readiness_pod(), up)
    assert around.calls == ["ask a", "mount", "probe web", "sync web ['data']"]
    assert around.given is probes.results
    assert [s.ready for s in around.stored().container_statuses] == [False, True]
    probes.results = ProbeResults(readiness={"c1": SUCCESS})
    around.calls.clear()
    await around.bring_up(readiness_pod(), up)
    assert around.calls == ["mount", "probe web", "sync web ['data']"]
    assert all(s.ready for s in around.stored().container_statuses)


async def test_bw4_bw5_probes_end_around_the_kill() -> None:
    around, _ = with_probes()
    up = look(record("a"), sandboxes=(sandbox(),))
    await around.sync.sync_terminating_pod(make_pod("a"), up, 5, None)
    assert around.calls == [
        "stop liveness and startup",
        "kill web 5",
        "stop all probes",
        f"inspect {UID}",
    ]


def test_a_status_without_time_is_no_older_than_the_agent() -> None:
    old = before(ready=True, started=True)
    found = with_readiness(
        replace(shown(), state=running()), READINESS, old, context(agent_started=datetime.now(UTC))
    )
    assert not found.ready


async def test_created_containers_are_not_asked() -> None:
    around, _ = with_probes()
    await around.bring_up(readiness_pod(), look(record("a", Seen.CREATED), sandboxes=(sandbox(),)))
    assert "ask a" not in around.calls
