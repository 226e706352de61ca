"""docs/behaviour/phase.md, "Generated status"."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.pods.status_builders import (
    NOW,
    container_status,
    look,
    make_pod,
    record,
    running,
    sandbox,
)

from nodeagent.api import Pod, PodIP, PodStatus
from nodeagent.api.node import NodeAddress
from nodeagent.model import ContainerState as Seen
from nodeagent.model import PodRuntimeStatus
from nodeagent.pods.container_statuses import StatusContext
from nodeagent.pods.status import (
    DEADLINE_MESSAGE,
    NodeFacts,
    generate_pod_status,
    is_static,
    node_facts,
    past_deadline,
)

CONTEXT = StatusContext("containerd", lambda _name: None)
EMPTY = PodStatus()


def generate(
    pod: Pod,
    runtime: PodRuntimeStatus | None = None,
    old: PodStatus = EMPTY,
    *,
    node: tuple[str, ...] = ("192.168.0.5",),
    active_for: float | None = None,
    final: bool = False,
) -> PodStatus:
    return generate_pod_status(
        pod,
        runtime or look(),
        old,
        CONTEXT,
        NodeFacts(node),
        qos_class="Burstable",
        active_for=active_for,
        final=final,
    )


def test_a_running_pod_is_running_and_ready() -> None:
    runtime = look(record(), sandboxes=(sandbox(),), ips=("10.0.0.1",))
    found = generate(make_pod(), runtime)
    assert (found.phase, found.reason, found.message) == ("Running", "", "")
    assert found.container_statuses[0].container_id == "containerd://c1"
    assert {c.type: c.status for c in found.conditions} == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
        "PodScheduled": "True",
    }


def test_container_statuses_and_init_statuses_stand_apart() -> None:
    """phase.md, PS15."""
    pod = make_pod("b", "a", init=("i2", "i1"))
    found = generate(pod)
    assert [s.name for s in found.container_statuses] == ["a", "b"]
    assert [s.name for s in found.init_container_statuses] == ["i2", "i1"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("by", ["us", "the API"])
def test_a_pod_that_has_ended_never_comes_back(phase: str, by: str) -> None:
    """phase.md, PG1: phase, reason and message stay."""
    over = PodStatus(phase=phase, reason="Evicted", message="no memory")
    runtime = look(record(), sandboxes=(sandbox(),))
    pod = make_pod(status=over) if by == "the API" else make_pod()
    found = generate(pod, runtime, over if by == "us" else PodStatus(phase="Running"))
    assert (found.phase, found.reason, found.message) == (phase, "Evicted", "no memory")
    ready = next(c for c in found.conditions if c.type == "Ready")
    assert ready.reason == ("PodCompleted" if phase == "Succeeded" else "PodFailed")


def test_what_the_api_says_of_the_end_counts_most() -> None:
    """phase.md, PG1."""
    pod = make_pod(status=PodStatus(phase="Succeeded", reason="Theirs"))
    found = generate(pod, look(), PodStatus(phase="Failed", reason="Ours"))
    assert (found.phase, found.reason) == ("Succeeded", "Theirs")


@given(
    st.sampled_from(["Succeeded", "Failed"]),
    st.lists(st.sampled_from([Seen.CREATED, Seen.RUNNING, Seen.EXITED, Seen.UNKNOWN]), max_size=4),
    st.sampled_from(["Always", "OnFailure", "Never"]),
    st.booleans(),
)
def test_no_look_brings_a_pod_back(phase: str, seen: list[Seen], policy: str, final: bool) -> None:
    """phase.md, PG1."""
    runtime = look(*(record("a", state, code=i, id_=f"c{i}") for i, state in enumerate(seen)))
    status = PodStatus(phase=phase)
    for _ in range(2):
        status = generate(make_pod(policy=policy), runtime, status, final=final)
        assert status.phase == phase


def test_reason_and_message_stay_with_their_phase() -> None:
    """phase.md, "Generated status"."""
    old = PodStatus(phase="Pending", reason="Mine", message="text")
    found = generate(make_pod(), look(), old)
    assert (found.phase, found.reason, found.message) == ("Pending", "Mine", "text")
    found = generate(make_pod(), look(record()), old)
    assert (found.phase, found.reason, found.message) == ("Running", "", "")


def started(seconds_ago: float, phase: str = "Running") -> PodStatus:
    return PodStatus(phase=phase, start_time=NOW - timedelta(seconds=seconds_ago))


def test_a_pod_that_was_active_too_long_has_failed() -> None:
    """phase.md, PG2."""
    pod, runtime = make_pod(deadline=60), look(record())
    assert generate(pod, runtime, active_for=59.9).phase == "Running"
    found = generate(pod, runtime, active_for=60)
    assert (found.phase, found.reason) == ("Failed", "DeadlineExceeded")
    assert found.message == DEADLINE_MESSAGE
    assert DEADLINE_MESSAGE == ("Pod was active on the node longer than the specified deadline")
    again = generate(pod, runtime, found, active_for=70)
    assert (again.phase, again.reason) == ("Failed", "DeadlineExceeded")


def test_a_deadline_counts_from_the_first_status_and_not_after_the_end() -> None:
    """phase.md, PG2."""
    pod = make_pod(deadline=60)
    assert not past_deadline(pod, None)
    assert not past_deadline(make_pod(), 1e6)
    assert past_deadline(pod, 61)
    found = generate(pod, look(), PodStatus(phase="Succeeded"), active_for=1000)
    assert (found.phase, found.reason) == ("Succeeded", "")


@pytest.mark.parametrize(
    ("ips", "node", "shown"),
    [
        (("10.0.0.1",), ("192.168.0.5",), ("10.0.0.1",)),
        (("10.0.0.1", "10.0.0.2"), ("192.168.0.5",), ("10.0.0.1",)),
        (("fd00::1", "10.0.0.1"), ("192.168.0.5",), ("10.0.0.1", "fd00::1")),
        (("10.0.0.1", "fd00::1", "fd00::2"), ("fd00::5",), ("fd00::1", "10.0.0.1")),
        (("fd00::1", "10.0.0.1"), (), ("fd00::1", "10.0.0.1")),
        (("fd00::1",), ("192.168.0.5",), ("fd00::1",)),
        (("", "garbage", "10.0.0.1/24", "10.0.0.1"), ("192.168.0.5",), ("10.0.0.1",)),
        (("garbage",), ("192.168.0.5",), ()),
        ((), ("192.168.0.5",), ()),
    ],
)
def test_the_nodes_primary_family_stands_first(
    ips: tuple[str, ...], node: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    """phase.md, PG3."""
    found = generate(make_pod(), look(ips=ips), node=node)
    assert tuple(p.ip for p in found.pod_ips) == shown
    assert found.pod_ip == (shown[0] if shown else "")


def test_addresses_stay_when_the_sandbox_is_gone() -> None:
    """phase.md, PG3."""
    old = PodStatus(pod_ip="10.0.0.1", pod_ips=(PodIP(ip="10.0.0.1"), PodIP(ip="fd00::1")))
    found = generate(make_pod(), look(), old)
    assert [p.ip for p in found.pod_ips] == ["10.0.0.1", "fd00::1"]
    assert generate(make_pod(), look(ips=("10.0.0.9",)), old).pod_ip == "10.0.0.9"


def test_on_the_host_network_the_addresses_are_the_nodes() -> None:
    """phase.md, PG3."""
    node = ("192.168.0.5", "fd00::5")
    found = generate(make_pod(host_network=True), look(ips=("10.0.0.1",)), node=node)
    assert tuple(p.ip for p in found.pod_ips) == node
    assert (found.pod_ip, found.host_ip) == node[:1] * 2
    assert tuple(h.ip for h in found.host_ips) == node
    assert generate(make_pod(host_network=True), node=()).pod_ip == ""


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        ([], ("10.0.0.9",)),
        ([("Hostname", "n1")], ("10.0.0.9",)),
        ([("InternalIP", "10.0.0.1"), ("ExternalIP", "8.8.8.8")], ("10.0.0.1",)),
        ([("ExternalIP", "8.8.8.8"), ("InternalIP", "fd00::1")], ("fd00::1",)),
        ([("InternalIP", "fd00::1"), ("InternalIP", "10.0.0.1")], ("fd00::1", "10.0.0.1")),
        ([("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.0.2")], ("10.0.0.1",)),
        ([("InternalIP", "nonsense"), ("ExternalIP", "8.8.8.8")], ("8.8.8.8",)),
    ],
)
def test_pg8_the_hosts_addresses_are_the_nodes(
    node: list[tuple[str, str]], shown: tuple[str, ...]
) -> None:
    addresses = [NodeAddress(type=kind, address=address) for kind, address in node]
    assert node_facts(addresses, ("10.0.0.9",)).host_ips == shown


def test_the_start_time_is_kept() -> None:
    """phase.md, PG4."""
    assert generate(make_pod(), look(), started(10)).start_time == started(10).start_time
    assert generate(make_pod()).start_time is None


def test_the_class_of_service_is_the_given_one_else_the_computed_one() -> None:
    """phase.md, PG5."""
    assert generate(make_pod()).qos_class == "Burstable"
    given = PodStatus(phase="Pending", qos_class="Guaranteed")
    assert generate(make_pod(status=given)).qos_class == "Guaranteed"


def test_the_observed_generation_never_drops() -> None:
    assert generate(make_pod(generation=3)).observed_generation == 3
    old = PodStatus(observed_generation=5)
    assert generate(make_pod(generation=3), look(), old).observed_generation == 5


def test_a_pod_stopped_for_good_has_ended_unless_it_is_static() -> None:
    """phase.md, PH4, PH5."""
    gone = look(record("a", Seen.EXITED, code=143))
    assert generate(make_pod(source="api"), gone, final=True).phase == "Failed"
    assert generate(make_pod(source="file"), gone, final=True).phase == "Running"
    done = look(record("a", Seen.EXITED, code=0))
    assert generate(make_pod(source="api"), done, final=True).phase == "Succeeded"


def test_a_sidecar_holds_the_pod_until_a_regular_container_is_in_its_sandbox() -> None:
    """phase.md, PH2, PH3."""
    pod = make_pod("a", sidecars=("s",))
    old = PodStatus(
        init_container_statuses=(container_status("s", running()),),
    )
    up = look(record("s", id_="c0"), record("a"), sandboxes=(sandbox(),))
    assert generate(pod, up, old).phase == "Running"


@pytest.mark.parametrize(
    ("source", "static"), [("file", True), ("http", True), ("mine", True), ("api", False)]
)
def test_every_source_but_the_api_gives_static_pods(source: str, static: bool) -> None:
    assert is_static(make_pod(source=source)) is static
    assert not is_static(Pod())


def test_generating_twice_is_the_same() -> None:
    runtime = look(record(), record("a", Seen.EXITED, code=1, id_="c0"), sandboxes=(sandbox(),))
    once = generate(make_pod(), runtime)
    assert generate(make_pod(), runtime, once) == once
