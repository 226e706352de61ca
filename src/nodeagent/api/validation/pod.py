"""Rules for the pod as a whole."""

from collections.abc import Iterator
from typing import Final

from nodeagent.api.pod import HostAlias, Pod, PodDNSConfig, PodSpec
from nodeagent.api.validation.containers import check_containers
from nodeagent.api.validation.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    required,
    too_long,
    too_many,
)
from nodeagent.api.validation.metadata import check_metadata
from nodeagent.api.validation.names import (
    check,
    check_if_set,
    check_labels,
    check_one_of,
    check_one_of_if_set,
    check_range,
    check_set,
    ip_fault,
    label_fault,
    qualified_name_fault,
    subdomain_fault,
)
from nodeagent.api.validation.resources import (
    check_claims,
    check_overhead,
    check_pod_resources,
)
from nodeagent.api.validation.scheduling import (
    check_affinity,
    check_spreading,
    check_tolerations,
)
from nodeagent.api.validation.security import (
    check_context_for_os,
    check_pod_security,
    refuse_set,
)
from nodeagent.api.validation.volumes import check_volumes

MAX_NAMESERVERS: Final = 3
MAX_SEARCHES: Final = 32
MAX_SEARCH_CHARACTERS: Final = 2048
MAX_HOSTNAME_OVERRIDE: Final = 64


def validate_pod(pod: Pod) -> list[FieldError]:
    """Judge a pod that has its defaults, node name and final name.

    Returns:
        Everything that is wrong, in the order of the rules; empty for a valid pod.
    """
    return [*check_metadata("metadata", pod.metadata), *_check_spec(pod.spec)]


def _check_spec(spec: PodSpec) -> Iterator[FieldError]:
    yield from check_volumes("spec.volumes", spec.volumes)
    yield from check_claims("spec.resourceClaims", spec.resource_claims)
    volumes = {volume.name: volume for volume in spec.volumes}
    yield from check_containers(spec, volumes)
    if spec.ephemeral_containers:
        yield forbidden("spec.ephemeralContainers", "may only be added to a running pod")
    yield from check_pod_resources("spec.resources", spec)
    yield from check_overhead("spec.overhead", spec.overhead)
    yield from _check_policies(spec)
    yield from _check_scheduling(spec)
    yield from _check_references(spec)
    yield from _check_hostname(spec)
    yield from _check_dns("spec.dnsConfig", spec.dns_config, spec.dns_policy)
    yield from _check_host_aliases("spec.hostAliases", spec.host_aliases)
    if spec.security_context is not None:
        yield from check_pod_security("spec.securityContext", spec.security_context, spec)
    yield from _check_namespaces(spec)
    yield from _check_os(spec)


def _check_policies(spec: PodSpec) -> Iterator[FieldError]:
    yield from check_one_of(
        "spec.restartPolicy", spec.restart_policy, ("Always", "OnFailure", "Never")
    )
    yield from check_one_of(
        "spec.dnsPolicy",
        spec.dns_policy,
        ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"),
    )
    yield from check_one_of_if_set(
        "spec.preemptionPolicy", spec.preemption_policy, ("PreemptLowerPriority", "Never")
    )
    if spec.active_deadline_seconds is not None:
        seconds = spec.active_deadline_seconds
        yield from check_range("spec.activeDeadlineSeconds", seconds, 1, 2**31 - 1)


def _check_scheduling(spec: PodSpec) -> Iterator[FieldError]:
    yield from check_if_set("spec.nodeName", spec.node_name, subdomain_fault)
    yield from check_labels("spec.nodeSelector", spec.node_selector)
    if spec.scheduling_gates and spec.node_name:
        yield forbidden("spec.schedulingGates", "the pod has its node already")
    seen: set[str] = set()
    for index, gate in enumerate(spec.scheduling_gates):
        here = f"spec.schedulingGates[{index}].name"
        yield from check(here, gate.name, qualified_name_fault)
        if gate.name in seen:
            yield duplicate(here, gate.name)
        seen.add(gate.name)
    yield from check_affinity("spec.affinity", spec.affinity)
    yield from check_tolerations("spec.tolerations", spec.tolerations)
    yield from check_spreading("spec.topologySpreadConstraints", spec.topology_spread_constraints)
    for index, ready in enumerate(spec.readiness_gates):
        here = f"spec.readinessGates[{index}].conditionType"
        yield from check(here, ready.condition_type, qualified_name_fault)


