"""What each field of KubeletConfiguration is by default, which flag sets it, and what acts on it.

The one table behind ``nodeagent config``, the configuration reference and the defaults of a file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import msgspec

from nodeagent.config.agent_config import AgentConfig
from nodeagent.config.kubelet_model import KubeletConfiguration
from nodeagent.config.node_options import DEFAULT_EVICTION_HARD

NESTED: Final = {
    "client_ca_file": "authentication.x509.clientCAFile",
    "anonymous_auth": "authentication.anonymous.enabled",
    "authentication_token_webhook": "authentication.webhook.enabled",
    "authentication_token_webhook_cache_ttl": "authentication.webhook.cacheTTL",
    "authorization_mode": "authorization.mode",
    "authorization_webhook_cache_authorized_ttl": "authorization.webhook.cacheAuthorizedTTL",
    "authorization_webhook_cache_unauthorized_ttl": "authorization.webhook.cacheUnauthorizedTTL",
    "swap_behavior": "memorySwap.swapBehavior",
    "max_container_restart_period": "crashLoopBackOff.maxContainerRestartPeriod",
}
"""Settings that stand inside other fields, and where."""

ACTS: Final = "acts"
LATER: Final = "not yet"
NOTHING: Final = "no meaning"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the file.

    Attributes:
        path: its name, with those of the objects around it.
        default: its value where nothing else is said, as JSON has it; None where it is unset.
        flag: the flag that sets it, without dashes; "" for none.
        note: for a field that nothing acts on: why, or what happens instead.
        later: nothing acts on it in this version, though it would mean something.
    """

    path: str
    default: Any = None
    flag: str = ""
    note: str = ""
    later: bool = False

    @property
    def effect(self) -> str:
        """Whether the agent acts on it: ``ACTS``, ``LATER`` or ``NOTHING``."""
        if self.later:
            return LATER
        return NOTHING if self.note else ACTS


def _kebab(path: str) -> str:
    words = "".join(f"-{c.lower()}" if c.isupper() else c for c in path)
    return words.lstrip("-")


def _f(path: str, default: Any = None, flag: str = "k", note: str = "") -> Field:
    return Field(path, default, _kebab(path) if flag == "k" else flag, note)


def _later(path: str, default: Any = None, flag: str = "k", note: str = "") -> Field:
    return dataclasses.replace(_f(path, default, flag, note), later=True)


_CGROUPS: Final = "the runtime makes the cgroups"
_NO_MANAGER: Final = "processors and memory are not given out by NUMA node"

_ON: Final = True
_OFF: Final = False

