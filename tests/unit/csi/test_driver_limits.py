"""When drivers are asked for their limits: docs/behaviour/csi.md, "Node objects"."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.csi.limits import planned

DRIVERS = st.sampled_from("abc")
TIMES = st.floats(0, 1e6)


def test_yn7_a_driver_is_asked_as_often_as_it_wants() -> None:
    assert planned({}, {"a": 60.0, "b": 0.0}, 5.0) == {"a": 65.0, "b": 15.0}
    # A question that is due is not put off, and one of a driver that is gone is not asked.
    assert planned({"a": 0.0, "b": 7.0}, {"a": 60.0}, 5.0) == {"a": 0.0}
    assert planned({"a": 900.0}, {"a": 60.0}, 5.0) == {"a": 65.0}


@given(st.dictionaries(DRIVERS, TIMES), st.dictionaries(DRIVERS, TIMES), TIMES)
def test_yn7_a_question_never_moves_away(
    due: dict[str, float], periods: dict[str, float], now: float
) -> None:
    found = planned(due, periods, now)
    assert found.keys() == periods.keys()
    for driver, at in found.items():
        assert at <= due.get(driver, at)
        assert at == due.get(driver) or at >= now + 10
    assert planned(found, periods, now) == found
