"""The kubelet's configuration file, as people and kubeadm write it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.api.node import Taint
from nodeagent.config import AgentConfig, ConfigError, load_kubelet_file
from nodeagent.config.kubelet_fields import settings_in_file
from nodeagent.config.kubelet_file import LoadedFile

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def load(directory: Path, text: str | bytes, *, head: str = HEAD) -> LoadedFile:
    path = directory / "config.yaml"
    path.write_bytes(head.encode() + (text if isinstance(text, bytes) else text.encode()))
    return load_kubelet_file(path)


def refusal(directory: Path, text: str | bytes, *, head: str = HEAD) -> str:
    with pytest.raises(ConfigError) as caught:
        load(directory, text, head=head)
    assert caught.value.field == "config"
    assert caught.value.value == directory / "config.yaml"
    return caught.value.allowed


def test_every_field_that_is_acted_on_becomes_a_setting(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        """
staticPodPath: /etc/kubernetes/manifests
staticPodURL: https://example.com/pods
staticPodURLHeader: {X-Token: [one, two], Accept: [text/yaml]}
httpCheckFrequency: 7s
streamingConnectionIdleTimeout: 5m
containerRuntimeEndpoint: unix:///run/x.sock
imageServiceEndpoint: unix:///run/y.sock
podLogsDir: /var/log/mine
healthzPort: 1
healthzBindAddress: 127.0.0.2
readOnlyPort: 2
address: 127.0.0.3
fileCheckFrequency: 5s
syncFrequency: 1m30s
runtimeRequestTimeout: 500ms
serializeImagePulls: false
maxParallelImagePulls: 3
registryPullQPS: 0
registryBurst: 7
containerLogMaxSize: 50Mi
containerLogMaxFiles: 3
containerLogMaxWorkers: 2
containerLogMonitorInterval: 5s
imageGCHighThresholdPercent: 90
imageGCLowThresholdPercent: 70
imageMinimumGCAge: 3m
imageMaximumGCAge: 24h
imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages
preloadedImagesVerificationAllowlist: [registry.test/team/*]
resolvConf: /run/resolv.conf
clusterDNS: [10.96.0.10, "fd00::a"]
clusterDomain: cluster.local
seccompDefault: true
allowedUnsafeSysctls: [net.core.somaxconn, kernel.msg*]
cpuCFSQuota: false
cpuCFSQuotaPeriod: 20ms
singleProcessOOMKill: true
memorySwap: {swapBehavior: LimitedSwap}
crashLoopBackOff: {maxContainerRestartPeriod: 30s}
rotateCertificates: true
registerNode: false
kubeAPIQPS: 10
kubeAPIBurst: 20
eventRecordQPS: 0
eventBurst: 30
nodeStatusUpdateFrequency: 5s
nodeStatusReportFrequency: 1m
nodeLeaseDurationSeconds: 20
configMapAndSecretChangeDetectionStrategy: Cache
registerWithTaints: [{key: a, value: b, effect: NoSchedule}]
providerID: cloud://1
nodeStatusMaxImages: 5
maxPods: 10
podsPerCore: 2
podCIDR: 10.1.0.0/24
kubeReserved: {cpu: 100m}
systemReserved: {memory: 1Gi}
evictionHard: {memory.available: 1Gi}
makeIPTablesUtilChains: false
enableControllerAttachDetach: false
localStorageCapacityIsolation: false
enableServer: false
port: 10251
tlsCertFile: /pki/served.crt
tlsPrivateKeyFile: served.key
tlsCipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]
tlsMinVersion: VersionTLS13
serverTLSBootstrap: true
authentication:
  x509: {clientCAFile: ca.crt}
  webhook: {enabled: false, cacheTTL: 1m}
  anonymous: {enabled: true}
authorization:
  mode: AlwaysAllow
  webhook: {cacheAuthorizedTTL: 2m, cacheUnauthorizedTTL: 3s}
enableDebuggingHandlers: false
enableSystemLogHandler: false
enableSystemLogQuery: false
enableProfilingHandler: false
enableDebugFlagsHandler: false
logging: {format: json, verbosity: 4}
""",
    )
    assert loaded.warnings == ()
    assert loaded.settings == {
        "static_pod_path": Path("/etc/kubernetes/manifests"),
        "static_pod_url": "https://example.com/pods",
        "static_pod_url_header": (("X-Token", "one"), ("X-Token", "two"), ("Accept", "text/yaml")),
        "http_check_frequency": 7.0,
        "container_runtime_endpoint": "unix:///run/x.sock",
        "image_service_endpoint": "unix:///run/y.sock",
        "pod_logs_dir": Path("/var/log/mine"),
        "healthz_port": 1,
        "healthz_bind_address": "127.0.0.2",
        "read_only_port": 2,
        "address": "127.0.0.3",
        "file_check_frequency": 5.0,
        "sync_frequency": 90.0,
        "runtime_request_timeout": 0.5,
        "serialize_image_pulls": False,
        "max_parallel_image_pulls": 3,
        "registry_pull_qps": 0,
        "registry_burst": 7,
        "container_log_max_size": 50 * 1024**2,
        "container_log_max_files": 3,
        "container_log_max_workers": 2,
        "container_log_monitor_interval": 5.0,
        "image_gc_high_threshold_percent": 90,
        "image_gc_low_threshold_percent": 70,
        "image_minimum_gc_age": 180.0,
        "image_maximum_gc_age": 86400.0,
        "image_pull_credentials_verification_policy": "NeverVerifyAllowlistedImages",
        "preloaded_images_verification_allowlist": ("registry.test/team/*",),
        "resolv_conf": Path("/run/resolv.conf"),
        "cluster_dns": ("10.96.0.10", "fd00::a"),
        "cluster_domain": "cluster.local",
        "seccomp_default": True,
        "allowed_unsafe_sysctls": ("net.core.somaxconn", "kernel.msg*"),
        "cpu_cfs_quota": False,
        "cpu_cfs_quota_period": 0.02,
        "single_process_oom_kill": True,
        "swap_behavior": "LimitedSwap",
        "max_container_restart_period": 30.0,
        "rotate_certificates": True,
        "register_node": False,
        "kube_api_qps": 10,
        "kube_api_burst": 20,
        "event_record_qps": 0,
        "event_burst": 30,
        "node_status_update_frequency": 5.0,
        "node_status_report_frequency": 60.0,
        "node_lease_duration_seconds": 20,
        "config_map_and_secret_change_detection_strategy": "Cache",
        "register_with_taints": (Taint(key="a", value="b", effect="NoSchedule"),),
        "provider_id": "cloud://1",
        "node_status_max_images": 5,
        "max_pods": 10,
        "pods_per_core": 2,
        "pod_cidr": "10.1.0.0/24",
        "kube_reserved": {"cpu": "100m"},
        "system_reserved": {"memory": "1Gi"},
        "eviction_hard": {"memory.available": "1Gi"},
        "make_iptables_util_chains": False,
        "enable_controller_attach_detach": False,
        "local_storage_capacity_isolation": False,
        "enable_server": False,
        "port": 10251,
        "tls_cert_file": Path("/pki/served.crt"),
        "tls_private_key_file": tmp_path / "served.key",
        "tls_cipher_suites": ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",),
        "tls_min_version": "VersionTLS13",
        "server_tls_bootstrap": True,
        "client_ca_file": tmp_path / "ca.crt",
        "authentication_token_webhook": False,
        "authentication_token_webhook_cache_ttl": 60.0,
        "anonymous_auth": True,
        "authorization_mode": "AlwaysAllow",
        "authorization_webhook_cache_authorized_ttl": 120.0,
        "authorization_webhook_cache_unauthorized_ttl": 3.0,
        "streaming_connection_idle_timeout": 300.0,
        "enable_debugging_handlers": False,
        "enable_system_log_handler": False,
        "enable_system_log_query": False,
        "enable_profiling_handler": False,
        "enable_debug_flags_handler": False,
        "logging_format": "json",
        "verbosity": 4,
    }
    known = {n for n in loaded.settings if n not in ("logging_format", "verbosity")}
    AgentConfig(**{name: loaded.settings[name] for name in known})
    assert known == set(settings_in_file())


def test_an_empty_configuration_sets_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, "") == LoadedFile({}, ())


def test_a_zero_duration_means_the_default_as_kubeadm_writes_it(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        """
authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 0s, enabled: true}}
clusterDNS: [10.96.0.10]
cpuManagerReconcilePeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}}, verbosity: 0}
rotateCertificates: true
runtimeRequestTimeout: 0s
staticPodPath: /etc/kubernetes/manifests
syncFrequency: 0s
""",
    )
    assert loaded.settings == {
        "anonymous_auth": False,
        "authentication_token_webhook": True,
        "cluster_dns": ("10.96.0.10",),
        "healthz_bind_address": "127.0.0.1",
        "healthz_port": 10248,
        "rotate_certificates": True,
        "static_pod_path": Path("/etc/kubernetes/manifests"),
        "verbosity": 0,
    }
    assert loaded.warnings == ()  # what is not acted on has its default


def test_a_state_is_reported_as_often_as_it_is_looked_at_when_only_that_is_said(
    tmp_path: Path,
) -> None:
    assert load(tmp_path, "nodeStatusUpdateFrequency: 4s\n").settings == {
        "node_status_update_frequency": 4.0,
        "node_status_report_frequency": 4.0,
    }
    text = "nodeStatusUpdateFrequency: 0s\nnodeStatusReportFrequency: 0s\n"
    assert load(tmp_path, text + "nodeLeaseDurationSeconds: 0\n").settings == {}


def test_zero_ports_and_counts_count(tmp_path: Path) -> None:
    text = "healthzPort: 0\nreadOnlyPort: 0\nregistryPullQPS: 0\nserializeImagePulls: false\n"
    assert load(tmp_path, text).settings == {
        "healthz_port": 0,
        "read_only_port": 0,
        "registry_pull_qps": 0,
        "serialize_image_pulls": False,
    }


def test_empty_text_and_null_mean_the_default(tmp_path: Path) -> None:
    text = 'containerRuntimeEndpoint: ""\naddress: ""\nhealthzPort: null\nclusterDNS: []\n'
    assert load(tmp_path, text).settings == {}


def test_no_resolver_file_is_a_setting_of_its_own(tmp_path: Path) -> None:
    assert load(tmp_path, 'resolvConf: ""\n').settings == {"resolv_conf": ""}
    assert load(tmp_path, "resolvConf: null\n").settings == {}


def test_relative_paths_start_at_the_files_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "staticPodPath: manifests\nresolvConf: ../resolv.conf\npodLogsDir: logs\n"
    wanted = {
        "static_pod_path": tmp_path / "manifests",
        "resolv_conf": tmp_path / "../resolv.conf",
        "pod_logs_dir": tmp_path / "logs",
    }
    assert load(tmp_path, text).settings == wanted
    monkeypatch.chdir(tmp_path)
    assert load_kubelet_file(Path("config.yaml")).settings == wanted


def test_parallel_pulls_and_serial_ones_exclude_each_other(tmp_path: Path) -> None:
    told = refusal(tmp_path, "serializeImagePulls: true\nmaxParallelImagePulls: 5\n")
    assert told.endswith(
        "maxParallelImagePulls: 5 must not be more than 1 while images are pulled one at a time"
    )


def test_thresholds_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    text = "imageGCHighThresholdPercent: 50\nimageGCLowThresholdPercent: 60\n"
    assert refusal(tmp_path, text).endswith(
        "imageGCLowThresholdPercent: 60 must be less than image-gc-high-threshold-percent (50)"
    )


def test_sizes_are_quantities(tmp_path: Path) -> None:
    assert load(tmp_path, "containerLogMaxSize: '-1'\n").settings == {"container_log_max_size": -1}
    assert "containerLogMaxSize: " in refusal(tmp_path, "containerLogMaxSize: much\n")


def test_json_is_read_too(tmp_path: Path) -> None:
    text = (
        '{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",'
        ' "readOnlyPort": 5}'
    )
    assert load(tmp_path, text, head="").settings == {"read_only_port": 5}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("syncFrequency: 5x\n", "syncFrequency: '5x' is not a duration"),
        ("syncFrequency: -5s\n", "syncFrequency: -5s must be longer than 0 seconds"),
        ("syncFrequency: 5\n", "syncFrequency: "),
        ("healthzPort: 70000\n", "healthzPort: 70000 must be a port between 1 and 65535"),
        ("healthzPort: web\n", "healthzPort: "),
        ("healthzBindAddress: localhost\n", "healthzBindAddress: localhost must be an IP address"),
        ("address: nowhere\n", "address: nowhere must be an IP address"),
        ("registryPullQPS: -1\n", "registryPullQPS: -1 must not be negative"),
        ("clusterDNS: [dns]\n", "clusterDNS: dns must be IP addresses"),
        ("containerRuntimeEndpoint: tcp://x\n", "containerRuntimeEndpoint: tcp://x must be unix:"),
        ("logging: {format: xml}\n", "logging.format: 'xml' is not one of text, json"),
        ("logging: {verbosity: lots}\n", "logging.verbosity: "),
        ("readOnlyPort: 1\nreadOnlyPort: 2\n", "readOnlyPort"),
        ("a: [\n", "line 4"),
        ("---\na: 1\n", "apiVersion is missing, kind is missing"),
        (b"clusterDomain: \xff\n", "not UTF-8"),
    ],
)
def test_a_bad_value_is_named_with_its_field(tmp_path: Path, text: str | bytes, told: str) -> None:
    assert told in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("head", "has"),
    [
        ("a: b\n", "apiVersion is missing, kind is missing"),
        (
            "kind: KubeletConfiguration\n",
            "apiVersion is missing, kind is 'KubeletConfiguration'",
        ),
        (
            "apiVersion: kubelet.config.k8s.io/v1beta1\n",
            "apiVersion is 'kubelet.config.k8s.io/v1beta1', kind is missing",
        ),
        (
            "apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration\n",
            "apiVersion is 'kubelet.config.k8s.io/v1', kind is 'KubeletConfiguration'",
        ),
        ("apiVersion: v1\nkind: Pod\n", "apiVersion is 'v1', kind is 'Pod'"),
    ],
)
def test_another_kind_or_version_is_refused(tmp_path: Path, head: str, has: str) -> None:
    assert refusal(tmp_path, "", head=head) == (
        "must be kind KubeletConfiguration of apiVersion kubelet.config.k8s.io/v1beta1, "
        f"or NodeAgentConfiguration of nodeagent.dev/v1alpha1; {has}"
    )


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file_is_refused(tmp_path: Path, text: str) -> None:
    assert refusal(tmp_path, text, head="") == "is empty"


def test_what_is_no_object_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, "- a\n", head="")
    assert refusal(tmp_path, "text\n", head="")


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        load_kubelet_file(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_kubelet_file(tmp_path)


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    told = refusal(tmp_path, "healthzPort: web\nregistryBurst: many\n")
    assert "healthzPort" in told
    assert "registryBurst" in told
    assert "\n" not in told
