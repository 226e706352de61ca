"""docs/behaviour/workers.md, "Work queue"."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model import PodUID
from nodeagent.pods.work_queue import WorkQueue

A, B, C = PodUID("a"), PodUID("b"), PodUID("c")


def test_w1_setting_a_due_time_replaces_the_last_one() -> None:
    queue = WorkQueue()
    queue.set(A, 1.0)
    queue.set(A, 5.0)
    assert queue.due_at(A) == 5.0
    assert queue.next_due == 5.0
    assert queue.pop_due(4.0) == []
    assert queue.pop_due(5.0) == [A]
    assert len(queue) == 0


def test_w2_what_is_due_comes_the_longest_due_first() -> None:
    queue = WorkQueue()
    for uid, due in ((A, 3.0), (B, 1.0), (C, 9.0)):
        queue.set(uid, due)
    assert queue.pop_due(3.0) == [B, A]
    assert C in queue
    assert queue.next_due == 9.0


def test_a_discarded_pod_is_never_due() -> None:
    queue = WorkQueue()
    queue.set(A, 1.0)
    queue.discard(A)
    queue.discard(B)
    assert queue.next_due is None
    assert queue.pop_due(10.0) == []


def test_w3_the_heap_stays_small_however_often_times_change() -> None:
    queue = WorkQueue()
    for step in range(10_000):
        queue.set(A, float(step))
    assert len(queue._heap) < 100
    assert queue.pop_due(1e9) == [A]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdef"),
            st.one_of(st.none(), st.integers(0, 50)),
        ),
        max_size=300,
    ),
    st.integers(0, 50),
)
def test_the_queue_is_a_dictionary_of_due_times(
    steps: list[tuple[str, int | None]], now: int
) -> None:
    queue, model = WorkQueue(), dict[str, int]()
    for name, due in steps:
        if due is None:
            queue.discard(PodUID(name))
            model.pop(name, None)
        else:
            queue.set(PodUID(name), float(due))
            model[name] = due
    assert len(queue) == len(model)
    assert queue.next_due == (min(model.values()) if model else None)
    popped = queue.pop_due(float(now))
    assert sorted(popped) == sorted(name for name, due in model.items() if due <= now)
    assert [model[uid] for uid in popped] == sorted(model[uid] for uid in popped)
