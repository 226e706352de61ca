"""When pods became active, over restarts of the agent and jumps of the wall clock."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeagent.api import Pod, PodStatus
from nodeagent.model import PodUID
from nodeagent.pods.start_times import StartTimes
from nodeagent.testing import make_pod

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
UID = PodUID("uid-web")


class Clock:
    """Wall and loop time, set by hand."""

    def __init__(self) -> None:
        self.wall = NOON
        self.loop = 100.0

    def now(self) -> datetime:
        return self.wall

    def time_ns(self) -> int:
        return int(self.wall.timestamp() * 1e9)


def brought(start: datetime) -> Pod:
    return replace(make_pod("web"), status=PodStatus(start_time=start))


def times(clock: Clock) -> StartTimes:
    return StartTimes(clock, lambda: clock.loop)


@pytest.mark.parametrize("jump", [-40, 600, 10**8])
def test_our_own_start_counts_from_the_moment_it_is_noted(jump: int) -> None:
    clock = Clock()
    found = times(clock)
    assert (found.active_for(UID), found.shown(UID)) == (None, None)
    clock.wall += timedelta(seconds=jump)
    found.note(make_pod("web"), PodStatus(start_time=NOON))
    clock.loop += 7
    found.note(make_pod("web"), PodStatus(start_time=NOON + timedelta(hours=1)))
    assert (found.active_for(UID), found.shown(UID)) == (7.0, NOON)


@pytest.mark.parametrize(("age", "active"), [(90, 90.0), (-90, 0.0)])
def test_a_start_that_a_source_brings_has_an_age(age: int, active: float) -> None:
    clock = Clock()
    found, start = times(clock), NOON - timedelta(seconds=age)
    found.note(brought(start), PodStatus(start_time=start))
    assert found.active_for(UID) == active


@given(st.floats(0, 1e6), st.floats(-1e6, 1e6), st.floats(0, 1e5))
def test_it_outlives_the_agent(ran: float, shift: float, away: float) -> None:
    clock = Clock()
    before, after = times(clock), times(clock)
    before.note(make_pod("web"), PodStatus(start_time=NOON))
    clock.loop += ran
    saved = json.loads(json.dumps(before.snapshot()))
    assert saved == before.snapshot()
    clock.loop += shift + away
    after.restore(saved, shift)
    assert after.active_for(UID) == pytest.approx(ran + away, abs=1e-3)
    assert after.shown(UID) == NOON
    assert set(after.remembered()) == {UID}
    after.forget_pod(UID)
    assert set(after.remembered()) == set()
