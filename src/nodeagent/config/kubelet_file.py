"""The kubelet's configuration file, as far as this version acts on it.

Every field of KubeletConfiguration v1beta1 may stand in the file; one that is not acted on yet
is named in a warning, so nothing is silently ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from nodeagent.api.decode import decode_node
from nodeagent.api.splitting import load_documents
from nodeagent.config.agent_config import ConfigError
from nodeagent.duration import parse_duration

_API_VERSION: Final = "kubelet.config.k8s.io/v1beta1"
_DURATIONS: Final = {
    "file_check_frequency": "fileCheckFrequency",
    "sync_frequency": "syncFrequency",
    "runtime_request_timeout": "runtimeRequestTimeout",
}


class _Logging(msgspec.Struct, frozen=True, rename="camel"):
    format: str = ""
    verbosity: int | None = None


class KubeletConfiguration(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields that are acted on, under their names in the configuration API."""

    api_version: str = ""
    kind: str = ""
    static_pod_path: str = ""
    container_runtime_endpoint: str = ""
    image_service_endpoint: str = ""
    pod_logs_dir: str = ""
    healthz_port: int | None = None
    healthz_bind_address: str = ""
    read_only_port: int | None = None
    address: str = ""
    file_check_frequency: str = ""
    sync_frequency: str = ""
    runtime_request_timeout: str = ""
    serialize_image_pulls: bool | None = None
    max_parallel_image_pulls: int | None = None
    registry_pull_qps: int | None = msgspec.field(name="registryPullQPS", default=None)
    registry_burst: int | None = None
    resolv_conf: str = ""
    cluster_dns: tuple[str, ...] = msgspec.field(name="clusterDNS", default=())
    cluster_domain: str = ""
    cgroup_root: str = ""
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
    if document.error is not None or document.root is None:
        raise ConfigError("config", path, str(document.error or "is empty"))
    decoded = decode_node(document.root, KubeletConfiguration)
    if decoded.value is None:
        raise ConfigError("config", path, "; ".join(str(e) for e in decoded.errors))
    warnings = tuple(_remark(str(w)) for w in decoded.warnings)
    return LoadedFile(_settings(path, decoded.value), warnings)


def _remark(warning: str) -> str:
    return warning.replace("unknown field", "not acted on by this version")


def _settings(path: Path, file: KubeletConfiguration) -> dict[str, Any]:
    if file.kind != "KubeletConfiguration" or file.api_version != _API_VERSION:
        allowed = f"must be kind KubeletConfiguration of apiVersion {_API_VERSION}"
        raise ConfigError("config", path, allowed)
    given: dict[str, Any] = {
        "static_pod_path": (file.static_pod_path,) if file.static_pod_path else (),
        "read_only_address": file.address,
        "logging_format": file.logging.format,
        "verbosity": file.logging.verbosity,
    }
    for name in KubeletConfiguration.__struct_fields__:
        if name not in ("api_version", "kind", "logging", "address", "static_pod_path"):
            given[name] = getattr(file, name)
    settings = {name: value for name, value in given.items() if value not in (None, "", ())}
    for name, field in _DURATIONS.items():
        if name in settings:
            try:
                settings[name] = parse_duration(settings[name])
            except ValueError as error:
                raise ConfigError("config", path, f"{field}: {error}") from error
    if settings.get("logging_format", "text") not in ("text", "json"):
        allowed = f"logging.format: {file.logging.format!r} is not text or json"
        raise ConfigError("config", path, allowed)
    return settings
