"""nodeagent as a node of the cluster: the same subprocess, with a kubeconfig."""

from pathlib import Path
from typing import Final

from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.lab.agent import Agent
from tests.e2e.lab.waiting import until


class ClusterNode(Agent):
    """One node: an agent under a name of its own, and what the API server knows of it.

    Args:
        base: an existing directory of its own.
        endpoint: of the container runtime.
        plane: the control plane.
        name: of the node.
        flags: further flags; a ``--kubeconfig`` among them takes the place of the usual one.
    """

    def __init__(
        self, base: Path, endpoint: str, plane: ControlPlane, name: str, *flags: str
    ) -> None:
        config = plane.node_kubeconfig(base / "node.kubeconfig", name)
        own = (f"--hostname-override={name}", f"--kubeconfig={config}", "--node-ip=127.0.0.1")
        # The firewall of the machine that tests run on is left alone.
        super().__init__(base, endpoint, *own, "--make-iptables-util-chains=false", *flags)
        self.name = name
        self.plane = plane
        self.path: Final = f"/api/v1/nodes/{name}"

    def full_name(self, name: str) -> str:
        """The name of the mirror pod of a static pod."""
        return f"{name}-{self.name}"

    def conditions(self) -> dict[str, str]:
        """Type and status of the node's conditions; empty when there is no such node."""
        node = self.plane.api.find(self.path) or {}
        conditions = node.get("status", {}).get("conditions") or []
        return {condition["type"]: condition["status"] for condition in conditions}

    def wait_ready(self, status: str = "True", *, timeout: float = 60) -> None:
        """Wait until the API server has the node's Ready condition as wanted."""
        self._until(
            f"node {self.name}: Ready={status}",
            lambda: self.conditions().get("Ready") == status,
            timeout=timeout,
        )

    def close(self) -> None:
        """End the process, and delete the node and its pods; containers are left as they are."""
        super().close()
        self.plane.forget(self.name)
        until("no pods of the node", lambda: not self._known_pods())

    def _known_pods(self) -> list[object]:
        bound = f"spec.nodeName={self.name}"
        return list(self.plane.api.get("/api/v1/pods", fieldSelector=bound)["items"])
