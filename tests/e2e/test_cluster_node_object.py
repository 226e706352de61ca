"""A real API server and kubectl see the machine as they see a kubelet's."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.waiting import until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


@pytest.fixture
def node(lab: Lab, plane: ControlPlane, tmp_path: Path) -> Iterator[ClusterNode]:
    flags = (
        "--node-ip=0.0.0.0",
        "--node-labels=team=a,node.kubernetes.io/kind=small",
        "--register-with-taints=dedicated=team-a:PreferNoSchedule",
        "--kube-reserved=cpu=100m,memory=64Mi",
        "--node-status-max-images=3",
    )
    made = ClusterNode(tmp_path, lab.endpoint, plane, "node-object", *flags)
    try:
        made.start()
        made.wait_ready()
        yield made
    finally:
        made.close()


def test_a_node_reads_as_with_the_kubelet(node: ClusterNode, plane: ControlPlane) -> None:
    row = plane.kubectl.row("get", "node", node.name, "-o", "wide")
    assert row["STATUS"] == "Ready"
    assert row["VERSION"].startswith("v1.36.0+nodeagent.")
    assert row["CONTAINER-RUNTIME"].startswith("containerd://")
    assert row["OS-IMAGE"] != "<unknown>"
    said = plane.kubectl("describe", "node", node.name)
    for text in ("team=a", "dedicated=team-a:PreferNoSchedule", "KubeletReady", "HolderIdentity"):
        assert text in said
    status = plane.kubectl.json("get", "node", node.name)["status"]
    assert len(status["images"]) == 3
    assert status["capacity"].keys() == status["allocatable"].keys()
    assert status["capacity"]["cpu"] != status["allocatable"]["cpu"]
    lease = plane.kubectl.json("get", "lease", "-n", "kube-node-lease", node.name)
    assert lease["spec"]["holderIdentity"] == node.name
    until(
        "events of the node",
        lambda: "NodeHasSufficientMemory" in plane.kubectl("describe", "node", node.name),
    )


def test_a_node_that_people_change_or_delete_is_put_right(
    node: ClusterNode, plane: ControlPlane
) -> None:
    plane.kubectl("label", "node", node.name, "kubernetes.io/arch=vax", "--overwrite")
    plane.kubectl("label", "node", node.name, "theirs=1")
    plane.kubectl("cordon", node.name)

    def labels() -> dict[str, str]:
        found = plane.api.find(node.path) or {}
        given: dict[str, str] = found.get("metadata", {}).get("labels", {})
        return given

    until("the architecture is right again", lambda: labels().get("kubernetes.io/arch") != "vax")
    assert labels()["theirs"] == "1"
    until(
        "the cordon is told",
        lambda: "NodeNotSchedulable" in plane.kubectl("describe", "node", node.name),
    )
    uid = plane.api.get(node.path)["metadata"]["uid"]
    plane.kubectl("delete", "node", node.name)
    until(
        "the node is made again",
        lambda: (plane.api.find(node.path) or {}).get("metadata", {}).get("uid", uid) != uid,
    )
    assert labels()["team"] == "a"
    node.wait_ready()
