"""The kubelet's configuration file and its drop-ins, as settings of the agent.

Every field of KubeletConfiguration v1beta1 may stand there; one that nothing acts on is named in
a warning, so nothing is silently ignored. As with the kubelet, relative paths in the file start at
its directory, and a duration of zero means the default (kubeadm writes such files).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from nodeagent.api import nodes
from nodeagent.api.decode import decode_node
from nodeagent.api.problems import FieldProblem
from nodeagent.api.quantity import Quantity, QuantityError
from nodeagent.config.agent_config import AgentConfig
from nodeagent.config.agent_file import own_settings, read_both
from nodeagent.config.contents import DISK, Files
from nodeagent.config.errors import ConfigError, ConfigFilesError
from nodeagent.config.feature_gates import remarks as gate_remarks
from nodeagent.config.flag_layer import nested, put_over
from nodeagent.config.kubelet_fields import ACTS, FIELDS, LATER, path_of_setting, settings_in_file
from nodeagent.config.kubelet_model import (
    KubeletConfiguration,
    Logging,
)
from nodeagent.config.kubelet_rules import faults
from nodeagent.config.layers import (
    Layered,
    drop_ins,
    layered,
    leaf_paths,
    merge,
)
from nodeagent.config.node_options import DEFAULT_EVICTION_HARD
from nodeagent.duration import format_duration, parse_duration

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
    "streaming_connection_idle_timeout",
    "authentication_token_webhook_cache_ttl",
    "authorization_webhook_cache_authorized_ttl",
    "authorization_webhook_cache_unauthorized_ttl",
    "cpu_cfs_quota_period",
    "max_container_restart_period",
)
_SIZES: Final = ("container_log_max_size",)
_PATHS: Final = (
    "static_pod_path",
    "pod_logs_dir",
    "resolv_conf",
    "tls_cert_file",
    "tls_private_key_file",
    "client_ca_file",
)
_TOGETHER: Final = (
    ("serialize_image_pulls", "max_parallel_image_pulls"),
    ("image_pull_credentials_verification_policy", "preloaded_images_verification_allowlist"),
    ("image_gc_high_threshold_percent", "image_gc_low_threshold_percent"),
    ("image_minimum_gc_age", "image_maximum_gc_age"),
    ("tls_cert_file", "tls_private_key_file"),
)
"""Settings that limit each other."""


_ZERO_IS_UNSET: Final = (
    "node_lease_duration_seconds",
    "max_pods",
    "port",
    "registry_burst",
    "kube_api_burst",
    "event_burst",
)
_EVICTION: Final = "evictionHard"


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """What a configuration of files comes to.

    Attributes:
        settings: by the names that :class:`AgentConfig` and the command line use.
        warnings: what was ignored, or is not acted on.
        effective: every field that was given, with the defaults of all others, by its path.
        origins: the file of each field that was given.
        own: every one of the agent's own fields, with the defaults of those not given, by name.
        own_origins: the file of each of them that was given.
    """

    settings: dict[str, Any]
    warnings: tuple[str, ...]
    effective: dict[str, Any] = field(default_factory=dict, compare=False)
    origins: dict[str, Path] = field(default_factory=dict, compare=False)
    own: dict[str, Any] = field(default_factory=dict, compare=False)
    own_origins: dict[str, Path] = field(default_factory=dict, compare=False)


def load_kubelet_file(path: Path) -> LoadedFile:
    """Read a KubeletConfiguration file. Blocks; call it before the event loop starts.

    Raises:
        ConfigError: the file cannot be used; names the field, or the file and why.
    """
    return load_configuration(path)


def load_configuration(
    file: Path | None,
    directory: Path | None = None,
    flags: Sequence[tuple[str, str]] = (),
    files: Files = DISK,
) -> LoadedFile:
    """Read a KubeletConfiguration file, put its drop-ins over it, and flags over both. Blocks.

    Args:
        file: the file; None for none.
        directory: where the drop-ins lie; None for none.
        flags: flags of fields without dashes, with their values as text.
        files: where the content of both comes from.

    Raises:
        ConfigError: a file cannot be read; names it.
        ConfigFilesError: what they say cannot be used; names every field.
    """
    layers, mine, aside = _layers(file, directory, files)
    layers = put_over(layers, flags)
    option, place = ("config", file) if file else ("config_dir", directory)
    if file is None and directory is None:
        option, place = "flags", None
    own = own_settings(mine, file)
    wrong = [_named(mine, file, each) for each in own.problems]
    decoded = decode_node(layers.root, KubeletConfiguration)
    if decoded.value is None:
        wrong += [_named(layers, file, each) for each in decoded.errors]
        raise ConfigFilesError(option, place, wrong)
    effective = dict(_effective(decoded.value))
    problems = [FieldProblem(path, text) for path, text in faults(effective)]
    settings = _settings(decoded.value, layers, file, problems)
    wrong += [_named(layers, file, each) for each in problems]
    if wrong:
        raise ConfigFilesError(option, place, wrong)
    warnings = [_named(mine, file, w) for w in own.warnings]
    warnings += [_named(layers, file, w) for w in decoded.warnings]
    warnings += [_named(layers, file, w) for w in _remarks(layers.root, effective)]
    warnings += gate_remarks(effective["featureGates"] or {})
    warnings += [f"{path}: left aside, drop-ins end in .conf" for path in aside]
    return LoadedFile(
        settings | own.settings,
        tuple(warnings),
        effective,
        layers.origins,
        own.effective,
        mine.origins,
    )


def _layers(
    file: Path | None, directory: Path | None, files: Files
) -> tuple[Layered, Layered, Sequence[Path]]:
    """What the files say together, of both kinds, and the files that were left aside."""
    layers, own = Layered(nodes.Mapping(0)), Layered(nodes.Mapping(0))
    if file is not None:
        kubelet, mine = read_both(file, "config", files)
        layers = layers if kubelet is None else layered(kubelet, file)
        own = own if mine is None else layered(mine, file)
    if directory is None:
        return layers, own, ()
    taken, aside = drop_ins(directory, files)
    for path in taken:
        patch, mine = read_both(path, "config_dir", files)
        if mine is not None:
            own = merge(own, mine, path)
        if patch is None:
            continue
        if _EVICTION in patch.values and not _is_object(layers.root.values.get(_EVICTION)):
            # The defaults stand already when drop-ins are laid over a file.
            layers = merge(layers, nested(_EVICTION, DEFAULT_EVICTION_HARD), file or path)
        layers = merge(layers, patch, path)
    return layers, own, aside


def _is_object(node: nodes.Node | None) -> bool:
    return isinstance(node, nodes.Mapping)


def _named(layers: Layered, file: Path | None, problem: FieldProblem) -> str:
    """The problem, and the drop-in in which it stands."""
    origin = layers.origin(problem.path)
    return str(problem) if origin in (None, file) else f"{origin}: {problem}"


def _effective(file: KubeletConfiguration) -> Iterator[tuple[str, Any]]:
    """Every field and its value: the one given, or the default."""
    plain = msgspec.to_builtins(file, enc_hook=str)
    for path, known in FIELDS.items():
        value: Any = plain
        for part in path.split("."):
            value = value[part]
        unset = _is_unset(path, value, known.default)
        yield path, known.default if unset else list(value) if type(value) is tuple else value


def _is_unset(path: str, value: Any, default: Any) -> bool:
    """Whether a value means that the default counts."""
    if value == "" and path == "resolvConf":
        return False
    if isinstance(value, bool):
        return False
    if isinstance(value, int | float):
        return value == 0 and path in _zero_is_unset()
    if isinstance(value, str) and isinstance(default, str):
        # A duration of zero, as kubeadm writes it.
        return not value or (value in ("0", "0s") and default not in ("0", "0s", ""))
    return not value


@cache
def _zero_is_unset() -> frozenset[str]:
    return frozenset(
        {"maxOpenFiles", "logging.flushFrequency", *map(path_of_setting, _ZERO_IS_UNSET)}
    )


def _remarks(root: nodes.Mapping, effective: Mapping[str, Any]) -> Iterator[FieldProblem]:
    """Fields that were given another value than the default, and that nothing acts on."""
    given = list(leaf_paths(root))
    for path, known in FIELDS.items():
        if known.effect == ACTS or effective[path] == known.default:
            continue
        if any(at == path or at.startswith(f"{path}.") for at in given):
            why = f": {known.note}" if known.note else ""
            text = (
                "not acted on by this version" if known.effect == LATER else "has no meaning here"
            )
            yield FieldProblem(path, text + why)


def _settings(
    file: KubeletConfiguration,
    layers: Layered,
    main: Path | None,
    problems: list[FieldProblem],
) -> dict[str, Any]:
    settings = {
        name: value
        for name in settings_in_file()
        if hasattr(file, name)
        and ((value := getattr(file, name)) not in (None, "", ()) or _empty_counts(name, value))
    } | _nested(file)
    for names, parse in ((DURATIONS, parse_duration), (_SIZES, _size)):
        for name in [name for name in names if name in settings]:
            try:
                settings[name] = parse(settings[name])
            except (ValueError, QuantityError) as error:
                problems.append(FieldProblem(path_of_setting(name), str(error)))
                del settings[name]
    for name in (*DURATIONS, *_ZERO_IS_UNSET):
        if settings.get(name) == 0:
            del settings[name]
    if updated := settings.get("node_status_update_frequency"):
        settings.setdefault("node_status_report_frequency", updated)
    for name in _PATHS:
        if settings.get(name):
            settings[name] = _path(settings[name], layers.origin(path_of_setting(name)), main)
    if not Path(settings.get("pod_logs_dir", "/")).is_absolute():
        text = f"{str(settings['pod_logs_dir'])!r} must be an absolute path"
        problems.append(FieldProblem("podLogsDir", text))
    if headers := settings.pop("static_pod_url_header", {}):
        pairs = [(name, value) for name, values in headers.items() for value in values]
        settings["static_pod_url_header"] = tuple(pairs)
    if file.merge_default_eviction_settings and file.eviction_hard is not None:
        settings["eviction_hard"] = {**DEFAULT_EVICTION_HARD, **file.eviction_hard}
    problems.extend(_bad_settings(settings))
    return settings | _logging(file.logging)


def _path(text: str, origin: Path | None, main: Path | None) -> Path:
    """A path of the file starts at its directory; one of a drop-in stays as it is."""
    if main is not None and origin == main:
        return main.parent.absolute() / text
    return Path(text)


def _nested(file: KubeletConfiguration) -> dict[str, Any]:
    """The settings that stand inside other fields, as far as they are given."""
    who, what = file.authentication, file.authorization
    found = {
        "swap_behavior": file.memory_swap.swap_behavior,
        "max_container_restart_period": file.crash_loop_back_off.max_container_restart_period,
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


def _size(text: str) -> int:
    return Quantity(text).value()


def _bad_settings(settings: Mapping[str, Any]) -> Iterator[FieldProblem]:
    """Each setting judged alone, or with those that limit it: all faults are told."""
    limited = {name for names in _TOGETHER for name in names}
    single = ((name,) for name in settings if name not in limited)
    for names in (*single, *_TOGETHER):
        try:
            AgentConfig(**{name: settings[name] for name in names if name in settings})
        except ConfigError as error:
            value = error.value
            shown = format_duration(value) if isinstance(value, float) else value
            yield FieldProblem(path_of_setting(error.field), f"{shown} {error.allowed}")


def _logging(logging: Logging) -> dict[str, Any]:
    levels = tuple((each.file_pattern, each.verbosity) for each in logging.vmodule)
    given = {"logging_format": logging.format, "verbosity": logging.verbosity, "vmodule": levels}
    return {name: value for name, value in given.items() if value not in ("", None, ())}
