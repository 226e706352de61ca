"""KubeletConfiguration v1beta1, every field of it under its name in the configuration API.

What a field means, its default and whether this agent acts on it stands in ``kubelet_fields``.
A field that is None, "" or empty was not given.
"""

from __future__ import annotations

from typing import Final

import msgspec

from nodeagent.api.node import Taint
from nodeagent.api.quantity import Quantity

API_VERSION: Final = "kubelet.config.k8s.io/v1beta1"
KIND: Final = "KubeletConfiguration"


class X509Authentication(msgspec.Struct, frozen=True, rename="camel"):
    """Clients that show a certificate."""

    client_ca_file: str = msgspec.field(name="clientCAFile", default="")


class WebhookAuthentication(msgspec.Struct, frozen=True, rename="camel"):
    """Clients that show a token."""

    enabled: bool | None = None
    cache_ttl: str = msgspec.field(name="cacheTTL", default="")


class AnonymousAuthentication(msgspec.Struct, frozen=True, rename="camel"):
    """Clients that show nothing."""

    enabled: bool | None = None


class Authentication(msgspec.Struct, frozen=True, rename="camel"):
    """Who asks."""

    x509: X509Authentication = X509Authentication()
    webhook: WebhookAuthentication = WebhookAuthentication()
    anonymous: AnonymousAuthentication = AnonymousAuthentication()


class WebhookAuthorization(msgspec.Struct, frozen=True, rename="camel"):
    """How long answers of the API server are good for."""

    cache_authorized_ttl: str = msgspec.field(name="cacheAuthorizedTTL", default="")
    cache_unauthorized_ttl: str = msgspec.field(name="cacheUnauthorizedTTL", default="")


class Authorization(msgspec.Struct, frozen=True, rename="camel"):
    """Whether they may."""

    mode: str = ""
    webhook: WebhookAuthorization = WebhookAuthorization()


class FileVerbosity(msgspec.Struct, frozen=True, rename="camel"):
    """How much the source files that match a pattern log."""

    file_pattern: str = ""
    verbosity: int = 0


class LogStreams(msgspec.Struct, frozen=True, rename="camel"):
    """Where the lines of one format go."""

    split_stream: bool = False
    info_buffer_size: Quantity | None = None


class LogOptions(msgspec.Struct, frozen=True, rename="camel"):
    """Options of the two formats."""

    text: LogStreams = LogStreams()
    json: LogStreams = LogStreams()


class Logging(msgspec.Struct, frozen=True, rename="camel"):
    """What is logged, and how. ``flush_frequency`` is a duration, or nanoseconds."""

    format: str = ""
    flush_frequency: str | int = ""
    verbosity: int | None = None
    vmodule: tuple[FileVerbosity, ...] = ()
    options: LogOptions = LogOptions()


class MemoryReservation(msgspec.Struct, frozen=True, rename="camel"):
    """Memory of one NUMA node that pods do not get."""

    numa_node: int = 0
    limits: dict[str, str] = {}


class MemorySwap(msgspec.Struct, frozen=True, rename="camel"):
    """Whether containers swap."""

    swap_behavior: str = ""


class ShutdownGrace(msgspec.Struct, frozen=True, rename="camel"):
    """How long pods of a priority and above may take when the node shuts down."""

    priority: int = 0
    shutdown_grace_period_seconds: int = 0


class CrashLoopBackOff(msgspec.Struct, frozen=True, rename="camel"):
    """How containers that crash are held back."""

    max_container_restart_period: str = ""


class Tracing(msgspec.Struct, frozen=True, rename="camel"):
    """Where traces go."""

    endpoint: str | None = None
    sampling_rate_per_million: int | None = None


class UserNamespaces(msgspec.Struct, frozen=True, rename="camel"):
    """User namespaces of pods."""

    ids_per_pod: int | None = None


