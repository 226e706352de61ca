"""What the conformance tests of nodes look at, on a real API server and containerd."""

import json
from typing import Any

import pytest
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import Json, container

NODE = "conformance-1"
pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


def _status(plane: ControlPlane, name: str) -> Json:
    found: Json = plane.kubectl.json("get", "pod", name)["status"]
    return found


def _condition(plane: ControlPlane, name: str, kind: str) -> Json:
    conditions: list[Json] = _status(plane, name)["conditions"]
    return next(c for c in conditions if c["type"] == kind)


def _patch(plane: ControlPlane, name: str, patch: Json) -> None:
    plane.kubectl("patch", "pod", name, "-p", json.dumps(patch))


def test_a_deadline_that_is_set_later_ends_the_pod(
    lab: Lab, plane: ControlPlane, node: ClusterNode
) -> None:
    node.run("web")
    _patch(plane, "web", {"spec": {"activeDeadlineSeconds": 3}})
    done = node.wait_api_pod("web", lambda it: it.phase == "Failed", what="Failed")
    status = _status(plane, "web")
    assert status["reason"] == "DeadlineExceeded"
    assert status["message"] == "Pod was active on the node longer than the specified deadline"
    assert done.container().state == "terminated"
    assert lab.cri.running("web") == []


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("..", "unable to provision SubPath `..`: must not contain '..'"),
        ("/tmp", "error SubPath `/tmp` must not be an absolute path"),
    ],
)
def test_a_bad_sub_path_holds_the_container_until_it_is_mended(
    lab: Lab, plane: ControlPlane, node: ClusterNode, bad: str, message: str
) -> None:
    part = {"fieldRef": {"fieldPath": "metadata.annotations['part']"}}
    main = container(
        env=[{"name": "PART", "valueFrom": part}],
        volumeMounts=[{"name": "data", "mountPath": "/data", "subPathExpr": "$(PART)"}],
    )
    node.create("web", main, volumes=[{"name": "data", "emptyDir": {}}])
    _patch(plane, "web", {"metadata": {"annotations": {"part": bad}}})
    held = node.wait_api_pod(
        "web",
        lambda it: it.container().message == message,
        what="held",
    )
    assert (held.phase, held.container().reason) == ("Pending", "CreateContainerConfigError")
    _patch(plane, "web", {"metadata": {"annotations": {"part": "mine"}}})
    web = node.wait_api_pod("web", timeout=120)
    assert web.container().restarts == 0
    assert lab.cri.exec(web.container().id, "touch", "/data/here").exit_code == 0


@pytest.mark.parametrize("policy", ["Never", "Always"])
def test_init_containers_that_fail_are_named_in_the_condition(
    plane: ControlPlane, node: ClusterNode, policy: str
) -> None:
    inits = [
        container("init1", command=("true",)),
        container("init2", command=("false",)),
        container("init3", command=("true",)),
    ]
    node.create("web", container("run1"), initContainers=inits, restartPolicy=policy)
    again = policy == "Always"
    web = node.wait_api_pod(
        "web", lambda it: it.init("init2").restarts >= 2 if again else it.phase == "Failed"
    )
    assert web.phase == ("Pending" if again else "Failed")
    initialized = _condition(plane, "web", "Initialized")
    assert (initialized["status"], initialized["reason"]) == ("False", "ContainersNotInitialized")
    assert initialized["message"] == "containers with incomplete status: [init2 init3]"
    assert (web.init("init1").exit_code, web.init("init1").ready) == (0, True)
    assert web.init("init3").reason == web.container("run1").reason == "PodInitializing"
    failed = web.init("init2")
    assert (failed.last_exit_code if again else failed.exit_code) == 1
    assert failed.restarts >= 2 if again else failed.restarts == 0


def _environment(lab: Lab, cid: str) -> dict[str, str]:
    text = lab.cri.exec(cid, "cat", "/proc/1/environ").stdout
    return dict(entry.split("=", 1) for entry in text.split("\0") if entry)


def test_containers_know_the_services_of_their_namespace_unless_they_do_not_want_to(
    lab: Lab, plane: ControlPlane, node: ClusterNode
) -> None:
    ports: list[Any] = [{"name": "web", "port": 80}, {"name": "dns-udp", "port": 53}]
    ports[1]["protocol"] = "UDP"
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "front-end"},
        "spec": {"ports": ports},
    }
    plane.kubectl("create", "-f", "-", said=json.dumps(service))
    try:
        address = plane.kubectl.json("get", "service", "front-end")["spec"]["clusterIP"]
        own = [
            {"name": "URL", "value": "http://$(FRONT_END_SERVICE_HOST)"},
            {"name": "FRONT_END_PORT", "value": "mine"},
        ]
        node.create("web", container(env=own))
        node.create("apart", enableServiceLinks=False)
        found = _environment(lab, node.wait_api_pod("web").container().id)
        expected = {
            "FRONT_END_SERVICE_HOST": address,
            "FRONT_END_SERVICE_PORT": "80",
            "FRONT_END_SERVICE_PORT_WEB": "80",
            "FRONT_END_SERVICE_PORT_DNS_UDP": "53",
            "FRONT_END_PORT": "mine",
            "FRONT_END_PORT_80_TCP": f"tcp://{address}:80",
            "FRONT_END_PORT_80_TCP_PROTO": "tcp",
            "FRONT_END_PORT_80_TCP_PORT": "80",
            "FRONT_END_PORT_80_TCP_ADDR": address,
            "FRONT_END_PORT_53_UDP": f"udp://{address}:53",
            "FRONT_END_PORT_53_UDP_PROTO": "udp",
            "FRONT_END_PORT_53_UDP_PORT": "53",
            "FRONT_END_PORT_53_UDP_ADDR": address,
        }
        assert {k: v for k, v in found.items() if k.startswith("FRONT_END")} == expected
        assert found["URL"] == f"http://{address}"
        apart = _environment(lab, node.wait_api_pod("apart").container().id)
        assert not [name for name in apart if name.startswith("FRONT_END")]
        assert found["KUBERNETES_SERVICE_HOST"] == apart["KUBERNETES_SERVICE_HOST"] != ""
    finally:
        plane.kubectl("delete", "service", "front-end")
