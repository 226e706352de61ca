"""Checkpoints of containers, asked for through the API server.

docs/behaviour/server.md, "Checkpoints".
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.cluster.served import create, served_node
from tests.e2e.lab.containerd_lab import Lab

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


@pytest.fixture
def node(lab: Lab, plane: ControlPlane, address: str, tmp_path: Path) -> Iterator[ClusterNode]:
    with served_node(lab.endpoint, plane, address, tmp_path) as node:
        yield node


def _asked_for(node: ClusterNode, path: str) -> str:
    """What kubectl says about a checkpoint that it could not get."""
    url = f"/api/v1/nodes/{node.name}/proxy/checkpoint/{path}"
    done = node.plane.kubectl.outcome("create", "--raw", url, "-f", "-")
    assert done.returncode
    return done.stderr.decode()


def test_hk3_a_containerd_that_knows_no_checkpoints_says_so(lab: Lab, node: ClusterNode) -> None:
    """The one of this laboratory does not; what runs is left alone."""
    create(node, "web")
    said = _asked_for(node, "default/web/main?timeout=10")
    assert "checkpointing of default/web/main failed (" in said
    assert "unimplemented: method CheckpointContainer not implemented" in said
    assert len(lab.cri.running("web")) == 1
    directory = node.root_dir / "checkpoints"
    assert list(directory.glob("checkpoint-*")) == []
    assert directory.stat().st_mode & 0o777 == 0o700
    metrics = node.ask("/metrics")
    operation = 'operation_type="checkpoint_container"'
    assert f"kubelet_runtime_operations_errors_total{{{operation}}} 1.0" in metrics


def test_hk2_nobody_knows_the_pod_or_the_container(node: ClusterNode) -> None:
    """Kubectl shows no more of such an answer than that there is nothing."""
    create(node, "web")
    for path in ("default/other/main", "default/web/other", "default/web/main?timeout=soon"):
        assert "Error from server (NotFound)" in _asked_for(node, path), path
    said = _asked_for(node, "default/web/main?timeout=-1")
    assert "(CheckpointContainer: invalid argument: the timeout is -1 s" in said
