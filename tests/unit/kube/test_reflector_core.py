"""The decisions of a reflector, one by one and in any order (docs/behaviour/api-source.md)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.kube import ApiError, KubeError, UndecodableError, UnreachableError
from nodeagent.kube.reflector_core import (
    FIRST_DELAY,
    LONGEST_DELAY,
    PAGE_SIZE,
    RESET_AFTER,
    BackOff,
    Failure,
    Plan,
    ReflectorCore,
    Step,
    failure_of,
)

AHEAD = ApiError(504, "Timeout", "Too large resource version: 9, current: 3", 1.0)


def watching(version: str = "7") -> ReflectorCore:
    """A core that watches from a version, with nothing told yet."""
    core = ReflectorCore()
    core.listed(version)
    core.ended(400.0, 400.0)
    assert core.plan == Plan(Step.WATCH, version)
    return core


def step(core: ReflectorCore) -> Step:
    """What comes next."""
    return core.plan.step


def test_wa2_it_begins_with_a_watch_list_and_goes_on_in_the_same_stream() -> None:
    core = ReflectorCore()
    assert core.plan == Plan(Step.WATCH_LIST)
    core.listed("5")
    assert core.plan == Plan(Step.WATCH, "5")


@pytest.mark.parametrize("status", [400, 404, 405, 406, 415, 422])
def test_wa3_a_server_that_does_not_serve_it_is_not_asked_again(status: int) -> None:
    core = ReflectorCore()
    core.failed(failure_of(ApiError(status, "", "")), 0.0)
    assert core.plan == Plan(Step.LIST, "0", PAGE_SIZE)
    core.listed("5")
    core.failed(Failure.OTHER, 1.0)
    assert step(core) is Step.LIST
    core.failed(Failure.LOST, 2.0)
    assert step(core) is Step.WATCH_LIST, "another server may answer now"


def test_wa3_a_watch_list_that_ends_or_pauses_too_soon_gives_way_once() -> None:
    core = ReflectorCore()
    core.ended(30.0, 30.0)
    assert (core.plan.step, core.plan.delay) == (Step.LIST, FIRST_DELAY)
    core.failed(Failure.OTHER, 31.0)
    assert step(core) is Step.WATCH_LIST
    core.failed(Failure.SILENT, 32.0, open_for=8.0)
    assert step(core) is Step.LIST


def test_wa4_the_first_list_takes_what_a_cache_has_and_later_ones_nothing_older() -> None:
    core = ReflectorCore(watch_list=False)
    assert core.plan == Plan(Step.LIST, "0", PAGE_SIZE)
    core.page("next")
    assert core.plan == Plan(Step.LIST, "", PAGE_SIZE, "next")
    core.listed("5")
    core.failed(Failure.OTHER, 0.0)
    assert core.plan == Plan(Step.LIST, "5", delay=FIRST_DELAY)


def test_wa4_a_version_from_an_earlier_life_counts() -> None:
    assert ReflectorCore("5", watch_list=False).plan == Plan(Step.LIST, "5")
    assert ReflectorCore("5").plan == Plan(Step.WATCH_LIST, "5")


@pytest.mark.parametrize("error", [ApiError(410, "Expired", ""), AHEAD])
def test_wa5_a_version_that_does_not_serve_is_dropped_at_once(error: KubeError) -> None:
    core = ReflectorCore("5", watch_list=False)
    core.failed(failure_of(error), 0.0)
    assert core.plan == Plan(Step.LIST, "", PAGE_SIZE)
    core.failed(failure_of(error), 0.0)
    assert core.plan.delay == FIRST_DELAY, "but not for ever"
    core = ReflectorCore("5")
    core.failed(failure_of(error), 0.0)
    assert core.plan == Plan(Step.WATCH_LIST)


def test_wa5_a_list_that_grew_too_old_is_asked_for_in_one_piece() -> None:
    core = ReflectorCore(watch_list=False)
    core.page("next")
    core.failed(Failure.EXPIRED, 0.0)
    assert core.plan == Plan(Step.LIST, "", 0)


def test_wa7_wa8_a_watch_goes_on_from_the_last_version() -> None:
    core = watching()
    core.moved("9")
    core.ended(35.0, 435.0)
    assert core.plan == Plan(Step.WATCH, "9")


def test_wa9_an_expired_version_leads_to_all_there_is() -> None:
    core = watching()
    core.failed(Failure.EXPIRED, 0.0, open_for=3.0)
    assert core.plan == Plan(Step.WATCH_LIST, "7", delay=FIRST_DELAY)


@pytest.mark.parametrize(("after", "delay"), [(0.0, FIRST_DELAY), (5.0, 5.0), (1e9, 120.0)])
def test_wa10_a_busy_server_says_when(after: float, delay: float) -> None:
    core = watching()
    core.failed(Failure.BUSY, 0.0, retry_after=after)
    assert core.plan == Plan(Step.WATCH, "7", delay=delay)


def test_wa11_a_broken_watch_is_resumed_once() -> None:
    core = watching()
    core.moved("8")
    core.failed(Failure.LOST, 0.0, open_for=0.5)
    assert core.plan == Plan(Step.WATCH, "8", delay=FIRST_DELAY)
    core.failed(Failure.LOST, 1.0, open_for=0.5)
    assert step(core) is Step.WATCH_LIST


def test_wa11_a_quiet_watch_that_breaks_is_resumed() -> None:
    core = watching()
    core.failed(Failure.LOST, 0.0, open_for=20.0)
    assert step(core) is Step.WATCH
    core.failed(Failure.LOST, 1.0)
    assert step(core) is Step.WATCH_LIST, "it was not even opened"


@pytest.mark.parametrize("error", [ApiError(500, "", ""), ApiError(403, "Forbidden", "")])
def test_wa12_other_failures_lead_to_all_there_is(error: KubeError) -> None:
    core = watching()
    core.failed(failure_of(error), 0.0)
    assert core.plan == Plan(Step.WATCH_LIST, "7", delay=FIRST_DELAY)


def test_wa12_a_watch_that_ends_at_once() -> None:
    core = watching()
    core.ended(0.9, 1.0)
    assert core.plan == Plan(Step.WATCH_LIST, "7", delay=FIRST_DELAY)
    core = watching()
    core.moved("8")
    core.ended(0.9, 1.0)
    assert core.plan == Plan(Step.WATCH, "8", delay=FIRST_DELAY)


def test_wa13_delays_double_to_a_limit_and_begin_anew() -> None:
    backoff = BackOff()
    now, delays = 0.0, []
    for _ in range(8):
        delays.append(backoff.failed(now))
        now += delays[-1]
    assert delays == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
    assert backoff.failed(now + RESET_AFTER - 1) == LONGEST_DELAY
    assert backoff.failed(now + 3 * RESET_AFTER) == FIRST_DELAY


def test_wa14_a_silent_watch_is_asked_for_again_at_once() -> None:
    core = watching()
    core.failed(Failure.SILENT, 0.0, open_for=45.0)
    assert core.plan == Plan(Step.WATCH, "7")
    core.failed(Failure.SILENT, 0.0)
    assert core.plan == Plan(Step.WATCH_LIST, "7", delay=FIRST_DELAY), "it was not even opened"


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (ApiError(410, "Gone", ""), Failure.EXPIRED),
        (ApiError(500, "Expired", ""), Failure.EXPIRED),
        (AHEAD, Failure.AHEAD),
        (ApiError(504, "Timeout", "slow"), Failure.OTHER),
        (ApiError(429, "TooManyRequests", ""), Failure.BUSY),
        (ApiError(401, "Unauthorized", ""), Failure.OTHER),
        (UnreachableError("gone"), Failure.LOST),
        (UndecodableError("html"), Failure.OTHER),
    ],
)
def test_failures_are_told_apart(error: KubeError, failure: Failure) -> None:
    assert failure_of(error) is failure


OUTCOMES = st.one_of(
    st.tuples(st.just("page"), st.text("abc", min_size=1)),
    st.tuples(st.just("listed"), st.integers(1, 99)),
    st.tuples(st.just("moved"), st.integers(1, 99)),
    st.tuples(st.just("ended"), st.floats(0, 60)),
    st.tuples(st.just("failed"), st.sampled_from(Failure)),
    st.tuples(st.just("lost while open"), st.floats(0, 60)),
)


def tell(core: ReflectorCore, what: str, value: object, now: float) -> None:
    match what:
        case "page" if core.plan.step is Step.LIST:
            core.page(str(value))
        case "listed" if core.plan.step is not Step.WATCH:
            core.listed(str(value))
        case "moved" if core.plan.step is Step.WATCH:
            core.moved(str(value))
        case "ended" if core.plan.step is not Step.LIST and isinstance(value, float):
            core.ended(value, now)
        case "failed" if isinstance(value, Failure):
            core.failed(value, now)
        case "lost while open" if core.plan.step is not Step.LIST and isinstance(value, float):
            core.failed(Failure.LOST, now, open_for=value)


@given(st.lists(OUTCOMES, max_size=40), st.booleans())
def test_any_history_leaves_a_sound_plan(
    history: list[tuple[str, object]], watch_list: bool
) -> None:
    core, now = ReflectorCore(watch_list=watch_list), 0.0
    for what, value in history:
        tell(core, what, value, now)
        now += 0.5 + core.plan.delay
        plan = core.plan
        assert 0 <= plan.delay <= LONGEST_DELAY
        assert (plan.step is Step.WATCH) <= bool(plan.version), "a watch knows where it begins"
        assert not (plan.token and plan.version), "a page has its version in its token"
        assert (plan.step is Step.WATCH_LIST) <= watch_list
        assert (plan.step is not Step.LIST) <= (not plan.limit and not plan.token)


@given(st.lists(st.sampled_from(Failure), min_size=1, max_size=60))
def test_a_server_that_only_fails_is_not_pressed(failures: list[Failure]) -> None:
    """Whatever it says: of any eight requests in a row, at least one waited."""
    core, delays = ReflectorCore("5"), []
    for number, failure in enumerate(failures):
        core.failed(failure, float(number))
        delays.append(core.plan.delay)
    windows = [delays[i : i + 8] for i in range(len(delays) - 7)]
    assert all(any(window) for window in windows)


@given(st.lists(OUTCOMES, max_size=30))
def test_from_any_state_a_good_server_is_followed_again(history: list[tuple[str, object]]) -> None:
    core = ReflectorCore()
    for number, (what, value) in enumerate(history):
        tell(core, what, value, float(number))
    for _ in range(3):
        if core.plan.step is Step.WATCH:
            break
        core.listed("100")
    assert step(core) is Step.WATCH


def test_wa13_a_connection_that_is_cut_now_and_then_makes_nobody_wait_longer() -> None:
    core = watching()
    now = 1000.0
    for _ in range(20):
        core.failed(Failure.LOST, now, open_for=30.0)
        assert core.plan == Plan(Step.WATCH, "7", delay=FIRST_DELAY)
        now += 31.0
    core.failed(Failure.LOST, now, open_for=2.0)
    core.failed(Failure.LOST, now, open_for=2.0)
    assert core.plan.delay == 2 * FIRST_DELAY
