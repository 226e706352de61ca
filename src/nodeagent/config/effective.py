"""The configuration in force, as the kubelet's API shows it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from nodeagent.config.agent_config import AgentConfig
from nodeagent.config.flags import flag_of
from nodeagent.config.kubelet_fields import FIELDS, path_of_setting, settings_in_file
from nodeagent.config.kubelet_file import DURATIONS
from nodeagent.duration import format_duration
from nodeagent.urls import shown_url

_MASKED: Final = "<masked>"


def effective_configuration(config: AgentConfig) -> dict[str, Any]:
    """All fields of the configuration API; nothing secret is among them.

    What is no setting of the agent has its default.
    """
    values = {path: known.default for path, known in FIELDS.items()}
    values |= {path_of_setting(name): _shown(config, name) for name in settings_in_file()}
    return as_object(values)


def as_object(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by the paths of their fields, as the object that holds them."""
    found: dict[str, Any] = {}
    for path, value in values.items():
        *above, name = path.split(".")
        at = found
        for part in above:
            at = at.setdefault(part, {})
        if value is not None:
            at[name] = value
    return found


def effective_flags(config: AgentConfig) -> dict[str, str]:
    """The settings by the names of their flags, without the dashes; nothing secret is among them.

    Those that the configuration API alone has are left out: they have no flag.
    """
    return {
        flag_of(field.name).removeprefix("--"): shown_setting(config, field.name)
        for field in dataclasses.fields(config)
    }


def shown_setting(config: AgentConfig, name: str) -> str:
    """The value of one setting, as its flag has it; nothing secret is in it."""
    value = getattr(config, name)
    if name == "static_pod_url":
        value = shown_url(value)
    elif name == "static_pod_url_header":
        value = {header: _MASKED for header, _ in value}
    elif name in DURATIONS and isinstance(value, int | float):
        value = format_duration(value)
    plain = _plain(value) if not dataclasses.is_dataclass(value) else str(value)
    return _flag_text(plain)


def _flag_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(_flag_text, value))
    if isinstance(value, Mapping):
        return ",".join(f"{name}={_flag_text(part)}" for name, part in value.items())
    return str(value)


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
