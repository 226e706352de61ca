"""Every field: its default, a value that is taken, one that is refused, and a flag over the file.

docs/configuration.md, "The file" and "Precedence".
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from nodeagent.config import ConfigError, ConfigFilesError, LoadedFile, load_configuration
from nodeagent.config.flag_layer import kinds
from nodeagent.config.kubelet_fields import FIELDS

HEAD: Final = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}

VALID: Final[Mapping[str, Any]] = {
    "staticPodPath": "/m",
    "staticPodURLHeader": {"A": ["b", "c"]},
    "address": "127.0.0.2",
    "tlsCurvePreferences": [23, 29],
    "tlsCipherSuites": ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"],
    "tlsMinVersion": "VersionTLS13",
    "authorization.mode": "AlwaysAllow",
    "staticPodURL": "https://example.com/pods",
    "imagePullCredentialsVerificationPolicy": "AlwaysVerify",
    "preloadedImagesVerificationAllowlist": ["registry.test/a"],
    "healthzBindAddress": "127.0.0.2",
    "clusterDNS": ["10.0.0.10"],
    "cgroupDriver": "systemd",
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "topologyManagerPolicy": "best-effort",
    "topologyManagerScope": "pod",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    "qosReserved": {"memory": "50%"},
    "hairpinMode": "hairpin-veth",
    "podCIDR": "10.1.0.0/24",
    "podPidsLimit": 100,
    "runOnce": False,
    "cpuCFSQuotaPeriod": "50ms",
    "maxParallelImagePulls": 3,
    "evictionHard": {"memory.available": "5%"},
    "evictionSoft": {"memory.available": "10%"},
    "evictionSoftGracePeriod": {"memory.available": "1m"},
    "evictionMinimumReclaim": {"memory.available": "1Mi"},
    "featureGates": {"ImageVolume": False},
    "memorySwap.swapBehavior": "NoSwap",
    "containerLogMaxSize": "5Mi",
    "configMapAndSecretChangeDetectionStrategy": "Get",
    "systemReserved": {"cpu": "100m", "memory": "1Gi", "ephemeral-storage": "1Gi", "pid": "10"},
    "kubeReserved": {"cpu": "100m"},
    "reservedSystemCPUs": "0-1,4",
    "enforceNodeAllocatable": ["none"],
    "allowedUnsafeSysctls": ["net.core.*"],
    "logging.format": "json",
    "logging.flushFrequency": "1s",
    "logging.verbosity": 5,
    "logging.vmodule": [{"filePattern": "pleg", "verbosity": 5}],
    "crashLoopBackOff.maxContainerRestartPeriod": "30s",
    "shutdownGracePeriodByPodPriority": [{"priority": 0, "shutdownGracePeriodSeconds": 10}],
    "memoryThrottlingFactor": 0.5,
    "memoryReservationPolicy": "TieredReservation",
    "registerWithTaints": [{"key": "a", "value": "b", "effect": "NoSchedule"}],
    "tracing.endpoint": "127.0.0.1:4317",
    "containerRuntimeEndpoint": "unix:///run/other.sock",
    "imageServiceEndpoint": "unix:///run/images.sock",
    "userNamespaces.idsPerPod": 131072,
    "imageMaximumGCAge": "1h",
    "imageGCHighThresholdPercent": 90,
    "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    "topologyManagerPolicyOptions": {"a": "true"},
    "singleProcessOOMKill": False,
    "shutdownGracePeriod": "30s",
    "shutdownGracePeriodCriticalPods": "10s",
    "logging.options.text.infoBufferSize": "1Ki",
    "logging.options.json.infoBufferSize": "1Ki",
    "systemCgroups": "/system",
    "tracing.samplingRatePerMillion": 5,
    "maxOpenFiles": 5000,
}
"""Values other than the default; of the rest one is made from the default."""

WITH: Final[Mapping[str, Mapping[str, Any]]] = {
    "tlsCertFile": {"tlsPrivateKeyFile": "/k"},
    "tlsPrivateKeyFile": {"tlsCertFile": "/c"},
    "preloadedImagesVerificationAllowlist": {
        "imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages"
    },
    "maxParallelImagePulls": {"serializeImagePulls": False},
    "evictionSoft": {
        "evictionSoftGracePeriod": {"memory.available": "1m", "nodefs.available": "1m"}
    },
    "systemCgroups": {"cgroupRoot": "/"},
    "shutdownGracePeriodCriticalPods": {"shutdownGracePeriod": "30s"},
    "mergeDefaultEvictionSettings": {"evictionHard": {"memory.available": "5%"}},
}
"""What else has to be said with a field."""

INVALID: Final[Mapping[str, Any]] = {
    "syncFrequency": "-1s",
    "fileCheckFrequency": "-1s",
    "httpCheckFrequency": "soon",
    "staticPodURL": "ftp://x",
    "staticPodURLHeader": {"A B": ["c"]},
    "address": "all",
    "port": 65536,
    "readOnlyPort": -1,
    "tlsCipherSuites": ["TLS_NONE"],
    "tlsMinVersion": "VersionTLS14",
    "tlsCertFile": "/c",
    "tlsPrivateKeyFile": "/k",
    "authentication.webhook.cacheTTL": "-1s",
    "authorization.mode": "RBAC",
    "authorization.webhook.cacheAuthorizedTTL": "-1s",
    "authorization.webhook.cacheUnauthorizedTTL": "x",
    "registryPullQPS": -1,
    "registryBurst": -1,
    "imagePullCredentialsVerificationPolicy": "Sometimes",
    "preloadedImagesVerificationAllowlist": ["a"],
    "eventRecordQPS": -1,
    "eventBurst": -1,
    "healthzPort": 70000,
    "healthzBindAddress": "localhost",
    "oomScoreAdj": 1001,
    "clusterDNS": ["dns"],
    "streamingConnectionIdleTimeout": "-1s",
    "nodeStatusUpdateFrequency": "-1s",
    "nodeStatusReportFrequency": "-1s",
    "nodeLeaseDurationSeconds": -1,
    "imageMinimumGCAge": "-1s",
    "imageMaximumGCAge": "-1s",
    "imageGCHighThresholdPercent": 101,
    "imageGCLowThresholdPercent": 85,
    "volumeStatsAggPeriod": "x",
    "systemCgroups": "/system",
    "cgroupDriver": "none",
    "cpuManagerPolicy": "dynamic",
    "cpuManagerReconcilePeriod": "-1s",
    "memoryManagerPolicy": "static",
    "reservedMemory": [{"numaNode": 0, "limits": {"cpu": "1"}}],
    "topologyManagerPolicy": "all",
    "topologyManagerScope": "node",
    "runtimeRequestTimeout": "-1s",
    "hairpinMode": "x",
    "maxPods": -1,
    "podsPerCore": -1,
    "podCIDR": "10.0.0.0/33",
    "runOnce": True,
    "cpuCFSQuotaPeriod": "2s",
    "nodeStatusMaxImages": -2,
    "maxOpenFiles": -1,
    "kubeAPIQPS": -1,
    "kubeAPIBurst": -1,
    "maxParallelImagePulls": -1,
    "evictionHard": {"nodefs.available": "110%"},
    "evictionSoft": {"cpu": "1"},
    "evictionSoftGracePeriod": {"memory.available": "-1s"},
    "evictionMinimumReclaim": {"pid.available": "-1"},
    "evictionPressureTransitionPeriod": "-1s",
    "evictionMaxPodGracePeriod": -1,
    "iptablesMasqueradeBit": 32,
    "iptablesDropBit": -1,
    "featureGates": {"NoSuch": True},
    "memorySwap.swapBehavior": "All",
    "containerLogMaxSize": "much",
    "containerLogMaxFiles": 1,
    "containerLogMaxWorkers": 0,
    "containerLogMonitorInterval": "1s",
    "configMapAndSecretChangeDetectionStrategy": "Push",
    "systemReserved": {"gpu": "1"},
    "kubeReserved": {"cpu": "-1"},
    "reservedSystemCPUs": "a-b",
    "enforceNodeAllocatable": ["all"],
    "allowedUnsafeSysctls": ["vm.swappiness"],
    "logging.format": "xml",
    "logging.flushFrequency": "x",
    "logging.verbosity": 11,
    "enableSystemLogQuery": [],
    "shutdownGracePeriod": "500ms",
    "shutdownGracePeriodCriticalPods": "5s",
    "crashLoopBackOff.maxContainerRestartPeriod": "6m",
    "memoryThrottlingFactor": 1.5,
    "memoryReservationPolicy": "x",
    "registerWithTaints": [{"key": "a", "effect": "Maybe"}],
    "tracing.samplingRatePerMillion": 1_000_001,
    "containerRuntimeEndpoint": "tcp://x",
    "imageServiceEndpoint": "x",
    "userNamespaces.idsPerPod": 65537,
}
"""Values of the right type that cannot be used; of the rest another type is given."""

NAMES: Final = [path for path in FIELDS if path not in HEAD]


def valid(path: str) -> Any:
    if path in VALID:
        return VALID[path]
    default = FIELDS[path].default
    match kinds()[path]:
        case "bool":
            return not default
        case "int":
            return (default or 0) + 1
        case "text" if isinstance(default, str) and default[-1:] == "s" and default[0].isdigit():
            return "7s" if path != "containerLogMonitorInterval" else "17s"
    return "/some/where"


def nested(path: str, value: Any) -> dict[str, Any]:
    for name in reversed(path.split(".")):
        value = {name: value}
    assert isinstance(value, dict)
    return value


def load(directory: Path, content: Mapping[str, Any], *flags: tuple[str, str]) -> LoadedFile:
    file = directory / "kubelet.json"
    file.write_bytes(msgspec.json.encode({**HEAD, **content}))
    return load_configuration(file, None, flags)


@pytest.mark.parametrize("path", NAMES)
def test_a_value_is_taken_and_all_others_keep_their_default(tmp_path: Path, path: str) -> None:
    more = WITH.get(path, {})
    value = valid(path)
    effective = load(tmp_path, {**more, **nested(path, value)}).effective
    assert msgspec.json.decode(msgspec.json.encode(effective[path])) == value
    others = [p for p in NAMES if p != path and p not in more]
    assert {p: effective[p] for p in others} == {p: FIELDS[p].default for p in others}


@pytest.mark.parametrize("path", NAMES)
def test_a_value_that_cannot_be_used_is_refused_by_name(tmp_path: Path, path: str) -> None:
    value = INVALID.get(path, [[1]])
    with pytest.raises(ConfigFilesError) as caught:
        load(tmp_path, nested(path, value))
    first = {"tlsCertFile": "tlsPrivateKeyFile", "tlsPrivateKeyFile": "tlsCertFile"}.get(path, path)
    assert [t for t in caught.value.problems if t.startswith((first, "evictionSoftGrace"))]


FLAGGED: Final = [path for path in NAMES if FIELDS[path].flag]
FLAG_TEXTS: Final[Mapping[str, str]] = {
    "serializeImagePulls": "true",
    "evictionHard": "nodefs.available<7%",
    "evictionSoft": "nodefs.available<7%",
    "evictionSoftGracePeriod": "memory.available=7m",
    "featureGates": "EnvFiles=false",
    "reservedMemory": "1:memory=2Gi",
    "logging.vmodule": "pods=4",
    "runOnce": "false",
    "tlsCipherSuites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "clusterDNS": "10.0.0.11,10.0.0.12",
    "allowedUnsafeSysctls": "net.ipv4.*",
    "enforceNodeAllocatable": "pods",
    "systemReserved": "cpu=1",
    "kubeReserved": "memory=1Gi",
    "qosReserved": "memory=10%",
    "cpuManagerPolicyOptions": "distribute-cpus-across-numa=true",
    "topologyManagerPolicyOptions": "b=true",
    "evictionMinimumReclaim": "nodefs.available=1Gi",
    "maxParallelImagePulls": "1",
    "staticPodURL": "https://example.com/others",
    "podCIDR": "10.2.0.0/24",
    "reservedSystemCPUs": "0",
    "imageServiceEndpoint": "unix:///run/x.sock",
    "systemCgroups": "/other",
}
ELSEWHERE: Final = ("staticPodURLHeader", "registerWithTaints")
"""Written in another way than in the file; tests/unit/cli/test_command_line.py shows them."""


@pytest.mark.parametrize("path", [p for p in FLAGGED if p not in ELSEWHERE])
def test_a_flag_goes_over_the_file(tmp_path: Path, path: str) -> None:
    field, more = FIELDS[path], WITH.get(path, {})
    text = FLAG_TEXTS.get(path, "")
    if not text:
        default = field.default
        text = str(default).lower() if isinstance(default, bool) else str(default)
        if default in (None, ""):
            text = "/of/the/flag" if path != "tlsMinVersion" else "VersionTLS12"
    content = {**more, **nested(path, valid(path))}
    of_file = load(tmp_path, content).effective[path]
    both = load(tmp_path, content, (field.flag, text))
    alone = load(tmp_path, more, (field.flag, text))
    if path == "featureGates":
        assert both.effective[path] == {**of_file, **alone.effective[path]}
    else:
        assert both.effective[path] == alone.effective[path]
    assert path == "runOnce" or both.effective[path] != of_file


@pytest.mark.parametrize("path", [p for p in FLAGGED if kinds()[p] in ("bool", "int")])
def test_a_flag_of_another_type_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigError, match=r"must be (true or false|a whole number)"):
        load(tmp_path, {}, (FIELDS[path].flag, "maybe"))
