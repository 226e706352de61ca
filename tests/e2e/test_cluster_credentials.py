"""Client certificates from a real API server: the first one, and the next before it ends."""

import datetime as dt
import socket
import ssl
from contextlib import closing
from pathlib import Path

import pytest
from cryptography import x509
from tests.e2e.cluster import kubeconfig
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.node import ClusterNode
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import container
from tests.e2e.lab.ports import free_port
from tests.e2e.lab.waiting import until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]

_EXAMPLES = Path(__file__).parents[2] / "examples" / "cluster"
_TOKEN = "abcdef.0123456789abcdef"
_LIFE = dt.timedelta(seconds=60)


def test_a_machine_with_a_bootstrap_token_becomes_a_node(
    lab: Lab, plane: ControlPlane, tmp_path: Path
) -> None:
    for name in ("bootstrap-rbac.yaml", "bootstrap-token.yaml"):
        plane.kubectl("apply", "-f", str(_EXAMPLES / name))
    config = tmp_path / "written-by-the-agent"
    bootstrap = plane.kubeconfig(tmp_path / "bootstrap", kubeconfig.token(_TOKEN))
    flags = (f"--kubeconfig={config}", f"--bootstrap-kubeconfig={bootstrap}")
    with closing(ClusterNode(tmp_path, lab.endpoint, plane, "new-1", *flags)) as node:
        node.start()
        request = plane.signer.wait_pending("system:bootstrap:abcdef")
        name = request["metadata"]["name"]
        assert plane.kubectl.row("get", "csr", name)["CONDITION"] == "Pending"
        assert plane.api.find(node.path) is None
        plane.kubectl("certificate", "approve", name)
        plane.signer.sign(plane.api.get(f"{_CSRS}/{name}"))
        node.wait_ready()
        plane.kubectl("delete", "secret", "bootstrap-token-abcdef", "-n", "kube-system")
        assert config.stat().st_mode & 0o777 == 0o600
        subject = _current(node).subject.rfc4514_string()
        assert subject == "CN=system:node:new-1,O=system:nodes"

        # From here on the token is needed no more.
        bootstrap.unlink()
        web = node.run("web")
        node.kill9()
        node.start()
        assert node.wait_api_pod("web") == web


def test_a_certificate_with_a_minute_of_life_is_renewed_in_time(
    lab: Lab, plane: ControlPlane, tmp_path: Path
) -> None:
    short = plane.node_identity("short-1", lifetime=_LIFE)
    config = plane.kubeconfig(tmp_path / "short", kubeconfig.certificate(short))
    flags = (f"--kubeconfig={config}", "--rotate-certificates=true")
    with closing(ClusterNode(tmp_path, lab.endpoint, plane, "short-1", *flags)) as node:
        node.start()
        node.wait_ready()
        web = node.run("web")
        first = _ends(short.cert.read_bytes())
        plane.signer.grant("system:node:short-1", lifetime=_LIFE)
        second = until("the new certificate", lambda: _later(node, first))
        plane.signer.grant("system:node:short-1")
        until("the one after that", lambda: _later(node, second))
        until("the end of the first two", lambda: dt.datetime.now(dt.UTC) > second, timeout=90)
        renewed = _renewal(plane, node)
        until("a renewal of the lease", lambda: _renewal(plane, node) > renewed)
        node.run("after")
        assert node.wait_api_pod("web") == web


_CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def _current(node: ClusterNode) -> x509.Certificate:
    file = node.root_dir / "pki" / "kubelet-client-current.pem"
    return x509.load_pem_x509_certificate(file.read_bytes())


def _later(node: ClusterNode, than: dt.datetime) -> dt.datetime | None:
    """When the present certificate ends, if that is later."""
    try:
        ends = _current(node).not_valid_after_utc
    except FileNotFoundError:
        return None
    return ends if ends > than else None


def _ends(pem: bytes) -> dt.datetime:
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc


def _renewal(plane: ControlPlane, node: ClusterNode) -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node.name}"
    return str(plane.api.get(path)["spec"]["renewTime"])


def test_the_cluster_signs_the_certificate_of_the_port(
    lab: Lab, plane: ControlPlane, address: str, tmp_path: Path
) -> None:
    """docs/behaviour/server.md, "Certificates from the cluster"."""
    port = free_port()
    flags = (
        f"--node-ip={address}",
        f"--address={address}",
        f"--port={port}",
        f"--client-ca-file={plane.authority.file}",
        "--rotate-server-certificates=true",
    )
    with closing(ClusterNode(tmp_path, lab.endpoint, plane, "signed-1", *flags)) as node:
        node.read_only_host, node.api_port = address, port
        node.start()
        node.wait_ready()
        node.run("web", container(command=("sh", "-c", "echo here; sleep 1000")))
        request = plane.signer.wait_pending("system:node:signed-1")
        name = request["metadata"]["name"]
        row = plane.kubectl.row("get", "csr", name)
        assert row["SIGNERNAME"] == "kubernetes.io/kubelet-serving"
        with pytest.raises(ssl.SSLError):
            _shown(plane, address, port)
        plane.kubectl("certificate", "approve", name)
        plane.signer.sign(plane.api.get(f"{_CSRS}/{name}"), lifetime=_LIFE)
        first = until("the certificate", lambda: _found(plane, address, port))
        # The API server verifies it by its --kubelet-certificate-authority.
        logs = until("the log", lambda: plane.kubectl("logs", "web"))
        assert logs == "here\n"
        plane.signer.grant("system:node:signed-1")
        second = until("the next certificate", lambda: _other(plane, address, port, first))
        assert second.not_valid_after_utc > first.not_valid_after_utc
        assert plane.kubectl("logs", "web") == "here\n"
        files = sorted(path.name for path in (node.root_dir / "pki").iterdir())
        assert "kubelet-server-current.pem" in files
        assert len(files) == 3


def _shown(plane: ControlPlane, address: str, port: int) -> x509.Certificate:
    """The certificate of the port, verified as the API server does."""
    context = ssl.create_default_context(cafile=str(plane.authority.file))
    with (
        socket.create_connection((address, port), timeout=30) as raw,
        context.wrap_socket(raw, server_hostname=address) as stream,
    ):
        der = stream.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der)


def _found(plane: ControlPlane, address: str, port: int) -> x509.Certificate | None:
    try:
        return _shown(plane, address, port)
    except ssl.SSLError:
        return None


def _other(
    plane: ControlPlane, address: str, port: int, than: x509.Certificate
) -> x509.Certificate | None:
    found = _shown(plane, address, port)
    return None if found == than else found
