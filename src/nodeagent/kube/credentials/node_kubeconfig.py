"""The kubeconfig that a node writes itself after its bootstrap. Blocking."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from nodeagent.state_file import write_atomically

_CLUSTER_KEYS: Final = (
    "server",
    "certificate-authority",
    "certificate-authority-data",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "proxy-url",
)


def write_node_kubeconfig(path: Path, cluster: Mapping[str, Any], certificate: Path) -> None:
    """Write it, with the names that the kubelet gives.

    Args:
        path: where to.
        cluster: of the bootstrap kubeconfig, with absolute paths.
        certificate: file with the client certificate and its key.

    Raises:
        OSError: it could not be written; what was there is untouched.
    """
    import yaml

    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "default-cluster",
                "cluster": {key: cluster[key] for key in _CLUSTER_KEYS if key in cluster},
            }
        ],
        "contexts": [
            {
                "name": "default-context",
                "context": {
                    "cluster": "default-cluster",
                    "namespace": "default",
                    "user": "default-auth",
                },
            }
        ],
        "current-context": "default-context",
        "users": [
            {
                "name": "default-auth",
                "user": {
                    "client-certificate": str(certificate),
                    "client-key": str(certificate),
                },
            }
        ],
    }
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(path, yaml.safe_dump(document, sort_keys=False).encode())
