"""What becomes of an event before it is sent (docs/behaviour/events.md, "Correlation")."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.node.event_fakes import event

from nodeagent.node.event_correlator import BURST, REFILL, SIMILAR, WINDOW, Correlator, Sent
from nodeagent.testing import make_pod


def test_ev10_the_same_event_again_counts_up_under_its_name() -> None:
    correlator = Correlator()
    first = correlator.correlate(event(message="a"), 0.0)
    second = correlator.correlate(event(message="a"), 1.0)
    other = correlator.correlate(event(message="b"), 2.0)
    assert first
    assert second
    assert other
    assert (first.update, second.update, other.update) == (False, True, False)
    assert second.event.metadata.name == first.event.metadata.name
    assert second.event.first_timestamp == first.event.first_timestamp
    assert (first.event.count, second.event.count, other.event.count) == (1, 2, 1)


def test_ev10_another_container_is_another_event() -> None:
    correlator = Correlator()
    one, two = event(), event()
    part = msgspec.structs.replace(two.involved_object, field_path="spec.containers{b}")
    correlator.correlate(one, 0.0)
    sent = correlator.correlate(msgspec.structs.replace(two, involved_object=part), 0.0)
    assert sent
    assert not sent.update


def test_ev10_the_oldest_of_4096_is_forgotten_first() -> None:
    correlator = Correlator(remembered=2)
    pods = [make_pod(name) for name in "abc"]
    for pod in (pods[0], pods[1], pods[0], pods[2]):
        correlator.correlate(event(pod), 0.0)
    again = [correlator.correlate(event(pod), 0.0) for pod in (pods[0], pods[1])]
    assert [sent and sent.event.count for sent in again] == [3, 1]


def test_ev11_the_tenth_different_message_is_combined_with_those_before() -> None:
    correlator = Correlator()
    sent = [correlator.correlate(event(message=f"m{n}"), float(n)) for n in range(12)]
    assert all(sent)
    texts = [each.event.message for each in sent if each]
    assert texts[:9] == [f"m{n}" for n in range(9)]
    assert texts[9:] == [f"(combined from similar events): m{n}" for n in (9, 10, 11)]
    assert [each.event.count for each in sent[9:] if each] == [1, 2, 3]
    assert len({each.event.metadata.name for each in sent[9:] if each}) == 1
    known = correlator.correlate(event(message="m3"), 13.0)
    assert known
    assert (known.event.message, known.event.count) == ("m3", 2)
    later = correlator.correlate(event(message="m99"), 13.0 + WINDOW + 1)
    assert later
    assert later.event.message == "m99"


def test_ev12_a_burst_of_25_is_sent_and_then_one_in_five_minutes() -> None:
    correlator = Correlator()
    sent = [correlator.correlate(event(), 0.0) for _ in range(40)]
    assert [each is not None for each in sent] == [True] * 25 + [False] * 15
    assert correlator.correlate(event(make_pod("other")), 0.0), "another pod has its own allowance"
    assert correlator.correlate(event(), REFILL - 1) is None
    after = correlator.correlate(event(), REFILL)
    assert after
    assert after.event.count == 42, "what was not sent counts all the same"
    assert correlator.correlate(event(), REFILL) is None


def test_ev12_warnings_leave_room_for_normal_events() -> None:
    correlator = Correlator()
    for _ in range(BURST):
        assert correlator.correlate(event(), 0.0)
    assert correlator.correlate(event(), 0.0) is None
    assert correlator.correlate(msgspec.structs.replace(event(), type="Normal"), 0.0)


@dataclass(frozen=True)
class Saying:
    pause: float
    pod: str
    reason: str
    message: int


SAYINGS = st.lists(
    st.builds(
        Saying,
        st.sampled_from([0.0, 0.0, 0.0, 1.0, 30.0, 299.0, 601.0]),
        st.sampled_from("ab"),
        st.sampled_from("xy"),
        st.integers(0, 13),
    ),
    max_size=120,
)


def said(sayings: Sequence[Saying]) -> list[tuple[float, Saying, Sent | None]]:
    correlator, now, found = Correlator(), 0.0, []
    for saying in sayings:
        now += saying.pause
        happened = event(make_pod(saying.pod), saying.reason, f"m{saying.message}")
        found.append((now, saying, correlator.correlate(happened, now)))
    return found


def plain(history: Sequence[tuple[float, Saying, Sent | None]], index: int) -> bool:
    """Whether an event keeps its message, from what was said before and nothing else.

    The group's history starts where it was silent for longer than the window; a message has a
    place of its own when at most eight others had one before it.
    """
    now, saying, _ = history[index]
    places: list[int] = []
    last = now
    for at, other, _sent in history[: index + 1]:
        if (other.pod, other.reason) != (saying.pod, saying.reason):
            continue
        if at - last > WINDOW:
            places = []
        last = at
        if other.message not in places and len(places) < SIMILAR - 1:
            places.append(other.message)
    return saying.message in places


@settings(max_examples=150)
@given(SAYINGS)
def test_ev11_messages_are_kept_or_combined_as_the_history_says(sayings: list[Saying]) -> None:
    history = said(sayings)
    for index, (_, saying, sent) in enumerate(history):
        if sent is not None:
            text = f"m{saying.message}"
            combined = f"(combined from similar events): {text}"
            assert sent.event.message == (text if plain(history, index) else combined)


@settings(max_examples=150)
@given(SAYINGS)
def test_ev10_counts_tell_how_often_something_was_said(sayings: list[Saying]) -> None:
    history = said(sayings)
    tally: dict[tuple[str, str, str], int] = {}
    for index, (_, saying, sent) in enumerate(history):
        what = f"m{saying.message}" if plain(history, index) else "combined"
        key = (saying.pod, saying.reason, what)
        tally[key] = tally.get(key, 0) + 1
        if sent is not None:
            assert sent.event.count == tally[key]
            assert sent.update == (tally[key] > 1)


@settings(max_examples=150)
@given(SAYINGS)
def test_ev12_in_no_time_more_is_sent_than_burst_and_refill_allow(sayings: list[Saying]) -> None:
    sent_at: dict[str, list[float]] = {}
    for now, saying, sent in said(sayings):
        allowed = sent_at.setdefault(saying.pod, [])
        if sent is not None:
            allowed.append(now)
            for first in range(len(allowed)):
                span = now - allowed[first]
                assert len(allowed) - first <= BURST + span / REFILL + 1e-6
        else:
            assert len(allowed) >= BURST, "nothing is held back before the burst is used up"


def test_long_messages_are_not_kept() -> None:
    correlator = Correlator()
    tracemalloc.start()
    try:
        for number in range(500):
            short = event(make_pod(f"web-{number}"))
            said = msgspec.structs.replace(short, message=f"{number}".ljust(20_000, "x"))
            assert correlator.correlate(said, float(number)) is not None
        del said
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()
