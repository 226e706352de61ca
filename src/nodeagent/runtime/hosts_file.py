"""The hosts file that every container of a pod sees (docs/behaviour/runtime.md, "Hosts file")."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nodeagent.api import HostAlias, Pod

_HEADER: Final = "# Kubernetes-managed hosts file.\n"
_HOST_NETWORK_HEADER: Final = "# Kubernetes-managed hosts file (host network).\n"
_LOCAL: Final = (
    ("127.0.0.1", "localhost"),
    ("::1", "localhost ip6-localhost ip6-loopback"),
    ("fe00::0", "ip6-localnet"),
    ("fe00::0", "ip6-mcastprefix"),
    ("fe00::1", "ip6-allnodes"),
    ("fe00::2", "ip6-allrouters"),
)


def pod_hosts(
    ips: tuple[str, ...], hostname: str, domain: str, aliases: tuple[HostAlias, ...]
) -> str:
    """The hosts file of a pod with its own network."""
    lines = [f"{ip}\t{names}\n" for ip, names in _LOCAL]
    names = f"{hostname}.{domain}\t{hostname}" if domain else hostname
    lines += [f"{ip}\t{names}\n" for ip in ips]
    return _HEADER + "".join(lines) + _aliases(aliases)


def host_network_hosts(node_file: str, aliases: tuple[HostAlias, ...]) -> str:
    """The hosts file of a pod on the node's network: the node's own, and the aliases."""
    if node_file and not node_file.endswith("\n"):
        node_file += "\n"
    return _HOST_NETWORK_HEADER + node_file + _aliases(aliases)


def _aliases(aliases: tuple[HostAlias, ...]) -> str:
    if not aliases:
        return ""
    lines = [f"{alias.ip}\t" + "\t".join(alias.hostnames) + "\n" for alias in aliases]
    return "\n# Entries added by HostAliases.\n" + "".join(lines)


def write_hosts_file(
    path: Path,
    pod: Pod,
    ips: tuple[str, ...],
    hostname: str,
    domain: str,
    node_file: Path = Path("/etc/hosts"),
) -> None:
    """Write a pod's hosts file anew. Blocking.

    The file keeps its inode, because containers have it mounted, and is left alone when it
    is right already.
    """
    aliases = pod.spec.host_aliases
    if pod.spec.host_network:
        text = host_network_hosts(_read(node_file), aliases)
    else:
        text = pod_hosts(ips, hostname, domain, aliases)
    if _read(path) != text:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
        path.chmod(0o644)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return ""
