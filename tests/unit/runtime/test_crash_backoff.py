"""Back-offs (docs/behaviour/runtime.md, "Crash back-off")."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.runtime.fakes import UID, make_container

from nodeagent.api import Container, Quantity, ResourceRequirements
from nodeagent.duration import format_duration
from nodeagent.model import (
    ContainerError,
    ContainerID,
    ContainerRuntimeStatus,
    ContainerState,
    PodRuntimeStatus,
    PodUID,
)
from nodeagent.runtime.backoff import BackOff, CrashBackOff, crash_key
from nodeagent.runtime.names import PodNames
from nodeagent.runtime.reasons import ReasonCache
from nodeagent.runtime.tokens import TokenBucket

POD = PodNames("web", "default", UID)
WEB = make_container()


def exited(attempt: int, name: str = "web") -> PodRuntimeStatus:
    record = ContainerRuntimeStatus(
        ContainerID(f"{name}-{attempt}"), name, ContainerState.EXITED, attempt=attempt
    )
    return PodRuntimeStatus(UID, containers=(record,))


class Life:
    """A container that runs for a while, exits, and is started as soon as it may."""

    def __init__(self, back_off: CrashBackOff, container: Container = WEB) -> None:
        self.back_off = back_off
        self.container = container
        self.now = 0.0
        self.attempt = 0

    def crash(self, ran: float) -> float:
        """Run, exit, start again; returns the seconds it had to wait."""
        self.now += ran
        status = exited(self.attempt)
        self.back_off.observe(status, self.now)
        wait = self.back_off.check(POD, self.container, status, self.now)
        waited = wait.until - self.now if wait else 0.0
        self.now += waited
        assert self.back_off.check(POD, self.container, status, self.now) is None
        self.back_off.advance(POD, self.container, status, self.now)
        self.attempt += 1
        return waited


def test_a_container_that_exits_at_once_waits_longer_and_longer() -> None:
    life = Life(CrashBackOff())
    assert [life.crash(0) for _ in range(9)] == [0, 10, 20, 40, 80, 160, 300, 300, 300]


def test_the_delay_counts_from_the_exit() -> None:
    life = Life(CrashBackOff())
    life.crash(0)
    status = exited(1)
    life.back_off.observe(status, 5.0)
    wait = life.back_off.check(POD, WEB, status, 8.0)
    assert wait is not None
    assert (wait.delay, wait.until) == (10.0, 15.0)
    life.back_off.observe(status, 9.0)  # seen again: the first time counts
    assert life.back_off.check(POD, WEB, status, 14.9) == wait
    assert life.back_off.check(POD, WEB, status, 15.0) is None


def test_the_longest_delay_can_be_set_and_bounds_the_first_one() -> None:
    life = Life(CrashBackOff(10.0, 30.0))
    assert [life.crash(0) for _ in range(5)] == [0, 10, 20, 30, 30]
    assert life.crash(599) == 30
    assert [life.crash(601), life.crash(0)] == [0, 10]
    life = Life(CrashBackOff(10.0, 2.0))
    assert [life.crash(0) for _ in range(3)] == [0, 2, 2]


@pytest.mark.parametrize(("ran", "next_wait"), [(599.0, 20.0), (601.0, 10.0)])
def test_after_ten_minutes_it_begins_anew(ran: float, next_wait: float) -> None:
    life = Life(CrashBackOff())
    life.crash(0)
    first = life.crash(ran)
    assert first == (10.0 if ran < 600 else 0.0)
    assert life.crash(0) == next_wait


def test_another_image_or_other_resources_begin_anew() -> None:
    back_off = CrashBackOff()
    Life(back_off).crash(0)
    assert Life(back_off).crash(0) == 10
    assert Life(back_off, make_container(image="example.test/web:v2")).crash(0) == 0
    more = ResourceRequirements(limits={"cpu": Quantity("1")})
    assert Life(back_off, make_container(resources=more)).crash(0) == 0
    keys = {crash_key(POD, WEB), crash_key(POD, make_container(resources=more))}
    assert len(keys) == 2


def test_the_first_start_of_a_container_is_no_restart() -> None:
    back_off = CrashBackOff()
    empty = PodRuntimeStatus(UID)
    for _ in range(3):
        assert back_off.check(POD, WEB, empty, 0.0) is None
        back_off.advance(POD, WEB, empty, 0.0)
    assert Life(back_off).crash(0) == 0


def test_an_exit_counts_although_its_record_was_removed_for_a_restart_of_all() -> None:
    back_off, gone = CrashBackOff(), PodRuntimeStatus(UID)
    waits = []
    now = 0.0
    for attempt in range(4):
        back_off.observe(exited(attempt), now)
        back_off.keep_exit(POD, "web", exited(attempt), now)
        back_off.observe(gone, now)
        saved = back_off.snapshot(now)
        back_off = CrashBackOff()
        back_off.restore(saved, 0.0)
        wait = back_off.check(POD, WEB, gone, now)
        waits.append(wait.until - now if wait else 0.0)
        now += waits[-1]
        back_off.advance(POD, WEB, gone, now)
    assert waits == [0, 10, 20, 40]
    assert back_off.check(POD, make_container("other"), gone, now) is None


def test_a_start_that_came_to_nothing_can_be_taken_back() -> None:
    back_off = CrashBackOff()
    life = Life(back_off)
    life.crash(0)
    status = exited(1)
    back_off.observe(status, 1.0)
    before = back_off.snapshot(11.0)
    undo = back_off.advance(POD, WEB, status, 11.0)
    assert back_off.snapshot(11.0) != before
    undo()
    assert back_off.snapshot(11.0) == before
    fresh = CrashBackOff()
    fresh.observe(status, 1.0)
    fresh.advance(POD, WEB, status, 1.0)()
    assert fresh.snapshot(1.0)["backoff"] == {}


def test_a_shorter_cap_is_honoured() -> None:
    life = Life(CrashBackOff(10.0, 4.0))
    assert [life.crash(0) for _ in range(4)] == [0, 4, 4, 4]


def test_a_forgotten_pod_begins_anew() -> None:
    back_off = CrashBackOff()
    Life(back_off).crash(0)
    back_off.forget_pod(UID)
    assert Life(back_off).crash(0) == 0


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_snapshot_keeps_what_is_left_to_wait(then: float, later: float) -> None:
    before, after = CrashBackOff(), CrashBackOff()
    life = Life(before)
    life.now = then
    life.crash(0)
    status = exited(1)
    before.observe(status, life.now)
    saved = json.loads(json.dumps(before.snapshot(life.now + 3)))
    assert saved == before.snapshot(life.now + 4)
    after.restore(saved, later - (life.now + 3))
    after.observe(status, later)
    wait = after.check(POD, WEB, status, later)
    assert wait is not None
    assert wait.until - later == pytest.approx(7.0, abs=1e-3)


def test_a_snapshot_leaves_out_what_has_expired() -> None:
    back_off = CrashBackOff()
    Life(back_off).crash(0)
    assert len(back_off.snapshot(600.0)["backoff"]) == 1
    assert back_off.snapshot(601.0)["backoff"] == {}


def test_an_image_back_off_counts_from_its_last_failure() -> None:
    back_off = BackOff(10.0, 300.0)
    assert back_off.until("k") is None
    back_off.advance("k", 100.0)
    assert back_off.until("k") == 110.0
    back_off.advance("k", 110.0)
    assert back_off.until("k") == 130.0
    back_off.advance("k", 731.0)
    assert back_off.until("k") == 741.0
    back_off.collect(2000.0)
    assert back_off.until("k") is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (10, "10s"), (80, "1m20s"), (300, "5m0s"), (3661, "1h1m1s")],
)
def test_durations_are_written_as_people_know_them(seconds: float, text: str) -> None:
    assert format_duration(round(seconds)) == text


def test_tokens_come_back_with_time() -> None:
    bucket = TokenBucket(5.0, 2)
    assert [bucket.take(0.0) for _ in range(3)] == [True, True, False]
    assert bucket.take(0.2)
    assert not bucket.take(0.3)
    assert [bucket.take(10.0) for _ in range(3)] == [True, True, False]
    assert all(TokenBucket(0.0, 1).take(0.0) for _ in range(5))


def test_the_reason_cache_forgets_what_was_used_least_recently() -> None:
    cache = ReasonCache(2)
    errors = {name: ContainerError("E", name) for name in "abc"}
    cache.set(UID, "a", errors["a"])
    cache.set(UID, "b", errors["b"])
    assert cache.get(UID, "a") == errors["a"]
    cache.set(UID, "c", errors["c"])
    assert cache.get(UID, "b") is None
    cache.remove(UID, "a")
    assert cache.get(UID, "a") is None
    cache.set(PodUID("other"), "c", errors["c"])
    cache.forget_pod(UID)
    assert cache.get(UID, "c") is None
    assert cache.get(PodUID("other"), "c") == errors["c"]