def _check_references(spec: PodSpec) -> Iterator[FieldError]:
    yield from check_if_set("spec.serviceAccountName", spec.service_account_name, subdomain_fault)
    yield from check_if_set("spec.priorityClassName", spec.priority_class_name, subdomain_fault)
    yield from check_if_set("spec.runtimeClassName", spec.runtime_class_name, subdomain_fault)
    for index, secret in enumerate(spec.image_pull_secrets):
        yield from check_set(f"spec.imagePullSecrets[{index}].name", secret.name)
    if spec.scheduling_group is not None:
        name = spec.scheduling_group.pod_group_name
        yield from check_if_set("spec.schedulingGroup.podGroupName", name, subdomain_fault)


def _check_hostname(spec: PodSpec) -> Iterator[FieldError]:
    yield from check_if_set("spec.hostname", spec.hostname, label_fault)
    yield from check_if_set("spec.subdomain", spec.subdomain, label_fault)
    override = spec.hostname_override
    if override is None:
        return
    here = "spec.hostnameOverride"
    if len(override) > MAX_HOSTNAME_OVERRIDE:
        yield too_long(here, MAX_HOSTNAME_OVERRIDE)
    yield from check(here, override, subdomain_fault)
    if spec.host_network:
        yield forbidden(here, "may not be set with hostNetwork")
    if spec.set_hostname_as_fqdn:
        yield forbidden(here, "may not be set with setHostnameAsFQDN")


def _check_dns(path: str, config: PodDNSConfig | None, policy: str) -> Iterator[FieldError]:
    if policy == "None" and not (config is not None and config.nameservers):
        yield required(f"{path}.nameservers", "dnsPolicy None needs at least one")
    if config is None:
        return
    if len(config.nameservers) > MAX_NAMESERVERS:
        yield too_many(f"{path}.nameservers", len(config.nameservers), MAX_NAMESERVERS)
    for index, address in enumerate(config.nameservers):
        yield from check(f"{path}.nameservers[{index}]", address, ip_fault)
    if len(config.searches) > MAX_SEARCHES:
        yield too_many(f"{path}.searches", len(config.searches), MAX_SEARCHES)
    if len(" ".join(config.searches)) > MAX_SEARCH_CHARACTERS:
        yield too_long(f"{path}.searches", MAX_SEARCH_CHARACTERS, "characters together")
    for index, search in enumerate(config.searches):
        yield from check(f"{path}.searches[{index}]", search, _search_fault)
    for index, option in enumerate(config.options):
        yield from check_set(f"{path}.options[{index}].name", option.name)


def _search_fault(search: str) -> str | None:
    """Judge a search domain: it may be the root, end in a dot, and have underscores."""
    if search == ".":
        return None
    return subdomain_fault(search.removesuffix(".").replace("_", "x"))


def _check_host_aliases(path: str, aliases: tuple[HostAlias, ...]) -> Iterator[FieldError]:
    for index, alias in enumerate(aliases):
        yield from check(f"{path}[{index}].ip", alias.ip, ip_fault)
        for position, hostname in enumerate(alias.hostnames):
            yield from check(f"{path}[{index}].hostnames[{position}]", hostname, subdomain_fault)


def _check_namespaces(spec: PodSpec) -> Iterator[FieldError]:
    """Judge which namespaces the pod shares with the host and within itself."""
    if spec.share_process_namespace and spec.host_pid:
        here = "spec.shareProcessNamespace"
        yield invalid(here, value=True, detail="may not be set with hostPID")
    if spec.host_users is not False:
        return
    names = ("hostNetwork", "hostPID", "hostIPC")
    yield from refuse_set("spec", spec, names, "may not be set when hostUsers is false")
    lists = {"containers": spec.containers, "initContainers": spec.init_containers}
    for name, containers in lists.items():
        for index, container in enumerate(containers):
            if container.volume_devices:
                here = f"spec.{name}[{index}].volumeDevices"
                yield forbidden(here, "may not be set when hostUsers is false")


def _check_os(spec: PodSpec) -> Iterator[FieldError]:
    """Refuse the settings that the pod's operating system does not have."""
    if spec.os is None:
        return
    system = spec.os.name
    yield from check_one_of("spec.os.name", system, ("linux", "windows"))
    if system not in ("linux", "windows"):
        return
    yield from check_context_for_os("spec.securityContext", spec.security_context, system)
    if system == "windows":
        names = ("hostPID", "hostIPC", "hostUsers", "shareProcessNamespace")
        yield from refuse_set("spec", spec, names, "may not be set for windows pods")
    lists = {"containers": spec.containers, "initContainers": spec.init_containers}
    for name, containers in lists.items():
        for index, container in enumerate(containers):
            path = f"spec.{name}[{index}].securityContext"
            yield from check_context_for_os(path, container.security_context, system)
