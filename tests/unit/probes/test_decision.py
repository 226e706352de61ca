"""When a container is asked and what answers mean: tables, and a second statement of the rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as change
from tests.unit.probes.probe_fakes import container_of, pod_status, probe, probed, status

from nodeagent.api import ContainerState, ContainerStateTerminated
from nodeagent.model import ProbeKind, ProbeResult
from nodeagent.probes.decision import (
    Do,
    Memory,
    Sighting,
    Step,
    decide,
    find_status,
    judge,
    sight,
)

SUCCESS, FAILURE, UNKNOWN = ProbeResult.SUCCESS, ProbeResult.FAILURE, ProbeResult.UNKNOWN
LIVENESS, READINESS, STARTUP = ProbeKind.LIVENESS, ProbeKind.READINESS, ProbeKind.STARTUP
UP = Sighting("c1", running=True, started=True)
KNOWN = Memory("c1", last=FAILURE, run=2)
each_kind = pytest.mark.parametrize("kind", ProbeKind)


@each_kind
def test_bt1_bt3_nothing_happens_without_a_container(kind: ProbeKind) -> None:
    assert decide(kind, Memory(), Sighting()) == Step(Memory())
    assert decide(kind, KNOWN, Sighting()) == Step(KNOWN)


@each_kind
def test_bt2_a_pod_that_is_over_is_not_probed(kind: ProbeKind) -> None:
    assert decide(kind, KNOWN, replace(UP, over=True)) == Step(KNOWN, Do.STOP)


@each_kind
def test_bt4_another_container_has_no_past(kind: ProbeKind) -> None:
    seen = Sighting("c2", running=True, started=kind is not STARTUP)
    for before in (KNOWN, Memory("c1", held=True)):
        assert decide(kind, before, seen) == Step(Memory("c2"), Do.PROBE)


@each_kind
def test_bt5_a_held_probe_waits_whatever_happens(kind: ProbeKind) -> None:
    held = Memory("c1", held=True)
    for seen in (UP, replace(UP, running=False, ended=True), replace(UP, deleting=True)):
        assert decide(kind, held, seen) == Step(held)


@each_kind
def test_bt6_a_container_that_ended_has_failed(kind: ProbeKind) -> None:
    ended = Sighting("c1", ended=True)
    assert decide(kind, KNOWN, ended) == Step(KNOWN, Do.WAIT, FAILURE)
    assert decide(kind, KNOWN, replace(ended, returns=False)) == Step(KNOWN, Do.STOP, FAILURE)


@each_kind
def test_bt7_a_container_that_is_about_to_start_has_not_failed(kind: ProbeKind) -> None:
    assert decide(kind, Memory(), Sighting("c1")) == Step(Memory("c1"))


def test_bt8_the_deletion_of_the_pod_ends_liveness_and_startup() -> None:
    going = replace(UP, deleting=True)
    for kind in (LIVENESS, STARTUP):
        assert decide(kind, KNOWN, going) == Step(KNOWN, Do.STOP, SUCCESS)
    assert decide(READINESS, KNOWN, going) == Step(KNOWN, Do.PROBE)


@each_kind
def test_bt10_nobody_is_asked_within_the_initial_delay(kind: ProbeKind) -> None:
    seen = replace(UP, started=kind is not STARTUP)
    assert decide(kind, KNOWN, seen, delayed=True) == Step(KNOWN)
    assert decide(kind, KNOWN, seen, delayed=False) == Step(KNOWN, Do.PROBE)


def test_bt9_bt11_bt12_startup_comes_before_the_others() -> None:
    not_started = replace(UP, started=False)
    assert decide(STARTUP, KNOWN, UP) == Step(KNOWN, result=SUCCESS)
    assert decide(STARTUP, KNOWN, not_started) == Step(KNOWN, Do.PROBE)
    for kind in (LIVENESS, READINESS):
        assert decide(kind, KNOWN, not_started) == Step(KNOWN)
        assert decide(kind, KNOWN, UP) == Step(KNOWN, Do.PROBE)


@pytest.mark.parametrize(
    ("kind", "known", "held"),
    [
        (LIVENESS, FAILURE, True),
        (STARTUP, FAILURE, True),
        (READINESS, FAILURE, False),
        (LIVENESS, SUCCESS, False),
        (STARTUP, SUCCESS, False),
        (READINESS, SUCCESS, False),
    ],
)
def test_br5_what_an_earlier_agent_found_is_taken_over(
    kind: ProbeKind, known: ProbeResult, held: bool
) -> None:
    assert decide(kind, Memory(), UP, known=known).memory == Memory("c1", held)


def test_ba1_ba2_the_threshold_makes_the_result() -> None:
    memory, found = Memory("c1"), []
    answers = [FAILURE, FAILURE, SUCCESS, FAILURE, FAILURE, FAILURE, SUCCESS, SUCCESS]
    for answer in answers:
        step = judge(READINESS, memory, answer, successes=2, failures=3)
        memory = step.memory
        found.append(step.result)
    assert found == [None, None, None, None, None, FAILURE, None, SUCCESS]


@each_kind
def test_ba3_a_probe_that_could_not_be_made_changes_nothing(kind: ProbeKind) -> None:
    assert judge(kind, KNOWN, UNKNOWN, successes=1, failures=1) == Step(KNOWN)


@pytest.mark.parametrize(
    ("kind", "answer", "held"),
    [
        (LIVENESS, FAILURE, True),
        (LIVENESS, SUCCESS, False),
        (STARTUP, FAILURE, True),
        (STARTUP, SUCCESS, True),
        (READINESS, FAILURE, False),
        (READINESS, SUCCESS, False),
    ],
)
def test_ba4_the_last_word_is_held(kind: ProbeKind, answer: ProbeResult, held: bool) -> None:
    step = judge(kind, Memory("c1"), answer, successes=1, failures=1)
    assert step.result is answer
    assert step.memory.held is held
    assert step.memory.run == (0 if held else 1)


# -- what is read from a status ---------------------------------------------------------------


def test_a_running_container_is_seen_with_its_own_id() -> None:
    pod = probed(liveness_probe=probe())
    found = find_status(pod_status(status(), status("side", "c9")), "main")
    assert sight(pod, container_of(pod), found, over=False) == UP


def test_a_container_that_waits_to_run_again_is_seen_as_ended() -> None:
    pod = probed(liveness_probe=probe())
    end = ContainerStateTerminated(exit_code=1, container_id="containerd://c1")
    waiting = status(state="waiting")
    created = sight(pod, container_of(pod), waiting, over=False)
    assert (created.running, created.ended) == (False, False)
    again = change(waiting, last_state=ContainerState(terminated=end))
    seen = sight(pod, container_of(pod), again, over=False)
    assert (seen.container_id, seen.ended, seen.returns) == ("c1", True, True)


@pytest.mark.parametrize(("code", "returns"), [(0, False), (1, True)])
def test_a_container_that_ended_returns_as_its_policy_says(code: int, returns: bool) -> None:
    pod = probed(liveness_probe=probe())
    pod = change(pod, spec=change(pod.spec, restart_policy="OnFailure"))
    seen = sight(pod, container_of(pod), status(state="ended", code=code), over=False)
    assert (seen.ended, seen.returns) == (True, returns)


def test_no_status_is_seen_as_no_container() -> None:
    pod = probed(liveness_probe=probe())
    assert sight(pod, container_of(pod), None, over=True) == Sighting(over=True)


# -- a second statement ------------------------------------------------------------------------


class Rules:
    """The same rules, told as one thing that happens after the other."""

    def __init__(self, kind: ProbeKind, successes: int, failures: int) -> None:
        self.kind = kind
        self.needed = {SUCCESS: successes, FAILURE: failures}
        self.id = ""
        self.history: list[ProbeResult] = []
        self.silent = False
        self.gone = False
        self.result: ProbeResult | None = None

    def tick(self, seen: Sighting, delayed: bool) -> bool:
        """Whether it is asked."""
        if seen.over:
            self.gone = True
        if self.gone or seen.container_id == "":
            return False
        if seen.container_id != self.id:
            self.id, self.history, self.silent, self.result = seen.container_id, [], False, None
        if self.silent:
            return False
        if seen.running:
            if seen.deleting and self.kind in (LIVENESS, STARTUP):
                self.gone, self.result = True, SUCCESS
                return False
            if self.kind is STARTUP and seen.started:
                self.result = SUCCESS
                return False
            return (seen.started or self.kind is STARTUP) and not delayed
        if seen.ended:
            self.result = FAILURE
            self.gone = not seen.returns
        return False

    def answer(self, answer: ProbeResult) -> None:
        if answer is UNKNOWN:
            return
        self.history.append(answer)
        needed = self.needed[answer]
        if self.history[-needed:] != [answer] * needed:
            return
        self.result = answer
        if self.kind is STARTUP or (self.kind, answer) == (LIVENESS, FAILURE):
            self.silent = True


sightings = st.builds(
    Sighting,
    container_id=st.sampled_from(["", "c1", "c1", "c1", "c2"]),
    running=st.sampled_from([True, True, True, False]),
    ended=st.booleans(),
    returns=st.booleans(),
    over=st.sampled_from([False] * 9 + [True]),
    deleting=st.sampled_from([False] * 6 + [True]),
    started=st.booleans(),
)
turns = st.tuples(sightings, st.sampled_from([False, False, True]), st.sampled_from(ProbeResult))


@given(
    kind=st.sampled_from(ProbeKind),
    successes=st.integers(1, 3),
    failures=st.integers(1, 3),
    story=st.lists(turns, max_size=25),
)
def test_any_story_is_told_the_same_by_a_second_statement(
    kind: ProbeKind,
    successes: int,
    failures: int,
    story: list[tuple[Sighting, bool, ProbeResult]],
) -> None:
    rules = Rules(kind, successes, failures)
    memory, result = Memory(), None
    for seen, delayed, answer in story:
        step = decide(kind, memory, seen, delayed=delayed)
        if step.memory.container_id != memory.container_id:
            result = None
        memory, result = step.memory, step.result or result
        asked = rules.tick(seen, delayed)
        assert (step.do is Do.PROBE) == asked
        assert (step.do is Do.STOP) == rules.gone
        if asked:
            step = judge(kind, memory, answer, successes=successes, failures=failures)
            memory, result = step.memory, step.result or result
            rules.answer(answer)
        assert result is rules.result
        assert memory.held == rules.silent
        if rules.gone:
            return
