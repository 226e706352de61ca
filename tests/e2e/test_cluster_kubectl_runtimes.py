"""What people do with containers, whatever runtime a node has: kubectl through the API server.

docs/behaviour/server.md, "Container logs" and "Streams"; docs/embedded-runtime.md, "Streams".
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.cluster.served import create, curl, served_node
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.images import BUSYBOX
from tests.e2e.lab.ports import free_port
from tests.e2e.lab.waiting import until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


@pytest.fixture(params=["containerd", "embedded"])
def node(
    request: pytest.FixtureRequest, lab: Lab, plane: ControlPlane, address: str, tmp_path: Path
) -> Iterator[ClusterNode]:
    endpoint = lab.endpoint if request.param == "containerd" else "embedded"
    with served_node(endpoint, plane, address, tmp_path) as node:
        try:
            yield node
        finally:
            plane.forget(node.name)


def test_logs_of_both_streams(node: ClusterNode) -> None:
    kubectl = node.plane.kubectl
    create(node, "talker", "for i in 1 2 3; do echo line $i; done; echo oops >&2")
    until("all lines", lambda: len(kubectl("logs", "talker").splitlines()) == 4)
    assert "line 1\nline 2\nline 3\n" in kubectl("logs", "talker").replace("oops\n", "")
    assert len(kubectl("logs", "talker", "--tail=2").splitlines()) == 2


def test_a_log_is_followed_until_its_container_ends(node: ClusterNode) -> None:
    script = "i=0; while [ $i -lt 5 ]; do i=$((i+1)); echo line $i; sleep 0.3; done; exit 3"
    create(node, "counter", command=("sh", "-c", script), restartPolicy="Never")
    followed = node.plane.kubectl("logs", "-f", "counter")
    assert followed == "".join(f"line {i}\n" for i in range(1, 6))


def test_commands_in_a_container(node: ClusterNode) -> None:
    kubectl = node.plane.kubectl
    create(node, "web")
    done = kubectl.outcome("exec", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert done.returncode == 7
    assert done.stdout == b"out\n"
    assert done.stderr.startswith(b"err\n")
    data = os.urandom(10 * 1024**2)
    digest = hashlib.sha256(data).hexdigest().encode()
    done = kubectl.outcome("exec", "-i", "web", "--", "sha256sum", said=data)
    assert done.stdout.split()[0] == digest
    done = kubectl.outcome("exec", "-i", "web", "--", "cat", said=data)
    assert done.stdout == data
    done = kubectl.outcome("exec", "web", "--", "/no/such/command")
    assert done.returncode
    assert b"no such file" in done.stderr


def test_a_shell_in_a_terminal(node: ClusterNode) -> None:
    create(node, "web")
    with node.plane.kubectl.in_terminal("exec", "-it", "web", "--", "sh") as shell:
        shell.wait_for("# ")
        shell.type("test -t 0 && echo $((40+2)) of a terminal\r")
        shell.wait_for("42 of a terminal")
        shell.type("exit 5\r")
        assert shell.ends() == 5


def test_attaching_to_a_container(node: ClusterNode) -> None:
    script = "while read line; do echo got $line; done"
    create(node, "echo", command=("sh", "-c", script), main={"stdin": True})
    for words in ((b"one", b"two"), (b"three", b"four")):
        with node.plane.kubectl.running("attach", "-i", "echo") as attached:
            assert attached.stdin is not None
            assert attached.stdout is not None
            attached.stdin.write(b"%s\n%s\n" % words)
            attached.stdin.flush()
            for word in words:
                assert attached.stdout.readline() == b"got " + word + b"\n"


def test_attaching_to_a_terminal(node: ClusterNode) -> None:
    main = {"stdin": True, "tty": True}
    create(node, "shell", command=("sh",), main=main, restartPolicy="Never")
    with node.plane.kubectl.in_terminal("attach", "-it", "shell") as shell:
        shell.type("echo $((40+2)) is shown\r")
        shell.wait_for("42 is shown")
        shell.type("exit 3\r")
        shell.ends()
    node.wait_api_pod("shell", lambda pod: pod.phase == "Failed", what="Failed")


def test_running_something_with_input(node: ClusterNode) -> None:
    overrides = json.dumps({"spec": {"nodeName": node.name}})
    data = os.urandom(10 * 1024**2)
    done = node.plane.kubectl.outcome(
        "run", "once", "-i", "--rm", "--restart=Never", f"--image={BUSYBOX}",
        f"--overrides={overrides}", "--command", "--", "sha256sum", said=data,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256(data).hexdigest().encode() in done.stdout


def test_copying_files_both_ways(node: ClusterNode, tmp_path: Path) -> None:
    kubectl = node.plane.kubectl
    create(node, "web")
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_bytes(os.urandom(3 * 1024**2))
    kubectl("cp", str(there), "web:/tmp/copied")
    kubectl("cp", "web:/tmp/copied", str(back))
    assert back.read_bytes() == there.read_bytes()


def test_a_request_through_a_forwarded_port(node: ClusterNode) -> None:
    port = free_port()  # those of the embedded runtime have the network of this machine
    serve = f"mkdir /www; echo hello > /www/index.html; busybox httpd -h /www -p 127.0.0.1:{port}"
    create(node, "web", serve)
    with node.plane.kubectl.running("port-forward", "web", f":{port}") as forwarding:
        assert forwarding.stdout is not None
        said = forwarding.stdout.readline().decode()
        found = re.match(rf"Forwarding from 127.0.0.1:(\d+) -> {port}", said)
        assert found is not None, said
        for _ in range(2):
            assert curl(f"http://127.0.0.1:{found[1]}/") == b"hello\n"
