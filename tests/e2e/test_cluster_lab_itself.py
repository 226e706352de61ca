"""The control plane works without the agent, so that a red test elsewhere is about the agent."""

import base64
import json
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.e2e.cluster import kubeconfig
from tests.e2e.cluster.authority import Identity
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.lab.waiting import until

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


def test_kubectl_finds_a_server_that_is_ready(plane: ControlPlane) -> None:
    assert plane.kubectl("get", "--raw", "/readyz") == "ok"
    assert "default" in plane.kubectl("get", "namespaces")


def test_a_node_may_tell_of_itself_and_of_nobody_else(plane: ControlPlane) -> None:
    node = plane.kubectl_as("one", kubeconfig.certificate(plane.node_identity("one")))
    assert "node/one" in node.apply(json.dumps(_node("one")))
    with pytest.raises(RuntimeError, match="not allowed to modify node"):
        node.apply(json.dumps(_node("other")))
    with pytest.raises(RuntimeError, match="Forbidden"):
        node("get", "secrets")
    assert plane.kubectl.row("get", "nodes")["NAME"] == "one"
    plane.forget("one")
    assert plane.api.find("/api/v1/nodes/one") is None


def test_a_request_for_a_certificate_is_approved_and_signed(
    plane: ControlPlane, tmp_path: Path
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(NameOID.COMMON_NAME, "system:node:fresh"),
    ]
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    pem = request.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    plane.kubectl.apply(json.dumps(_csr(pem)))
    granted = plane.signer.grant("admin")
    row = plane.kubectl.row("get", "csr", granted["metadata"]["name"])
    assert row["CONDITION"] == "Approved,Issued"
    issued = Identity(tmp_path / "fresh.crt", tmp_path / "fresh.key")
    issued.cert.write_bytes(base64.b64decode(_certificate(plane)))
    issued.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    fresh = plane.kubectl_as("fresh", kubeconfig.certificate(issued))
    fresh.apply(json.dumps(_node("fresh")))
    plane.forget("fresh")


def test_a_server_that_was_ended_comes_back_with_what_it_knew(plane: ControlPlane) -> None:
    plane.kubectl("create", "namespace", "kept")
    plane.server.kill()
    assert not plane.api.ready()
    plane.server.start()
    until("readiness", plane.api.ready)
    assert plane.kubectl.row("get", "namespace", "kept")["STATUS"] == "Active"


def _node(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def _csr(pem: bytes) -> dict[str, object]:
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "by-hand"},
        "spec": {
            "request": base64.b64encode(pem).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    }


def _certificate(plane: ControlPlane) -> str:
    path = "jsonpath={.status.certificate}"
    return plane.kubectl("get", "csr", "by-hand", "-o", path)
