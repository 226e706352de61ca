"""A real API server makes of our patches what we mean by them."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from tests.e2e.cluster.api import RefusedError
from tests.e2e.cluster.control_plane import ControlPlane

from nodeagent.api import ContainerState, ContainerStatus, Pod, PodCondition, PodIP, PodStatus
from nodeagent.api.codec import convert
from nodeagent.api.status import ContainerStateRunning
from nodeagent.pods.status_merge import is_part_of, merge_status, status_patch

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]

POD = "/api/v1/namespaces/default/pods/patched"
SINCE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def condition(kind: str, status: str, reason: str = "", *, after: int = 0) -> PodCondition:
    moved = SINCE + timedelta(seconds=after)
    return PodCondition(type=kind, status=status, reason=reason, last_transition_time=moved)


@pytest.fixture
def pod(plane: ControlPlane) -> Iterator[Pod]:
    spec = {
        "nodeName": "nobody",
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "example.com/web"}],
    }
    yield convert(
        plane.api.create(
            "/api/v1/namespaces/default/pods", {"metadata": {"name": "patched"}, "spec": spec}
        ),
        Pod,
    )
    plane.api.delete(POD, grace=0)


def bring(plane: ControlPlane, ours: PodStatus, *, uid: str = "") -> Pod:
    """Bring the pod's status to what was computed, in one patch; what came of it."""
    pod = convert(plane.api.get(POD), Pod)
    merged = merge_status(pod.status, ours, may_run=False)
    patch = status_patch(pod.status, merged)
    if patch is None:
        return pod
    body: dict[str, Any] = {"metadata": {"uid": uid or pod.metadata.uid}, "status": patch}
    kind = "application/strategic-merge-patch+json"
    found = convert(json.loads(plane.api.text("PATCH", f"{POD}/status", body, kind=kind)), Pod)
    left = status_patch(found.status, merge_status(found.status, ours, may_run=False))
    assert left is None or is_part_of(left, patch)
    return found


def test_statuses_arrive_as_they_were_computed(plane: ControlPlane, pod: Pod) -> None:
    assert pod.status.phase == "Pending"
    foreign = {"status": {"conditions": [{"type": "example.com/Mine", "status": "True"}]}}
    plane.api.patch(f"{POD}/status", foreign)
    started = ContainerStatus(
        name="main",
        state=ContainerState(running=ContainerStateRunning(started_at=SINCE)),
        ready=True,
        started=True,
        image="example.com/web",
        container_id="containerd://c1",
    )
    kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    first = PodStatus(
        phase="Pending",
        conditions=tuple(condition(kind, "False", "Waiting") for kind in kinds),
        host_ip="10.0.0.1",
        pod_ip="10.1.0.1",
        pod_ips=(PodIP(ip="10.1.0.1"), PodIP(ip="fd00::1")),
        start_time=SINCE,
        qos_class="BestEffort",
    )
    second = replace(
        first,
        phase="Running",
        conditions=tuple(condition(kind, "True", after=5) for kind in kinds),
        pod_ip="10.1.0.2",
        pod_ips=(PodIP(ip="10.1.0.2"), PodIP(ip="fd00::1")),
        container_statuses=(started,),
    )
    third = replace(second, phase="Failed", reason="Evicted", pod_ip="", pod_ips=(), conditions=())
    for ours in (first, second, third):
        shown = bring(plane, ours).status
        merged = merge_status(shown, ours, may_run=False)
        assert shown.conditions == merged.conditions
        assert next(c.type for c in shown.conditions) == "example.com/Mine"
        for part in ("phase", "reason", "pod_ip", "pod_ips", "start_time", "container_statuses"):
            assert getattr(shown, part) == getattr(merged, part), part
        before = plane.api.get(POD)["metadata"]["resourceVersion"]
        assert bring(plane, ours).metadata.resource_version == before


def test_a_patch_never_meets_another_pod_of_the_name(plane: ControlPlane, pod: Pod) -> None:
    with pytest.raises(RefusedError) as refused:
        bring(plane, PodStatus(phase="Running"), uid="00000000-0000-0000-0000-000000000000")
    assert refused.value.code in (409, 422)
    assert convert(plane.api.get(POD), Pod).status == pod.status
