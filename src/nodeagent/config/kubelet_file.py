"""The kubelet's configuration file, as far as this version acts on it.

Every field of KubeletConfiguration v1beta1 may stand in the file; one that is not acted on yet
is named in a warning, so nothing is silently ignored. As with the kubelet, relative paths start
at the file's directory, and a duration of zero means the default (kubeadm writes such files).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from nodeagent.api.decode import decode_node
from nodeagent.api.node import Taint
from nodeagent.api.problems import FieldProblem
from nodeagent.api.quantity import Quantity, QuantityError
from nodeagent.api.splitting import load_documents
from nodeagent.config.agent_config import AgentConfig
from nodeagent.config.errors import ConfigError
from nodeagent.config.node_options import DEFAULT_EVICTION_HARD
from nodeagent.duration import format_duration, parse_duration

MAX_VERBOSITY: Final = 10
API_VERSION: Final = "kubelet.config.k8s.io/v1beta1"
KIND: Final = "KubeletConfiguration"
DURATIONS: Final = (
    "http_check_frequency",
    "file_check_frequency",
    "sync_frequency",
    "runtime_request_timeout",
    "image_minimum_gc_age",
    "image_maximum_gc_age",
    "container_log_monitor_interval",
    "node_status_update_frequency",
    "node_status_report_frequency",
    "authentication_token_webhook_cache_ttl",
    "authorization_webhook_cache_authorized_ttl",
    "authorization_webhook_cache_unauthorized_ttl",
)
NESTED: Final = {
    "client_ca_file": "authentication.x509.clientCAFile",
    "anonymous_auth": "authentication.anonymous.enabled",
    "authentication_token_webhook": "authentication.webhook.enabled",
    "authentication_token_webhook_cache_ttl": "authentication.webhook.cacheTTL",
    "authorization_mode": "authorization.mode",
    "authorization_webhook_cache_authorized_ttl": "authorization.webhook.cacheAuthorizedTTL",
    "authorization_webhook_cache_unauthorized_ttl": "authorization.webhook.cacheUnauthorizedTTL",
}
"""Settings that stand inside other fields, and where."""
_SIZES: Final = ("container_log_max_size",)
_PATHS: Final = (
    "static_pod_path",
    "pod_logs_dir",
    "resolv_conf",
    "tls_cert_file",
    "tls_private_key_file",
    "client_ca_file",
)
NO_SETTINGS: Final = (
    "api_version",
    "kind",
    "logging",
    "merge_default_eviction_settings",
    "authentication",
    "authorization",
)
_TOGETHER: Final = (
    ("serialize_image_pulls", "max_parallel_image_pulls"),
    ("image_pull_credentials_verification_policy", "preloaded_images_verification_allowlist"),
    ("image_gc_high_threshold_percent", "image_gc_low_threshold_percent"),
    ("image_minimum_gc_age", "image_maximum_gc_age"),
    ("tls_cert_file", "tls_private_key_file"),
)
"""Settings that limit each other."""


class _X509(msgspec.Struct, frozen=True, rename="camel"):
    client_ca_file: str = msgspec.field(name="clientCAFile", default="")


class _TokenWebhook(msgspec.Struct, frozen=True, rename="camel"):
    enabled: bool | None = None
    cache_ttl: str = msgspec.field(name="cacheTTL", default="")


class _Anonymous(msgspec.Struct, frozen=True, rename="camel"):
    enabled: bool | None = None


class _Authentication(msgspec.Struct, frozen=True, rename="camel"):
    x509: _X509 = _X509()
    webhook: _TokenWebhook = _TokenWebhook()
    anonymous: _Anonymous = _Anonymous()


class _AccessWebhook(msgspec.Struct, frozen=True, rename="camel"):
    cache_authorized_ttl: str = msgspec.field(name="cacheAuthorizedTTL", default="")
    cache_unauthorized_ttl: str = msgspec.field(name="cacheUnauthorizedTTL", default="")


class _Authorization(msgspec.Struct, frozen=True, rename="camel"):
    mode: str = ""
    webhook: _AccessWebhook = _AccessWebhook()


class _Logging(msgspec.Struct, frozen=True, rename="camel"):
    format: str = ""
    verbosity: int | None = None


class KubeletConfiguration(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields that are acted on, under their names in the configuration API."""

    api_version: str = ""
    kind: str = ""
    static_pod_path: str = ""
    static_pod_url: str = msgspec.field(name="staticPodURL", default="")
    static_pod_url_header: dict[str, tuple[str, ...]] = msgspec.field(
        name="staticPodURLHeader", default_factory=dict
    )
    container_runtime_endpoint: str = ""
    image_service_endpoint: str = ""
    pod_logs_dir: str = ""
    healthz_port: int | None = None
    healthz_bind_address: str = ""
    read_only_port: int | None = None
    address: str = ""
    file_check_frequency: str = ""
    http_check_frequency: str = ""
    sync_frequency: str = ""
    runtime_request_timeout: str = ""
    serialize_image_pulls: bool | None = None
    max_parallel_image_pulls: int | None = None
    registry_pull_qps: int | None = msgspec.field(name="registryPullQPS", default=None)
    registry_burst: int | None = None
    image_pull_credentials_verification_policy: str = ""
    preloaded_images_verification_allowlist: tuple[str, ...] = ()
    image_gc_high_threshold_percent: int | None = msgspec.field(
        name="imageGCHighThresholdPercent", default=None
    )
    image_gc_low_threshold_percent: int | None = msgspec.field(
        name="imageGCLowThresholdPercent", default=None
    )
    image_minimum_gc_age: str = msgspec.field(name="imageMinimumGCAge", default="")
    container_log_max_size: str = ""
    container_log_max_files: int | None = None
    container_log_max_workers: int | None = None
    container_log_monitor_interval: str = ""
    image_maximum_gc_age: str = msgspec.field(name="imageMaximumGCAge", default="")
    resolv_conf: str | None = None
    """Empty: the node has none."""
    cluster_dns: tuple[str, ...] = msgspec.field(name="clusterDNS", default=())
    cluster_domain: str = ""
    seccomp_default: bool | None = None
    allowed_unsafe_sysctls: tuple[str, ...] = ()
    cpu_cfs_quota: bool | None = msgspec.field(name="cpuCFSQuota", default=None)
    rotate_certificates: bool | None = None
    register_node: bool | None = None
    kube_api_qps: int | None = msgspec.field(name="kubeAPIQPS", default=None)
    kube_api_burst: int | None = msgspec.field(name="kubeAPIBurst", default=None)
    event_record_qps: int | None = msgspec.field(name="eventRecordQPS", default=None)
    event_burst: int | None = None
    node_status_update_frequency: str = ""
    node_status_report_frequency: str = ""
    node_lease_duration_seconds: int | None = None
    config_map_and_secret_change_detection_strategy: str = ""
    register_with_taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(name="providerID", default="")
    node_status_max_images: int | None = None
    max_pods: int | None = None
    pods_per_core: int | None = None
    pod_cidr: str = msgspec.field(name="podCIDR", default="")
    kube_reserved: dict[str, str] | None = None
    system_reserved: dict[str, str] | None = None
    eviction_hard: dict[str, str] | None = None
    merge_default_eviction_settings: bool = False
    local_storage_capacity_isolation: bool | None = None
    enable_controller_attach_detach: bool | None = None
    make_iptables_util_chains: bool | None = msgspec.field(
        name="makeIPTablesUtilChains", default=None
    )
    enable_server: bool | None = None
    port: int | None = None
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    tls_cipher_suites: tuple[str, ...] = ()
    tls_min_version: str = ""
    authentication: _Authentication = _Authentication()
    authorization: _Authorization = _Authorization()
    enable_debugging_handlers: bool | None = None
    enable_system_log_handler: bool | None = None
    enable_profiling_handler: bool | None = None
    logging: _Logging = _Logging()


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """Settings by the names that :class:`AgentConfig` and the command line use, and remarks."""

    settings: dict[str, Any]
    warnings: tuple[str, ...]


