"""Ways into a cluster, and what the cluster says of its nodes, with the real API server."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.lab.agent import Agent
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import pod
from tests.e2e.lab.waiting import stays, until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]

SHIFT = Path(__file__).parent / "lab" / "clock_shift.c"
HOUR = 3600


@contextmanager
def running_node(
    lab: Lab, plane: ControlPlane, base: Path, name: str, *flags: str, **environment: str
) -> Iterator[ClusterNode]:
    """A node that is ready; it and its pods go with the test."""
    with closing(ClusterNode(base, lab.endpoint, plane, name, *flags)) as node:
        node.environment.update(environment)
        node.start()
        node.wait_ready()
        yield node
        node.clear()


def credentials_from(command: Path) -> dict[str, Any]:
    """A user whose credentials a program gives."""
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(command),
            "args": ["--for-tests"],
            "env": [{"name": "WHICH", "value": "node"}],
            "interactiveMode": "Never",
        }
    }


def test_a_program_gives_the_credentials(lab: Lab, plane: ControlPlane, tmp_path: Path) -> None:
    name = "by-program"
    identity = plane.node_identity(name)
    status = {
        "clientCertificateData": identity.cert.read_text(),
        "clientKeyData": identity.key.read_text(),
    }
    said = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": status,
    }
    (tmp_path / "said.json").write_text(json.dumps(said))
    program = tmp_path / "credentials"
    program.write_text(
        f"""#!{sys.executable}
import os, sys
assert os.environ["WHICH"] == "node" and sys.argv[1:] == ["--for-tests"]
assert '"ExecCredential"' in os.environ["KUBERNETES_EXEC_INFO"]
sys.stdout.write(open({str(tmp_path / "said.json")!r}).read())
"""
    )
    program.chmod(0o700)
    config = plane.kubeconfig(tmp_path / "exec.kubeconfig", credentials_from(program))
    with running_node(lab, plane, tmp_path, name, f"--kubeconfig={config}") as node:
        assert node.run("web").running


def test_runtime_classes_lead_to_handlers_of_the_runtime(
    lab: Lab, plane: ControlPlane, tmp_path: Path
) -> None:
    classes = [("plain", "runc"), ("strange", "no-such-handler")]
    with running_node(lab, plane, tmp_path, "classes") as node:
        try:
            for name, handler in classes:
                made = {
                    "apiVersion": "node.k8s.io/v1",
                    "kind": "RuntimeClass",
                    "metadata": {"name": name},
                    "handler": handler,
                }
                plane.kubectl("create", "-f", "-", said=json.dumps(made))
            assert node.run("web", runtimeClassName="plain").running
            node.create("odd", runtimeClassName="strange")
            until(
                "the reason",
                lambda: "no-such-handler" in plane.kubectl("describe", "pod", "odd"),
            )
            node.wait_api_pod("odd", lambda it: it.phase == "Pending", what="Pending")
        finally:
            for name, _ in classes:
                plane.kubectl("delete", "runtimeclass", name)


def test_the_range_of_addresses_reaches_the_runtime(
    lab: Lab, plane: ControlPlane, tmp_path: Path
) -> None:
    with running_node(lab, plane, tmp_path, "ranged") as node:
        patch = json.dumps({"spec": {"podCIDR": "10.77.3.0/24", "podCIDRs": ["10.77.3.0/24"]}})
        plane.kubectl("patch", "node", node.name, "-p", patch)
        node.wait_log("pod_cidr_set", "10.77.3.0/24")
        assert node.run("web").running


NO_PODS = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": []})


class Page:
    """A text on a port of its own."""

    def __init__(self, text: str) -> None:
        self.text = text

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serve it; yields its URL."""
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = page.text.encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
                del format, args

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}/pods.yaml"
            finally:
                server.shutdown()
                thread.join(10)


def test_pods_of_all_three_sources_run_together(
    lab: Lab, plane: ControlPlane, tmp_path: Path
) -> None:
    page = Page(pod("far"))
    with page.served() as url:
        flags = (f"--manifest-url={url}", "--http-check-frequency=1s")
        with running_node(lab, plane, tmp_path, "sources", *flags) as node:
            _all_three(node, plane)
            page.text = NO_PODS


def _all_three(node: ClusterNode, plane: ControlPlane) -> None:
    node.put("near", pod("near"))
    bound = node.run("bound")
    near = node.wait_api_pod(node.full_name("near"))
    far = node.wait_api_pod(node.full_name("far"))
    found = plane.api.get(f"/api/v1/namespaces/default/pods/{far.name}")
    notes = found["metadata"]["annotations"]
    assert notes["kubernetes.io/config.source"] == "http"
    assert {bound.name, near.name, far.name} <= {one.name for one in node.pods()}
    ids = {one.container().id for one in (bound, near, far)}
    node.restart()

    def same() -> bool:
        running = [c for one in node.pods() for c in one.containers.values()]
        return {c.id for c in running if c.state == "running"} == ids

    until("the same containers", same)
    stays("nothing is made twice", same, seconds=3)


def test_a_machine_that_stood_alone_joins_and_its_pods_run_on(
    lab: Lab, plane: ControlPlane, tmp_path: Path
) -> None:
    name = "joiner"
    flags = (f"--hostname-override={name}",)
    with closing(Agent(tmp_path, lab.endpoint, *flags)) as alone:
        alone.put("web", pod("web"))
        alone.start()
        before = until("the pod", lambda: next((p for p in alone.pods() if p.running), None))
        assert alone.terminate() == 0
        after = ClusterNode(tmp_path, lab.endpoint, plane, name)
        with closing(after):
            after.start()
            after.wait_ready()
            mirror = after.wait_api_pod(after.full_name("web"))
            assert mirror.container().id == before.container().id
            assert mirror.container().restarts == 0
            after.clear()


def test_a_clock_that_is_an_hour_fast_hurts_nobody(
    lab: Lab, plane: ControlPlane, tmp_path: Path
) -> None:
    library = tmp_path / "clock.so"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SHIFT), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    wrong = {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(HOUR)}
    with running_node(lab, plane, tmp_path, "fast", **wrong) as node:
        web = node.run("web")
        lease = plane.kubectl.json("get", "lease", "-n", "kube-node-lease", node.name)
        renewed = dt.datetime.fromisoformat(lease["spec"]["renewTime"])
        ahead = renewed - dt.datetime.now(dt.UTC)
        assert ahead > dt.timedelta(minutes=50), "the clock of the agent is as it was"
        node.environment.clear()
        node.restart()
        node.wait_ready()
        assert node.wait_api_pod("web") == web
        plane.kubectl("delete", "pod", "web", "--wait=false")
        node.wait_no_api_pod("web")
