"""Static pods and the mirror pods that show them in the cluster."""

import pytest
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.lab import images
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import container, pod
from tests.e2e.lab.waiting import stays, until

NODE = "static-1"
pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]

_PODS = "/api/v1/namespaces/default/pods"


def test_a_manifest_appears_as_a_mirror_pod(plane: ControlPlane, node: ClusterNode) -> None:
    node.put("web", pod("web"))
    static = node.wait_pod("web")
    mirror = node.wait_api_pod("web-static-1")
    assert mirror.containers == static.containers
    meta = plane.api.get(f"{_PODS}/web-static-1")["metadata"]
    (owner,) = meta["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Node", "static-1", True)
    notes = meta["annotations"]
    assert notes["kubernetes.io/config.source"] == "file"
    assert notes["kubernetes.io/config.mirror"] == notes["kubernetes.io/config.hash"] == static.uid
    row = plane.kubectl.row("get", "pods", "-o", "wide")
    assert (row["NAME"], row["READY"], row["STATUS"]) == ("web-static-1", "1/1", "Running")
    said = plane.kubectl("describe", "pod", "web-static-1")
    assert "Controlled By:  Node/static-1" in said


def test_a_deleted_mirror_comes_back_and_its_pod_runs_on(
    lab: Lab, plane: ControlPlane, node: ClusterNode
) -> None:
    node.put("web", pod("web"))
    first = node.wait_api_pod("web-static-1")
    plane.kubectl("delete", "pod", "web-static-1", "--grace-period=0", "--force")
    again = node.wait_api_pod(
        "web-static-1", lambda it: it.running and it.uid != first.uid, what="another"
    )
    assert again.containers == first.containers
    plane.kubectl("delete", "pod", "web-static-1")  # without force: waits until it is gone
    more = node.wait_api_pod(
        "web-static-1", lambda it: it.running and it.uid != again.uid, what="another"
    )
    assert more.containers == first.containers
    assert len(lab.cri.running()) == 1


def test_a_removed_manifest_takes_its_mirror_with_it(lab: Lab, node: ClusterNode) -> None:
    node.put("web", pod("web", terminationGracePeriodSeconds=1))
    node.wait_api_pod("web-static-1")
    node.remove("web")
    node.wait_no_api_pod("web-static-1")
    until("the end of the container", lambda: not lab.cri.running())


def test_a_changed_manifest_is_another_pod_with_another_mirror(
    lab: Lab, plane: ControlPlane, node: ClusterNode
) -> None:
    node.put("web", pod("web", terminationGracePeriodSeconds=1))
    first = node.wait_api_pod("web-static-1")
    changed = container(image=images.BUSYBOX_2)
    node.put("web", pod("web", changed, terminationGracePeriodSeconds=1))
    second = node.wait_api_pod(
        "web-static-1",
        lambda it: it.running and it.container().image == images.BUSYBOX_2,
        what="changed",
    )
    assert second.uid != first.uid
    assert second.container().id != first.container().id
    assert len(lab.cri.running()) == 1


def test_what_was_removed_while_the_agent_was_away_is_gone_with_its_mirror(
    lab: Lab, node: ClusterNode
) -> None:
    node.put("web", pod("web", terminationGracePeriodSeconds=1))
    node.put("stays", pod("stays"))
    node.wait_api_pod("web-static-1")
    kept = node.wait_api_pod("stays-static-1")
    node.kill9()
    node.remove("web")
    node.start()
    node.wait_no_api_pod("web-static-1")
    until("the end of the container", lambda: len(lab.cri.running()) == 1)
    assert node.api_pod("stays-static-1") == kept


def test_a_mirror_that_the_server_fills_in_is_left_alone_for_a_minute(
    plane: ControlPlane, node: ClusterNode
) -> None:
    # Fields with defaults, and fields that this server does not know.
    sidecar = container("side", restartPolicy="Always")
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    main = container(readinessProbe=probe, ports=[{"containerPort": 80}])
    node.put("web", pod("web", main, initContainers=[sidecar], hostUsers=True))
    before = node.wait_api_pod("web-static-1")
    plane.kubectl("label", "pod", "web-static-1", "by=hand")
    version = until("rest", lambda: _version_at_rest(plane))

    def untouched() -> bool:
        meta = plane.api.get(f"{_PODS}/web-static-1")["metadata"]
        return (meta["uid"], meta["resourceVersion"]) == (before.uid, version)

    stays("the mirror is as it was", untouched, seconds=60)
    assert node.api_pod("web-static-1") == before


def _version_at_rest(plane: ControlPlane) -> str:
    """The mirror's version, once it has not changed for a while."""

    def version() -> str:
        return str(plane.api.get(f"{_PODS}/web-static-1")["metadata"]["resourceVersion"])

    now = version()
    try:
        stays("no change", lambda: version() == now, seconds=3)
    except AssertionError:
        return ""
    return now
