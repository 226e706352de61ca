"""nodeagent as a node of the cluster: the same subprocess, with a kubeconfig."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.lab.agent import Agent
from tests.e2e.lab.manifests import Json, pod
from tests.e2e.lab.views import PodView, pod_view
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
        # The firewall of the machine that tests run on is left alone.
        own = [f"--hostname-override={name}", "--make-iptables-util-chains=false"]
        own.append("--port=0")  # several nodes share this machine
        if not any(flag.startswith("--kubeconfig=") for flag in flags):
            own.append(f"--kubeconfig={plane.node_kubeconfig(base / 'node.kubeconfig', name)}")
        super().__init__(base, endpoint, *own, *flags)
        self.name = name
        self.api_port = 0
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

    def api_pod(self, name: str) -> PodView | None:
        """A pod of the namespace ``default`` as the API server has it."""
        found = self.plane.api.find(f"/api/v1/namespaces/default/pods/{name}")
        return None if found is None else pod_view(found)

    def wait_api_pod(
        self,
        name: str,
        predicate: Callable[[PodView], bool] = lambda pod: pod.running,
        *,
        what: str = "running",
        timeout: float = 60,
    ) -> PodView:
        """Wait until the API server has a pod as wanted (by default: running and ready)."""

        def look() -> PodView | None:
            pod = self.api_pod(name)
            return pod if pod is not None and predicate(pod) else None

        return self._until(f"pod {name} in the API: {what}", look, timeout=timeout)

    def wait_no_api_pod(self, name: str, *, timeout: float = 60) -> None:
        """Wait until the API server has no such pod any more."""
        what = f"pod {name} gone from the API"
        self._until(what, lambda: self.api_pod(name) is None, timeout=timeout)

    def run(self, name: str, *containers: Json, **spec: Any) -> PodView:
        """Create a pod that is bound to this node and wait until it runs."""
        self.create(name, *containers, **spec)
        return self.wait_api_pod(name)

    def create(self, name: str, *containers: Json, **spec: Any) -> None:
        """Create a pod that is bound to this node."""
        settings = {"nodeName": self.name, "terminationGracePeriodSeconds": 2, **spec}
        self.plane.kubectl("create", "-f", "-", said=pod(name, *containers, **settings))

    def revive(self) -> None:
        """Have the API server and the agent run, and the node ready."""
        if not self.plane.api.ready():
            self.plane.server.kill()
            self.plane.server.start()
        if not self.alive:
            self.start()
        self.wait_ready()

    def clear(self) -> None:
        """Remove all manifests and pods, and wait until agent and API server have none."""
        for manifest in self.manifests.glob("*"):
            manifest.unlink()
        self.plane.forget_pods(self.name)
        self._until("no pods", lambda: not self.pods() and not self._known_pods())

    def close(self) -> None:
        """End the process, and delete the node and its pods; containers are left as they are."""
        super().close()
        self.plane.forget(self.name)
        until("no pods of the node", lambda: not self._known_pods())

    def _known_pods(self) -> list[object]:
        bound = f"spec.nodeName={self.name}"
        return list(self.plane.api.get("/api/v1/pods", fieldSelector=bound)["items"])
