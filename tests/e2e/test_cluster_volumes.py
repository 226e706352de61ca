"""Objects of a real API server, read back from inside containers.

docs/behaviour/volumes.md, "Content", "Projected".
"""

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import container
from tests.e2e.lab.waiting import stays, until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


@pytest.fixture
def node(lab: Lab, plane: ControlPlane, tmp_path: Path) -> Iterator[ClusterNode]:
    with closing(ClusterNode(tmp_path, lab.endpoint, plane, "files")) as node:
        node.start()
        node.wait_ready()
        yield node


def apply(node: ClusterNode, kind: str, name: str, **fields: Any) -> None:
    """Make an object, or change it."""
    made = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}
    node.plane.kubectl("apply", "-f", "-", said=yaml.safe_dump(made))


def _mount(volume: str, **more: Any) -> dict[str, Any]:
    return {"name": volume, "mountPath": f"/{volume}", **more}


def test_objects_are_files_that_follow_them(lab: Lab, node: ClusterNode) -> None:
    raw = base64.b64encode(b"\xff\x00").decode()
    apply(node, "ConfigMap", "settings", data={"a": "1", "b": "2"}, binaryData={"raw": raw})
    apply(node, "Secret", "login", stringData={"password": "hunter2"})
    apply(node, "ServiceAccount", "robot")
    token = {"audience": "tests", "expirationSeconds": 600, "path": "token"}
    items = [{"key": "a", "path": "deep/a", "mode": 0o400}]
    sources = [
        {"configMap": {"name": "settings", "items": items}},
        {"secret": {"name": "login"}},
        {"serviceAccountToken": token},
    ]
    optional = {"name": "nowhere", "optional": True}
    mounts = [
        *map(_mount, ("config", "secret", "all", "maybe")),
        {"name": "config", "mountPath": "/one", "subPath": "a"},
    ]
    view = node.run(
        "reader",
        container(volumeMounts=mounts),
        serviceAccountName="robot",
        automountServiceAccountToken=False,
        volumes=[
            {"name": "config", "configMap": {"name": "settings"}},
            {"name": "secret", "secret": {"secretName": "login", "defaultMode": 0o440}},
            {"name": "all", "projected": {"sources": sources}},
            {"name": "maybe", "configMap": optional},
        ],
    )
    cid = view.container().id

    def sh(line: str) -> str:
        return lab.cri.exec(cid, "sh", "-c", line).stdout

    assert sh("cat /config/a /config/b /one") == "121"
    assert sh("od -An -tx1 /config/raw").split() == ["ff", "00"]
    assert sh("cat /secret/password; stat -L -c ' %a' /secret/password") == "hunter2 440\n"
    assert sh("grep ' /secret ' /proc/mounts").startswith("tmpfs /secret tmpfs ro")
    assert sh("cat /all/deep/a /all/password; stat -L -c ' %a' /all/deep/a") == "1hunter2 400\n"
    assert sh("ls /maybe") == ""
    assert "Read-only" in lab.cri.exec(cid, "sh", "-c", "echo x >/config/a").stderr
    claims = sh("cat /all/token").split(".")[1]
    said = json.loads(base64.urlsafe_b64decode(claims + "=="))
    assert said["aud"] == ["tests"]
    assert said["kubernetes.io"]["pod"]["name"] == "reader"
    assert said["kubernetes.io"]["serviceaccount"]["name"] == "robot"

    apply(node, "ConfigMap", "settings", data={"a": "changed"})
    until("the change", lambda: sh("cat /config/a /all/deep/a") == "changedchanged")
    assert sh("ls /config") == "a\n"
    # A file that was mounted by itself stays what it was.
    assert sh("cat /one") == "1"
    for point in Path("/proc/self/mountinfo").read_text().splitlines():
        assert "hunter2" not in point
    assert "hunter2" not in node.log_tail(1_000_000)


def test_a_pod_waits_for_an_object_and_says_which(node: ClusterNode) -> None:
    node.create(
        "early",
        container(volumeMounts=[_mount("config")]),
        volumes=[{"name": "config", "configMap": {"name": "late"}}],
    )
    says = 'MountVolume.SetUp failed for volume "config" : configmap "late" not found'
    kubectl = node.plane.kubectl
    until("the event", lambda: says in kubectl("describe", "pod", "early"), timeout=60)
    stays("pending", lambda: (node.api_pod("early") or _nobody()).phase == "Pending", seconds=2)
    apply(node, "ConfigMap", "late", data={"a": "1"})
    node.wait_api_pod("early", timeout=60)


def _nobody() -> Any:
    raise AssertionError("the pod is gone")


def test_a_pod_that_fills_its_directory_is_evicted(lab: Lab, node: ClusterNode) -> None:
    """docs/behaviour/eviction.md, "Local storage"."""
    view = node.run(
        "greedy",
        container(volumeMounts=[_mount("scratch")]),
        volumes=[{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}],
    )
    lab.cri.exec(view.container().id, "sh", "-c", "dd if=/dev/zero of=/scratch/f bs=1M count=3")
    until(
        "the eviction",
        lambda: (node.api_pod("greedy") or _nobody()).phase == "Failed",
        timeout=120,
    )
    said = node.plane.kubectl("get", "pod", "greedy", "-o", "jsonpath={.status}")
    status = json.loads(said)
    text = 'Usage of EmptyDir volume "scratch" exceeds the limit "1Mi". '
    assert (status["reason"], status["message"]) == ("Evicted", text)
    assert text.strip() in node.plane.kubectl("describe", "pod", "greedy")
