"""Paths of the API that the agent uses."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

PODS: Final = "/api/v1/pods"
NODES: Final = "/api/v1/nodes"
SERVICES: Final = "/api/v1/services"
RUNTIME_CLASSES: Final = "/apis/node.k8s.io/v1/runtimeclasses"
CSRS: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
TRUST_BUNDLES: Final = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles"
TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
CSI_DRIVERS: Final = "/apis/storage.k8s.io/v1/csidrivers"
CSI_NODES: Final = "/apis/storage.k8s.io/v1/csinodes"
LEASE_NAMESPACE: Final = "kube-node-lease"


def namespaced(namespace: str, resource: str, name: str = "", subresource: str = "") -> str:
    """A collection of the core group in a namespace, an object in it, or its subresource."""
    return _below(f"/api/v1/namespaces/{quote(namespace, safe='')}/{resource}", name, subresource)


def pods_in(namespace: str) -> str:
    """The pods of a namespace."""
    return namespaced(namespace, "pods")


def pod(namespace: str, name: str, subresource: str = "") -> str:
    """A pod, or its ``status``."""
    return namespaced(namespace, "pods", name, subresource)


def node(name: str, subresource: str = "") -> str:
    """A node, or its ``status``."""
    return _below(NODES, name, subresource)


def event(namespace: str, name: str = "") -> str:
    """The events of a namespace, or one of them."""
    return namespaced(namespace, "events", name)


def lease(name: str = "") -> str:
    """The collection of node leases, or one of them."""
    base = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"
    return _below(base, name)


def csr(name: str) -> str:
    """A certificate signing request."""
    return _below(CSRS, name)


def pod_certificate(namespace: str, name: str = "") -> str:
    """The collection of certificate requests of pods in a namespace, or one of them."""
    base = f"/apis/certificates.k8s.io/v1beta1/namespaces/{quote(namespace, safe='')}"
    return _below(f"{base}/podcertificaterequests", name)


def token(namespace: str, service_account: str) -> str:
    """Where tokens of a service account are made."""
    return namespaced(namespace, "serviceaccounts", service_account, "token")


def claim(namespace: str, name: str, subresource: str = "") -> str:
    """A persistent volume claim, or its ``status``."""
    return namespaced(namespace, "persistentvolumeclaims", name, subresource)


def persistent_volume(name: str) -> str:
    """A persistent volume."""
    return _below("/api/v1/persistentvolumes", name)


def volume_attachment(name: str) -> str:
    """An attachment of a volume to a node."""
    return _below("/apis/storage.k8s.io/v1/volumeattachments", name)


def csi_driver(name: str) -> str:
    """What a storage driver wants."""
    return _below(CSI_DRIVERS, name)


def csi_node(name: str) -> str:
    """What storage drivers say of a node."""
    return _below(CSI_NODES, name)


def _below(base: str, name: str = "", subresource: str = "") -> str:
    return "/".join([base, *(quote(part, safe="") for part in (name, subresource) if part)])
