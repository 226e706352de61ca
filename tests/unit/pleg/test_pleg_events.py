"""docs/behaviour/pleg.md, "Events": one test row per row of the table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.pleg.pleg_builders import (
    CREATED,
    EXITED,
    NOT_READY,
    READY,
    RUNNING,
    UNKNOWN,
    container,
    make_pod,
    sandbox,
)

from nodeagent.model import (
    ContainerState,
    PodLifecycleEvent,
    PodLifecycleEventType,
    PodUID,
    RuntimeContainer,
    RuntimePod,
    RuntimeSandbox,
    SandboxState,
)
from nodeagent.pleg import compute_events

STARTED = PodLifecycleEventType.CONTAINER_STARTED
DIED = PodLifecycleEventType.CONTAINER_DIED
REMOVED = PodLifecycleEventType.CONTAINER_REMOVED
CHANGED = PodLifecycleEventType.CONTAINER_CHANGED
SYNC = PodLifecycleEventType.POD_SYNC

# One line per row of the table: what was seen, what is seen, which events. None is "not there".
ROWS = [
    # "Events", running
    (None, RUNNING, (STARTED,)),
    (CREATED, RUNNING, (STARTED,)),
    (EXITED, RUNNING, (STARTED,)),
    (UNKNOWN, RUNNING, (STARTED,)),
    # "Events", exited
    (None, EXITED, (DIED,)),
    (CREATED, EXITED, (DIED,)),
    (RUNNING, EXITED, (DIED,)),
    (UNKNOWN, EXITED, (DIED,)),
    # "Events", created
    (None, CREATED, (CHANGED,)),
    (RUNNING, CREATED, (CHANGED,)),
    (EXITED, CREATED, (CHANGED,)),
    (UNKNOWN, CREATED, (CHANGED,)),
    # "Events", unknown
    (None, UNKNOWN, (CHANGED, SYNC)),
    (CREATED, UNKNOWN, (CHANGED, SYNC)),
    (RUNNING, UNKNOWN, (CHANGED, SYNC)),
    (EXITED, UNKNOWN, (CHANGED, SYNC)),
    # "Events", gone after exited
    (EXITED, None, (REMOVED,)),
    # "Events", gone otherwise
    (CREATED, None, (DIED, REMOVED)),
    (RUNNING, None, (DIED, REMOVED)),
    (UNKNOWN, None, (DIED, REMOVED)),
    # unchanged
    (None, None, ()),
    (CREATED, CREATED, ()),
    (RUNNING, RUNNING, ()),
    (EXITED, EXITED, ()),
    (UNKNOWN, UNKNOWN, ()),
]
SANDBOX_ROWS = [
    (None, READY, (STARTED,)),
    (NOT_READY, READY, (STARTED,)),
    (None, NOT_READY, (DIED,)),
    (READY, NOT_READY, (DIED,)),
    (NOT_READY, None, (REMOVED,)),
    (READY, None, (DIED, REMOVED)),
    (READY, READY, ()),
    (NOT_READY, NOT_READY, ()),
]


def pod_of(part: RuntimeContainer | RuntimeSandbox | None) -> RuntimePod:
    return make_pod("u") if part is None else make_pod("u", part)


@pytest.mark.parametrize(("before", "after", "expected"), ROWS)
def test_a_container_gives_the_events_of_its_row(
    before: ContainerState | None,
    after: ContainerState | None,
    expected: tuple[PodLifecycleEventType, ...],
) -> None:
    """docs/behaviour/pleg.md, "Events", all rows, for containers.

    "Events", running; "Events", exited; "Events", created; "Events", unknown;
    "Events", gone after exited; "Events", gone otherwise.
    """
    old = pod_of(None if before is None else container("c", before))
    new = pod_of(None if after is None else container("c", after))
    events = compute_events(old, new)
    assert tuple(event.type for event in events) == expected
    assert all(event.container_id == ("" if event.type is SYNC else "c") for event in events)
    assert all(event.pod_uid == "u" for event in events)


@pytest.mark.parametrize(("before", "after", "expected"), SANDBOX_ROWS)
def test_a_sandbox_counts_as_running_when_ready_and_as_exited_when_not(
    before: SandboxState | None,
    after: SandboxState | None,
    expected: tuple[PodLifecycleEventType, ...],
) -> None:
    """docs/behaviour/pleg.md, "Events", all rows, for sandboxes."""
    old = pod_of(None if before is None else sandbox("s", before))
    new = pod_of(None if after is None else sandbox("s", after))
    assert tuple(event.type for event in compute_events(old, new)) == expected


def test_a_pod_that_appears_or_vanishes_is_as_if_all_it_has_did() -> None:
    """docs/behaviour/pleg.md, "Events", appears or vanishes."""
    pod = make_pod("u", container("c", RUNNING), sandbox("s"))
    appeared = compute_events(None, pod)
    assert [(e.type, e.container_id) for e in appeared] == [(STARTED, "c"), (STARTED, "s")]
    vanished = compute_events(pod, None)
    assert [(e.type, e.container_id) for e in vanished] == [
        (DIED, "c"),
        (REMOVED, "c"),
        (DIED, "s"),
        (REMOVED, "s"),
    ]
    assert compute_events(None, None) == ()


def test_a_container_turned_unknown_wakes_nobody_twice() -> None:
    """docs/behaviour/pleg.md, "Events", unknown: PodSync only when nothing else wakes the pod."""
    old = make_pod("u", container("a", RUNNING), container("b", RUNNING))
    new = make_pod("u", container("a", UNKNOWN), container("b", EXITED))
    assert [event.type for event in compute_events(old, new)] == [CHANGED, DIED]
    removed = make_pod("u", container("a", UNKNOWN))
    before = make_pod("u", container("a", RUNNING), container("b", EXITED))
    assert [event.type for event in compute_events(before, removed)] == [CHANGED, REMOVED, SYNC]


ids = st.sampled_from(["a", "b", "c", "d"])
pods = st.none() | st.builds(
    lambda containers, sandboxes: make_pod(
        "u",
        *(container(id_, state) for id_, state in containers.items()),
        *(sandbox(f"s-{id_}", state) for id_, state in sandboxes.items()),
    ),
    st.dictionaries(ids, st.sampled_from(ContainerState)),
    st.dictionaries(ids, st.sampled_from(SandboxState)),
)


def words(pod: RuntimePod | None) -> dict[str, str]:
    """What is there and how it is, in the words of the behaviour page."""
    if pod is None:
        return {}
    shown = {"ready": "running", "notready": "exited"}
    found: dict[str, str] = {c.id: c.state.value for c in pod.containers}
    found.update((s.id, shown[s.state.value]) for s in pod.sandboxes)
    return found


def stated(old: RuntimePod | None, new: RuntimePod | None) -> set[PodLifecycleEvent]:
    """The table once more, read column by column instead of row by row."""
    before, after = words(old), words(new)
    uid = PodUID("u")
    started = {i for i in after if after[i] == "running" and before.get(i) != "running"}
    ended = {i for i in after if after[i] == "exited" and before.get(i) != "exited"}
    gone = before.keys() - after.keys()
    died = ended | {i for i in gone if before[i] != "exited"}
    unknown = {i for i in after if after[i] == "unknown" and before.get(i) != "unknown"}
    created = {i for i in after if after[i] == "created" and before.get(i) != "created"}
    events = {
        *(PodLifecycleEvent(uid, STARTED, i) for i in started),
        *(PodLifecycleEvent(uid, DIED, i) for i in died),
        *(PodLifecycleEvent(uid, REMOVED, i) for i in gone),
        *(PodLifecycleEvent(uid, CHANGED, i) for i in unknown | created),
    }
    if unknown and not (started or died):
        events.add(PodLifecycleEvent(uid, SYNC))
    return events


@given(pods, pods)
def test_the_events_are_those_of_the_table(old: RuntimePod | None, new: RuntimePod | None) -> None:
    """docs/behaviour/pleg.md, "Events", against an independent statement of the table."""
    events = compute_events(old, new)
    assert len(events) == len(set(events))
    assert set(events) == stated(old, new)


@given(pods, pods)
def test_death_is_told_before_removal_and_order_depends_on_nothing_else(
    old: RuntimePod | None, new: RuntimePod | None
) -> None:
    """docs/behaviour/pleg.md, "Events", order."""
    events = compute_events(old, new)
    kinds = [(event.container_id, event.type) for event in events]
    for id_, kind in kinds:
        if kind is REMOVED and (id_, DIED) in kinds:
            assert kinds.index((id_, DIED)) + 1 == kinds.index((id_, REMOVED))
    assert events == compute_events(old, new)
    assert compute_events(old, old) == ()


@given(pods)
def test_a_pod_that_stays_as_it_is_gives_no_event_even_as_another_object(
    pod: RuntimePod | None,
) -> None:
    """docs/behaviour/pleg.md, "Events"."""
    if pod is not None:
        twin = RuntimePod(pod.uid, pod.name, pod.namespace, pod.sandboxes[::-1], pod.containers)
        assert compute_events(pod, twin) == ()
