"""What people do with containers of a node: kubectl through the API server.

docs/behaviour/server.md, "Container logs" and "Streams".
"""

import http.client
import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.cluster.served import create, served_node
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.images import BUSYBOX
from tests.e2e.lab.waiting import until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


@pytest.fixture
def node(lab: Lab, plane: ControlPlane, address: str, tmp_path: Path) -> Iterator[ClusterNode]:
    with served_node(lab.endpoint, plane, address, tmp_path) as node:
        yield node


def test_logs_of_a_container(node: ClusterNode) -> None:
    create(node, "talker", "for i in 1 2 3; do echo line $i; done")
    kubectl = node.plane.kubectl
    assert kubectl("logs", "talker") == "line 1\nline 2\nline 3\n"
    assert "unknown container" not in kubectl("logs", "talker", "-c", "main")


def test_the_options_of_logs(node: ClusterNode) -> None:
    kubectl = node.plane.kubectl
    script = "for i in 1 2 3; do echo line $i; done; sleep 2; for i in 4 5; do echo line $i; done"
    create(node, "talker", f"{script}; echo oops")
    until("the last line", lambda: kubectl("logs", "talker").endswith("oops\n"))
    assert kubectl("logs", "talker", "--tail=2") == "line 5\noops\n"
    assert kubectl("logs", "talker", "--tail=0") == ""
    assert kubectl("logs", "talker", "--limit-bytes=9") == "line 1\nli"
    stamped = kubectl("logs", "talker", "--timestamps").splitlines()
    assert [re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z ", "", it) for it in stamped] == [
        *(f"line {i}" for i in range(1, 6)),
        "oops",
    ]
    moment = stamped[3].partition(" ")[0]
    assert kubectl("logs", "talker", f"--since-time={moment}") == "line 4\nline 5\noops\n"
    assert kubectl("logs", "talker", "--since=1h").startswith("line 1\n")
    assert kubectl("logs", "talker", "--prefix", "--tail=1") == "[pod/talker/main] oops\n"


def test_the_log_of_the_run_before(node: ClusterNode) -> None:
    kubectl = node.plane.kubectl
    script = (
        "if [ -e /tmp/v/seen ]; then echo second; trap 'exit 0' TERM; sleep 1000 & wait;"
        " fi; touch /tmp/v/seen; echo first; exit 1"
    )
    volume = {"name": "v", "emptyDir": {}}
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/tmp/v"}]}
    create(node, "again", command=("sh", "-c", script), main=mounts, volumes=[volume])
    until("second", lambda: kubectl("logs", "again") == "second\n")
    assert kubectl("logs", "again", "--previous") == "first\n"
    with pytest.raises(RuntimeError, match=r"container nope is not valid"):
        kubectl("logs", "again", "-c", "nope")


def test_a_terminal_has_a_name_in_its_container(node: ClusterNode) -> None:
    create(node, "web")
    with node.plane.kubectl.in_terminal("exec", "-it", "web", "--", "tty") as terminal:
        terminal.wait_for("/dev/pts/")
        assert terminal.ends() == 0


def test_debugging_with_an_ephemeral_container(node: ClusterNode) -> None:
    kubectl = node.plane.kubectl_of_server
    create(node, "web")
    words = ("debug", "-it", "web", f"--image={BUSYBOX}", "-c", "debugger", "--", "sh")
    with kubectl.in_terminal(*words) as shell:
        shell.type("echo $((40+2)) says $(hostname)\r")
        shell.wait_for("42 says web")
        (status,) = kubectl.json("get", "pod", "web")["status"]["ephemeralContainerStatuses"]
        assert status["name"] == "debugger"
        assert status["state"]["running"]["startedAt"]
        shell.type("exit 4\r")
        shell.ends()

    def ended() -> bool:
        (status,) = kubectl.json("get", "pod", "web")["status"]["ephemeralContainerStatuses"]
        return bool(status["state"].get("terminated", {}).get("exitCode") == 4)

    until("the end of the debugger", ended)
    assert "42 says web" in kubectl("logs", "web", "-c", "debugger")
    shown = kubectl.json("get", "pod", "web")["status"]
    assert shown["phase"] == "Running"
    assert [one["restartCount"] for one in shown["containerStatuses"]] == [0]


def test_the_api_server_knows_the_port(node: ClusterNode) -> None:
    shown = node.plane.api.get(node.path)
    assert shown["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] == node.api_port


def test_a_log_is_followed_through_its_rotations(
    lab: Lab, plane: ControlPlane, address: str, tmp_path: Path
) -> None:
    config = tmp_path / "kubelet.yaml"
    config.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "containerLogMaxSize: 20Ki\ncontainerLogMaxFiles: 5\ncontainerLogMonitorInterval: 3s\n"
    )
    script = "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); echo line $i; usleep 10000; done"
    with served_node(lab.endpoint, plane, address, tmp_path, f"--config={config}") as node:
        command = ("sh", "-c", script)
        create(node, "talker", command=command, restartPolicy="Never")
        followed = plane.kubectl("logs", "-f", "talker")
        assert followed == "".join(f"line {i}\n" for i in range(1, 1001))
        assert list(node.logs_dir.glob("default_talker_*/main/0.log.*")), "it was rotated"


def test_others_do_not_get_in(node: ClusterNode, tmp_path: Path) -> None:
    authority, api_port = node.plane.authority, node.api_port
    kubectl = node.plane.kubectl
    for role, resources in (("reader", "nodes/metrics"), ("proxy", "nodes/proxy")):
        kubectl("create", "clusterrole", f"e2e-{role}", "--verb=get", f"--resource={resources}")
        kubectl("create", "clusterrolebinding", f"e2e-{role}", f"--clusterrole=e2e-{role}",
                f"--user={role}")  # fmt: skip

    def status(user: str, path: str) -> int:
        context = ssl.create_default_context(cafile=str(authority.file))
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if user:
            identity = authority.issue(f"e2e-{user}", user)
            context.load_cert_chain(identity.cert, identity.key)
        connection = http.client.HTTPSConnection(
            node.read_only_host, api_port, timeout=30, context=context
        )
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()

    assert status("", "/metrics") == 401
    assert status("other", "/metrics") == 403
    assert [status("reader", path) for path in ("/metrics", "/pods", "/configz")] == [200, 403, 403]
    assert [status("proxy", path) for path in ("/metrics", "/pods", "/configz")] == [403, 200, 200]
    assert status("admin", "/pods") == 403, "a name alone gives no rights"
