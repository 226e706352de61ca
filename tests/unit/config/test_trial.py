"""Which configuration is in force, on trial, or known to be good (config.trial)."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.config.trial import (
    PATIENCE,
    ConfigState,
    Do,
    bad_change,
    good_change,
    looked,
    started,
)

TRIAL = 600.0


def begun(active: str = "a", good: str = "a") -> ConfigState:
    return started(active, active, good, "", "", TRIAL)


def test_what_was_good_before_needs_no_trial() -> None:
    assert begun().trial is None


def test_the_first_one_is_known_to_be_good_as_soon_as_the_node_is_well() -> None:
    state, do = looked(begun(good=""), 1.0, "runtime: down")
    assert (state.last_known_good, do) == ("", Do.NOTHING)
    state, do = looked(state, 2.0, "")
    assert (state.last_known_good, state.trial, do) == ("a", None, Do.REMEMBER)


def test_a_change_is_good_after_its_trial() -> None:
    state, do = good_change(begun(), "b", well=True, until=TRIAL)
    assert (state.active, state.last_known_good, do) == ("b", "a", Do.APPLY)
    state, do = looked(state, TRIAL - 1, "")
    assert do is Do.NOTHING
    state, do = looked(state, TRIAL, "")
    assert (state.last_known_good, do) == ("b", Do.REMEMBER)


def test_a_change_after_which_the_node_is_unwell_is_taken_back() -> None:
    state, _ = good_change(begun(), "b", well=True, until=TRIAL)
    state, do = looked(state, 5.0, "pleg: stuck")
    assert do is Do.NOTHING
    state, do = looked(state, 5.0 + PATIENCE, "pleg: stuck")
    assert do is Do.ROLL_BACK
    assert (state.active, state.refused, state.assigned) == ("a", "b", "b")
    assert state.error.endswith("pleg: stuck")
    again, do = good_change(state, "b", well=True, until=TRIAL)
    assert (again, do) == (state, Do.NOTHING)
    asked, do = good_change(state, "b", well=True, until=TRIAL, asked=True)
    assert (asked.active, asked.error, do) == ("b", "", Do.APPLY)


def test_a_moment_is_not_enough() -> None:
    state, _ = good_change(begun(), "b", well=True, until=TRIAL)
    state, _ = looked(state, 5.0, "sources: silent")
    state, _ = looked(state, 5.0 + PATIENCE - 1, "")
    state, do = looked(state, 5.0 + PATIENCE, "sources: silent")
    assert do is Do.NOTHING
    assert state.active == "b"


def test_a_change_is_not_blamed_for_what_was_wrong_before() -> None:
    state, _ = good_change(begun(), "b", well=False, until=TRIAL)
    for now in range(0, 10 * int(TRIAL), 10):
        state, do = looked(state, float(now), "runtime: down")
        assert do is Do.NOTHING
    assert state.active == "b"
    state, do = looked(state, 10 * TRIAL, "")
    assert (state.last_known_good, do) == ("b", Do.REMEMBER)


def test_back_to_what_is_known_to_be_good_needs_no_trial() -> None:
    state, _ = good_change(begun(), "b", well=True, until=TRIAL)
    state, do = good_change(state, "a", well=False, until=TRIAL)
    assert (state.active, state.trial, do) == ("a", None, Do.APPLY)


def test_a_bad_change_changes_nothing_but_the_error() -> None:
    trying, _ = good_change(begun(), "b", well=True, until=TRIAL)
    state = bad_change(trying, "x: wrong")
    assert (state.active, state.last_known_good, state.trial) == ("b", "a", trying.trial)
    assert (state.assigned, state.error) == ("", "x: wrong")
    state, do = good_change(state, "b", well=True, until=TRIAL)
    assert (state.error, do) == ("", Do.NOTHING)


@dataclass
class World:
    """What an agent does with a state, and what it must never do."""

    state: ConfigState
    now: float = 0.0
    in_force: str = "a"
    good: set[str] = field(default_factory=lambda: {"a"})

    def done(self, state: ConfigState, do: Do) -> None:
        if do in (Do.APPLY, Do.ROLL_BACK):
            self.in_force = state.active
        if do is Do.ROLL_BACK:
            assert state.active in self.good
            assert state.error
            assert state.refused != state.active
        if do is Do.REMEMBER:
            self.good.add(state.last_known_good)
        self.state = state
        assert state.active == self.in_force
        assert state.last_known_good in self.good
        if state.trial is None:
            assert state.active == state.last_known_good
        if not state.error:
            assert state.assigned == state.active


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("good"), st.sampled_from("abc"), st.booleans(), st.booleans()),
        st.tuples(st.just("bad"), st.just(""), st.just(value=True), st.just(value=False)),
        st.tuples(st.just("look"), st.sampled_from(["", "down"]), st.booleans(), st.booleans()),
    ),
    max_size=60,
)


@given(EVENTS, st.lists(st.floats(0, 400), min_size=60, max_size=60))
def test_whatever_happens_something_good_can_be_had_again(
    events: list[tuple[str, str, bool, bool]], pauses: list[float]
) -> None:
    world = World(begun())
    for (kind, text, well, asked), pause in zip(events, pauses, strict=False):
        world.now += pause
        if kind == "good":
            until = world.now + TRIAL
            world.done(*good_change(world.state, text, well=well, until=until, asked=asked))
        elif kind == "bad":
            world.done(bad_change(world.state, "wrong"), Do.NOTHING)
        else:
            world.done(*looked(world.state, world.now, text))


@given(EVENTS)
def test_a_node_that_stays_well_ends_with_what_was_asked_for_last(
    events: list[tuple[str, str, bool, bool]],
) -> None:
    world = World(begun())
    for kind, text, _, asked in events:
        world.now += 1
        if kind == "good":
            until = world.now + TRIAL
            world.done(*good_change(world.state, text, well=True, until=until, asked=asked))
        elif kind == "bad":
            world.done(bad_change(world.state, "wrong"), Do.NOTHING)
    wanted = [text for kind, text, *_ in events if kind == "good"]
    world.done(*looked(world.state, world.now + TRIAL, ""))
    assert world.state.active == (wanted[-1] if wanted else "a")
    assert world.state.last_known_good == world.state.active
