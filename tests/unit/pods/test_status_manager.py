"""The store of statuses: what a change is, when it was, and what is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace
from tests.unit.pods.status_builders import (
    NOW,
    UID,
    Clock,
    condition,
    container_status,
    ended,
    make_pod,
    running,
    waiting,
)

from nodeagent.api import (
    ContainerRestartRule,
    ContainerRestartRuleOnExitCodes,
    ContainerState,
    ContainerStatus,
    Pod,
    PodStatus,
)
from nodeagent.model import PodUID
from nodeagent.pods.status_manager import StatusManager


class Store:
    """A status manager with its clock and its announcements."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.changed: list[PodUID] = []
        self.manager = StatusManager(self.clock, self.changed.append)

    def stored(self) -> PodStatus:
        found = self.manager.get(UID)
        assert found is not None
        return found

    def state_of(self, name: str) -> ContainerState:
        status = self.stored()
        every = (*status.container_statuses, *status.init_container_statuses)
        return next(s.state for s in every if s.name == name)


def status(*containers: ContainerStatus, phase: str = "Running", **fields: object) -> PodStatus:
    return replace(PodStatus(phase=phase, container_statuses=containers), **fields)


def test_every_change_is_stored_with_a_higher_version_and_announced() -> None:
    store = Store()
    assert store.manager.get(UID) is None
    assert store.manager.versioned(UID) is None
    assert store.manager.set(make_pod(), status(phase="Pending"))
    assert store.manager.set(make_pod(), status(phase="Running"))
    found = store.manager.versioned(UID)
    assert found is not None
    assert (found.version, found.status.phase) == (2, "Running")
    assert store.changed == [UID, UID]
    assert list(store.manager) == [UID]


def test_the_same_status_again_is_no_change() -> None:
    store = Store()
    for _ in range(3):
        store.manager.set(make_pod(), status(conditions=(condition("Ready", "True"),)))
        store.clock.move(10)
    found = store.manager.versioned(UID)
    assert found is not None
    assert found.version == 1
    assert store.changed == [UID]
    assert not store.manager.set(make_pod(), found.status)


def test_statuses_of_pods_that_are_gone_are_forgotten() -> None:
    store = Store()
    other = make_pod()
    other = replace(other, metadata=replace(other.metadata, uid="other"))
    store.manager.set(make_pod(), status())
    store.manager.set(other, status())
    for uid in store.manager:
        store.manager.remove_orphans([PodUID("other"), PodUID("unknown")])
        assert uid in (UID, "other")
    assert list(store.manager) == ["other"]


def test_a_pod_starts_when_its_first_status_is_stored() -> None:
    """phase.md, PG4."""
    store = Store()
    store.clock.moment = NOW + timedelta(microseconds=999_999)
    store.manager.set(make_pod(), status(phase="Pending"))
    assert store.stored().start_time == NOW
    store.clock.move(100)
    store.manager.set(make_pod(), status(phase="Running"))
    assert store.stored().start_time == NOW


def test_the_apis_start_time_counts_after_an_agent_restart() -> None:
    """phase.md, PG4."""
    store, before = Store(), NOW - timedelta(hours=1)
    pod = make_pod(status=PodStatus(phase="Running", start_time=before))
    store.manager.set(pod, status())
    assert store.stored().start_time == before


def test_transition_times_move_only_with_the_status() -> None:
    """phase.md, PC7."""
    store = Store()

    def since(value: str, reason: str = "") -> float:
        found = condition("Ready", value, reason=reason)
        store.manager.set(make_pod(), status(conditions=(found,)))
        at = store.stored().conditions[0].last_transition_time
        assert at is not None
        return (at - NOW).total_seconds()

    assert since("False", "ContainersNotReady") == 0
    store.clock.move(10)
    assert since("False", "ReadinessGatesNotReady") == 0
    assert since("True") == 10
    store.clock.move(10)
    assert since("True") == 10
    assert since("Unknown") == 20


def test_transition_times_survive_an_agent_restart() -> None:
    """phase.md, PC7."""
    store, before = Store(), NOW - timedelta(hours=1)
    known = PodStatus(phase="Running", conditions=(condition("Ready", "True", since=before),))
    pod = make_pod(status=known)
    store.manager.set(pod, status(conditions=(condition("Ready", "True"),)))
    assert store.stored().conditions[0].last_transition_time == before


