"""What of another configuration an agent that runs takes over at once. Pure.

The one table behind :meth:`nodeagent.NodeAgent.reconfigure`, the page on reloading and its tests.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from nodeagent.config.agent_config import AgentConfig
from nodeagent.config.effective import shown_setting
from nodeagent.config.flags import flag_of
from nodeagent.config.kubelet_fields import path_of_setting

LIVE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sync_frequency": "pods at rest are due by it at once",
        "housekeeping_period": "from the last clean-up on",
        "relist_period": "the rest before the next relist is as long",
        "evented_relist_period": "the rest before the next relist is as long",
        "fast_relist_period": "the rest before the next relist is as long",
        "relist_threshold": "the next verdict on PLEG goes by it",
        "inspection_concurrency": "inspections that wait begin when there is room",
        "inspection_timeout": "inspections that begin from now on",
        "image_gc_high_threshold_percent": "images are collected at once by it",
        "image_gc_low_threshold_percent": "images are collected at once by it",
        "image_minimum_gc_age": "images are collected at once by it",
        "image_maximum_gc_age": "images are collected at once by it",
        "minimum_container_ttl_duration": "the next collection, within a minute",
        "maximum_dead_containers": "the next collection, within a minute",
        "container_log_max_size": "the next look at the logs",
        "container_log_max_files": "the next rotation",
        "container_log_max_workers": "the next look at the logs",
        "container_log_monitor_interval": "from the last look at the logs on",
        "maximum_dead_containers_per_container": "the next collection, within a minute",
        "static_pod_path": "the new paths are read at once",
        "file_check_frequency": "the manifests are read anew at once",
        "static_pod_url": "asked at once; the pods of before run on until it answers",
        "static_pod_url_header": "the URL is asked at once",
        "http_check_frequency": "from the last request on",
        "runtime_request_timeout": "calls of the runtime that begin from now on",
        "serialize_image_pulls": "pulls that wait begin when there is room",
        "max_parallel_image_pulls": "pulls that wait begin when there is room",
        "registry_pull_qps": "the next pull",
        "registry_burst": "the next pull",
        "image_pull_timeout": "pulls that begin from now on",
        "image_credential_provider_config": "the next pull",
        "image_credential_provider_bin_dir": "the next pull",
        "image_pull_credentials_verification_policy": "the next container",
        "preloaded_images_verification_allowlist": "the next container",
        "resolv_conf": "the next sandbox",
        "cluster_dns": "the next sandbox",
        "cluster_domain": "the next sandbox",
        "seccomp_default": "the next container",
        "allowed_unsafe_sysctls": "the next pod",
        "cpu_cfs_quota": "the next container",
        "cpu_cfs_quota_period": "the next container",
        "single_process_oom_kill": "the next container",
        "swap_behavior": "the next container",
        "max_container_restart_period": "back-offs that run are cut at once",
        "kube_api_qps": "the next request",
        "kube_api_burst": "the next request",
        "event_record_qps": "the next event",
        "event_burst": "the next event",
        "node_status_update_frequency": "the node is looked at at once",
        "node_status_report_frequency": "from the last report on",
        "node_lease_duration_seconds": "from the last renewal on",
        "node_status_max_images": "the node is looked at at once",
        "max_pods": "the node is looked at at once; pods that run stay",
        "pods_per_core": "the node is looked at at once; pods that run stay",
        "kube_reserved": "the node is looked at at once; pods that run stay",
        "system_reserved": "the node is looked at at once; pods that run stay",
        "eviction_hard": "the node is looked at at once; pods that run stay",
        "authentication_token_webhook_cache_ttl": "the next answer about a token",
        "authorization_webhook_cache_authorized_ttl": "the next answer about a right",
        "authorization_webhook_cache_unauthorized_ttl": "the next answer about a right",
        "streaming_connection_idle_timeout": "streams that begin from now on",
        "streaming_connection_lifetime": "streams that begin from now on",
        "enable_debugging_handlers": "the next request",
        "enable_system_log_handler": "the next request",
        "enable_profiling_handler": "the next request",
        "enable_debug_flags_handler": "the next request",
        "journal_size": "at once; the newest records stay",
        "stop_pods_on_exit": "when the agent ends",
        "stop_pods_timeout": "when the agent ends",
    }
)
"""The settings that are applied at once, and to what."""


class LiveSettings:
    """The settings in force, and who wants to know when they change.

    Args:
        config: those that an agent starts with.

    Attributes:
        current: those in force now; read it when it is used.
    """

    def __init__(self, config: AgentConfig) -> None:
        self.current = config
        self._told: list[Callable[[AgentConfig], None]] = []

    def subscribe(self, told: Callable[[AgentConfig], None]) -> None:
        """Have ``told`` called with new settings; it must neither wait nor fail."""
        self._told.append(told)

    def change(self, config: AgentConfig) -> None:
        """Put other settings in force."""
        self.current = config
        for tell in self._told:
            tell(config)


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A setting that has another value.

    Attributes:
        setting: its name in :class:`AgentConfig`.
        old: the value that was in force, as it may be shown.
        new: the value that is asked for.
    """

    setting: str
    old: Any
    new: Any

    @property
    def field(self) -> str:
        """The field of the configuration file; the flag of a setting that has none."""
        return path_of_setting(self.setting) or flag_of(self.setting)

    def __str__(self) -> str:
        return f"{self.field}: {self.old} -> {self.new}"


@dataclass(frozen=True, slots=True)
class Changes:
    """How two configurations differ.

    Attributes:
        applied: what is in force at once.
        needs_restart: what stays as it was until the agent is started anew.
    """

    applied: tuple[FieldChange, ...] = ()
    needs_restart: tuple[FieldChange, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.applied or self.needs_restart)


def compare(active: AgentConfig, new: AgentConfig) -> Changes:
    """What of ``new`` an agent with the configuration ``active`` takes over at once."""
    found = list(_differences(active, new))
    return Changes(
        tuple(change for change in found if change.setting in LIVE),
        tuple(change for change in found if change.setting not in LIVE),
    )


def merged(active: AgentConfig, new: AgentConfig) -> AgentConfig:
    """``active`` with all of ``new`` that needs no restart.

    Raises:
        ConfigError: the two do not go together, as far as that can be known.
    """
    return dataclasses.replace(active, **{name: getattr(new, name) for name in LIVE})


def _differences(active: AgentConfig, new: AgentConfig) -> Iterator[FieldChange]:
    for field in dataclasses.fields(AgentConfig):
        name = field.name
        if getattr(active, name) != getattr(new, name):
            yield FieldChange(name, shown_setting(active, name), shown_setting(new, name))
