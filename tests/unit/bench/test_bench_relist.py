"""The relist benchmark measures what it says. No figure is asserted here."""

from __future__ import annotations

import json
import sys

import pytest

from nodeagent.bench import relist
from nodeagent.bench.c_protobuf import list_classes
from nodeagent.proto.runtime import v1


def test_the_figures_are_there_and_go_into_json() -> None:
    figures = relist.run(pods=3, containers_per_pod=2)
    assert json.loads(json.dumps(figures)) == figures
    assert (figures["pods"], figures["containers"]) == (3, 6)
    for name in ("interned_ms", "interned_reordered_ms", "decode_ms", "c_protobuf_ms"):
        value = figures[name]
        assert isinstance(value, float)
        assert value > 0
    size = figures["bytes_per_container"]
    assert isinstance(size, int)
    assert 650 <= size <= 800


def test_without_the_protobuf_package_its_figure_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf.internal", None)
    assert relist.run(1, 1)["c_protobuf_ms"] is None


@pytest.mark.parametrize(("pods", "containers"), [(0, 1), (1, 0), (-1, 4)])
def test_nothing_to_measure_is_refused(pods: int, containers: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        relist.run(pods, containers)


def test_the_c_classes_read_what_ours_write() -> None:
    sandboxes, containers = list_classes()
    sandbox, container = relist._sandbox(3), relist._container(3, 1)
    read = sandboxes.FromString(bytes(v1.ListPodSandboxResponse(items=[sandbox]))).items[0]
    assert dict(read.labels) == sandbox.labels
    assert read.metadata.uid == sandbox.labels["io.kubernetes.pod.uid"]
    ours = v1.ListContainersResponse(containers=[container])
    read = containers.FromString(bytes(ours)).items[0]
    assert (read.id, read.state, read.created_at) == (container.id, 1, container.created_at)
    assert dict(read.annotations) == container.annotations
    again = v1.ListContainersResponse.parse(containers.FromString(bytes(ours)).SerializeToString())
    assert again == ours