def load_kubelet_file(path: Path) -> LoadedFile:
    """Read a KubeletConfiguration file. Blocks; call it before the event loop starts.

    Raises:
        ConfigError: the file cannot be used; names the field, or the file and why.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError("config", path, f"cannot be read: {error.strerror}") from error
    documents = load_documents(data)
    if len(documents) != 1:
        raise ConfigError("config", path, f"must hold one document, has {len(documents)}")
    document = documents[0]
    if document.error is not None:
        fault = FieldProblem("", document.error.message, document.error.line, document.error.column)
        raise ConfigError("config", path, str(fault))
    if document.root is None:
        raise ConfigError("config", path, "is empty")
    decoded = decode_node(document.root, KubeletConfiguration)
    if decoded.value is None:
        raise ConfigError("config", path, "; ".join(str(e) for e in decoded.errors))
    warnings = tuple(_remark(str(w)) for w in decoded.warnings)
    return LoadedFile(_settings(path, decoded.value), warnings)


def _remark(warning: str) -> str:
    return warning.replace("unknown field", "not acted on by this version")


def _settings(path: Path, file: KubeletConfiguration) -> dict[str, Any]:
    if file.kind != KIND or file.api_version != API_VERSION:
        allowed = f"must be kind {KIND} of apiVersion {API_VERSION}"
        raise ConfigError("config", path, allowed)
    settings = {
        name: value
        for name in KubeletConfiguration.__struct_fields__
        if name not in NO_SETTINGS
        and ((value := getattr(file, name)) not in (None, "", ()) or _empty_counts(name, value))
    } | _of_requests(file.authentication, file.authorization)
    for name in DURATIONS:
        if name in settings:
            settings[name] = _duration(path, name, settings[name])
            if settings[name] == 0:
                del settings[name]
    if updated := settings.get("node_status_update_frequency"):
        settings.setdefault("node_status_report_frequency", updated)
    for name in ("node_lease_duration_seconds", "max_pods", "port"):
        if settings.get(name) == 0:
            del settings[name]
    for name in _SIZES:
        if name in settings:
            settings[name] = _size(path, name, settings[name])
    for name in _PATHS:
        if settings.get(name):
            # An absolute path stays as it is.
            settings[name] = path.parent.absolute() / settings[name]
    if headers := settings.pop("static_pod_url_header", {}):
        pairs = [(name, value) for name, values in headers.items() for value in values]
        settings["static_pod_url_header"] = tuple(pairs)
    if file.merge_default_eviction_settings and file.eviction_hard is not None:
        settings["eviction_hard"] = {**DEFAULT_EVICTION_HARD, **file.eviction_hard}
    _check(path, settings)
    return settings | _logging(path, file.logging)


def _of_requests(who: _Authentication, what: _Authorization) -> dict[str, Any]:
    """The settings that say who may ask, as far as they are given."""
    found = {
        "client_ca_file": who.x509.client_ca_file,
        "anonymous_auth": who.anonymous.enabled,
        "authentication_token_webhook": who.webhook.enabled,
        "authentication_token_webhook_cache_ttl": who.webhook.cache_ttl,
        "authorization_mode": what.mode,
        "authorization_webhook_cache_authorized_ttl": what.webhook.cache_authorized_ttl,
        "authorization_webhook_cache_unauthorized_ttl": what.webhook.cache_unauthorized_ttl,
    }
    return {name: value for name, value in found.items() if value not in (None, "")}


def _empty_counts(name: str, value: object) -> bool:
    return name == "resolv_conf" and value is not None


def _duration(path: Path, name: str, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ConfigError("config", path, f"{_field(name)}: {error}") from error


def _size(path: Path, name: str, text: str) -> int:
    try:
        return Quantity(text).value()
    except QuantityError as error:
        raise ConfigError("config", path, f"{_field(name)}: {error}") from error


def _check(path: Path, settings: Mapping[str, Any]) -> None:
    """Name the file and the field of a bad value, not a flag that nobody gave."""
    limited = {name for names in _TOGETHER for name in names}
    single = ((name,) for name in settings if name not in limited)
    for names in (*single, *_TOGETHER):
        try:
            AgentConfig(**{name: settings[name] for name in names if name in settings})
        except ConfigError as error:
            value = error.value
            shown = format_duration(value) if isinstance(value, float) else value
            text = f"{_field(error.field)}: {shown} {error.allowed}"
            raise ConfigError("config", path, text) from error


def _field(name: str) -> str:
    encoded = {f.name: f.encode_name for f in msgspec.structs.fields(KubeletConfiguration)}
    return NESTED.get(name) or encoded[name]


def _logging(path: Path, logging: _Logging) -> dict[str, Any]:
    if logging.format not in ("", "text", "json"):
        allowed = f"logging.format: {logging.format!r} is not text or json"
        raise ConfigError("config", path, allowed)
    if logging.verbosity is not None and not 0 <= logging.verbosity <= MAX_VERBOSITY:
        allowed = f"logging.verbosity: {logging.verbosity} is not between 0 and {MAX_VERBOSITY}"
        raise ConfigError("config", path, allowed)
    given = {"logging_format": logging.format, "verbosity": logging.verbosity}
    return {name: value for name, value in given.items() if value not in ("", None)}
