"""Clients and containers that do not behave, on a real agent.

docs/behaviour/server.md, "Streams".
"""

import re
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.cluster.served import create, served_node
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.waiting import until

from nodeagent.bench.proc import read_process

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(300)]

CLIENTS = 12
MOST_MB = 3.0
"""What one stuck client may cost."""
SPDY = (
    "Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io",
)  # fmt: skip
SOCKET = (
    "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)  # fmt: skip
V5 = "Sec-WebSocket-Protocol: v5.channel.k8s.io"
V4 = "Sec-WebSocket-Protocol: v4.channel.k8s.io"
BAD = (
    ("POST", ()),
    ("POST", ("Connection: Upgrade",)),
    ("POST", ("Upgrade: SPDY/3.1",)),
    ("POST", ("Upgrade: SPDY/3.1", "Connection: close")),
    ("POST", ("Connection: Upgrade", "Upgrade: h2c")),
    ("POST", (*SPDY[:2], "X-Stream-Protocol-Version: v9.channel.k8s.io")),
    ("POST", (*SPDY, "Content-Length: 5")),
    ("POST", (*SPDY, "Transfer-Encoding: chunked")),
    ("POST", (*SPDY, "Content-Length: 0", "Content-Length: 7")),
    ("POST", (*SPDY, "Content-Length: -1")),
    ("POST", (*SOCKET, V5)),
    ("GET", (*SOCKET, "Sec-WebSocket-Protocol: v9.channel.k8s.io")),
    ("GET", (*SOCKET[:2], SOCKET[3], V5)),
    ("GET", (*SOCKET[:3], V5)),
    ("GET", (*SOCKET[:2], "Sec-WebSocket-Version: 7", SOCKET[3], V5)),
    ("GET", (*SOCKET[:2], "Sec-WebSocket-Version: 7", SOCKET[3], V4)),
    ("PUT", SPDY),
    ("DELETE", ()),
)
"""Upgrades that lack something, or contradict themselves; without a version SPDY has its first."""


@pytest.fixture(params=["containerd", "embedded"])
def node(
    request: pytest.FixtureRequest, plane: ControlPlane, address: str, tmp_path: Path
) -> Iterator[ClusterNode]:
    endpoint = request.param
    if endpoint == "containerd":
        lab: Lab = request.getfixturevalue("lab")
        endpoint = lab.endpoint
    with served_node(endpoint, plane, address, tmp_path) as node:
        try:
            yield node
        finally:
            plane.forget(node.name)


def connect(node: ClusterNode) -> ssl.SSLSocket:
    """A connection to the port of the node, as somebody who may do everything."""
    plane = node.plane
    context = ssl.create_default_context(cafile=str(plane.authority.file))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.load_cert_chain(plane.admin.cert, plane.admin.key)
    plain = socket.create_connection((node.read_only_host, node.api_port), timeout=60)
    return context.wrap_socket(plain, server_hostname=node.read_only_host)


def ask(connection: ssl.SSLSocket, method: str, path: str, *lines: str) -> None:
    head = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: node", *lines, "", ""])
    connection.sendall(head.encode())


def head_of_answer(connection: ssl.SSLSocket) -> bytes:
    got = b""
    while b"\r\n\r\n" not in got and (data := connection.recv(1)):
        got += data
    return got


def exec_path(command: str, pod: str = "web") -> str:
    words = "&".join(f"command={word}" for word in ("sh", "-c", command))
    return f"/exec/default/{pod}/main?{words}&output=1"


def test_what_is_no_upgrade_or_contradicts_itself(node: ClusterNode) -> None:
    create(node, "web")
    for method, lines in BAD:
        for path in (exec_path("true"), "/attach/default/web/main?output=1",
                     "/portForward/default/web?port=80"):  # fmt: skip
            with connect(node) as connection:
                ask(connection, method, path, *lines)
                said = head_of_answer(connection)
                status = int(said.split()[1]) if said else 0
                length = re.search(rb"\r\nContent-Length: (\d+)\r\n", said, re.IGNORECASE)
                for _ in range(int(length[1]) if length else 0):
                    said += connection.recv(1)
                assert status in (400, 403, 405), (method, lines, path, said)
                assert b"Traceback" not in said
                assert b".py" not in said
    assert node.plane.kubectl("exec", "web", "--", "echo", "well") == "well\n"


def test_a_container_that_dies_ends_its_streams(node: ClusterNode) -> None:
    kubectl = node.plane.kubectl
    script = "until [ -e /tmp/die ]; do sleep 0.1; done; exit 9"
    create(node, "web", command=("sh", "-c", script), restartPolicy="Never")
    with ExitStack() as stack:
        flood = stack.enter_context(kubectl.running("exec", "web", "--", "yes"))
        quiet = stack.enter_context(kubectl.running("exec", "-i", "web", "--", "cat"))
        assert flood.stdout is not None
        assert quiet.stdin is not None
        assert quiet.stdout is not None
        assert flood.stdout.readline() == b"y\n"
        quiet.stdin.write(b"hello\n")
        quiet.stdin.flush()
        assert quiet.stdout.readline() == b"hello\n"
        kubectl.outcome("exec", "web", "--", "touch", "/tmp/die")
        while flood.stdout.read(65536):
            pass
        assert flood.wait(60) != 0
        assert quiet.wait(60) != 0
    node.wait_api_pod("web", lambda pod: pod.phase == "Failed", what="Failed")


def test_a_silent_stream_is_closed(
    lab: Lab, plane: ControlPlane, address: str, tmp_path: Path
) -> None:
    limit = "--streaming-connection-idle-timeout=3s"
    with served_node(lab.endpoint, plane, address, tmp_path, limit) as node:
        create(node, "web")
        with plane.kubectl.running("exec", "-i", "web", "--", "cat") as quiet:
            assert quiet.stdin is not None
            assert quiet.stdout is not None
            quiet.stdin.write(b"hello\n")
            quiet.stdin.flush()
            assert quiet.stdout.readline() == b"hello\n"
            assert quiet.wait(60) != 0
        node.wait_log("stream_closed", "no bytes for 3 s")


@pytest.mark.parametrize("lines", [SPDY, (*SOCKET, V5), (*SOCKET, V4)], ids=["spdy", "v5", "v4"])
def test_clients_that_stop_reading_cost_little(node: ClusterNode, lines: tuple[str, ...]) -> None:
    create(node, "web")
    before = read_process(node.pid).rss_mb
    with ExitStack() as stack:
        for _ in range(CLIENTS):
            connection = stack.enter_context(connect(node))
            ask(connection, "GET" if "websocket" in lines[1] else "POST", exec_path("yes"), *lines)
            assert head_of_answer(connection).startswith(b"HTTP/1.1 101 ")
            if lines is SPDY:
                connection.sendall(OPEN_STREAMS)
            assert connection.recv(1)
        until("the agent at rest", Rest(node.pid).reached, timeout=120)
        assert read_process(node.pid).rss_mb - before < MOST_MB * CLIENTS
        assert node.plane.kubectl("exec", "web", "--", "echo", "well") == "well\n"


def opened() -> bytes:
    """The streams of a command that has an output, opened by a client."""
    from nodeagent.streaming.spdy import SpdyConnection

    core = SpdyConnection(client=True)
    for name in ("error", "stdout"):
        core.open({"streamtype": name})
    return core.take()


OPEN_STREAMS = opened()


class Rest:
    """Whether a process does next to nothing for a second at least.

    Args:
        pid: of the process.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._begin()

    def _begin(self) -> None:
        self._since, self._used = time.monotonic(), read_process(self._pid).cpu_s

    def reached(self) -> bool:
        """Whether it is at rest by now; counts anew when it has done something."""
        busy = read_process(self._pid).cpu_s - self._used >= 0.2
        if busy:
            self._begin()
        return not busy and time.monotonic() - self._since >= 1
