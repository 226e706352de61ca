"""Where etcd, kube-apiserver and kubectl are (stdlib only: the set-up script asks here, too).

``KUBEBUILDER_ASSETS`` comes first, as everywhere in the ecosystem: a directory with any versions
of them. Else etcd and kube-apiserver come from a cache directory that ``make e2e`` fills, and
kubectl from the Python environment. What this one and that server do not have in common is tested
with a kubectl as old as the server, from the same directory.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

#: What the set-up script has to provide when there are no assets of the user's.
OLD_KUBECTL = "kubectl-1.20"
CACHED = ("etcd", "kube-apiserver", OLD_KUBECTL)


def cache() -> Path:
    """The directory of binaries that were fetched and built once for this user."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "nodeagent-lab" / "bin"


def missing() -> list[str]:
    """The binaries that are neither in ``KUBEBUILDER_ASSETS`` nor in the cache."""
    return [name for name in CACHED if not _where(name).is_file()]


def binary(name: str) -> str:
    """The path of ``etcd``, ``kube-apiserver`` or ``kubectl``.

    Raises:
        FileNotFoundError: says where it was looked for.
    """
    path = _where(name)
    if not path.is_file():
        raise FileNotFoundError(f"no {name} at {path}: run make e2e, or set KUBEBUILDER_ASSETS")
    return str(path)


def _where(name: str) -> Path:
    own = os.environ.get("KUBEBUILDER_ASSETS")
    if own and name == OLD_KUBECTL and (Path(own) / "kube-apiserver").is_file():
        name = "kubectl"  # that server is not the old one
    if own and (Path(own) / name).is_file():
        return Path(own) / name
    return (cache() if name in CACHED else Path(sys.executable).parent) / name