def test_conditions_of_others_keep_their_own_times() -> None:
    """phase.md, PC6: those of others are kept."""
    store, theirs = Store(), NOW - timedelta(minutes=5)
    store.manager.set(make_pod(), status(conditions=(condition("x/a", "True", since=theirs),)))
    assert store.stored().conditions[0].last_transition_time == theirs
    later = theirs + timedelta(minutes=1)
    store.manager.set(make_pod(), status(conditions=(condition("x/a", "False", since=later),)))
    assert store.stored().conditions[0].last_transition_time == later
    store.manager.set(make_pod(), status(conditions=(condition("x/b", "True"),)))
    assert store.stored().conditions[0].last_transition_time == NOW


REFUSALS: list[tuple[str, int, ContainerState, bool]] = [
    ("Never", 0, running(), False),
    ("Never", 1, waiting(), False),
    ("Never", 1, ContainerState(), False),
    ("Never", 0, ended(3), True),
    ("OnFailure", 0, running(), False),
    ("OnFailure", 1, running(), True),
    ("Always", 0, waiting(), True),
]


@pytest.mark.parametrize(("policy", "code", "after", "taken"), REFUSALS)
def test_a_container_that_ended_for_good_never_comes_back(
    policy: str, code: int, after: ContainerState, taken: bool
) -> None:
    """phase.md, PG7: the status manager refuses such an update and counts it."""
    store, pod = Store(), make_pod(policy=policy)
    store.manager.set(pod, status(container_status("a", ended(code))))
    assert store.manager.set(pod, status(container_status("a", after))) is taken
    assert store.manager.refused == (0 if taken else 1)
    assert store.state_of("a") == (after if taken else ended(code))


def test_the_apis_word_on_the_end_counts_as_much() -> None:
    """phase.md, PG7."""
    store = Store()
    pod = make_pod(policy="Never", status=status(container_status("a", ended(0))))
    assert not store.manager.set(pod, status(container_status("a", running())))
    assert store.manager.get(UID) is None
    assert store.changed == []


def test_a_rule_of_the_container_may_let_it_run_again() -> None:
    """phase.md, PG7."""
    codes = ContainerRestartRuleOnExitCodes(operator="In", values=(42,))
    pod = make_pod(policy="Never")
    (container,) = pod.spec.containers
    container = replace(
        container,
        restart_policy="Never",
        restart_policy_rules=(ContainerRestartRule(action="Restart", exit_codes=codes),),
    )
    pod = replace(pod, spec=replace(pod.spec, containers=(container,)))
    store = Store()
    store.manager.set(pod, status(container_status("a", ended(42))))
    assert store.manager.set(pod, status(container_status("a", running())))
    store.manager.set(pod, status(container_status("a", ended(7))))
    assert not store.manager.set(pod, status(container_status("a", running())))


def test_init_containers_count_and_sidecars_do_not() -> None:
    """phase.md, PG7."""
    store, pod = Store(), make_pod("a", policy="Never", init=("i",), sidecars=("s",))

    def init(*found: ContainerStatus) -> PodStatus:
        return PodStatus(phase="Pending", init_container_statuses=found)

    store.manager.set(pod, init(container_status("i", ended(0)), container_status("s", ended(1))))
    up = container_status("s", running())
    assert store.manager.set(pod, init(container_status("i", ended(0)), up))
    assert not store.manager.set(pod, init(container_status("i", waiting()), up))


def test_a_container_that_left_the_spec_may_say_anything() -> None:
    store = Store()
    store.manager.set(make_pod("a", policy="Never"), status(container_status("a", ended(0))))
    assert store.manager.set(make_pod("b", policy="Never"), status())


