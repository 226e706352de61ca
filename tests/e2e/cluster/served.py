"""Nodes that the API server asks for logs and streams, and pods on them."""

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.lab.manifests import Json, container, pod, then_wait
from tests.e2e.lab.ports import free_port
from tests.e2e.lab.waiting import until

NAME = "served"


@contextmanager
def served_node(
    endpoint: str, plane: ControlPlane, address: str, base: Path, *flags: str
) -> Iterator[ClusterNode]:
    """A node that the API server can reach.

    Args:
        endpoint: of its container runtime.
        plane: the control plane.
        address: of this machine, at which it serves.
        base: an existing directory of its own.
        flags: further flags of the agent.
    """
    serving = plane.authority.issue(f"serving-{NAME}", NAME, hosts=[NAME, address])
    port = free_port()
    own = (
        f"--node-ip={address}",
        f"--address={address}",
        f"--port={port}",
        f"--client-ca-file={plane.authority.file}",
        f"--tls-cert-file={serving.cert}",
        f"--tls-private-key-file={serving.key}",
    )
    with closing(ClusterNode(base, endpoint, plane, NAME, *own, *flags)) as node:
        node.read_only_host, node.api_port = address, port
        node.start()
        node.wait_ready()
        yield node


def create(
    node: ClusterNode,
    name: str,
    script: str = "true",
    *,
    command: tuple[str, ...] | None = None,
    main: Json | None = None,
    **spec: Any,
) -> None:
    """Create a pod that is bound to the node, and wait until it runs.

    Args:
        node: where.
        name: of the pod.
        script: what its container does before it waits.
        command: what it does instead.
        main: further fields of the container.
        spec: further fields of the pod's spec.
    """
    settings = {"nodeName": node.name, "terminationGracePeriodSeconds": 2, **spec}
    only = container(command=command or then_wait(script), **(main or {}))
    node.plane.kubectl("create", "-f", "-", said=pod(name, only, **settings))

    def runs() -> bool:
        found = node.plane.api.find(f"/api/v1/namespaces/default/pods/{name}") or {}
        return str(found.get("status", {}).get("phase", "")) == "Running"

    until(f"{name} runs", runs)


def curl(url: str) -> bytes:
    """What a URL gives; the server behind it may not listen yet."""
    words = ["curl", "-sS", "--retry", "5", "--retry-all-errors", url]
    return subprocess.run(words, check=True, capture_output=True, timeout=60).stdout
