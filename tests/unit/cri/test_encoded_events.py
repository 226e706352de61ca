"""docs/behaviour/pleg.md, "Event feeds": what is read of an event as it comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.cri.encoded_events import EventFacts, read_event
from nodeagent.cri.events import Effect, _facts, _hint
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Internal

kinds = st.one_of(st.sampled_from(list(v1.ContainerEventType)), st.integers(4, 99))
sandboxes = st.none() | st.builds(
    v1.PodSandboxStatus,
    id=st.text(max_size=9),
    metadata=st.none() | st.builds(v1.PodSandboxMetadata, name=st.text(), uid=st.text()),
    labels=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
)


@given(
    st.builds(
        v1.ContainerEventResponse,
        container_id=st.text(max_size=9),
        container_event_type=kinds.map(v1.ContainerEventType),
        created_at=st.integers(0, 2**62),
        pod_sandbox_status=sandboxes,
        containers_statuses=st.lists(st.just(v1.ContainerStatus(id="c")), max_size=2),
    )
)
def test_the_facts_are_those_of_the_whole_event(event: v1.ContainerEventResponse) -> None:
    assert read_event(bytes(event)) == _facts(event)


def test_the_creation_of_a_container_waits_for_its_start_and_that_of_a_sandbox_does_not() -> None:
    created = "CONTAINER_CREATED_EVENT"
    assert _hint(EventFacts("c", created, 0, "s", "u")).effect is Effect.CREATED
    assert _hint(EventFacts("s", created, 0, "s", "u")).effect is Effect.ANY
    assert _hint(EventFacts("c", created, 0, "", "")).effect is Effect.ANY
    assert _hint(EventFacts("c", "CONTAINER_STARTED_EVENT", 0, "s", "u")).effect is Effect.ANY


@pytest.mark.parametrize("data", [b"\x0a\x05ab", b"\x0a\x01\xff", b"\x10"])
def test_what_is_no_event_is_said(data: bytes) -> None:
    with pytest.raises(Internal):
        read_event(data)
