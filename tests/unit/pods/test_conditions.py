"""docs/behaviour/phase.md, "Conditions"."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.pods.status_builders import (
    NOW,
    condition,
    container_status,
    ended,
    look,
    make_pod,
    record,
    restarting_all,
    running,
    sandbox,
    waiting,
)

from nodeagent.api import ContainerState, ContainerStatus, Pod, PodCondition, PodStatus
from nodeagent.model import ContainerState as Seen
from nodeagent.model import PodRuntimeStatus, SandboxState
from nodeagent.pods.conditions import OWNED, compute_conditions, find, sandbox_usable

UP = container_status("a", running(), ready=True, started=True)
NOT_READY = container_status("a", running(), started=True)


def compute(
    pod: Pod,
    phase: str = "Running",
    statuses: Sequence[ContainerStatus] = (UP,),
    init: Sequence[ContainerStatus] = (),
    runtime: PodRuntimeStatus | None = None,
    old: Sequence[PodCondition] = (),
) -> tuple[PodCondition, ...]:
    return compute_conditions(pod, phase, statuses, init, runtime or look(), old)


def told(conditions: Sequence[PodCondition], kind: str) -> tuple[str, str, str]:
    found = find(conditions, kind)
    assert found is not None
    return found.status, found.reason, found.message


READY, STOPPED = SandboxState.READY, SandboxState.NOT_READY


@pytest.mark.parametrize(
    ("runtime", "usable"),
    [
        (look(), False),
        (look(sandboxes=(sandbox(),)), True),
        (look(sandboxes=(sandbox(STOPPED),)), False),
        (look(sandboxes=(sandbox(), sandbox(STOPPED, id_="old"))), True),
        (look(sandboxes=(sandbox(STOPPED), sandbox(READY, id_="old"))), False),
        (look(sandboxes=(sandbox(), sandbox(READY, id_="old"))), False),
        (look(sandboxes=(sandbox(ips=()),)), False),
        (look(sandboxes=(sandbox(ips=(), network=False),)), True),
        (look(sandboxes=(sandbox(host=True, ips=()),)), False),
    ],
)
def test_containers_may_start_in_a_sandbox_that_is_usable(
    runtime: PodRuntimeStatus, usable: bool
) -> None:
    """phase.md, PC1."""
    assert sandbox_usable(make_pod(), runtime) is usable
    found = told(compute(make_pod(), runtime=runtime), "PodReadyToStartContainers")
    assert found == ("True" if usable else "False", "", "")


def test_on_the_host_network_a_sandbox_needs_no_address() -> None:
    """phase.md, PC1."""
    pod = make_pod(host_network=True)
    assert sandbox_usable(pod, look(sandboxes=(sandbox(host=True, ips=()),)))
    assert not sandbox_usable(pod, look(sandboxes=(sandbox(host=False),)))


@pytest.mark.parametrize(
    ("statuses", "message"),
    [
        ((), "containers with unknown status: [a b]"),
        ((UP,), "containers with unknown status: [b]"),
        ((NOT_READY,), "containers with unknown status: [b], containers with unready status: [a]"),
        (
            (NOT_READY, container_status("b", waiting())),
            "containers with unready status: [a b]",
        ),
    ],
)
def test_containers_that_are_not_ready_are_named(
    statuses: tuple[ContainerStatus, ...], message: str
) -> None:
    """phase.md, PC3, PC4."""
    found = compute(make_pod("a", "b"), statuses=statuses)
    for kind in ("ContainersReady", "Ready"):
        assert told(found, kind) == ("False", "ContainersNotReady", message)


def test_all_ready_is_true_and_says_nothing() -> None:
    """phase.md, PC3, PC4."""
    found = compute(make_pod())
    assert told(found, "ContainersReady") == ("True", "", "")
    assert told(found, "Ready") == ("True", "", "")


def test_sidecars_count_and_plain_init_containers_do_not() -> None:
    """phase.md, PC3."""
    pod = make_pod("a", init=("i",), sidecars=("s",))
    found = compute(pod, init=(container_status("s", running()),))
    assert told(found, "ContainersReady")[2] == "containers with unready status: [s]"
    found = compute(pod, init=(container_status("s", running(), ready=True),))
    assert told(found, "ContainersReady")[0] == "True"


@pytest.mark.parametrize(
    ("phase", "reason"), [("Succeeded", "PodCompleted"), ("Failed", "PodFailed")]
)
def test_a_pod_that_has_ended_is_not_ready(phase: str, reason: str) -> None:
    """phase.md, PC3, PC4."""
    found = compute(make_pod(), phase)
    assert told(found, "ContainersReady") == ("False", reason, "")
    assert told(found, "Ready") == ("False", reason, "")


GATES_TEXT = (
    'corresponding condition of pod readiness gate "x/a" does not exist., '
    'the status of pod readiness gate "x/b" is not "True", but False'
)


def test_readiness_gates_that_are_missing_or_not_true_hold_ready_back() -> None:
    """phase.md, PC4."""
    status = PodStatus(conditions=(condition("x/b", "False"), condition("x/c", "True")))
    pod = make_pod(gates=("x/a", "x/b", "x/c"), status=status)
    found = compute(pod)
    assert told(found, "ContainersReady")[0] == "True"
    assert told(found, "Ready") == (
        "False",
        "ReadinessGatesNotReady",
        GATES_TEXT,
    )


def test_gates_that_are_true_let_ready_be_true() -> None:
    """phase.md, PC4."""
    status = PodStatus(conditions=(condition("x/a", "True"),))
    assert told(compute(make_pod(gates=("x/a",), status=status)), "Ready")[0] == "True"


def test_gates_do_not_hide_why_containers_are_not_ready() -> None:
    """phase.md, PC4: as ContainersReady."""
    found = compute(make_pod(gates=("x/a",)), statuses=(NOT_READY,))
    assert told(found, "Ready")[1] == "ContainersNotReady"


INIT = make_pod("a", init=("i", "j"), sidecars=("s",))
CREATING = (container_status("a", waiting()),)
DONE = container_status("i", ended(0), ready=True)
JOB = container_status("j", ended(0), ready=True)
SIDECAR = container_status("s", running(), started=True)


@pytest.mark.parametrize(
    ("init", "found"),
    [
        ((), ("False", "containers with unknown status: [i j s]")),
        (
            (container_status("i", running()),),
            (
                "False",
                "containers with unknown status: [j s], containers with incomplete status: [i]",
            ),
        ),
        (
            (DONE, JOB, container_status("s", running())),
            ("False", "containers with incomplete status: [s]"),
        ),
        (
            (DONE, container_status("j", ended(1)), SIDECAR),
            ("False", "containers with incomplete status: [j]"),
        ),
        ((DONE, JOB, SIDECAR), ("True", "")),
    ],
)
def test_initialized_waits_for_every_init_container(
    init: tuple[ContainerStatus, ...], found: tuple[str, str]
) -> None:
    """phase.md, PC2."""
    status, reason, message = told(compute(INIT, "Pending", CREATING, init), "Initialized")
    assert (status, message) == found
    assert reason == ("" if status == "True" else "ContainersNotInitialized")


@pytest.mark.parametrize("state", [running(), ended(1)])
def test_a_regular_container_that_has_begun_proves_it(state: ContainerState) -> None:
    """phase.md, PC2."""
    begun = ContainerStatus(name="a", state=state)
    assert told(compute(INIT, "Running", (begun,), ()), "Initialized") == ("True", "", "")


def test_initialized_stays_true() -> None:
    """phase.md, PC2."""
    old = (condition("Initialized", "True"),)
    assert told(compute(INIT, "Pending", CREATING, (), old=old), "Initialized")[0] == "True"
    old = (condition("Initialized", "False"),)
    assert told(compute(INIT, "Pending", CREATING, (), old=old), "Initialized")[0] == "False"


def test_a_pod_that_succeeded_was_initialized() -> None:
    """phase.md, PC2."""
    found = compute(INIT, "Succeeded", CREATING, ())
    assert told(found, "Initialized") == ("True", "PodCompleted", "")
    assert told(compute(INIT, "Failed", CREATING, ()), "Initialized")[0] == "False"


def test_a_pod_without_init_containers_is_initialized() -> None:
    """phase.md, PC2."""
    assert told(compute(make_pod(), "Pending", CREATING), "Initialized") == ("True", "", "")


def test_a_pod_that_is_here_is_scheduled() -> None:
    """phase.md, PC5."""
    for phase in ("Pending", "Running", "Failed"):
        assert told(compute(make_pod(), phase), "PodScheduled") == ("True", "", "")


def test_all_containers_restart_from_the_exit_that_asks_until_all_are_removed() -> None:
    """phase.md, PC8."""
    web = restarting_all(make_pod("a", "b"), "b")
    up = look(record("a"), record("b", id_="c2"))
    asks = look(record("a"), record("b", Seen.EXITED, code=42, id_="c2"))
    other = look(record("a"), record("b", Seen.EXITED, code=1, id_="c2"))
    started = ("True", "RestartAllContainersStarted", "")
    idle = ("False", "", "")
    kind = "AllContainersRestarting"
    assert told(compute(web, runtime=up), kind) == idle
    assert told(compute(web, runtime=other), kind) == idle
    first = compute(web, runtime=asks)
    assert told(first, kind) == started
    assert told(compute(web, runtime=look(record("a")), old=first), kind) == started
    assert told(compute(web, runtime=look(), old=first), kind) == idle
    assert find(compute(make_pod("a", "b"), runtime=asks), kind) is None
    meta = replace(web.metadata, deletion_timestamp=NOW)
    assert told(compute(replace(web, metadata=meta), runtime=asks), kind) == idle


def test_foreign_conditions_are_kept_and_stand_first() -> None:
    """phase.md, PC6."""
    foreign = (
        PodCondition(type="x/b", status="Unknown", reason="R", message="M"),
        condition("Ready", "False"),
        condition("x/a", "True"),
    )
    found = compute(make_pod(status=PodStatus(conditions=foreign)))
    assert [c.type for c in found] == [
        "x/b",
        "x/a",
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ]
    assert found[0] == foreign[0]


def test_our_conditions_carry_the_generation_that_they_speak_of() -> None:
    """phase.md, "Conditions"."""
    foreign = condition("x/a", "True")
    pod = make_pod(generation=7, status=PodStatus(conditions=(foreign,)))
    for phase, statuses in (("Running", (UP,)), ("Pending", (NOT_READY,)), ("Failed", ())):
        for found in compute(pod, phase, statuses):
            assert found.observed_generation == (7 if found.type in OWNED else 0)


states = st.sampled_from([running(), waiting(), ended(0), ended(1)])
container = st.builds(
    container_status,
    st.sampled_from(["a", "b"]),
    states,
    ready=st.booleans(),
    started=st.booleans(),
)


@given(
    st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    st.lists(container, max_size=3, unique_by=lambda s: s.name),
)
def test_ready_is_never_true_without_containers_ready(
    phase: str, statuses: list[ContainerStatus]
) -> None:
    """phase.md, PC4: an independent statement."""
    found = compute(make_pod("a", "b"), phase, statuses)
    all_ready = {s.name for s in statuses if s.ready} == {"a", "b"}
    wanted = all_ready and phase not in ("Succeeded", "Failed")
    assert told(found, "ContainersReady")[0] == ("True" if wanted else "False")
    assert told(found, "Ready") == told(found, "ContainersReady")


def test_av5_why_a_pod_had_to_go_stays_and_counts_before_what_others_say() -> None:
    """admission.md, AV5; phase.md, PC9."""
    ours = PodCondition(type="DisruptionTarget", status="True", reason="TerminationByKubelet")
    theirs = PodCondition(type="DisruptionTarget", status="False", reason="Other")
    gate = PodCondition(type="example.com/gate", status="True")
    pod = replace(make_pod(), status=PodStatus(conditions=(theirs, gate)))
    shown = compute_conditions(pod, "Failed", (), (), look(), (ours,))
    assert shown[:2] == (gate, ours)
    assert [c.type for c in shown].count("DisruptionTarget") == 1
    shown = compute_conditions(pod, "Running", (), (), look(), ())
    assert shown[:2] == (theirs, gate)
