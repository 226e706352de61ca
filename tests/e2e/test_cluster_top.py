"""``kubectl top``, with a metrics API that is fed by the node's resource metrics.

docs/behaviour/stats.md, "Resource metrics".
"""

import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster import kubeconfig
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.kubectl import Kubectl
from tests.e2e.cluster.metrics_api import MetricsApi, serving
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.cluster.served import create, served_node
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.waiting import until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]

BUSY = "(while true; do :; done) & x=$(head -c 20000000 /dev/zero | tr '\\0' x)"


@pytest.fixture
def node(lab: Lab, plane: ControlPlane, address: str, tmp_path: Path) -> Iterator[ClusterNode]:
    with served_node(lab.endpoint, plane, address, tmp_path) as node:
        yield node


def grant(node: ClusterNode, user: str, resource: str, verb: str = "get") -> None:
    """Let a user do something with the nodes."""
    name = f"e2e-{user}"
    kubectl = node.plane.kubectl
    kubectl("create", "clusterrole", name, f"--verb={verb}", f"--resource={resource}")
    kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", f"--user={user}")


def ask(node: ClusterNode, user: str, path: str) -> tuple[int, str]:
    """What the API port answers to a user who has a certificate."""
    authority = node.plane.authority
    context = ssl.create_default_context(cafile=str(authority.file))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    identity = authority.issue(f"e2e-{user}", user)
    context.load_cert_chain(identity.cert, identity.key)
    host, port = node.read_only_host, node.api_port
    connection = http.client.HTTPSConnection(host, port, timeout=30, context=context)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def amount(text: str, unit: str) -> int:
    assert text.endswith(unit), text
    return int(text.removesuffix(unit))


def test_top_of_pods_and_of_the_node(node: ClusterNode, tmp_path: Path) -> None:
    grant(node, "scraper", "nodes/metrics")
    create(node, "busy", BUSY, main={"resources": {"limits": {"cpu": "300m", "memory": "64Mi"}}})
    create(node, "idle")

    def scrape() -> str:
        status, text = ask(node, "scraper", "/metrics/resource")
        assert status == 200
        return text

    api = MetricsApi(node.plane.api, node.name, scrape)
    until("two scrapes with both pods", lambda: api.look() == 2)
    with serving(api) as url:
        nobody = kubeconfig.write(tmp_path / "front", url, node.plane.authority.file, {})
        kubectl = Kubectl(nobody, tmp_path)
        rows = [line.split() for line in kubectl("top", "pods", "--no-headers").splitlines()]
        shown = {name: (amount(cpu, "m"), amount(memory, "Mi")) for name, cpu, memory in rows}
        assert set(shown) == {"busy", "idle"}
        assert shown["busy"][0] > shown["idle"][0]
        assert shown["busy"][0] <= 400, "it is limited"
        assert 15 <= shown["busy"][1] <= 64
        one = kubectl("top", "pod", "busy", "--containers", "--no-headers").split()
        assert one[:2] == ["busy", "main"]
        name, cpu, _, memory, share = kubectl("top", "nodes", "--no-headers").split()
        assert name == node.name
        assert amount(cpu, "m") > 0
        assert amount(memory, "Mi") > 64
        assert amount(share, "%") > 0


def test_figures_need_rights_of_their_own(node: ClusterNode) -> None:
    grant(node, "metrics-reader", "nodes/metrics")
    grant(node, "stats-reader", "nodes/stats")
    paths = ("/stats/summary", "/metrics/resource", "/metrics/cadvisor", "/metrics/probes")
    allowed = {
        user: [ask(node, user, path)[0] for path in paths]
        for user in ("metrics-reader", "stats-reader", "stranger")
    }
    assert allowed == {
        "metrics-reader": [403, 200, 200, 200],
        "stats-reader": [200, 403, 403, 403],
        "stranger": [403, 403, 403, 403],
    }
    shown = json.loads(ask(node, "stats-reader", "/stats/summary")[1])
    assert shown["node"]["nodeName"] == node.name
