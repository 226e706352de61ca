"""The flags that set the fields of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_FLAG_OF: Final[Mapping[str, str]] = {
    "static_pod_path": "pod-manifest-path",
    "static_pod_url": "manifest-url",
    "static_pod_url_header": "manifest-url-header",
    "node_name": "hostname-override",
    "registry_pull_qps": "registry-qps",
    "event_record_qps": "event-qps",
    "image_gc_high_threshold_percent": "image-gc-high-threshold",
    "image_gc_low_threshold_percent": "image-gc-low-threshold",
    "server_tls_bootstrap": "rotate-server-certificates",
    "image_minimum_gc_age": "minimum-image-ttl-duration",
}
"""Flags whose name is not that of the setting."""


def flag_of(field: str) -> str:
    """The flag that sets a field of :class:`AgentConfig`."""
    return "--" + _FLAG_OF.get(field, field.replace("_", "-"))