def test_long_messages_are_cut_to_the_pods_budget() -> None:
    store, pod = Store(), make_pod("a", "b", init=("i", "j"))
    long = "ä" * 10_000
    found = status(
        container_status("a", ended(1, long)),
        container_status("b", running(), last=ended(1, long)),
        init_container_statuses=(container_status("i", ended(0, "short")),),
    )
    store.manager.set(pod, found)
    a, b = store.stored().container_statuses
    for end in (a.state.terminated, b.last_state.terminated):
        assert end is not None
        assert end.message == "ä" * (12288 // 4 // 2)
    assert store.state_of("i") == ended(0, "short")
    # Cut again it is the same: no endless change.
    assert not store.manager.set(pod, found)


# -- the end ---------------------------------------------------------------------------------


def terminate(pod: Pod, before: PodStatus) -> Store:
    store = Store()
    store.manager.set(pod, before)
    store.manager.terminate_pod(pod)
    return store


def gone(state: ContainerState) -> bool:
    end = state.terminated
    return (
        end is not None
        and (end.exit_code, end.reason) == (137, "ContainerStatusUnknown")
        and end.message == "The container could not be located when the pod was terminated"
    )


def test_what_still_looks_alive_at_the_end_is_closed() -> None:
    """workers.md, Y14."""
    before = status(
        container_status("a", running(), ready=True, started=True),
        container_status("b", waiting(), last=ended(1)),
        container_status("c", ended(3)),
    )
    store = terminate(make_pod("a", "b", "c"), before)
    assert gone(store.state_of("a"))
    assert gone(store.state_of("b"))
    assert store.state_of("c") == ended(3)
    a = store.stored().container_statuses[0]
    assert (a.ready, a.started) == (False, False)


@pytest.mark.parametrize(
    ("source", "phase", "after"),
    [
        ("api", "Running", "Failed"),
        ("api", "Pending", "Failed"),
        ("api", "Succeeded", "Succeeded"),
        ("api", "Failed", "Failed"),
        ("file", "Running", "Running"),
        ("file", "Pending", "Pending"),
        ("file", "Succeeded", "Succeeded"),
    ],
)
def test_a_pod_that_never_said_its_end_has_failed_unless_it_is_static(
    source: str, phase: str, after: str
) -> None:
    """workers.md, Y14."""
    assert terminate(make_pod(source=source), status(phase=phase)).stored().phase == after


@pytest.mark.parametrize(
    ("init", "closed"),
    [
        ((waiting(), waiting(), waiting()), "i"),
        ((running(), waiting(), waiting()), "i"),
        ((ended(0), running(), waiting()), "j"),
        ((ended(0), waiting(), waiting()), ""),
        ((ended(0), ended(0), running()), "ka"),
    ],
)
def test_containers_whose_turn_never_came_stay_as_they_are(
    init: tuple[ContainerState, ...], closed: str
) -> None:
    """workers.md, Y14: init containers in their order."""
    statuses = tuple(container_status(n, s) for n, s in zip("ijk", init, strict=True))
    if closed == "ka":
        statuses = (*statuses[:2], container_status("k", init[2], started=True))
    pod = make_pod("a", init=("i", "j"), sidecars=("k",))
    before = status(
        container_status("a", waiting("PodInitializing")),
        phase="Pending",
        init_container_statuses=statuses,
    )
    store = terminate(pod, before)
    assert {n for n in "ijka" if gone(store.state_of(n))} == set(closed)


@pytest.mark.parametrize("evidence", ["it ran", "init ran to its end", "init ended before"])
def test_regular_containers_are_closed_once_the_pod_was_initialised(evidence: str) -> None:
    """workers.md, Y14."""
    init, a = container_status("i", waiting()), container_status("a", waiting())
    if evidence == "it ran":
        a = container_status("a", waiting(), last=ended(1))
    elif evidence == "init ran to its end":
        init = container_status("i", ended(0))
    else:
        init = container_status("i", waiting(), last=ended(0))
    store = terminate(make_pod("a", init=("i",)), status(a, init_container_statuses=(init,)))
    assert gone(store.state_of("a"))


def test_a_failed_init_container_says_that_the_others_never_had_their_turn() -> None:
    """workers.md, Y14."""
    init = container_status("i", ended(1))
    before = status(container_status("a", waiting()), init_container_statuses=(init,))
    assert terminate(make_pod("a", init=("i",)), before).state_of("a") == waiting()


def test_the_end_of_a_pod_without_stored_status_is_told_from_the_apis() -> None:
    store = Store()
    store.manager.terminate_pod(
        make_pod(status=status(container_status("a", running())), source="api")
    )
    assert gone(store.state_of("a"))
    assert store.stored().phase == "Failed"


def test_ending_twice_changes_nothing() -> None:
    store = terminate(make_pod(), status(container_status("a", running())))
    found = store.manager.versioned(UID)
    store.manager.terminate_pod(make_pod())
    assert store.manager.versioned(UID) == found
