"""Pods from the API server: run, change, end; and what kubectl shows of them."""

import re
import signal

import pytest
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.lab import images
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import Json, container, pod, then_wait
from tests.e2e.lab.waiting import stays, until

NODE = "pods-1"
pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]

_PODS = "/api/v1/namespaces/default/pods"


def test_get_pods_shows_it_running(lab: Lab, plane: ControlPlane, node: ClusterNode) -> None:
    web = node.run("web", container("one"), container("two"))
    row = plane.kubectl.row("get", "pods", "-o", "wide")
    (sandbox,) = lab.cri.sandboxes("web")
    assert row["NAME"] == "web"
    assert (row["READY"], row["STATUS"], row["RESTARTS"]) == ("2/2", "Running", "0")
    assert (row["IP"], row["NODE"]) == (lab.cri.pod_ip(sandbox.id), "pods-1")
    assert web.conditions == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
        "PodScheduled": "True",
    }


def test_describe_pod_reads_as_with_the_kubelet(plane: ControlPlane, node: ClusterNode) -> None:
    main = container(resources={"requests": {"cpu": "10m", "memory": "16Mi"}})
    web = node.run("web", main)
    _wait_event(plane, "web", "Started")
    said = plane.kubectl("describe", "pod", "web")
    for line in (
        r"Name: +web",
        r"Node: +pods-1/[0-9.]+",
        r"Start Time: +\w{3}, .*",
        r"Status: +Running",
        rf"IP: +{re.escape(web.pod_ip)}",
        rf"    Container ID: +containerd://{web.container().id}",
        r"    Image: +localhost/busybox:1",
        r"    Image ID: +\S*sha256:[0-9a-f]{64}",
        r"    State: +Running",
        r"      Started: +\w{3}, .*",
        r"    Ready: +True",
        r"    Restart Count: +0",
        r"  Initialized +True *",
        r"  Ready +True *",
        r"  ContainersReady +True *",
        r"  PodScheduled +True *",
        r"QoS Class: +Burstable",
        r"  Normal +Pulled .* kubelet +(spec\.containers\{main\}: )?Container image .* present.*",
        r"  Normal +Created .* kubelet +(spec\.containers\{main\}: )?.*[Cc]ontainer.*",
        r"  Normal +Started .* kubelet +(spec\.containers\{main\}: )?.*[Cc]ontainer.*",
    ):
        assert re.search(f"^{line}$", said, re.MULTILINE), f"{line} is not in\n{said}"


def test_a_deleted_pod_ends_within_its_grace_period(
    lab: Lab, plane: ControlPlane, node: ClusterNode
) -> None:
    node.run("web")
    plane.kubectl("delete", "pod", "web")  # waits until it is gone
    assert lab.cri.running("web") == []
    until("the agent hears that it is gone", lambda: node.pods() == [])


def test_a_pod_that_does_not_stop_is_terminating_and_then_killed(
    lab: Lab, plane: ControlPlane, node: ClusterNode
) -> None:
    stubborn = container(command=("sh", "-c", "trap '' TERM; while true; do sleep 1; done"))
    node.run("slow", stubborn, terminationGracePeriodSeconds=5)
    plane.kubectl("delete", "pod", "slow", "--wait=false")
    assert plane.kubectl.row("get", "pods")["STATUS"] == "Terminating"
    stays("the container runs", lambda: bool(lab.cri.running("slow")), seconds=2)
    node.wait_no_api_pod("slow", timeout=30)
    assert lab.cri.running("slow") == []


def test_a_second_delete_with_less_grace_shortens_the_wait(
    lab: Lab, plane: ControlPlane, node: ClusterNode
) -> None:
    stubborn = container(command=("sh", "-c", "trap '' TERM; while true; do sleep 1; done"))
    node.run("slow", stubborn, terminationGracePeriodSeconds=600)
    plane.kubectl("delete", "pod", "slow", "--wait=false")
    plane.kubectl("delete", "pod", "slow", "--grace-period=1", "--wait=false")
    node.wait_no_api_pod("slow", timeout=30)
    assert lab.cri.running("slow") == []


def test_a_force_deleted_pod_is_stopped_too(
    lab: Lab, plane: ControlPlane, node: ClusterNode
) -> None:
    node.run("web")
    plane.kubectl("delete", "pod", "web", "--force", "--grace-period=0")
    assert node.api_pod("web") is None
    until("the end of the container", lambda: not lab.cri.running("web"), timeout=60)
    until("the end of the pod", lambda: node.pods() == [])


def test_a_pod_made_again_under_its_name_is_another_pod(
    lab: Lab, plane: ControlPlane, node: ClusterNode
) -> None:
    first = node.run("web")
    plane.kubectl("delete", "pod", "web", "--force", "--grace-period=0")
    second = node.run("web")
    assert second.uid != first.uid
    assert second.container().id != first.container().id
    until(
        "one container", lambda: {it.id for it in lab.cri.running("web")} == {second.container().id}
    )


