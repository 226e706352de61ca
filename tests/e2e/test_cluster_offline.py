"""The API server goes away and comes back; what runs goes on, and what was missed is told."""

import signal

import pytest
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import container, pod
from tests.e2e.lab.views import PodView
from tests.e2e.lab.waiting import stays, until

NODE = "away-1"
pytestmark = [pytest.mark.realtime, pytest.mark.timeout(300)]


def test_pods_live_through_90_seconds_without_a_server(
    lab: Lab, plane: ControlPlane, node: ClusterNode
) -> None:
    node.put("static", pod("static"))
    healthy, dying = node.run("healthy"), node.run("dying")
    once = container(command=("sh", "-c", "while [ ! -e /tmp/end ]; do sleep 0.2; done; exit 5"))
    done = node.run("once", once, restartPolicy="Never")
    static = node.wait_api_pod(node.full_name("static"))
    plane.server.stop()

    # The node works on: a dead container is replaced, new manifests run, a pod ends.
    lab.cri.process(dying.container().id).kill(signal.SIGKILL)
    restarted = until("a restart", lambda: _pod(node, "dying", restarts=1))
    node.put("new", pod("new"))
    node.wait_pod("new")
    lab.cri.exec(done.container().id, "touch", "/tmp/end")
    until("the end", lambda: _phase(node, "once") == "Failed")
    stays(
        "healthy pods run on",
        lambda: (
            _ids(lab, "healthy") == {healthy.container().id}
            and _ids(lab, node.full_name("static")) == {static.container().id}
        ),
        seconds=90,
    )

    plane.server.start()
    node.wait_ready()
    told = node.wait_api_pod("once", lambda it: it.phase == "Failed", what="Failed")
    assert told.container().exit_code == 5
    after = node.wait_api_pod("dying", lambda it: it.running and it.container().restarts == 1)
    assert after.container().id == restarted.container().id
    node.wait_api_pod(node.full_name("new"))
    assert node.wait_api_pod("healthy") == healthy
    assert node.wait_api_pod(node.full_name("static")).containers == static.containers
    plane.kubectl("delete", "pod", "healthy")
    assert _ids(lab, "healthy") == set()


def _pod(node: ClusterNode, name: str, *, restarts: int) -> PodView | None:
    for view in node.pods():
        if view.name == name and view.running and view.container().restarts == restarts:
            return view
    return None


def _phase(node: ClusterNode, name: str) -> str:
    return next((view.phase for view in node.pods() if view.name == name), "")


def _ids(lab: Lab, name: str) -> set[str]:
    return {item.id for item in lab.cri.running(name)}
