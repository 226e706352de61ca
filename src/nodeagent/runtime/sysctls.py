"""Kernel parameters that a pod may set (docs/behaviour/runtime.md, "Sysctls"). Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from nodeagent.api import Pod

SAFE: Final = {
    "kernel.shm_rmid_forced": (0, 0),
    "net.ipv4.ip_local_port_range": (0, 0),
    "net.ipv4.tcp_syncookies": (0, 0),
    "net.ipv4.ping_group_range": (0, 0),
    "net.ipv4.ip_unprivileged_port_start": (0, 0),
    "net.ipv4.ip_local_reserved_ports": (3, 16),
    "net.ipv4.tcp_keepalive_time": (4, 5),
    "net.ipv4.tcp_keepalive_intvl": (4, 5),
    "net.ipv4.tcp_keepalive_probes": (4, 5),
    "net.ipv4.tcp_fin_timeout": (4, 6),
    "net.ipv4.tcp_rmem": (4, 15),
    "net.ipv4.tcp_wmem": (4, 15),
}
"""Parameters that concern the pod alone, and the first kernel of which that is true."""
_IPC: Final = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")
_NET: Final = ("net.",)


def normal_sysctl(name: str) -> str:
    """A kernel parameter with dots between its parts, as the runtime takes it."""
    first = next((c for c in name if c in "./"), ".")
    return name.translate(str.maketrans("/.", "./")) if first == "/" else name


def forbidden_sysctl(pod: Pod, kernel: tuple[int, int], allowed: Collection[str] = ()) -> str:
    """Why one of the pod's parameters may not be set; "" when all may.

    Args:
        pod: the pod.
        kernel: version of the node's kernel.
        allowed: further parameters that the node allows, or prefixes of them with ``*``.
    """
    context = pod.spec.security_context
    for sysctl in context.sysctls if context is not None else ():
        if trouble := _trouble(pod, normal_sysctl(sysctl.name), kernel, allowed):
            return f'forbidden sysctl: "{sysctl.name}" {trouble}'
    return ""


def _trouble(pod: Pod, name: str, kernel: tuple[int, int], allowed: Collection[str]) -> str:
    if not (_is_safe(name, kernel) or any(_matches(name, entry) for entry in allowed)):
        return "not allowlisted"
    if pod.spec.host_network and name.startswith(_NET):
        return "not allowed with host net enabled"
    if pod.spec.host_ipc and name.startswith(_IPC):
        return "not allowed with host ipc enabled"
    return ""


def _is_safe(name: str, kernel: tuple[int, int]) -> bool:
    since = SAFE.get(name)
    return since is not None and kernel >= since


def _matches(name: str, entry: str) -> bool:
    entry = normal_sysctl(entry)
    return name.startswith(entry[:-1]) if entry.endswith("*") else name == entry
