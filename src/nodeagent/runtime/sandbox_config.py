"""The configuration of a pod's sandbox (docs/behaviour/runtime.md, "Sandbox"). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from nodeagent.api import Container, ContainerPort, Pod
from nodeagent.model import SyncError
from nodeagent.proto.runtime import v1
from nodeagent.runtime.dns import ResolverSettings
from nodeagent.runtime.errors import SyncReason
from nodeagent.runtime.linux_resources import overhead_resources, sandbox_resources
from nodeagent.runtime.names import PodNames
from nodeagent.runtime.security import sandbox_security
from nodeagent.runtime.settings import HostFacts, RuntimeSettings
from nodeagent.runtime.sysctls import forbidden_sysctl, normal_sysctl

_MAX_HOSTNAME: Final = 63
_MAX_FQDN: Final = 64
_PROTOCOLS: Final = {
    "TCP": v1.Protocol.TCP,
    "UDP": v1.Protocol.UDP,
    "SCTP": v1.Protocol.SCTP,
}


@dataclass(frozen=True, slots=True)
class PodHostname:
    """The name of a pod's host.

    Attributes:
        hostname: without its domain, as the hosts file names it.
        domain: the domain it is in; "" for none.
        in_kernel: what the ``hostname`` command says; with the domain if the pod wants that.
    """

    hostname: str
    domain: str
    in_kernel: str


def pod_hostname(pod: Pod, cluster_domain: str) -> PodHostname:
    """The pod's host name and domain."""
    spec = pod.spec
    if spec.hostname_override:
        return PodHostname(spec.hostname_override, "", in_kernel=spec.hostname_override)
    hostname = (spec.hostname or pod.metadata.name)[:_MAX_HOSTNAME].rstrip("-.")
    domain = ""
    if spec.subdomain:
        parts = (spec.subdomain, pod.metadata.namespace, "svc", cluster_domain)
        domain = ".".join(part for part in parts if part)
    if spec.set_hostname_as_fqdn and domain:
        return PodHostname(hostname, domain, in_kernel=f"{hostname}.{domain}")
    return PodHostname(hostname, domain, in_kernel=hostname)


def _sandbox_hostname(pod: Pod, cluster_domain: str) -> str:
    """What the kernel is told; "" on the node's network.

    Raises:
        SyncError: the fully qualified name that the pod wants as host name is too long.
    """
    if pod.spec.host_network:
        return ""
    name = pod_hostname(pod, cluster_domain).in_kernel
    if len(name) > _MAX_FQDN:
        message = f"host name {name} is {len(name)} characters long, {_MAX_FQDN} are allowed"
        raise SyncError(message, reason=SyncReason.CREATE_SANDBOX)
    return name


def port_mappings(container: Container) -> Iterator[v1.PortMapping]:
    """The container's ports, without those that it names twice."""
    seen: set[object] = set()
    for port in container.ports:
        key = port.name or _unnamed_key(port)
        if key in seen:
            continue
        seen.add(key)
        yield v1.PortMapping(
            protocol=_PROTOCOLS.get(port.protocol, v1.Protocol.TCP),
            container_port=port.container_port,
            host_port=port.host_port,
            host_ip=port.host_ip,
        )


def _unnamed_key(port: ContainerPort) -> tuple[object, ...]:
    return port.protocol, port.host_ip, port.container_port, port.host_port


def build_sandbox_config(
    pod: Pod,
    attempt: int,
    dns: ResolverSettings,
    settings: RuntimeSettings,
    host: HostFacts,
    userns: v1.UserNamespace | None = None,
    groups: Iterable[int] = (),
) -> v1.PodSandboxConfig:
    """The message that creates the pod's sandbox.

    Args:
        pod: the desired pod.
        attempt: number of this sandbox among the pod's sandboxes.
        dns: the pod's resolver settings.
        settings: how pods are made.
        host: facts about the host.
        userns: the pod's user namespace; None when it has the host's.
        groups: those that its volumes ask for.

    Raises:
        SyncError: the pod cannot have a sandbox as its spec stands.
    """
    names = PodNames.of(pod)
    hostname = _sandbox_hostname(pod, settings.cluster_domain)
    if trouble := forbidden_sysctl(pod, host.kernel, settings.allowed_sysctls):
        raise SyncError(trouble, reason=SyncReason.CREATE_SANDBOX)
    sysctls = pod.spec.security_context.sysctls if pod.spec.security_context else ()
    return v1.PodSandboxConfig(
        metadata=v1.PodSandboxMetadata(
            name=names.name, namespace=names.namespace, uid=names.uid, attempt=attempt
        ),
        hostname=hostname,
        log_directory=str(settings.pod_logs_dir / names.log_directory),
        dns_config=dns.message(),
        port_mappings=[m for c in pod.spec.containers for m in port_mappings(c)],
        labels={**pod.metadata.labels, **names.labels},
        annotations=dict(pod.metadata.annotations),
        linux=v1.LinuxPodSandboxConfig(
            cgroup_parent=settings.cgroup_parent(pod),
            security_context=sandbox_security(pod, userns, groups),
            sysctls={normal_sysctl(s.name): s.value for s in sysctls},
            resources=sandbox_resources(pod, settings, host),
            overhead=overhead_resources(pod, settings),
        ),
    )
