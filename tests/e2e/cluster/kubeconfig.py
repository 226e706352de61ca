"""Kubeconfig files, in JSON (which is YAML)."""

import json
from pathlib import Path
from typing import Any

from tests.e2e.cluster.authority import Identity


def write(file: Path, url: str, ca: Path, user: dict[str, Any]) -> Path:
    """Write a kubeconfig with one cluster and one user; returns ``file``."""
    cluster = {"server": url, "certificate-authority": str(ca)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "user"}}],
        "current-context": "e2e",
    }
    file.touch(mode=0o600)
    file.write_text(json.dumps(config, indent=2))
    return file


def certificate(identity: Identity) -> dict[str, Any]:
    """A user with a client certificate."""
    return {"client-certificate": str(identity.cert), "client-key": str(identity.key)}


def token(value: str) -> dict[str, Any]:
    """A user with a bearer token."""
    return {"token": value}
