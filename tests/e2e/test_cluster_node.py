"""A machine becomes a node: `kubectl get nodes`, `describe node`, and what changes them."""

import re
from contextlib import closing
from pathlib import Path

import pytest
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import Json, pod
from tests.e2e.lab.processes import that_complain_below
from tests.e2e.lab.waiting import stays, until

NODE = "edge-1"
pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


def test_get_nodes_shows_it_ready(plane: ControlPlane, node: ClusterNode) -> None:
    row = plane.kubectl.row("get", "nodes", "-o", "wide")
    assert (row["NAME"], row["STATUS"], row["ROLES"]) == ("edge-1", "Ready", "<none>")
    assert re.fullmatch(r"v1\.\d+\.\d+\S*", row["VERSION"])
    assert row["INTERNAL-IP"] == _address(plane, node)
    assert row["CONTAINER-RUNTIME"].startswith("containerd://1.")
    assert row["KERNEL-VERSION"] == Path("/proc/sys/kernel/osrelease").read_text().strip()


def test_describe_node_reads_as_with_the_kubelet(plane: ControlPlane, node: ClusterNode) -> None:
    node.run("shown")
    said = plane.kubectl("describe", "node", node.name)
    for line in (
        r"Name: +edge-1",
        r" +kubernetes\.io/hostname=edge-1",
        r" +kubernetes\.io/os=linux",
        r"  HolderIdentity: +edge-1",
        r"  MemoryPressure +False .* KubeletHasSufficientMemory +kubelet has sufficient memory .*",
        r"  DiskPressure +False .* KubeletHasNoDiskPressure +kubelet has no disk pressure",
        r"  PIDPressure +False .* KubeletHasSufficientPID +kubelet has sufficient PID available",
        r"  Ready +True .* KubeletReady +kubelet is posting ready status",
        r"  Hostname: +edge-1",
        r"  pods: +110",
        r"  memory: +\d+Ki",
        r"  Boot ID: +[0-9a-f-]{36}",
        r"  Container Runtime Version: +containerd://1\..*",
        r"  default +shown +0 \(0%\) .*",
        r"  Normal +Starting .* kubelet +Starting kubelet\.",
        r"  Normal +NodeHasSufficientMemory .* kubelet +Node edge-1 status is now: \S+",
    ):
        assert re.search(f"^{line}$", said, re.MULTILINE), f"{line} is not in\n{said}"


def test_the_lease_is_renewed(plane: ControlPlane, node: ClusterNode) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node.name}"
    lease = until("a lease", lambda: plane.api.find(path))
    assert lease["spec"]["holderIdentity"] == node.name
    assert lease["metadata"]["ownerReferences"][0]["name"] == node.name
    first = lease["spec"]["renewTime"]
    until("a renewal", lambda: plane.api.get(path)["spec"]["renewTime"] > first)


def test_a_node_deleted_by_hand_registers_again(plane: ControlPlane, node: ClusterNode) -> None:
    before = plane.api.get(node.path)["metadata"]["uid"]
    web = node.run("web")
    plane.kubectl("delete", "node", node.name, "--wait=false")
    again = until("another node", lambda: _other_node(plane, node, before), timeout=90)
    assert again["status"]["capacity"]["pods"] == "110"
    node.wait_ready()
    assert node.wait_api_pod("web") == web


def test_a_status_edited_by_hand_is_put_right(plane: ControlPlane, node: ClusterNode) -> None:
    lies = {"status": {"allocatable": {"pods": "1"}, "nodeInfo": {"osImage": "a toaster"}}}
    plane.api.patch(f"{node.path}/status", lies)

    def true_again() -> bool:
        status = plane.api.get(node.path)["status"]
        says = status["allocatable"]["pods"], status["nodeInfo"]["osImage"] == "a toaster"
        return says == ("110", False)

    until("the true status", true_again, timeout=60)


def test_an_outage_of_the_runtime_shows_in_the_conditions(
    lab: Lab, plane: ControlPlane, node: ClusterNode
) -> None:
    web = node.run("web")
    lab.containerd.stop()
    node.wait_ready("False")
    (ready,) = [
        it for it in plane.api.get(node.path)["status"]["conditions"] if it["type"] == "Ready"
    ]
    assert ready["reason"] == "KubeletNotReady"
    assert "container runtime" in ready["message"]
    assert plane.kubectl.row("get", "nodes")["STATUS"] == "NotReady"
    lab.containerd.start()
    until("CRI", lab.cri.ready)
    node.wait_ready()
    assert node.wait_api_pod("web").container().id == web.container().id
    stays("the container that ran before", lambda: node.api_pod("web") == web, seconds=2)


def test_two_nodes_share_a_server_and_nothing_else(
    lab: Lab, plane: ControlPlane, tmp_path: Path
) -> None:
    homes = [tmp_path / name for name in ("first", "second")]
    for home in homes:
        home.mkdir()
    # An agent stops the pods of its runtime that it does not know: the second has one of its own.
    # Nobody else would stop what runs in that.
    stop = "--stop-pods-on-exit"
    with (
        closing(ClusterNode(homes[0], lab.endpoint, plane, "first")) as first,
        closing(ClusterNode(homes[1], "embedded", plane, "second", stop)) as second,
    ):
        for node in (first, second):
            node.start()
            node.put("static", pod("static"))
        for node in (first, second):
            node.wait_ready()
            node.run(f"on-{node.name}")
            node.wait_api_pod(node.full_name("static"))
        listed = plane.kubectl("get", "pods", "-o", "wide")
        for node in (first, second):
            (line,) = [line for line in listed.splitlines() if line.startswith(f"on-{node.name} ")]
            assert node.name in line.split()
            assert {pod.name for pod in node.pods()} == {
                f"on-{node.name}",
                node.full_name("static"),
            }
        second.terminate()
        plane.kubectl("delete", "pod", "on-first")
        assert second.api_pod("on-second") is not None
        first.wait_ready()
    assert that_complain_below(second.root_dir) == []


def _address(plane: ControlPlane, node: ClusterNode) -> str:
    addresses = plane.api.get(node.path)["status"]["addresses"]
    return next(str(item["address"]) for item in addresses if item["type"] == "InternalIP")


def _other_node(plane: ControlPlane, node: ClusterNode, uid: str) -> Json | None:
    found = plane.api.find(node.path)
    return found if found is not None and found["metadata"]["uid"] != uid else None
