"""Clients with WebSockets, through the API server and straight to the port of the node.

docs/behaviour/server.md, "Streams".
"""

import json
import os
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import anyio
import pytest
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.cluster.served import create, served_node
from tests.e2e.cluster.websocket import Talk, talking
from tests.e2e.lab.containerd_lab import Lab

from nodeagent.streaming.protocols import V1, V4, V5

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]

NAMES = {"stdin": "input", "stdout": "output", "stderr": "error"}
"""What the node calls the streams that the API server has other names for."""
VERSIONS = (V5, V4, "v4.base64.channel.k8s.io", V1)
DATA = os.urandom(2 * 1024**2)


@pytest.fixture
def node(lab: Lab, plane: ControlPlane, address: str, tmp_path: Path) -> Iterator[ClusterNode]:
    with served_node(lab.endpoint, plane, address, tmp_path) as node:
        yield node


def ask(
    node: ClusterNode,
    straight: bool,
    what: str,
    pod: str,
    protocol: str,
    query: list[tuple[str, str]],
) -> AbstractAsyncContextManager[Talk]:
    """Talk with a pod over a WebSocket."""
    plane = node.plane
    if straight:
        host, port = node.read_only_host, node.api_port
        container = "" if what == "portForward" else "/main"
        path = f"/{what}/default/{pod}{container}"
        query = [(NAMES.get(name, name), {"true": "1"}.get(value, value)) for name, value in query]
    else:
        parts = urlsplit(plane.url)
        host, port = str(parts.hostname), int(parts.port or 0)
        path = f"/api/v1/namespaces/default/pods/{pod}/{what.lower()}"
    path += f"?{urlencode(query)}"
    return talking(host, port, path, protocol, plane.authority.file, plane.admin)


def test_commands_attaching_and_ports(node: ClusterNode) -> None:
    """Every version, both ways."""
    script = "mkdir /www; echo hello > /www/index.html; httpd -h /www -p 8080"
    loop = "while read line; do echo got $line; done"
    create(node, "web", command=("sh", "-c", f"{script}; {loop}"), main={"stdin": True})
    for straight in (False, True):
        for protocol in VERSIONS:
            for check in (_command, _attach, _port):
                anyio.run(partial(check, node, straight, protocol))


async def _command(node: ClusterNode, straight: bool, protocol: str) -> None:
    count = f"head -c {len(DATA)} | tee /dev/stderr | wc -c; exit 7"
    query = [("command", word) for word in ("sh", "-c", count)]
    query += [(name, "true") for name in ("stdin", "stdout", "stderr")]
    async with ask(node, straight, "exec", "web", protocol, query) as talk:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk.say, 0, DATA)
            await talk.hear()
        assert int(talk.heard[1]) == len(DATA)
        assert talk.heard[2] == DATA
        if protocol == V1:
            assert b"exit code 7" in talk.heard[3] or b"exit code: 7" in talk.heard[3]
        else:
            status = json.loads(talk.heard[3])
            assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]


async def _attach(node: ClusterNode, straight: bool, protocol: str) -> None:
    query = [("stdin", "true"), ("stdout", "true")]
    async with ask(node, straight, "attach", "web", protocol, query) as talk:
        await talk.say(0, b"word\n")
        await talk.hear(lambda heard: b"got word\n" in heard.get(1, b""))
        assert b"got word\n" in talk.heard[1]


async def _port(node: ClusterNode, straight: bool, protocol: str) -> None:
    if protocol in (V5, V1):
        return  # they are for commands only; the tunnel is what kubectl uses
    query = [("port", "8080"), *([] if straight else [("ports", "8080")])]
    async with ask(node, straight, "portForward", "web", protocol, query) as talk:
        await talk.hear(lambda heard: len(heard.get(0, b"")) >= 2 and len(heard.get(1, b"")) >= 2)
        assert (talk.heard[0], talk.heard[1]) == ((8080).to_bytes(2, "little"),) * 2
        await talk.say(0, b"GET / HTTP/1.0\r\n\r\n")
        await talk.hear(lambda heard: heard[0].endswith(b"hello\n"))
        assert talk.heard[0].endswith(b"\r\n\r\nhello\n")
