"""docs/behaviour/sources.md, "Settling": the decision alone."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.sources.settling import (
    OPEN_LONGEST,
    UNSEEN_QUIET,
    Change,
    FileFacts,
    Settling,
)

WEB = FileFacts(("/m/web",), "web", (1,), size=9)
EMPTY = FileFacts(("/m/web",), "web", (1,), size=0)
_WRITES = st.sampled_from([Change.WRITTEN, Change.CLOSED, Change.CREATED, Change.PLACED])
_STEPS = st.lists(st.tuples(_WRITES, st.floats(0.001, 3)), min_size=1, max_size=30)


def after(*changes: tuple[Change, float], file: FileFacts = WEB) -> float:
    """When the file can be read after changes at these times, looking after each."""
    settling = Settling()
    for change, when in changes:
        settling.note("/m/web", change, when)
    return round(settling.readable_at(file, changes[-1][1]), 3)


def test_t1_an_open_file_waits_for_its_writer() -> None:
    assert after((Change.WRITTEN, 1)) == 6
    assert after((Change.WRITTEN, 1), (Change.CLOSED, 20)) == 20.2
    assert after((Change.CLOSED, 1), (Change.WRITTEN, 1.1)) == 6.1
    assert after(*((Change.WRITTEN, t) for t in range(1, 30))) == 31


def test_t2_a_closed_file_rests_a_little_and_a_doubtful_one_longer() -> None:
    closed = (Change.CREATED, 1), (Change.WRITTEN, 1), (Change.CLOSED, 1)
    assert after(*closed) == 1.2
    assert after(*closed, file=EMPTY) == 2
    for name in ("sedAb12Zz", "tmpab12_x_y"):
        assert after(*closed, file=FileFacts(("/m/web",), name, (1,))) == 2
    assert after(*((Change.CLOSED, t / 10) for t in range(100))) == 5


def test_t3_what_is_put_in_place_is_whole() -> None:
    assert after((Change.WRITTEN, 1), (Change.PLACED, 2)) == 2.05
    assert after((Change.PLACED, 2), (Change.PLACED, 2.04)) == 2.05
    assert after((Change.CREATED, 2)) == 2.05, "made with content in it, so linked"
    assert after((Change.CREATED, 2), file=EMPTY) == 7, "made to be written"
    assert after((Change.CREATED, 2), file=FileFacts(("/m/web",), "w", (1,), 0, 2)) == 2.05


def test_t4_without_events_it_must_look_the_same_or_be_old() -> None:
    settling = Settling()
    assert settling.readable_at(FileFacts(("/a",), "a", (1,), age=1.0), 5) == 5
    assert settling.readable_at(FileFacts(("/a",), "a", (1,), age=-300.0), 5) == 5 + UNSEEN_QUIET
    settling.end(settling.begin(), {"/a": 5.3})
    assert settling.readable_at(FileFacts(("/a",), "a", (2,)), 5.2) == 5.2 + UNSEEN_QUIET
    assert settling.readable_at(FileFacts(("/a",), "a", (2,)), 5.4) == 5.2 + UNSEEN_QUIET
    read = [n for n in range(53, 400) if settling.readable_at(_changed(n), n / 10) <= n / 10]
    assert read[0] / 10 == 5 + OPEN_LONGEST, "it never looks the same, and is read in the end"


def _changed(number: int) -> FileFacts:
    return FileFacts(("/a",), "a", (number,))


def test_t7_a_new_link_says_nothing_of_what_it_leads_to() -> None:
    keys = ("/m/web", "/m/..data", "/out/web")
    settling = Settling()
    settling.note("/m/web", Change.CREATED, 1)
    assert settling.readable_at(FileFacts(keys, "web", (1,)), 1) == 1 + UNSEEN_QUIET
    settling.note("/out/web", Change.WRITTEN, 1)
    assert settling.readable_at(FileFacts(keys, "web", (1,)), 1) == 6
    settling.note("/out/web", Change.CLOSED, 2)
    assert settling.readable_at(FileFacts(keys, "web", (1,)), 2) == 2.2


@given(_STEPS)
def test_every_file_can_be_read_in_the_end_and_a_look_is_due_then(
    steps: list[tuple[Change, float]],
) -> None:
    """sources.md, T1, T2."""
    settling, now = Settling(), 0.0
    for change, pause in steps:
        now += pause
        settling.note("/m/web", change, now)
    looks = 0
    while True:
        due = settling.due()
        assert math.isfinite(due)
        now = max(now, due)
        number = settling.begin()
        ready = settling.readable_at(WEB, now)
        looks += 1
        if ready <= now:
            break
        settling.end(number, {"/m/web": ready})
    settling.end(number, {})
    assert settling.due() == math.inf, "nothing is left to look for"
    assert looks <= 3, "the looks are no polling"
    assert ready <= sum(pause for _, pause in steps) + 5


@given(_STEPS)
def test_an_event_during_a_look_is_not_lost(steps: list[tuple[Change, float]]) -> None:
    """sources.md, T1."""
    settling, now = Settling(), 0.0
    for change, pause in steps:
        now += pause
        number = settling.begin()
        settling.note("/m/web", change, now)
        assert settling.changed_since(("/m/web",), number)
        settling.end(number, {})
        assert math.isfinite(settling.due())


def test_what_is_gone_makes_a_look_due_and_is_forgotten() -> None:
    """sources.md, T5."""
    settling = Settling()
    settling.note("/m/web", Change.WRITTEN, 1)
    settling.note("/m/web", Change.GONE, 2)
    assert settling.due() == 2.05
    settling.end(settling.begin(), {})
    assert settling.due() == math.inf
