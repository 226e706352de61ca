"""The control plane of one test session, and credentials for those who talk to it."""

import datetime as dt
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e.cluster import assets, kubeconfig
from tests.e2e.cluster.api import Api
from tests.e2e.cluster.authority import Authority, Identity, service_account_keys
from tests.e2e.cluster.kubectl import Kubectl
from tests.e2e.cluster.servers import Server
from tests.e2e.cluster.signer import Signer
from tests.e2e.lab.ports import free_port

ADMIN: Final = "admin"
_NODES: Final = "system:nodes"
_EPHEMERAL_CONTAINERS: Final = 23
"""The minor version from which servers have them without being told to."""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """What tests and benches work with.

    Attributes:
        url: of the API server.
        base: directory of all its files.
        etcd: the store.
        server: the API server.
        authority: whose certificates count.
        admin: an identity that may do everything.
        api: the plain client, as admin.
        kubectl: the same with kubectl.
        kubectl_of_server: the same with one as old as the server, for what has changed since.
        signer: approves and signs certificate requests.
    """

    url: str
    base: Path
    etcd: Server
    server: Server
    authority: Authority
    admin: Identity
    api: Api
    kubectl: Kubectl
    kubectl_of_server: Kubectl
    signer: Signer

    def kubeconfig(self, file: Path, user: dict[str, object]) -> Path:
        """Write a kubeconfig for this server and a user; returns ``file``."""
        return kubeconfig.write(file, self.url, self.authority.file, user)

    def node_identity(
        self, node: str, *, lifetime: dt.timedelta = dt.timedelta(days=1)
    ) -> Identity:
        """Issue the client certificate of a node."""
        user = f"system:node:{node}"
        return self.authority.issue(f"node-{node}", user, [_NODES], lifetime=lifetime)

    def node_kubeconfig(self, file: Path, node: str) -> Path:
        """Write a node's kubeconfig with a new client certificate; returns ``file``."""
        return self.kubeconfig(file, kubeconfig.certificate(self.node_identity(node)))

    def kubectl_as(self, name: str, user: dict[str, object]) -> Kubectl:
        """Return kubectl as somebody else; ``name`` names the file of the kubeconfig."""
        return Kubectl(self.kubeconfig(self.base / f"{name}.kubeconfig", user), self.base)

    def forget(self, node: str) -> None:
        """Delete a node and all pods that are bound to it, at once."""
        self.forget_pods(node)
        self.api.delete(f"/api/v1/nodes/{node}")

    def forget_pods(self, node: str) -> None:
        """Delete all pods that are bound to a node, at once."""
        pods = self.api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")["items"]
        for pod in pods:
            meta = pod["metadata"]
            self.api.delete(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", grace=0)


@contextmanager
def open_control_plane(base: Path) -> Iterator[ControlPlane]:
    """Start etcd and the API server (about five seconds); on exit they are ended.

    Args:
        base: a directory of its own; who deletes it looks for processes that name it.
    """
    base.mkdir(parents=True)
    authority = Authority(base)
    admin = authority.issue(ADMIN, ADMIN, ["system:masters"])
    etcd_url, port = f"http://127.0.0.1:{free_port()}", free_port()
    url = f"https://127.0.0.1:{port}"
    api = Api(url, authority.file, admin)
    etcd = _etcd(base, etcd_url)
    server = Server("kube-apiserver", base, _flags(base, etcd_url, port, authority), api.ready)
    config = kubeconfig.write(
        base / "admin.kubeconfig", url, authority.file, kubeconfig.certificate(admin)
    )
    with ExitStack() as stack:
        stack.callback(etcd.stop)
        etcd.start()
        stack.callback(server.kill)  # it would wait for watches of agents
        server.start()
        yield ControlPlane(
            url=url,
            base=base,
            etcd=etcd,
            server=server,
            authority=authority,
            admin=admin,
            api=api,
            kubectl=Kubectl(config, base),
            kubectl_of_server=Kubectl(config, base, assets.OLD_KUBECTL),
            signer=Signer(api, authority),
        )


def _etcd(base: Path, url: str) -> Server:
    peer = f"http://127.0.0.1:{free_port()}"

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
                return b'"true"' in answer.read()
        except OSError:
            return False

    arguments = [
        f"--data-dir={base / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # what a test writes need not survive the machine
        "--log-level=warn",
    ]
    return Server("etcd", base, arguments, answers)


def _flags(base: Path, etcd: str, port: int, authority: Authority) -> list[str]:
    hosts = ["127.0.0.1", "localhost", "kubernetes.default.svc"]
    serving = authority.issue("kube-apiserver", "kube-apiserver", hosts=hosts)
    to_kubelets = authority.issue("to-kubelets", "kube-apiserver", ["system:masters"])
    accounts = service_account_keys(base)
    return [
        *_gates(),
        f"--etcd-servers={etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        "--endpoint-reconciler-type=none",  # endpoints on loopback are refused
        f"--cert-dir={base}",
        f"--tls-cert-file={serving.cert}",
        f"--tls-private-key-file={serving.key}",
        f"--client-ca-file={authority.file}",
        f"--kubelet-certificate-authority={authority.file}",
        f"--kubelet-client-certificate={to_kubelets.cert}",
        f"--kubelet-client-key={to_kubelets.key}",
        "--kubelet-preferred-address-types=InternalIP",
        "--authorization-mode=Node,RBAC",
        "--enable-bootstrap-token-auth",
        "--enable-admission-plugins=NodeRestriction",
        "--disable-admission-plugins=ServiceAccount",  # no controller makes accounts
        "--allow-privileged=true",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={accounts}",
        f"--service-account-signing-key-file={accounts}",
    ]


def _gates() -> list[str]:
    """Flags for what tests need and an old server has not switched on."""
    words = [assets.binary("kube-apiserver"), "--version"]
    said = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout
    found = re.search(r"v1\.(\d+)\.", said)
    alpha = found is not None and int(found[1]) < _EPHEMERAL_CONTAINERS
    return ["--feature-gates=EphemeralContainers=true"] if alpha else []
