"""The agent starts while the API server is away, or has news for it."""

import json
import signal
from typing import Any

import pytest
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import container, pod
from tests.e2e.lab.views import PodView
from tests.e2e.lab.waiting import stays, until

NODE = "away-2"
pytestmark = [pytest.mark.realtime, pytest.mark.timeout(300)]


def test_an_agent_started_while_the_server_is_away_keeps_pods_and_hears_later(
    lab: Lab, plane: ControlPlane, node: ClusterNode
) -> None:
    node.put("static", pod("static"))
    _make(plane, "ConfigMap", "rules", data={"rule": "stay"})
    _make(plane, "ServiceAccount", "default")
    sources = [{"serviceAccountToken": {"path": "token"}}, {"configMap": {"name": "rules"}}]
    mounts = [{"name": "all", "mountPath": "/all"}]
    killed = node.run(
        "killed",
        container(volumeMounts=mounts),
        serviceAccountName="default",
        volumes=[{"name": "all", "projected": {"sources": sources}}],
    )
    kept, deleted = node.run("kept"), node.run("deleted")
    static = node.wait_api_pod(node.full_name("static"))
    saved = node.root_dir / "checkpoints" / "api-pods.json"
    until("the checkpoint", lambda: deleted.uid in saved.read_text())
    node.kill9()
    plane.kubectl("delete", "pod", "deleted", "--force", "--grace-period=0")
    plane.server.kill()
    lab.cri.process(killed.container().id).kill(signal.SIGKILL)
    until("the death", lambda: not _ids(lab, "killed"))

    node.start()
    # The checkpoint counts after 20 s without the server; then PLEG and the start come.
    again = until("a restart", lambda: _pod(node, "killed", restarts=1), timeout=60)
    read = lab.cri.exec(again.container().id, "sh", "-c", "cat /all/rule; wc -c </all/token")
    assert read.stdout.startswith("stay")
    assert int(read.stdout[4:]) > 100
    stays(
        "what ran goes on",
        lambda: (
            _ids(lab, "kept") == {kept.container().id}
            and _ids(lab, "deleted") == {deleted.container().id}
            and _ids(lab, node.full_name("static")) == {static.container().id}
        ),
        seconds=5,
    )

    plane.server.start()
    node.wait_ready()
    until("the end of what was deleted", lambda: not _ids(lab, "deleted"))
    told = node.wait_api_pod("killed", lambda it: it.running and it.container().restarts == 1)
    assert told.container().id == again.container().id
    assert node.wait_api_pod("kept") == kept
    assert node.wait_api_pod(node.full_name("static")).containers == static.containers


def _make(plane: ControlPlane, kind: str, name: str, **fields: Any) -> None:
    made = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}
    plane.kubectl("apply", "-f", "-", said=json.dumps(made))


def test_a_pod_deleted_while_the_agent_is_away_stops_when_it_is_back(
    lab: Lab, plane: ControlPlane, node: ClusterNode
) -> None:
    web = node.run("web")
    node.kill9()
    plane.kubectl("delete", "pod", "web", "--wait=false")
    assert _ids(lab, "web") == {web.container().id}
    node.start()
    node.wait_no_api_pod("web")
    assert _ids(lab, "web") == set()


def _pod(node: ClusterNode, name: str, *, restarts: int) -> PodView | None:
    for view in node.pods():
        if view.name == name and view.running and view.container().restarts == restarts:
            return view
    return None


def _ids(lab: Lab, name: str) -> set[str]:
    return {item.id for item in lab.cri.running(name)}
