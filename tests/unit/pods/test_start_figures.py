"""How long pods take to start, pulls and init containers told apart from the rest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from tests.unit.pods.status_builders import Clock, container_status, make_pod

from nodeagent.api import (
    Container,
    ContainerState,
    ContainerStateTerminated,
    Pod,
    PodStatus,
)
from nodeagent.pods.metrics import PodMetrics
from nodeagent.pods.start_figures import Span, StartFigures, covered

pytestmark = pytest.mark.anyio

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


def span(begin: float, end: float) -> Span:
    return EPOCH + timedelta(seconds=begin), EPOCH + timedelta(seconds=end)


@pytest.mark.parametrize(
    ("parts", "seconds"),
    [
        ([], 0),
        ([(2, 5)], 3),
        ([(5, 7), (2, 5)], 5),
        ([(2, 6), (4, 8)], 6),
        ([(1, 9), (3, 4)], 8),
        ([(-5, 2)], 2),
        ([(8, 20)], 2),
        ([(-5, 20)], 10),
        ([(11, 20), (-5, -1)], 0),
        ([(5, 3)], 0),
    ],
)
def test_what_parts_cover_of_ten_seconds(parts: list[tuple[float, float]], seconds: float) -> None:
    assert covered(span(0, 10), [span(*part) for part in parts]) == seconds


@given(st.lists(st.tuples(st.integers(-5, 15), st.integers(-5, 15))))
def test_each_second_is_counted_once(parts: list[tuple[int, int]]) -> None:
    inside = {s for begin, end in parts for s in range(begin, end) if 0 <= s < 10}
    assert covered(span(0, 10), [span(*part) for part in parts]) == len(inside)


def _ran(begin: datetime, seconds: float) -> ContainerState:
    end = begin + timedelta(seconds=seconds)
    return ContainerState(
        terminated=ContainerStateTerminated(exit_code=0, started_at=begin, finished_at=end)
    )


async def test_pulls_and_init_containers_are_taken_off_but_not_sidecars() -> None:
    registry, clock = CollectorRegistry(), Clock()
    created = clock.now()
    pod = make_pod(source="api")
    inits = (Container(name="prepare"), Container(name="side", restart_policy="Always"))
    pod = replace(
        pod,
        metadata=replace(pod.metadata, creation_timestamp=created),
        spec=replace(pod.spec, init_containers=inits),
    )
    pulled = created + timedelta(seconds=1), created + timedelta(seconds=5)
    figures = StartFigures(PodMetrics(registry), clock, lambda _uid: pulled)
    figures.new_phase(pod, PodStatus(phase="Pending"))
    clock.move(20)
    statuses = (
        # The pull of the next image began while it ran.
        container_status("prepare", _ran(created + timedelta(seconds=4), 3)),
        container_status("side", _ran(created + timedelta(seconds=7), 9)),
    )
    figures.new_phase(pod, PodStatus(phase="Running", init_container_statuses=statuses))
    assert _sums(registry) == {"total": 20.0, "sli": 14.0}


async def test_a_pod_that_never_ran_and_one_that_is_static_are_not_timed() -> None:
    registry, clock = CollectorRegistry(), Clock()
    figures = StartFigures(PodMetrics(registry), clock, lambda _uid: None)
    gone, static = _made(clock, "api"), _made(clock, "file")
    figures.new_phase(gone, PodStatus(phase="Pending"))
    figures.new_phase(gone, PodStatus(phase="Failed"))
    figures.new_phase(gone, PodStatus(phase="Running"))
    figures.new_phase(static, PodStatus(phase="Pending"))
    figures.new_phase(static, PodStatus(phase="Running"))
    assert registry.get_sample_value("kubelet_pod_start_sli_duration_seconds_count") == 0


def _made(clock: Clock, source: str) -> Pod:
    pod = make_pod(source=source)
    return replace(pod, metadata=replace(pod.metadata, creation_timestamp=clock.now()))


def _sums(registry: CollectorRegistry) -> dict[str, float | None]:
    return {
        kind: registry.get_sample_value(f"kubelet_pod_start_{kind}_duration_seconds_sum")
        for kind in ("total", "sli")
    }
