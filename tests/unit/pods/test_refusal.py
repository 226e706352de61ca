"""The status of a pod that asks for what we cannot do (docs/behaviour/workers.md, "Sync calls")."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeagent.api import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateWaiting,
    ContainerStatus,
    PodStatus,
)
from nodeagent.pods.rejection import UNSUPPORTED, with_refusal, without_refusal

STATES = (
    ContainerState(waiting=ContainerStateWaiting(reason="ContainerCreating")),
    ContainerState(running=ContainerStateRunning()),
)
STATUSES = st.builds(
    PodStatus,
    phase=st.sampled_from(["", "Pending", "Running"]),
    container_statuses=st.lists(
        st.builds(ContainerStatus, name=st.just("c"), state=st.sampled_from(STATES)), max_size=3
    ).map(tuple),
)


@given(STATUSES, st.lists(st.sampled_from(["spec.a", "spec.b"]), min_size=1))
def test_what_waits_says_why_and_what_runs_goes_on(status: PodStatus, fields: list[str]) -> None:
    refused = with_refusal(status, fields)
    assert refused.phase == (status.phase or "Pending")
    assert refused.reason == UNSUPPORTED
    assert all(field in refused.message for field in fields)
    for before, after in zip(status.container_statuses, refused.container_statuses, strict=True):
        if before.state.waiting is None:
            assert after == before
        else:
            waiting = ContainerStateWaiting(reason=UNSUPPORTED, message=refused.message)
            assert after.state == ContainerState(waiting=waiting)


@given(STATUSES, st.sampled_from(["", "Evicted"]))
def test_a_refusal_is_taken_back_and_nothing_else(status: PodStatus, reason: str) -> None:
    status = replace(status, reason=reason, message=reason)
    assert without_refusal(status) == status
    taken_back = without_refusal(with_refusal(status, ["spec.a"]))
    assert (taken_back.reason, taken_back.message) == ("", "")