class KubeletConfiguration(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole of it."""

    api_version: str = ""
    kind: str = ""
    enable_server: bool | None = None
    static_pod_path: str = ""
    pod_logs_dir: str = ""
    sync_frequency: str = ""
    file_check_frequency: str = ""
    http_check_frequency: str = ""
    static_pod_url: str = msgspec.field(name="staticPodURL", default="")
    static_pod_url_header: dict[str, tuple[str, ...]] = msgspec.field(
        name="staticPodURLHeader", default_factory=dict
    )
    address: str = ""
    port: int | None = None
    read_only_port: int | None = None
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    tls_cipher_suites: tuple[str, ...] = ()
    tls_min_version: str = ""
    tls_curve_preferences: tuple[int, ...] = ()
    rotate_certificates: bool | None = None
    server_tls_bootstrap: bool | None = msgspec.field(name="serverTLSBootstrap", default=None)
    authentication: Authentication = Authentication()
    authorization: Authorization = Authorization()
    registry_pull_qps: int | None = msgspec.field(name="registryPullQPS", default=None)
    registry_burst: int | None = None
    image_pull_credentials_verification_policy: str = ""
    preloaded_images_verification_allowlist: tuple[str, ...] = ()
    event_record_qps: int | None = msgspec.field(name="eventRecordQPS", default=None)
    event_burst: int | None = None
    enable_debugging_handlers: bool | None = None
    enable_contention_profiling: bool | None = None
    healthz_port: int | None = None
    healthz_bind_address: str = ""
    oom_score_adj: int | None = None
    cluster_domain: str = ""
    cluster_dns: tuple[str, ...] = msgspec.field(name="clusterDNS", default=())
    streaming_connection_idle_timeout: str = ""
    node_status_update_frequency: str = ""
    node_status_report_frequency: str = ""
    node_lease_duration_seconds: int | None = None
    image_minimum_gc_age: str = msgspec.field(name="imageMinimumGCAge", default="")
    image_maximum_gc_age: str = msgspec.field(name="imageMaximumGCAge", default="")
    image_gc_high_threshold_percent: int | None = msgspec.field(
        name="imageGCHighThresholdPercent", default=None
    )
    image_gc_low_threshold_percent: int | None = msgspec.field(
        name="imageGCLowThresholdPercent", default=None
    )
    volume_stats_agg_period: str = ""
    kubelet_cgroups: str = ""
    system_cgroups: str = ""
    cgroup_root: str = ""
    cgroups_per_qos: bool | None = msgspec.field(name="cgroupsPerQOS", default=None)
    cgroup_driver: str = ""
    single_process_oom_kill: bool | None = msgspec.field(name="singleProcessOOMKill", default=None)
    cpu_manager_policy: str = ""
    cpu_manager_policy_options: dict[str, str] = msgspec.field(default_factory=dict)
    cpu_manager_reconcile_period: str = ""
    memory_manager_policy: str = ""
    reserved_memory: tuple[MemoryReservation, ...] = ()
    topology_manager_policy: str = ""
    topology_manager_scope: str = ""
    topology_manager_policy_options: dict[str, str] = msgspec.field(default_factory=dict)
    qos_reserved: dict[str, str] = msgspec.field(default_factory=dict)
    runtime_request_timeout: str = ""
    hairpin_mode: str = ""
    max_pods: int | None = None
    pods_per_core: int | None = None
    pod_cidr: str = msgspec.field(name="podCIDR", default="")
    pod_pids_limit: int | None = None
    resolv_conf: str | None = None
    """Empty: the node has none."""
    run_once: bool = False
    cpu_cfs_quota: bool | None = msgspec.field(name="cpuCFSQuota", default=None)
    cpu_cfs_quota_period: str = msgspec.field(name="cpuCFSQuotaPeriod", default="")
    node_status_max_images: int | None = None
    max_open_files: int | None = None
    content_type: str = ""
    kube_api_qps: int | None = msgspec.field(name="kubeAPIQPS", default=None)
    kube_api_burst: int | None = msgspec.field(name="kubeAPIBurst", default=None)
    serialize_image_pulls: bool | None = None
    max_parallel_image_pulls: int | None = None
    eviction_hard: dict[str, str] | None = None
    merge_default_eviction_settings: bool | None = None
    eviction_soft: dict[str, str] = msgspec.field(default_factory=dict)
    eviction_soft_grace_period: dict[str, str] = msgspec.field(default_factory=dict)
    eviction_minimum_reclaim: dict[str, str] = msgspec.field(default_factory=dict)
    eviction_pressure_transition_period: str = ""
    eviction_max_pod_grace_period: int | None = None
    enable_controller_attach_detach: bool | None = None
    make_iptables_util_chains: bool | None = msgspec.field(
        name="makeIPTablesUtilChains", default=None
    )
    protect_kernel_defaults: bool | None = None
    iptables_masquerade_bit: int | None = msgspec.field(name="iptablesMasqueradeBit", default=None)
    iptables_drop_bit: int | None = None
    feature_gates: dict[str, bool] = msgspec.field(default_factory=dict)
    fail_swap_on: bool | None = None
    memory_swap: MemorySwap = MemorySwap()
    container_log_max_size: str = ""
    container_log_max_files: int | None = None
    container_log_max_workers: int | None = None
    container_log_monitor_interval: str = ""
    config_map_and_secret_change_detection_strategy: str = ""
    system_reserved: dict[str, str] | None = None
    kube_reserved: dict[str, str] | None = None
    reserved_system_cpus: str = msgspec.field(name="reservedSystemCPUs", default="")
    show_hidden_metrics_for_version: str = ""
    system_reserved_cgroup: str = ""
    kube_reserved_cgroup: str = ""
    enforce_node_allocatable: tuple[str, ...] | None = None
    allowed_unsafe_sysctls: tuple[str, ...] = ()
    volume_plugin_dir: str = ""
    provider_id: str = msgspec.field(name="providerID", default="")
    kernel_memcg_notification: bool | None = None
    logging: Logging = Logging()
    enable_system_log_handler: bool | None = None
    enable_system_log_query: bool | None = None
    shutdown_grace_period: str = ""
    shutdown_grace_period_critical_pods: str = ""
    shutdown_grace_period_by_pod_priority: tuple[ShutdownGrace, ...] = ()
    crash_loop_back_off: CrashLoopBackOff = CrashLoopBackOff()
    enable_profiling_handler: bool | None = None
    enable_debug_flags_handler: bool | None = None
    seccomp_default: bool | None = None
    memory_throttling_factor: float | None = None
    memory_reservation_policy: str = ""
    register_node: bool | None = None
    register_with_taints: tuple[Taint, ...] = ()
    tracing: Tracing = Tracing()
    local_storage_capacity_isolation: bool | None = None
    container_runtime_endpoint: str = ""
    image_service_endpoint: str = ""
    fail_cgroup_v1: bool | None = None
    user_namespaces: UserNamespaces = UserNamespaces()