_TABLE: Final = (
    _f("apiVersion", "kubelet.config.k8s.io/v1beta1", ""),
    _f("kind", "KubeletConfiguration", ""),
    _f("enableServer", _ON),
    _f("staticPodPath", "", "pod-manifest-path"),
    _f("podLogsDir", "/var/log/pods"),
    _f("syncFrequency", "1m0s"),
    _f("fileCheckFrequency", "20s"),
    _f("httpCheckFrequency", "20s"),
    _f("staticPodURL", "", "manifest-url"),
    _f("staticPodURLHeader", None, "manifest-url-header"),
    _f("address", "0.0.0.0"),  # noqa: S104 - the default of the API
    _f("port", 10250),
    _f("readOnlyPort", 0),
    _f("tlsCertFile", ""),
    _f("tlsPrivateKeyFile", ""),
    _f("tlsCipherSuites", None),
    _f("tlsMinVersion", ""),
    _f("tlsCurvePreferences", None, "", "OpenSSL chooses the curves"),
    _f("rotateCertificates", _OFF),
    _f("serverTLSBootstrap", _OFF, "rotate-server-certificates"),
    _f("authentication.x509.clientCAFile", "", "client-ca-file"),
    _f("authentication.webhook.enabled", _ON, "authentication-token-webhook"),
    _f("authentication.webhook.cacheTTL", "2m0s", "authentication-token-webhook-cache-ttl"),
    _f("authentication.anonymous.enabled", _OFF, "anonymous-auth"),
    _f("authorization.mode", "Webhook", "authorization-mode"),
    _f(
        "authorization.webhook.cacheAuthorizedTTL",
        "5m0s",
        "authorization-webhook-cache-authorized-ttl",
    ),
    _f(
        "authorization.webhook.cacheUnauthorizedTTL",
        "30s",
        "authorization-webhook-cache-unauthorized-ttl",
    ),
    _f("registryPullQPS", 5, "registry-qps"),
    _f("registryBurst", 10),
    _f("imagePullCredentialsVerificationPolicy", "NeverVerifyPreloadedImages", ""),
    _f("preloadedImagesVerificationAllowlist", None, ""),
    _f("eventRecordQPS", 50, "event-qps"),
    _f("eventBurst", 100),
    _f("enableDebuggingHandlers", _ON),
    _f("enableContentionProfiling", _OFF, "contention-profiling", "Python has no such profile"),
    _f("healthzPort", 10248),
    _f("healthzBindAddress", "127.0.0.1"),
    _later("oomScoreAdj", -999, "k", "the service manager sets it"),
    _f("clusterDomain", ""),
    _f("clusterDNS", None, "cluster-dns"),
    _f("streamingConnectionIdleTimeout", "4h0m0s"),
    _f("nodeStatusUpdateFrequency", "10s"),
    _f("nodeStatusReportFrequency", "5m0s", ""),
    _f("nodeLeaseDurationSeconds", 40),
    _f("imageMinimumGCAge", "2m0s", "minimum-image-ttl-duration"),
    _f("imageMaximumGCAge", "0s", ""),
    _f("imageGCHighThresholdPercent", 85, "image-gc-high-threshold"),
    _f("imageGCLowThresholdPercent", 80, "image-gc-low-threshold"),
    _later("volumeStatsAggPeriod", "1m0s", "k"),
    _f("kubeletCgroups", "", "k", _CGROUPS),
    _f("systemCgroups", "", "k", _CGROUPS),
    _f("cgroupRoot", "", "k", _CGROUPS),
    _later(
        "cgroupsPerQOS", _ON, "cgroups-per-qos", "there are no cgroups for pods and QoS classes"
    ),
    _f("cgroupDriver", "cgroupfs", "k", "the runtime says which one it uses"),
    _f("singleProcessOOMKill", None, ""),
    _later("cpuManagerPolicy", "none", "k", _NO_MANAGER),
    _later("cpuManagerPolicyOptions", None, "k", _NO_MANAGER),
    _later("cpuManagerReconcilePeriod", "10s", "k", _NO_MANAGER),
    _later("memoryManagerPolicy", "None", "k", _NO_MANAGER),
    _later("reservedMemory", None, "k", _NO_MANAGER),
    _later("topologyManagerPolicy", "none", "k", _NO_MANAGER),
    _later("topologyManagerScope", "container", "k", _NO_MANAGER),
    _later("topologyManagerPolicyOptions", None, "k", _NO_MANAGER),
    _later("qosReserved", None, "k"),
    _f("runtimeRequestTimeout", "2m0s"),
    _f("hairpinMode", "promiscuous-bridge", "k", "the network plugin decides it"),
    _f("maxPods", 110),
    _f("podsPerCore", 0),
    _f("podCIDR", "", "pod-cidr"),
    _later("podPidsLimit", -1, "pod-max-pids"),
    _f("resolvConf", "/etc/resolv.conf", "k"),
    _f("runOnce", _OFF, "runonce"),
    _f("cpuCFSQuota", _ON, "cpu-cfs-quota"),
    _f("cpuCFSQuotaPeriod", "100ms", "cpu-cfs-quota-period"),
    _f("nodeStatusMaxImages", 50),
    _later("maxOpenFiles", 1_000_000, "k"),
    _f(
        "contentType",
        "application/vnd.kubernetes.protobuf",
        "kube-api-content-type",
        "the agent speaks JSON",
    ),
    _f("kubeAPIQPS", 50, "kube-api-qps"),
    _f("kubeAPIBurst", 100, "kube-api-burst"),
    _f("serializeImagePulls", _ON),
    _f("maxParallelImagePulls", None),
    _f("evictionHard", dict(DEFAULT_EVICTION_HARD)),
    _f("mergeDefaultEvictionSettings", _OFF, ""),
    _later("evictionSoft", None, "k"),
    _later("evictionSoftGracePeriod", None, "k"),
    _later("evictionMinimumReclaim", None, "k"),
    _later("evictionPressureTransitionPeriod", "5m0s", "k"),
    _later("evictionMaxPodGracePeriod", 0, "k"),
    _f("enableControllerAttachDetach", _ON),
    _f("makeIPTablesUtilChains", _ON, "make-iptables-util-chains"),
    _later("protectKernelDefaults", _OFF, "k"),
    _f("iptablesMasqueradeBit", 14, "", "the kubelet does not use it either"),
    _f("iptablesDropBit", 15, "", "the kubelet does not use it either"),
    _f("featureGates", None),
    _f("failSwapOn", _ON, "k", "the agent runs on machines with swap"),
    _f("memorySwap.swapBehavior", "", ""),
    _f("containerLogMaxSize", "10Mi"),
    _f("containerLogMaxFiles", 5),
    _f("containerLogMaxWorkers", 1, ""),
    _f("containerLogMonitorInterval", "10s", ""),
    _f("configMapAndSecretChangeDetectionStrategy", "Watch", ""),
    _f("systemReserved", None),
    _f("kubeReserved", None),
    _later("reservedSystemCPUs", "", "reserved-cpus"),
    _f("showHiddenMetricsForVersion", "", "k", "no metric is hidden"),
    _later("systemReservedCgroup", "", "k"),
    _later("kubeReservedCgroup", "", "k"),
    _later("enforceNodeAllocatable", ["pods"], "k", "there are no cgroups for pods"),
    _f("allowedUnsafeSysctls", None, "k"),
    _f(
        "volumePluginDir",
        "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
        "k",
        "flexVolume is not supported",
    ),
    _f("providerID", "", "provider-id"),
    _f("kernelMemcgNotification", _OFF, "k", "memory is looked at in intervals"),
    _f("logging.format", "text", "logging-format"),
    _f("logging.flushFrequency", "5s", "log-flush-frequency", "lines are written at once"),
    _f("logging.verbosity", 2, "v"),
    _f("logging.vmodule", None, "vmodule"),
    _f(
        "logging.options.text.splitStream",
        _OFF,
        "log-text-split-stream",
        "all lines go to standard error",
    ),
    _f(
        "logging.options.text.infoBufferSize",
        "0",
        "log-text-info-buffer-size",
        "lines are written at once",
    ),
    _f(
        "logging.options.json.splitStream",
        _OFF,
        "log-json-split-stream",
        "all lines go to standard error",
    ),
    _f(
        "logging.options.json.infoBufferSize",
        "0",
        "log-json-info-buffer-size",
        "lines are written at once",
    ),
    _f("enableSystemLogHandler", _ON, ""),
    _f("enableSystemLogQuery", _OFF, ""),
    _later("shutdownGracePeriod", "0s", ""),
    _later("shutdownGracePeriodCriticalPods", "0s", ""),
    _later("shutdownGracePeriodByPodPriority", None, ""),
    _f("crashLoopBackOff.maxContainerRestartPeriod", "5m0s", ""),
    _f("enableProfilingHandler", _ON, ""),
    _f("enableDebugFlagsHandler", _ON, ""),
    _f("seccompDefault", _OFF, "k"),
    _later("memoryThrottlingFactor", 0.9, ""),
    _later("memoryReservationPolicy", "None", ""),
    _f("registerNode", _ON),
    _f("registerWithTaints", None),
    _later("tracing.endpoint", None, ""),
    _later("tracing.samplingRatePerMillion", None, ""),
    _f("localStorageCapacityIsolation", _ON),
    _f("containerRuntimeEndpoint", "unix:///run/containerd/containerd.sock"),
    _f("imageServiceEndpoint", ""),
    _f("failCgroupV1", _ON, "fail-cgroupv1", "the agent runs on cgroup v1 too"),
    _later("userNamespaces.idsPerPod", 65536, ""),
)

FIELDS: Final[Mapping[str, Field]] = MappingProxyType({field.path: field for field in _TABLE})
"""All fields by path, in the order of the API."""


@cache
def path_of_setting(name: str) -> str:
    """The field that gives a setting of :class:`AgentConfig`; "" when the file has none."""
    if name in NESTED:
        return NESTED[name]
    encoded = {f.name: f.encode_name for f in msgspec.structs.fields(KubeletConfiguration)}
    return encoded.get(name, "")


@cache
def settings_in_file() -> tuple[str, ...]:
    """The settings of :class:`AgentConfig` that the file can give."""
    names = (field.name for field in dataclasses.fields(AgentConfig))
    return tuple(name for name in names if path_of_setting(name))
