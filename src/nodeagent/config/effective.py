"""The configuration in force, as the kubelet's API shows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from nodeagent.config.agent_config import AgentConfig
from nodeagent.config.kubelet_file import (
    API_VERSION,
    DURATIONS,
    KIND,
    NO_SETTINGS,
    KubeletConfiguration,
)
from nodeagent.duration import format_duration
from nodeagent.urls import shown_url

_MASKED: Final = "<masked>"


def effective_configuration(config: AgentConfig) -> dict[str, Any]:
    """The settings under their names in the configuration API; nothing secret is among them."""
    found: dict[str, Any] = {"kind": KIND, "apiVersion": API_VERSION}
    for field in msgspec.structs.fields(KubeletConfiguration):
        if field.name not in NO_SETTINGS:
            found[field.encode_name] = _shown(config, field.name)
    found["authentication"] = {
        "x509": {"clientCAFile": str(config.client_ca_file)},
        "webhook": {
            "enabled": config.authentication_token_webhook,
            "cacheTTL": format_duration(config.authentication_token_webhook_cache_ttl),
        },
        "anonymous": {"enabled": config.anonymous_auth},
    }
    yes = config.authorization_webhook_cache_authorized_ttl
    no = config.authorization_webhook_cache_unauthorized_ttl
    found["authorization"] = {
        "mode": config.authorization_mode,
        "webhook": {
            "cacheAuthorizedTTL": format_duration(yes),
            "cacheUnauthorizedTTL": format_duration(no),
        },
    }
    return found


def _shown(config: AgentConfig, name: str) -> Any:
    if name == "address":
        return config.api_address
    value = getattr(config, name)
    if name in DURATIONS:
        return format_duration(value)
    if name == "static_pod_path":
        return ",".join(map(str, config.manifest_paths))
    if name == "static_pod_url":
        return shown_url(value)
    if name == "static_pod_url_header":
        return {header: [_MASKED] for header, _ in value}
    if name == "container_log_max_size":
        return str(value)
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    return msgspec.to_builtins(value)