def test_a_new_image_replaces_the_container_and_labels_do_not(
    lab: Lab, plane: ControlPlane, node: ClusterNode
) -> None:
    before = node.run("web", container(command=then_wait("cat /etc/image-version")))
    plane.kubectl("label", "pod", "web", "color=blue")
    plane.kubectl("annotate", "pod", "web", "note=new")
    stays("the same container", lambda: node.api_pod("web") == before, seconds=2)
    plane.kubectl("set", "image", "pod/web", f"main={images.BUSYBOX_2}")
    after = node.wait_api_pod(
        "web", lambda it: it.running and it.container().id != before.container().id, what="replaced"
    )
    assert (after.uid, after.pod_ip) == (before.uid, before.pod_ip)
    assert after.container().restarts == 1
    assert lab.cri.exec(after.container().id, "cat", "/etc/image-version").stdout == "2\n"


def test_a_container_that_dies_is_counted_for_kubectl(
    lab: Lab, plane: ControlPlane, node: ClusterNode
) -> None:
    before = node.run("web")
    lab.cri.process(before.container().id).kill(signal.SIGKILL)
    node.wait_api_pod("web", lambda it: it.running and it.container().restarts == 1)
    assert plane.kubectl.row("get", "pods")["RESTARTS"] == "1"


@pytest.mark.parametrize(
    ("code", "phase", "shown"), [(0, "Succeeded", "Completed"), (3, "Failed", "Error")]
)
def test_a_pod_that_is_done_stays_until_it_is_deleted(
    plane: ControlPlane, node: ClusterNode, code: int, phase: str, shown: str
) -> None:
    once = container(command=("sh", "-c", f"exit {code}"))
    node.create("once", once, restartPolicy="Never")
    done = node.wait_api_pod("once", lambda it: it.phase == phase, what=phase)
    assert done.container().exit_code == code
    assert plane.kubectl.row("get", "pods")["STATUS"] == shown
    plane.kubectl("delete", "pod", "once")


def test_a_pod_whose_image_cannot_be_pulled_says_so(plane: ControlPlane, node: ClusterNode) -> None:
    node.create("lost", container(image=images.UNREACHABLE))
    node.wait_api_pod(
        "lost", lambda it: it.container().reason in ("ErrImagePull", "ImagePullBackOff")
    )
    _wait_event(plane, "lost", "Failed")
    said = plane.kubectl("describe", "pod", "lost")
    assert re.search(
        r"^  Warning +Failed .*Failed to pull image \"127\.0\.0\.1:1/nothing/here:1\"",
        said,
        re.MULTILINE,
    )


def test_a_pod_that_does_not_fit_the_node_is_refused(
    plane: ControlPlane, node: ClusterNode
) -> None:
    huge = container(resources={"requests": {"cpu": "10000"}})
    node.create("huge", huge)
    refused = node.wait_api_pod("huge", lambda it: it.phase == "Failed", what="Failed")
    assert "OutOfcpu" in refused.why
    assert plane.kubectl.row("get", "pods")["STATUS"] == "OutOfcpu"


def test_a_readiness_gate_keeps_a_pod_from_ready(plane: ControlPlane, node: ClusterNode) -> None:
    node.create("gated", readinessGates=[{"conditionType": "example.com/open"}])
    node.wait_api_pod("gated", lambda it: it.conditions.get("ContainersReady") == "True")
    assert plane.kubectl.json("get", "pod", "gated")["status"]["phase"] == "Running"
    pod = node.api_pod("gated")
    assert pod is not None
    assert pod.conditions["Ready"] == "False"
    opened = {"type": "example.com/open", "status": "True"}
    conditions = plane.kubectl.json("get", "pod", "gated")["status"]["conditions"]
    plane.api.patch(f"{_PODS}/gated/status", {"status": {"conditions": [*conditions, opened]}})
    after = node.wait_api_pod("gated", lambda it: it.conditions["Ready"] == "True", what="ready")
    assert after.conditions["example.com/open"] == "True"


def test_many_pods_come_and_go_together(lab: Lab, plane: ControlPlane, node: ClusterNode) -> None:
    names = [f"many-{number}" for number in range(20)]
    settings: Json = {"nodeName": node.name, "terminationGracePeriodSeconds": 2}
    manifests = [pod(name, **settings) for name in names]
    plane.kubectl("create", "-f", "-", said="---\n".join(manifests))
    for name in names:
        node.wait_api_pod(name)
    plane.kubectl("delete", "pods", "--all")
    assert lab.cri.running() == []


def _wait_event(plane: ControlPlane, name: str, reason: str) -> None:
    about = f"involvedObject.name={name},reason={reason}"
    until(f"event {reason}", lambda: plane.api.get("/api/v1/events", fieldSelector=about)["items"])
