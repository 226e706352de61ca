"""The kubelet's flags: which there are, which are deprecated, and which mean nothing here.

docs/configuration.md, "The kubelet's flags". Flags that set a field of KubeletConfiguration stand
in the table of fields; here are those that set none, and those that the kubelet has had once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final

from nodeagent.config.kubelet_fields import FIELDS

NOT_DEPRECATED: Final = frozenset(
    {"v", "vmodule", "log-flush-frequency", "provider-id", "fail-cgroupv1", "logging-format"}
)
"""Flags of fields that the kubelet does not want to be rid of."""

DEPRECATED_ALONE: Final = frozenset(
    {
        "minimum-container-ttl-duration",
        "maximum-dead-containers-per-container",
        "maximum-dead-containers",
    }
)
"""Deprecated flags without a field."""


@dataclass(frozen=True, slots=True)
class OtherFlag:
    """A flag that is taken and does nothing.

    Attributes:
        name: without dashes.
        note: why, or what happens instead.
        boolean: it may stand without a value.
        gone: the version of Kubernetes that took it away; "" while the kubelet has it.
    """

    name: str
    note: str
    boolean: bool = False
    gone: str = ""


_CADVISOR: Final = "there is no cAdvisor here"
_RUNTIME: Final = "the runtime is reached by --container-runtime-endpoint"
_CNI: Final = "the runtime runs the network plugins"
_CLOUD: Final = "cloud providers are programs of their own; --cloud-provider=external"

_OTHERS: Final = (
    OtherFlag("runtime-cgroups", "stats of the runtime's own cgroup are not kept"),
    OtherFlag("housekeeping-interval", _CADVISOR),
    OtherFlag("max-housekeeping-interval", _CADVISOR),
    OtherFlag("experimental-mounter-path", "mounts are made by the system's mount"),
    OtherFlag(
        "experimental-allocatable-ignore-eviction",
        "eviction thresholds are always taken off what pods may have",
        boolean=True,
    ),
    OtherFlag("keep-terminated-pod-volumes", "volumes go with their pod", boolean=True),
    OtherFlag("application-metrics-count-limit", _CADVISOR),
    OtherFlag("boot-id-file", _CADVISOR),
    OtherFlag("container-hints", _CADVISOR),
    OtherFlag("containerd", _RUNTIME),
    OtherFlag("containerd-namespace", _RUNTIME),
    OtherFlag("enable-load-reader", _CADVISOR, boolean=True),
    OtherFlag("event-storage-age-limit", _CADVISOR),
    OtherFlag("event-storage-event-limit", _CADVISOR),
    OtherFlag("global-housekeeping-interval", _CADVISOR),
    OtherFlag("log-cadvisor-usage", _CADVISOR, boolean=True),
    OtherFlag("machine-id-file", "it is /etc/machine-id"),
    OtherFlag("storage-driver-buffer-duration", _CADVISOR),
    OtherFlag("storage-driver-db", _CADVISOR),
    OtherFlag("storage-driver-host", _CADVISOR),
    OtherFlag("storage-driver-password", _CADVISOR),
    OtherFlag("storage-driver-secure", _CADVISOR, boolean=True),
    OtherFlag("storage-driver-table", _CADVISOR),
    OtherFlag("storage-driver-user", _CADVISOR),
    OtherFlag(
        "pod-infra-container-image",
        "the runtime's configuration names the image of sandboxes",
        gone="1.35",
    ),
    OtherFlag("container-runtime", _RUNTIME, gone="1.27"),
    OtherFlag("master-service-namespace", "services are those of the pod's namespace", gone="1.27"),
    OtherFlag("cloud-config", _CLOUD, gone="1.31"),
    OtherFlag("azure-container-registry-config", "use a credential provider", gone="1.30"),
    OtherFlag("dynamic-config-dir", "files are watched and applied", gone="1.24"),
    OtherFlag("network-plugin", _CNI, gone="1.24"),
    OtherFlag("network-plugin-mtu", _CNI, gone="1.24"),
    OtherFlag("cni-bin-dir", _CNI, gone="1.24"),
    OtherFlag("cni-conf-dir", _CNI, gone="1.24"),
    OtherFlag("cni-cache-dir", _CNI, gone="1.24"),
    OtherFlag("non-masquerade-cidr", _CNI, gone="1.24"),
    OtherFlag("docker-endpoint", _RUNTIME, gone="1.24"),
    OtherFlag("image-pull-progress-deadline", "pulls have no deadline", gone="1.24"),
    OtherFlag("experimental-dockershim-root-directory", _RUNTIME, gone="1.24"),
    OtherFlag(
        "redirect-container-streaming", "streams go through the agent", boolean=True, gone="1.20"
    ),
    OtherFlag("really-crash-for-testing", "there is no such mode", boolean=True, gone="1.23"),
    OtherFlag("chaos-chance", "use the faults of the embedded runtime", gone="1.23"),
    OtherFlag("enable-cadvisor-json-endpoints", _CADVISOR, boolean=True, gone="1.21"),
    OtherFlag("experimental-bootstrap-kubeconfig", "use --bootstrap-kubeconfig", gone="1.23"),
    OtherFlag(
        "experimental-kernel-memcg-notification", "memory is looked at", boolean=True, gone="1.24"
    ),
    OtherFlag(
        "experimental-check-node-capabilities-before-mount",
        "none is needed",
        boolean=True,
        gone="1.23",
    ),
    OtherFlag("register-schedulable", "use --register-with-taints", boolean=True, gone="1.23"),
    OtherFlag("node-status-max-image-size", "use --node-status-max-images", gone="1.23"),
    OtherFlag("seccomp-profile-root", "profiles lie below --root-dir in seccomp", gone="1.23"),
    OtherFlag("alsologtostderr", "all lines go to standard error", boolean=True, gone="1.26"),
    OtherFlag("logtostderr", "all lines go to standard error", boolean=True, gone="1.26"),
    OtherFlag("log-backtrace-at", "there is no such trace", gone="1.26"),
    OtherFlag("log-dir", "all lines go to standard error", gone="1.26"),
    OtherFlag("log-file", "all lines go to standard error", gone="1.26"),
    OtherFlag("log-file-max-size", "all lines go to standard error", gone="1.26"),
    OtherFlag("one-output", "all lines go to standard error", boolean=True, gone="1.26"),
    OtherFlag("skip-headers", "lines have no header", boolean=True, gone="1.26"),
    OtherFlag("skip-log-headers", "lines have no header", boolean=True, gone="1.26"),
    OtherFlag("stderrthreshold", "all lines go to standard error", gone="1.26"),
    OtherFlag("add-dir-header", "lines have no header", boolean=True, gone="1.26"),
)

OTHERS: Final[Mapping[str, OtherFlag]] = MappingProxyType({flag.name: flag for flag in _OTHERS})
"""Flags that are taken and do nothing, by name."""


@cache
def field_of_flag() -> Mapping[str, str]:
    """The field that each flag sets."""
    return MappingProxyType({f.flag: path for path, f in FIELDS.items() if f.flag})


def is_deprecated(flag: str) -> bool:
    """Whether the kubelet wants to be rid of a flag."""
    if flag in OTHERS:
        return True
    return flag in DEPRECATED_ALONE or (flag in field_of_flag() and flag not in NOT_DEPRECATED)


def remark(flag: str) -> str:
    """What is said of a flag that does nothing."""
    other = OTHERS[flag]
    if other.gone:
        return f"--{flag}: removed from Kubernetes in {other.gone}, ignored: {other.note}"
    return f"--{flag}: has no meaning here, ignored: {other.note}"
