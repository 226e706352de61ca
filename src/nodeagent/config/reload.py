"""What of another configuration an agent that runs takes over at once. Pure.

The one table behind :meth:`nodeagent.NodeAgent.reconfigure`, the page on reloading and its tests.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
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
        "stop_pods_on_exit": "when the agent ends",
        "stop_pods_timeout": "when the agent ends",
    }
)
"""The settings that are applied at once, and to what."""


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
