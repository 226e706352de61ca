"""The sandbox's configuration (docs/behaviour/runtime.md, "Sandbox")."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.runtime.fakes import make_container, make_pod, make_settings

from nodeagent.api import (
    ContainerPort,
    Pod,
    PodSecurityContext,
    Quantity,
    ResourceRequirements,
    SELinuxOptions,
    Sysctl,
)
from nodeagent.model import SyncError
from nodeagent.proto.runtime import v1
from nodeagent.runtime.dns import ResolverSettings
from nodeagent.runtime.sandbox_config import (
    build_sandbox_config,
    pod_hostname,
    port_mappings,
)
from nodeagent.runtime.settings import HostFacts
from nodeagent.runtime.sysctls import forbidden_sysctl, normal_sysctl


def build(pod: Any, attempt: int = 0) -> v1.PodSandboxConfig:
    dns = ResolverSettings(("10.0.0.1",), ("x",), ("ndots:5",))
    return build_sandbox_config(pod, attempt, dns, make_settings(Path("/x")), HostFacts())


def namespaces(pod: Any) -> v1.NamespaceOption:
    linux = build(pod).linux
    assert linux is not None
    assert linux.security_context is not None
    options = linux.security_context.namespace_options
    assert options is not None
    return options


def test_it_names_the_pod_and_the_attempt() -> None:
    config = build(make_pod(), 3)
    assert config.metadata == v1.PodSandboxMetadata(
        name="web", namespace="default", uid="uid-1", attempt=3
    )
    assert config.log_directory == "/x/logs/default_web_uid-1"
    assert config.dns_config == v1.DnsConfig(
        servers=["10.0.0.1"], searches=["x"], options=["ndots:5"]
    )


def test_our_labels_win_over_the_pods_and_annotations_go_through_verbatim() -> None:
    pod = make_pod()
    meta = msgspec.structs.replace(
        pod.metadata,
        labels={"app": "web", "io.kubernetes.pod.uid": "forged"},
        annotations={"a/b": " x\n"},
    )
    config = build(msgspec.structs.replace(pod, metadata=meta))
    assert config.labels == {
        "app": "web",
        "io.kubernetes.pod.name": "web",
        "io.kubernetes.pod.namespace": "default",
        "io.kubernetes.pod.uid": "uid-1",
    }
    assert config.annotations == {"a/b": " x\n"}


@pytest.mark.parametrize(
    ("spec", "hostname", "domain"),
    [
        ({}, "web", ""),
        ({"hostname": "other"}, "other", ""),
        ({"name": "a" * 62 + "-" + "b" * 10}, "a" * 62, ""),
        ({"subdomain": "sub"}, "web", "sub.default.svc.cluster.local"),
        ({"hostname_override": "own.name"}, "own.name", ""),
        (
            {"subdomain": "sub", "set_hostname_as_fqdn": True},
            "web",
            "sub.default.svc.cluster.local",
        ),
        ({"set_hostname_as_fqdn": True}, "web", ""),
    ],
)
def test_the_host_name_follows_the_rules(spec: dict[str, Any], hostname: str, domain: str) -> None:
    found = pod_hostname(make_pod(**spec), "cluster.local")
    assert (found.hostname, found.domain) == (hostname, domain)


def test_the_kernel_is_told_the_full_name_only_when_the_pod_wants_it() -> None:
    """The hosts file has both names in either case."""
    plain, full = (
        pod_hostname(make_pod(subdomain="sub", set_hostname_as_fqdn=wanted), "cluster.local")
        for wanted in (None, True)
    )
    assert plain.in_kernel == "web"
    assert full.in_kernel == "web.sub.default.svc.cluster.local"
    assert build(make_pod(subdomain="sub", set_hostname_as_fqdn=True)).hostname.startswith(
        "web.sub."
    )


def test_a_fully_qualified_host_name_must_fit() -> None:
    wish: dict[str, Any] = {"subdomain": "sub", "set_hostname_as_fqdn": True}
    fits = "a" * (64 - len(".sub.default.svc"))
    assert len(build(make_pod(name=fits, **wish)).hostname) == 64
    with pytest.raises(SyncError, match="65 characters long, 64 are allowed") as caught:
        build(make_pod(name=f"{fits}a", **wish))
    assert caught.value.reason == "CreatePodSandboxError"
    on_the_node = make_pod(name=f"{fits}a", host_network=True, **wish)
    assert build(on_the_node).hostname == ""


def test_a_pod_on_the_nodes_network_has_no_host_name_of_its_own() -> None:
    assert build(make_pod(host_network=True)).hostname == ""
    assert build(make_pod()).hostname == "web"


@pytest.mark.parametrize(
    ("spec", "network", "pid", "ipc"),
    [
        ({}, "POD", "CONTAINER", "POD"),
        ({"host_network": True}, "NODE", "CONTAINER", "POD"),
        ({"host_pid": True}, "POD", "NODE", "POD"),
        ({"share_process_namespace": True}, "POD", "POD", "POD"),
        ({"host_ipc": True}, "POD", "CONTAINER", "NODE"),
    ],
)
def test_namespaces_follow_the_spec(spec: dict[str, Any], network: str, pid: str, ipc: str) -> None:
    options = namespaces(make_pod(**spec))
    assert (options.network.name, options.pid.name, options.ipc.name) == (network, pid, ipc)


def test_ports_are_mapped_once_for_each_container() -> None:
    ports = (
        ContainerPort(name="web", container_port=80, host_port=8080, protocol="TCP"),
        ContainerPort(name="web", container_port=81, protocol="TCP"),
        ContainerPort(container_port=53, protocol="UDP", host_ip="127.0.0.1"),
        ContainerPort(container_port=53, protocol="UDP", host_ip="127.0.0.1"),
        ContainerPort(container_port=53, protocol="UDP"),
        ContainerPort(container_port=53, protocol="SCTP"),
        ContainerPort(container_port=53, protocol="SCTP", host_ip="no address"),
    )
    mapped = list(port_mappings(make_container(ports=ports)))
    assert mapped == [
        v1.PortMapping(protocol=v1.Protocol.TCP, container_port=80, host_port=8080),
        v1.PortMapping(protocol=v1.Protocol.UDP, container_port=53, host_ip="127.0.0.1"),
        v1.PortMapping(protocol=v1.Protocol.UDP, container_port=53),
        v1.PortMapping(protocol=v1.Protocol.SCTP, container_port=53),
        v1.PortMapping(protocol=v1.Protocol.SCTP, container_port=53, host_ip="no address"),
    ]


def test_ports_of_two_containers_are_all_mapped() -> None:
    port = (ContainerPort(container_port=80, protocol="TCP"),)
    pod = make_pod(make_container("a", ports=port), make_container("b", ports=port))
    assert len(build(pod).port_mappings) == 2


def test_the_sandbox_has_the_pods_resources_and_the_overhead() -> None:
    def resources(cpu: str) -> ResourceRequirements:
        return ResourceRequirements(limits={"cpu": Quantity(cpu), "memory": Quantity("1Mi")})

    pod = make_pod(
        make_container("a", resources=resources("1")),
        make_container("b", resources=resources("500m")),
        overhead={"cpu": Quantity("250m")},
    )
    linux = build(pod).linux
    assert linux is not None
    assert linux.resources == v1.LinuxContainerResources(
        cpu_shares=1536,
        cpu_quota=150_000,
        cpu_period=100_000,
        memory_limit_in_bytes=2 * 1024**2,
        unified={"memory.oom.group": "1"},
    )
    assert linux.overhead == v1.LinuxContainerResources(
        cpu_shares=256, cpu_quota=25_000, cpu_period=100_000
    )


def test_its_own_process_is_confined_and_privileged_only_with_a_privileged_container() -> None:
    linux = build(make_pod()).linux
    assert linux is not None
    context = linux.security_context
    assert context is not None
    assert context.seccomp == v1.SecurityProfile(
        profile_type=v1.SecurityProfileProfileType.RuntimeDefault
    )
    assert not context.privileged


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("kernel.shm_rmid_forced", "kernel.shm_rmid_forced"),
        ("kernel/shm_rmid_forced", "kernel.shm_rmid_forced"),
        ("net/ipv4/conf/eth0.1/x", "net.ipv4.conf.eth0/1.x"),
        ("net.ipv4.conf.eth0/1.x", "net.ipv4.conf.eth0/1.x"),
    ],
)
def test_kernel_parameters_are_written_with_dots(given: str, expected: str) -> None:
    assert normal_sysctl(given) == expected


def test_kernel_parameters_of_the_pod_are_passed_on() -> None:
    """docs/behaviour/runtime.md, "Sysctls"."""
    context = PodSecurityContext(sysctls=(Sysctl(name="net/ipv4/tcp_syncookies", value="1"),))
    linux = build(make_pod(security_context=context)).linux
    assert linux is not None
    assert linux.sysctls == {"net.ipv4.tcp_syncookies": "1"}


def setting(*names: str, **spec: Any) -> Pod:
    sysctls = tuple(Sysctl(name=name, value="1") for name in names)
    return make_pod(security_context=PodSecurityContext(sysctls=sysctls), **spec)


@pytest.mark.parametrize(
    ("pod", "trouble"),
    [
        (make_pod(), ""),
        (setting("kernel.shm_rmid_forced", "net.ipv4.tcp_rmem"), ""),
        (setting("net/ipv4/ping_group_range"), ""),
        (setting("kernel.msgmax"), "not allowlisted"),
        (setting("kernel.shm_rmid_forced", "kernel/x"), "not allowlisted"),
        (setting("net.core.somaxconn"), ""),
        (
            setting("net.ipv4.tcp_syncookies", host_network=True),
            "not allowed with host net enabled",
        ),
        (setting("kernel.shm_rmid_forced", host_network=True), ""),
        (setting("kernel.shm_rmid_forced", host_ipc=True), "not allowed with host ipc enabled"),
        (setting("kernel.semopm"), ""),
    ],
)
def test_only_safe_and_allowed_parameters_may_be_set(pod: Pod, trouble: str) -> None:
    """docs/behaviour/runtime.md, "Sysctls"."""
    found = forbidden_sysctl(pod, (6, 1), ("net.core.*", "kernel/semopm"))
    assert found.endswith(trouble)
    assert bool(found) is bool(trouble)


def test_a_parameter_is_safe_only_on_a_kernel_that_keeps_it_apart() -> None:
    """docs/behaviour/runtime.md, "Sysctls"."""
    pod = setting("net.ipv4.tcp_rmem")
    assert forbidden_sysctl(pod, (4, 14)) == 'forbidden sysctl: "net.ipv4.tcp_rmem" not allowlisted'
    assert forbidden_sysctl(pod, (4, 15)) == ""


def test_a_forbidden_parameter_fails_the_sandbox() -> None:
    """docs/behaviour/runtime.md, "Sysctls"."""
    with pytest.raises(SyncError, match=r'forbidden sysctl: "kernel\.msgmax" not allowlisted'):
        build(setting("kernel.msgmax"))


def test_the_pods_security_settings_are_those_of_its_sandbox() -> None:
    context = PodSecurityContext(
        run_as_user=1000,
        run_as_group=2000,
        fs_group=3000,
        supplemental_groups=(4000, 5000),
        supplemental_groups_policy="Strict",
        se_linux_options=SELinuxOptions(level="s0:c1"),
    )
    linux = build(make_pod(security_context=context)).linux
    assert linux is not None
    found = linux.security_context
    assert found is not None
    assert found.run_as_user == v1.Int64Value(value=1000)
    assert found.run_as_group == v1.Int64Value(value=2000)
    assert found.supplemental_groups == [3000, 4000, 5000]
    assert found.supplemental_groups_policy is v1.SupplementalGroupsPolicy.Strict
    assert found.selinux_options == v1.SeLinuxOption(level="s0:c1")


def test_a_sandbox_has_no_group_without_a_user() -> None:
    """docs/behaviour/runtime.md, "Sandbox": runtimes refuse it."""
    linux = build(make_pod(security_context=PodSecurityContext(run_as_group=2000))).linux
    assert linux is not None
    assert linux.security_context is not None
    assert linux.security_context.run_as_group is None
