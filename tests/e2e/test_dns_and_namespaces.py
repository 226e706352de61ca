"""What a pod shares with its host and what it has for itself, on containerd."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.lab.agent import Agent, full_name
from tests.e2e.lab.containerd_lab import Lab
from tests.e2e.lab.manifests import container, pod

pytestmark = [pytest.mark.realtime, pytest.mark.timeout(240)]


@pytest.fixture
def clustered(lab: Lab, tmp_path: Path) -> Iterator[Agent]:
    """An agent that knows a cluster's DNS."""
    resolv = tmp_path / "resolv.conf"
    resolv.write_text("nameserver 192.0.2.1\nsearch corp.example\noptions timeout:2\n")
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "clusterDNS": ["192.0.2.53"],
        "clusterDomain": "cluster.test",
        "resolvConf": str(resolv),
    }
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps(settings))
    agent = Agent(tmp_path, lab.endpoint, f"--config={config}")
    agent.start()
    yield agent
    agent.close()


def _read(lab: Lab, cid: str, path: str) -> list[str]:
    return lab.cri.exec(cid, "cat", path).stdout.splitlines()


def _resolver(lab: Lab, cid: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in _read(lab, cid, "/etc/resolv.conf"):
        keyword, *values = line.split()
        found.setdefault(keyword, []).extend(values)
    return found


@pytest.mark.parametrize(
    ("policy", "servers", "search", "options"),
    [
        (
            "ClusterFirst",
            ["192.0.2.53"],
            ["default.svc.cluster.test", "svc.cluster.test", "cluster.test", "corp.example"],
            ["ndots:5"],
        ),
        ("Default", ["192.0.2.1"], ["corp.example"], ["timeout:2"]),
    ],
)
def test_the_resolver_is_the_clusters_or_the_nodes(
    lab: Lab,
    clustered: Agent,
    policy: str,
    servers: list[str],
    search: list[str],
    options: list[str],
) -> None:
    clustered.put("web", pod("web", dnsPolicy=policy))
    found = _resolver(lab, clustered.wait_pod("web").container().id)
    assert found == {"nameserver": servers, "search": search, "options": options}


@pytest.mark.parametrize(
    ("policy", "servers"),
    [("ClusterFirst", ["192.0.2.1"]), ("ClusterFirstWithHostNet", ["192.0.2.53"])],
)
def test_on_the_nodes_network_the_clusters_resolver_has_to_be_asked_for(
    lab: Lab, clustered: Agent, policy: str, servers: list[str]
) -> None:
    clustered.put("web", pod("web", dnsPolicy=policy, hostNetwork=True))
    found = _resolver(lab, clustered.wait_pod("web").container().id)
    assert found["nameserver"] == servers


def test_a_pod_brings_its_own_resolver(lab: Lab, clustered: Agent) -> None:
    own = {
        "nameservers": ["198.51.100.1"],
        "searches": ["own.example"],
        "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
    }
    clustered.put("web", pod("web", dnsPolicy="None", dnsConfig=own))
    found = _resolver(lab, clustered.wait_pod("web").container().id)
    assert found == {
        "nameserver": ["198.51.100.1"],
        "search": ["own.example"],
        "options": ["ndots:2", "edns0"],
    }


def test_what_exceeds_the_limits_of_the_resolver_is_left_out_and_told(
    lab: Lab, clustered: Agent
) -> None:
    own = {"nameservers": ["198.51.100.1", "198.51.100.2", "198.51.100.3"]}
    clustered.put("web", pod("web", dnsConfig=own))
    found = _resolver(lab, clustered.wait_pod("web").container().id)
    kept = ["192.0.2.53", "198.51.100.1", "198.51.100.2"]
    assert found["nameserver"] == kept
    clustered.wait_journal(
        "web", "DNSConfigForming", "Nameserver limits were exceeded", " ".join(kept)
    )


def test_names_and_addresses_stand_in_the_hosts_file(lab: Lab, clustered: Agent) -> None:
    aliases = [{"ip": "192.0.2.9", "hostnames": ["db", "db.example"]}]
    clustered.put("web", pod("web", hostname="front", subdomain="sub", hostAliases=aliases))
    web = clustered.wait_pod("web")
    lines = _read(lab, web.container().id, "/etc/hosts")
    assert lines == [
        "# Kubernetes-managed hosts file.",
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        "fe00::0\tip6-localnet",
        "fe00::0\tip6-mcastprefix",
        "fe00::1\tip6-allnodes",
        "fe00::2\tip6-allrouters",
        f"{web.pod_ip}\tfront.sub.default.svc.cluster.test\tfront",
        "",
        "# Entries added by HostAliases.",
        "192.0.2.9\tdb\tdb.example",
    ]
    assert _read(lab, web.container().id, "/etc/hostname") == ["front"]


def test_a_pod_may_have_its_full_name_for_a_host_name(lab: Lab, clustered: Agent) -> None:
    clustered.put("web", pod("web", hostname="a", subdomain="b", setHostnameAsFQDN=True))
    cid = clustered.wait_pod("web").container().id
    assert lab.cri.exec(cid, "hostname").stdout == "a.b.default.svc.cluster.test\n"


def test_a_pod_may_call_its_host_whatever_it_likes(lab: Lab, clustered: Agent) -> None:
    names = {"hostname": "a", "subdomain": "b", "hostnameOverride": "its.own.name"}
    clustered.put("web", pod("web", **names))
    web = clustered.wait_pod("web")
    assert lab.cri.exec(web.container().id, "hostname").stdout == "its.own.name\n"
    assert _read(lab, web.container().id, "/etc/hosts")[-1] == f"{web.pod_ip}\tits.own.name"


def test_a_full_name_that_is_too_long_fails_the_sandbox(clustered: Agent) -> None:
    clustered.put("web", pod("web", hostname="a" * 60, subdomain="b", setHostnameAsFQDN=True))
    clustered.wait_journal("web", "FailedCreatePodSandBox", "64 are allowed")
    held = clustered.wait_pod("web", lambda it: it.phase == "Pending", what="Pending")
    assert held.container().reason == "ContainerCreating"


def _namespaces(lab: Lab, cid: str) -> dict[str, str]:
    kinds = ("pid", "ipc", "net", "uts", "mnt")
    return {k: lab.cri.exec(cid, "readlink", f"/proc/1/ns/{k}").stdout.strip() for k in kinds}


def _of_host(kind: str) -> str:
    return str(Path(f"/proc/self/ns/{kind}").readlink())


def test_a_pod_has_namespaces_of_its_own(lab: Lab, agent: Agent) -> None:
    agent.put("web", pod("web", container("one"), container("two")))
    web = agent.wait_pod("web")
    one, two = (_namespaces(lab, web.container(name).id) for name in ("one", "two"))
    assert all(one[kind] != _of_host(kind) for kind in one)
    assert (one["net"], one["ipc"], one["uts"]) == (two["net"], two["ipc"], two["uts"])
    assert one["pid"] != two["pid"]


def test_a_pod_shares_its_processes_when_asked(lab: Lab, agent: Agent) -> None:
    agent.put("web", pod("web", container("one"), container("two"), shareProcessNamespace=True))
    web = agent.wait_pod("web")
    one, two = (web.container(name).id for name in ("one", "two"))
    assert _namespaces(lab, one)["pid"] == _namespaces(lab, two)["pid"]
    assert "/pause" in lab.cri.exec(one, "ps").stdout
    assert lab.cri.exec(one, "ps").stdout.count("sleep 1000000") >= 2


def test_a_pod_enters_the_namespaces_of_its_host_when_asked(lab: Lab, agent: Agent) -> None:
    aliases = [{"ip": "192.0.2.9", "hostnames": ["db", "db.example"]}]
    shared: dict[str, Any] = {"hostPID": True, "hostIPC": True, "hostNetwork": True}
    agent.put("web", pod("web", hostAliases=aliases, **shared))
    web = agent.wait_pod("web")
    cid = web.container().id
    assert lab.cri.exec(cid, "test", "-d", f"/proc/{os.getpid()}").exit_code == 0
    for kind in ("pid", "ipc", "net"):
        own = lab.cri.exec(cid, "readlink", f"/proc/self/ns/{kind}").stdout.strip()
        assert own == _of_host(kind)
    assert lab.cri.exec(cid, "readlink", "/proc/self/ns/mnt").stdout.strip() != _of_host("mnt")
    hosts = _read(lab, cid, "/etc/hosts")
    assert hosts == [
        "# Kubernetes-managed hosts file (host network).",
        *Path("/etc/hosts").read_text().splitlines(),
        "",
        "# Entries added by HostAliases.",
        "192.0.2.9\tdb\tdb.example",
    ]
    assert lab.cri.exec(cid, "hostname").stdout.strip() == os.uname().nodename


def test_safe_kernel_parameters_are_set_in_the_pod_only(lab: Lab, agent: Agent) -> None:
    name = "net.ipv4.ip_unprivileged_port_start"
    before = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()
    context = {"sysctls": [{"name": name, "value": "77"}]}
    agent.put("web", pod("web", securityContext=context))
    cid = agent.wait_pod("web").container().id
    assert lab.cri.exec(cid, "sysctl", "-n", name).stdout == "77\n"
    assert Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text() == before


def test_other_kernel_parameters_are_forbidden(lab: Lab, agent: Agent) -> None:
    context = {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}
    agent.put("web", pod("web", securityContext=context))
    rejected = agent.wait_pod("web", lambda it: it.phase == "Failed", what="Failed")
    why = 'Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted'
    assert f"SysctlForbidden: {why}" in rejected.why
    assert lab.cri.sandboxes(full_name("web")) == []
    agent.put("web", pod("web"))
    agent.wait_pod("web")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"hostUsers": False}, "does not say that it can do user namespaces"),
        ({"runtimeClassName": "gvisor"}, 'runtimeclass.node.k8s.io "gvisor" not found'),
    ],
    ids=["user namespace", "runtime class"],
)
def test_what_the_node_cannot_do_fails_the_sandbox_and_says_so(
    lab: Lab, agent: Agent, spec: dict[str, Any], words: str
) -> None:
    agent.put("web", pod("web", **spec))
    record = agent.wait_journal("web", "FailedCreatePodSandBox")
    assert words in record.replace('\\"', '"')
    held = agent.wait_pod("web", lambda it: words in it.container().message, what="the cause")
    assert (held.phase, held.container().reason) == ("Pending", "ContainerCreating")
    assert lab.cri.sandboxes(full_name("web")) == []
