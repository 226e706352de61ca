"""Fields that change how a pod runs and that are not supported yet: none is ignored silently.

An allowlist: every field of the spec is named here with what is done about it, and a field
that is not named is not supported. A pod that uses such a field stays Pending, and its
status says which (docs/behaviour/runtime.md, "Unsupported fields").
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from nodeagent.api import (
    Container,
    ContainerPort,
    ContainerRestartRule,
    EmptyDirVolumeSource,
    EnvVar,
    EphemeralContainer,
    Pod,
    PodOS,
    PodSecurityContext,
    PodSpec,
    ResourceRequirements,
    SecurityContext,
    Volume,
    VolumeMount,
)
from nodeagent.api.aggregate import is_extended


class Treatment(enum.Enum):
    """What is done about a field."""

    SUPPORTED = "supported"
    """The pod runs as the field says."""
    HARMLESS = "harmless"
    """The field is not about how the pod runs on this node."""
    INSIDE = "inside"
    """The fields inside decide."""
    UNSUPPORTED = "unsupported"
    """The pod waits."""
    CLUSTER = "cluster"
    """The pod runs as the field says on a node of a cluster; without an API server it waits."""


Allowed: TypeAlias = Callable[[Any], bool]
"""Says whether one value of a field is fine although others are not."""

Rule: TypeAlias = Treatment | Allowed

_SUPPORTED: Final = Treatment.SUPPORTED
_HARMLESS: Final = Treatment.HARMLESS
_INSIDE: Final = Treatment.INSIDE
_UNSUPPORTED: Final = Treatment.UNSUPPORTED
_CLUSTER: Final = Treatment.CLUSTER


def _one_of(*values: object) -> Allowed:
    return lambda value: value in values


def _of_kernel(amounts: Mapping[str, object]) -> bool:
    """What the runtime enforces; and what is only counted, by whoever added it to the node."""
    return all(
        n in ("cpu", "memory") or n.startswith("hugepages-") or is_extended(n) for n in amounts
    )


def _schedulable(amounts: Mapping[str, object]) -> bool:
    """Requests of local storage only steer the scheduler."""
    return _of_kernel({n: q for n, q in amounts.items() if n != "ephemeral-storage"})


_CONTAINER: Final[Mapping[str, Rule]] = {
    "name": _SUPPORTED,
    "image": _SUPPORTED,
    "command": _SUPPORTED,
    "args": _SUPPORTED,
    "working_dir": _SUPPORTED,
    "ports": _INSIDE,
    "env_from": _SUPPORTED,
    "env": _INSIDE,
    "resources": _INSIDE,
    "resize_policy": _HARMLESS,
    "restart_policy": _SUPPORTED,
    "restart_policy_rules": _INSIDE,
    "volume_mounts": _INSIDE,
    "volume_devices": _CLUSTER,
    "liveness_probe": _SUPPORTED,
    "readiness_probe": _SUPPORTED,
    "startup_probe": _SUPPORTED,
    "lifecycle": _SUPPORTED,
    "termination_message_path": _SUPPORTED,
    "termination_message_policy": _SUPPORTED,
    "image_pull_policy": _SUPPORTED,
    "security_context": _INSIDE,
    "stdin": _SUPPORTED,
    "stdin_once": _SUPPORTED,
    "tty": _SUPPORTED,
}

RULES: Final[Mapping[type[msgspec.Struct], Mapping[str, Rule]]] = {
    PodSpec: {
        "volumes": _INSIDE,
        "init_containers": _INSIDE,
        "containers": _INSIDE,
        "ephemeral_containers": _INSIDE,
        "restart_policy": _SUPPORTED,
        "termination_grace_period_seconds": _SUPPORTED,
        "active_deadline_seconds": _SUPPORTED,
        "dns_policy": _SUPPORTED,
        "node_selector": _HARMLESS,
        "service_account_name": _HARMLESS,
        "service_account": _HARMLESS,
        "automount_service_account_token": _HARMLESS,
        "node_name": _HARMLESS,
        "host_network": _SUPPORTED,
        "host_pid": _SUPPORTED,
        "host_ipc": _SUPPORTED,
        "share_process_namespace": _SUPPORTED,
        "security_context": _INSIDE,
        "image_pull_secrets": _SUPPORTED,
        "hostname": _SUPPORTED,
        "subdomain": _SUPPORTED,
        "affinity": _HARMLESS,
        "scheduler_name": _HARMLESS,
        "tolerations": _HARMLESS,
        "host_aliases": _SUPPORTED,
        "priority_class_name": _SUPPORTED,
        "priority": _SUPPORTED,
        "dns_config": _SUPPORTED,
        "readiness_gates": _SUPPORTED,
        "runtime_class_name": _SUPPORTED,
        "enable_service_links": _HARMLESS,
        "preemption_policy": _HARMLESS,
        "overhead": _SUPPORTED,
        "topology_spread_constraints": _HARMLESS,
        "set_hostname_as_fqdn": _SUPPORTED,
        "os": _INSIDE,
        "host_users": _SUPPORTED,
        "scheduling_gates": _UNSUPPORTED,
        "resource_claims": _UNSUPPORTED,
        "resources": _INSIDE,
        "hostname_override": _SUPPORTED,
        "scheduling_group": _HARMLESS,
    },
    PodOS: {"name": _one_of("linux")},
    PodSecurityContext: {
        "se_linux_options": _SUPPORTED,
        "windows_options": _HARMLESS,
        "run_as_user": _SUPPORTED,
        "run_as_group": _SUPPORTED,
        "run_as_non_root": _SUPPORTED,
        "supplemental_groups": _SUPPORTED,
        "supplemental_groups_policy": _SUPPORTED,
        "fs_group": _SUPPORTED,
        "sysctls": _SUPPORTED,
        "fs_group_change_policy": _SUPPORTED,
        "seccomp_profile": _SUPPORTED,
        "app_armor_profile": _SUPPORTED,
        "se_linux_change_policy": _HARMLESS,
    },
    Container: _CONTAINER,
    EphemeralContainer: {**_CONTAINER, "target_container_name": _SUPPORTED},
    ContainerPort: {
        "name": _SUPPORTED,
        "host_port": _SUPPORTED,
        "container_port": _SUPPORTED,
        "protocol": _SUPPORTED,
        "host_ip": _SUPPORTED,
    },
    EnvVar: {"name": _SUPPORTED, "value": _SUPPORTED, "value_from": _SUPPORTED},
    ResourceRequirements: {
        "limits": _of_kernel,
        "requests": _schedulable,
        "claims": _UNSUPPORTED,
    },
    ContainerRestartRule: {
        "action": _one_of("Restart", "RestartAllContainers"),
        "exit_codes": _SUPPORTED,
    },
    SecurityContext: {
        "capabilities": _SUPPORTED,
        "privileged": _SUPPORTED,
        "se_linux_options": _SUPPORTED,
        "windows_options": _HARMLESS,
        "run_as_user": _SUPPORTED,
        "run_as_group": _SUPPORTED,
        "run_as_non_root": _SUPPORTED,
        "read_only_root_filesystem": _SUPPORTED,
        "allow_privilege_escalation": _SUPPORTED,
        "proc_mount": _SUPPORTED,
        "seccomp_profile": _SUPPORTED,
        "app_armor_profile": _SUPPORTED,
    },
    VolumeMount: {
        "name": _SUPPORTED,
        "read_only": _SUPPORTED,
        "recursive_read_only": _SUPPORTED,
        "mount_path": _SUPPORTED,
        "sub_path": _SUPPORTED,
        "mount_propagation": _SUPPORTED,
        "sub_path_expr": _SUPPORTED,
    },
    EmptyDirVolumeSource: {"medium": _SUPPORTED, "size_limit": _HARMLESS},
    Volume: {
        "name": _SUPPORTED,
        "host_path": _SUPPORTED,
        "empty_dir": _INSIDE,
        "secret": _SUPPORTED,
        "config_map": _SUPPORTED,
        "downward_api": _SUPPORTED,
        "projected": _SUPPORTED,
        "persistent_volume_claim": _CLUSTER,
        "ephemeral": _CLUSTER,
        "csi": _CLUSTER,
        "image": _SUPPORTED,
        "nfs": _SUPPORTED,
        "iscsi": _UNSUPPORTED,
        "fc": _UNSUPPORTED,
        "git_repo": _UNSUPPORTED,
        "flex_volume": _UNSUPPORTED,
        "gce_persistent_disk": _UNSUPPORTED,
        "aws_elastic_block_store": _UNSUPPORTED,
        "glusterfs": _UNSUPPORTED,
        "rbd": _UNSUPPORTED,
        "cinder": _UNSUPPORTED,
        "cephfs": _UNSUPPORTED,
        "flocker": _UNSUPPORTED,
        "azure_file": _UNSUPPORTED,
        "azure_disk": _UNSUPPORTED,
        "vsphere_volume": _UNSUPPORTED,
        "quobyte": _UNSUPPORTED,
        "photon_persistent_disk": _UNSUPPORTED,
        "portworx_volume": _UNSUPPORTED,
        "scale_io": _UNSUPPORTED,
        "storageos": _UNSUPPORTED,
    },
}


def unsupported_fields(pod: Pod, *, cluster: bool = False) -> list[str]:
    """Paths of the fields that keep the pod from running (``spec.containers[0].tty``).

    Empty when the pod can run exactly as its spec says.

    Args:
        pod: the pod.
        cluster: whether there is an API server.
    """
    return list(_walk(pod.spec, "spec", cluster))


def _walk(value: Any, path: str, cluster: bool) -> Iterator[str]:
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _walk(item, f"{path}[{index}]", cluster)
        return
    kind: Any = type(value)
    for field, rule in _ruled_fields(kind):
        content = getattr(value, field.name)
        if content == field.default or _empty(content):
            continue
        where = f"{path}.{field.encode_name}"
        if rule is _INSIDE:
            yield from _walk(content, where, cluster)
        elif rule is _CLUSTER:
            if not cluster:
                yield where
        elif rule is _UNSUPPORTED or (callable(rule) and not rule(content)):
            yield where


@functools.cache
def _ruled_fields(kind: type[Any]) -> tuple[tuple[msgspec.structs.FieldInfo, Any], ...]:
    """The fields of a type, each with what is done about it. To find them out takes long."""
    rules = RULES[kind]
    fields = msgspec.structs.fields(kind)
    return tuple((field, rules.get(field.name, _UNSUPPORTED)) for field in fields)


def _empty(content: object) -> bool:
    """Whether a field is as if it were not there; an explicit false or 0 is not."""
    return content is None or (isinstance(content, (str, tuple, dict)) and not content)
