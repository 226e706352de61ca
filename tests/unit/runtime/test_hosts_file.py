"""The hosts file of a pod (docs/behaviour/runtime.md, "Hosts file")."""

from __future__ import annotations

from pathlib import Path

from tests.unit.runtime.fakes import make_pod

from nodeagent.api import HostAlias
from nodeagent.runtime.hosts_file import host_network_hosts, pod_hosts, write_hosts_file


def test_a_pod_with_its_own_network_has_its_addresses() -> None:
    text = pod_hosts(("10.0.0.7", "fd00::7"), "web", "", ())
    assert text == (
        "# Kubernetes-managed hosts file.\n"
        "127.0.0.1\tlocalhost\n"
        "::1\tlocalhost ip6-localhost ip6-loopback\n"
        "fe00::0\tip6-localnet\n"
        "fe00::0\tip6-mcastprefix\n"
        "fe00::1\tip6-allnodes\n"
        "fe00::2\tip6-allrouters\n"
        "10.0.0.7\tweb\n"
        "fd00::7\tweb\n"
    )


def test_a_pod_in_a_domain_has_its_full_name_too() -> None:
    text = pod_hosts(("10.0.0.7",), "web", "sub.ns.svc.local", ())
    assert text.endswith("10.0.0.7\tweb.sub.ns.svc.local\tweb\n")


def test_aliases_come_last() -> None:
    aliases = (HostAlias(ip="1.2.3.4", hostnames=("a", "b")),)
    expected = "\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"
    assert pod_hosts((), "web", "", aliases).endswith(expected)
    assert host_network_hosts("127.0.0.1 localhost", aliases).endswith(
        f"127.0.0.1 localhost\n{expected}"
    )


def test_a_pod_on_the_nodes_network_has_the_nodes_file(tmp_path: Path) -> None:
    node, path = tmp_path / "hosts", tmp_path / "pod/etc-hosts"
    node.write_text("127.0.0.1 here\n")
    write_hosts_file(path, make_pod(host_network=True), (), "web", "", node)
    assert path.read_text() == ("# Kubernetes-managed hosts file (host network).\n127.0.0.1 here\n")


def test_the_file_keeps_its_inode_and_can_be_read_by_all(tmp_path: Path) -> None:
    path = tmp_path / "pod/etc-hosts"
    write_hosts_file(path, make_pod(), ("10.0.0.7",), "web", "")
    inode = path.stat().st_ino
    write_hosts_file(path, make_pod(), ("10.0.0.8",), "web", "")
    assert path.stat().st_ino == inode
    assert path.stat().st_mode & 0o777 == 0o644
    assert "10.0.0.8\tweb\n" in path.read_text()
