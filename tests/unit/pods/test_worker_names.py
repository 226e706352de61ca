"""docs/behaviour/workers.md, "Static pods", the bookkeeping."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model import FullName, PodUID
from nodeagent.pods.worker_names import StaticNames

WEB = FullName("web_default")
A, B, C = PodUID("a"), PodUID("b"), PodUID("c")


def nobody(uid: PodUID) -> bool:
    return False


def test_n1_one_uid_at_a_time_holds_a_name() -> None:
    names = StaticNames()
    names.enqueue(WEB, A)
    names.enqueue(WEB, B)
    assert names.request(WEB, A, nobody)
    assert names.request(WEB, A, nobody)
    assert not names.request(WEB, B, nobody)
    assert names.holder(WEB) == A


def test_n2_the_others_wait_in_order_of_arrival() -> None:
    names = StaticNames()
    for uid in (A, B, C):
        names.enqueue(WEB, uid)
    assert not names.request(WEB, C, nobody)
    assert names.request(WEB, A, nobody)
    assert names.release(WEB, A) == (B, C)
    assert not names.request(WEB, C, nobody)
    assert names.request(WEB, B, nobody)


def test_n2_the_gone_and_ending_are_passed_over() -> None:
    names = StaticNames()
    for uid in (A, B, C):
        names.enqueue(WEB, uid)
    assert names.request(WEB, C, lambda uid: uid in (A, B))


def test_a_release_by_one_that_waits_frees_nothing() -> None:
    names = StaticNames()
    for uid in (A, B):
        names.enqueue(WEB, uid)
    names.request(WEB, A, nobody)
    assert names.release(WEB, B) == ()
    assert names.holder(WEB) == A
    assert names.release(WEB, A) == ()
    assert names.holder(WEB) is None


@given(st.lists(st.tuples(st.sampled_from("+?-"), st.sampled_from("abcd")), max_size=60))
def test_n1_two_never_hold_a_name_and_a_free_name_is_given_to_the_first(
    steps: list[tuple[str, str]],
) -> None:
    names = StaticNames()
    line: list[str] = []
    holder: str | None = None
    for step, name in steps:
        uid = PodUID(name)
        if step == "+" and name not in line and name != holder:
            names.enqueue(WEB, uid)
            line.append(name)
        elif step == "?" and (name in line or name == holder):
            granted = names.request(WEB, uid, nobody)
            assert granted == (holder == name or (holder is None and line[0] == name))
            if granted and holder is None:
                holder = name
                line.remove(name)
        elif step == "-":
            names.release(WEB, uid)
            line = [waiting for waiting in line if waiting != name]
            holder = None if holder == name else holder
        assert names.holder(WEB) == holder
