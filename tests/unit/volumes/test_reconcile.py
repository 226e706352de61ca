"""What is to be done next about a volume (docs/behaviour/volumes.md, "Manager")."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.volumes.reconcile import (
    LONGEST_BACK_OFF,
    Held,
    Step,
    VolumeState,
    back_off,
    began,
    ended,
    needed_step,
    next_step,
    wish,
)

_STEPS = st.sampled_from(("want", "drop", "stale", "ok", "fail", "wait"))


def test_the_back_off_doubles_up_to_its_cap() -> None:
    assert [back_off(n) for n in (0, 1, 2, 3)] == [0.0, 0.5, 1.0, 2.0]
    assert back_off(9) == LONGEST_BACK_OFF == back_off(10_000)


@given(st.lists(_STEPS))
def test_whatever_happens_it_ends_where_it_should_be(events: list[str]) -> None:
    state, now = VolumeState(wanted=False), 0.0
    for event in events:
        before = state
        if event in ("want", "stale"):
            state = wish(state, wanted=True, stale=event == "stale")
        elif event == "drop":
            state = wish(state, wanted=False)
        elif event == "wait":
            now += back_off(state.failures)
        elif state.busy is not None:
            state = ended(state, ok=event == "ok", now=now)
        step = next_step(state, now)
        if step is not None:
            assert state.busy is None
            assert (step is Step.TEAR_DOWN) is not state.wanted
            state = began(state, step)
        # A container must not use what is not certain.
        if state.held is Held.MOUNTED and before.held is not Held.MOUNTED:
            assert before.busy is Step.SET_UP
            assert event == "ok"
    for _ in range(4):
        now += LONGEST_BACK_OFF
        if state.busy is not None:
            state = ended(state, ok=True, now=now)
        elif (step := next_step(state, now)) is not None:
            state = began(state, step)
    assert needed_step(state) is None
    assert state.held is (Held.MOUNTED if state.wanted else Held.NOTHING)


def test_what_was_begun_is_undone_even_if_it_was_never_ready() -> None:
    state = began(VolumeState(), Step.SET_UP)
    state = wish(ended(state, ok=False, now=0.0), wanted=False)
    assert state.held is Held.UNCERTAIN
    assert next_step(state, 0.0) is Step.TEAR_DOWN


def test_one_step_at_a_time() -> None:
    state = began(VolumeState(), Step.SET_UP)
    assert next_step(wish(state, wanted=False), 1e9) is None


def test_a_failure_waits_and_a_change_of_mind_does_not() -> None:
    state = ended(began(VolumeState(), Step.SET_UP), ok=False, now=10.0)
    assert next_step(state, 10.0) is None
    assert next_step(state, 10.5) is Step.SET_UP
    assert next_step(wish(state, wanted=False), 10.0) is Step.TEAR_DOWN
    dropped = wish(began(VolumeState(), Step.SET_UP), wanted=False)
    assert next_step(ended(dropped, ok=False, now=10.0), 10.0) is Step.TEAR_DOWN


def test_what_changes_while_it_is_read_is_read_again() -> None:
    state = VolumeState(held=Held.MOUNTED)
    state = began(wish(state, wanted=True, stale=True), Step.REFRESH)
    state = wish(state, wanted=True, stale=True)
    state = ended(state, ok=True, now=0.0)
    assert next_step(state, 0.0) is Step.REFRESH
    state = ended(began(state, Step.REFRESH), ok=True, now=0.0)
    assert next_step(state, 0.0) is None


def test_a_refresh_that_fails_is_tried_again_and_the_volume_stays_in_use() -> None:
    state = began(VolumeState(held=Held.MOUNTED, stale=True), Step.REFRESH)
    state = ended(state, ok=False, now=0.0)
    assert state.held is Held.MOUNTED
    assert next_step(state, 0.5) is Step.REFRESH
