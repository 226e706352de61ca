"""Make sure that what the end-to-end tests need is installed (stdlib only).

As root on Debian or Ubuntu, missing packages are installed, and etcd and kube-apiserver are put
into a cache directory. Otherwise this says exactly what is missing and how to get it, and ends
with code 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import e2e_api_server

#: Debian package -> what proves that it (or another distribution's equivalent) is there:
#: a command to be found on PATH, or an absolute path pattern.
NEEDED = {
    "containerd": "containerd",
    "runc": "runc",
    "containernetworking-plugins": "/usr/lib/cni/portmap",
    "iptables": "iptables",
    "iproute2": "ip",
    "busybox-static": "busybox",
    "curl": "curl",
    "gcc": "gcc",
    "libc6-dev": "/usr/lib/**/libc.a",
    "socat": "socat",  # what the benchmarks compare streams with
}


def present(proof: str) -> bool:
    """Whether the command or file that proves a package is there."""
    if proof.startswith("/"):
        return any(Path("/").glob(proof.lstrip("/")))
    # sbin is not on every PATH; the tests add it for the processes they start.
    return shutil.which(proof, path=search_path()) is not None


def search_path() -> str:
    """PATH with the directories of system commands."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])


def missing() -> list[str]:
    """The Debian packages that are not installed."""
    return [package for package, proof in NEEDED.items() if not present(proof)]


def install(packages: list[str]) -> None:
    """Install Debian packages; raises CalledProcessError when apt-get fails."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
    ):
        print("e2e:", " ".join(command), flush=True)
        subprocess.run(command, check=True, env=environment)


def refuse(*lines: str) -> int:
    """Say what is needed; returns the exit code."""
    for line in lines:
        print("e2e:", line, file=sys.stderr)
    return 1


def main() -> int:
    """Check, install what is missing, check again; returns the exit code."""
    packages = missing()
    how = f"apt-get install --no-install-recommends {' '.join(packages)}"
    if os.geteuid() != 0:
        todo = [f"missing Debian packages: {how}"] if packages else []
        return refuse(
            "the end-to-end tests start containerd and pods, so they need root: sudo make e2e",
            *todo,
        )
    if packages and shutil.which("apt-get") is None:
        return refuse(
            f"missing: {', '.join(packages)} (names of Debian packages), and there is no apt-get.",
            "Install their equivalents; CNI plugins are looked for in /usr/lib/cni.",
        )
    if packages:
        try:
            install(packages)
        except subprocess.CalledProcessError as error:
            return refuse(f"apt-get failed with code {error.returncode}; needed: {how}")
    if left := missing():
        return refuse(f"installed, but still not usable: {', '.join(left)}")
    if code := e2e_api_server.main():
        return code
    print("e2e: everything needed is installed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
