"""NodeAgentConfiguration: the agent's own fields, which KubeletConfiguration does not have.

docs/configuration.md, "The agent's own fields". An object of this kind may be the file of
``--config``, stand in it as a further document, be a drop-in, and hold a KubeletConfiguration.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from nodeagent.api import nodes
from nodeagent.api.decode import decode_node
from nodeagent.api.problems import FieldProblem
from nodeagent.config.agent_config import AgentConfig
from nodeagent.config.contents import DISK, Files
from nodeagent.config.errors import ConfigError
from nodeagent.config.flags import flag_of
from nodeagent.config.kubelet_model import API_VERSION, KIND
from nodeagent.config.layers import Layered, head_of, read_objects
from nodeagent.duration import format_duration, parse_duration

AGENT_VERSION: Final = "nodeagent.dev/v1alpha1"
AGENT_KIND: Final = "NodeAgentConfiguration"
EMBEDDED: Final = "kubelet"
"""The field that may hold a KubeletConfiguration."""


class NodeAgentConfiguration(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The agent's own fields, without the embedded KubeletConfiguration; unset is None or ""."""

    api_version: str = ""
    kind: str = ""
    kubeconfig: str = ""
    bootstrap_kubeconfig: str = ""
    cert_dir: str = ""
    checkpoint_patience: str = ""
    node_ip: str = msgspec.field(name="nodeIP", default="")
    node_labels: dict[str, str] | None = None
    cloud_provider: str = ""
    streaming_connection_lifetime: str = ""
    embedded_scenario: str = ""
    root_dir: str = ""
    container_logs_dir: str = ""
    node_name: str = ""
    read_only_address: str = ""
    housekeeping_period: str = ""
    relist_period: str = ""
    evented_relist_period: str = ""
    fast_relist_period: str = ""
    relist_threshold: str = ""
    inspection_concurrency: int | None = None
    inspection_timeout: str = ""
    image_pull_timeout: str = ""
    image_credential_provider_config: str = ""
    image_credential_provider_bin_dir: str = ""
    minimum_container_ttl_duration: str = msgspec.field(
        name="minimumContainerTTLDuration", default=""
    )
    maximum_dead_containers_per_container: int | None = None
    maximum_dead_containers: int | None = None
    stop_pods_on_exit: bool | None = None
    stop_pods_timeout: str = ""
    journal_size: int | None = None


@dataclass(frozen=True, slots=True)
class AgentField:
    """One of the agent's own fields.

    Attributes:
        name: as it is written.
        setting: the setting of :class:`AgentConfig`.
        default: its value where nothing is said, as JSON has it.
        flag: the flag that sets it, without dashes; "" for none.
        meaning: what it says.
    """

    name: str
    setting: str
    default: Any
    flag: str
    meaning: str


_MEANINGS: Final[Mapping[str, str]] = {
    "kubeconfig": "how to reach the API server, and as whom; none: the agent stands alone",
    "bootstrap_kubeconfig": "the same for the first request of a client certificate",
    "cert_dir": "where certificates and keys are kept; none: pki below rootDir",
    "checkpoint_patience": "how long the API server has for its first answer before the pods that "
    "it named last are run without one",
    "node_ip": "the node's address, or one of each family with a comma between",
    "node_labels": "labels of a Node object that the agent makes",
    "cloud_provider": "external: a controller of the cloud tells the node's addresses",
    "streaming_connection_lifetime": "a stream of exec, attach or port-forward is closed then",
    "embedded_scenario": "what is to happen to the embedded runtime: a file",
    "root_dir": "the agent's state; where the last known good configuration shall lie there, too, "
    "say it by the flag",
    "container_logs_dir": "where links to log files are made",
    "node_name": "the node's name; none: that of the host",
    "read_only_address": "address of the read-only port alone",
    "housekeeping_period": "between clean-ups",
    "relist_period": "between two relists",
    "evented_relist_period": "between two relists while events tell of changes",
    "fast_relist_period": "between two relists while something goes on of which no event tells",
    "relist_threshold": "without a relist for so long PLEG is not healthy",
    "inspection_concurrency": "pods inspected side by side",
    "inspection_timeout": "one call about a pod is given up then",
    "image_pull_timeout": "a pull is given up then; 0 means never",
    "image_credential_provider_config": "a CredentialProviderConfig, or a directory of them",
    "image_credential_provider_bin_dir": "where the plugins' programs lie",
    "minimum_container_ttl_duration": "a dead container stays so long after it was first seen",
    "maximum_dead_containers_per_container": "dead containers kept of each name in a pod",
    "maximum_dead_containers": "dead containers kept over all; negative means no bound",
    "stop_pods_on_exit": "stop all pods when the agent ends (for development)",
    "stop_pods_timeout": "how long that may take",
    "journal_size": "records that the journal keeps",
}
_NO_FLAG: Final = frozenset(
    {
        "streaming_connection_lifetime",
        "container_logs_dir",
        "read_only_address",
        "housekeeping_period",
        "relist_period",
        "evented_relist_period",
        "fast_relist_period",
        "relist_threshold",
        "inspection_concurrency",
        "inspection_timeout",
        "image_pull_timeout",
        "journal_size",
    }
)
_PATHS: Final = frozenset(
    {
        "kubeconfig",
        "bootstrap_kubeconfig",
        "cert_dir",
        "embedded_scenario",
        "root_dir",
        "container_logs_dir",
        "image_credential_provider_config",
        "image_credential_provider_bin_dir",
    }
)
_TOGETHER: Final = (("image_credential_provider_config", "image_credential_provider_bin_dir"),)
_ALONE_NOT: Final = frozenset({"embedded_scenario", "bootstrap_kubeconfig"})
"""Settings that can be judged only with those that the kubelet's fields, or flags, give."""


def _fields() -> Iterator[AgentField]:
    names = {f.name: f.encode_name for f in msgspec.structs.fields(NodeAgentConfiguration)}
    for each in dataclasses.fields(AgentConfig):
        if each.name not in _MEANINGS:
            continue
        value: Any = {} if each.default is dataclasses.MISSING else each.default
        if isinstance(value, float):
            value = format_duration(value)
        elif isinstance(value, Path):
            value = str(value)
        flag = "" if each.name in _NO_FLAG else flag_of(each.name).removeprefix("--")
        yield AgentField(names[each.name], each.name, value, flag, _MEANINGS[each.name])


AGENT_FIELDS: Final[Mapping[str, AgentField]] = MappingProxyType({f.name: f for f in _fields()})
"""The agent's own fields by name."""

_DURATIONS: Final = frozenset(
    each.name
    for each in dataclasses.fields(AgentConfig)
    if each.name in _MEANINGS and isinstance(each.default, float)
)


@dataclass(frozen=True, slots=True)
class OwnSettings:
    """What the agent's own fields come to.

    Attributes:
        settings: by the names of :class:`AgentConfig`.
        effective: all fields, with defaults, by name.
        problems: what is wrong.
        warnings: what was ignored.
    """

    settings: dict[str, Any]
    effective: dict[str, Any]
    problems: list[FieldProblem]
    warnings: tuple[FieldProblem, ...] = ()


def own_settings(layers: Layered, main: Path | None) -> OwnSettings:
    """Judge the agent's own fields.

    Args:
        layers: what files say of them.
        main: the file of ``--config``, at whose directory relative paths start.
    """
    decoded = decode_node(layers.root, NodeAgentConfiguration)
    effective = {name: field.default for name, field in AGENT_FIELDS.items()}
    if decoded.value is None:
        return OwnSettings({}, effective, list(decoded.errors), decoded.warnings)
    settings: dict[str, Any] = {}
    problems: list[FieldProblem] = []
    for name, field in AGENT_FIELDS.items():
        value = getattr(decoded.value, field.setting)
        if value in (None, ""):
            continue
        effective[name] = value
        if field.setting in _DURATIONS:
            try:
                value = parse_duration(value)
            except ValueError as error:
                problems.append(FieldProblem(name, str(error), _line(layers.root, name)))
                continue
        elif field.setting in _PATHS and main is not None and layers.origin(name) == main:
            value = main.parent.absolute() / value
        settings[field.setting] = value
    problems += _bad(settings, layers.root)
    return OwnSettings(settings, effective, problems, decoded.warnings)


def _bad(settings: Mapping[str, Any], root: nodes.Mapping) -> Iterator[FieldProblem]:
    together = {name for names in _TOGETHER for name in names}
    single = ((name,) for name in settings if name not in together | _ALONE_NOT)
    names_of = {field.setting: field.name for field in AGENT_FIELDS.values()}
    for names in (*single, *_TOGETHER):
        try:
            AgentConfig(**{name: settings[name] for name in names if name in settings})
        except ConfigError as error:
            value = error.value
            shown = format_duration(value) if isinstance(value, float) else value
            name = names_of.get(error.field, error.field)
            yield FieldProblem(name, f"{shown} {error.allowed}".strip(), _line(root, name))


def _line(root: nodes.Mapping, name: str) -> int:
    return root.key_lines.get(name, 0)


# -- where they stand --------------------------------------------------------------------------


def read_both(
    path: Path, option: str, files: Files = DISK
) -> tuple[nodes.Mapping | None, nodes.Mapping | None]:
    """The KubeletConfiguration and the agent's own fields that a file holds. Blocks.

    Args:
        path: the file.
        option: the setting that named it, for errors.
        files: where its content comes from.

    Raises:
        ConfigError: it cannot be read, holds something else, or one of them twice.
    """
    kubelet: list[nodes.Mapping] = []
    own: list[nodes.Mapping] = []
    for root in read_objects(path, option, files):
        head = head_of(root)
        if head == (API_VERSION, KIND):
            kubelet.append(root)
        elif head == (AGENT_VERSION, AGENT_KIND):
            own.append(root)
            kubelet += _embedded(root, path, option)
        else:
            raise ConfigError(option, path, _expected(head))
    for kind, found in ((KIND, kubelet), (AGENT_KIND, own)):
        if len(found) > 1:
            lines = " and ".join(f"line {root.line}" for root in found)
            raise ConfigError(option, path, f"must hold one {kind}, has {len(found)} ({lines})")
    return next(iter(kubelet), None), next(iter(own), None)


def _expected(head: tuple[Any, Any]) -> str:
    """What is said of an object that is none of ours."""
    allowed = f"must be kind {KIND} of apiVersion {API_VERSION}"
    mine = f"or {AGENT_KIND} of {AGENT_VERSION}"
    has = ", ".join(
        f"{name} is {'missing' if value in (None, '') else repr(value)}"
        for name, value in zip(("apiVersion", "kind"), head, strict=True)
    )
    return f"{allowed}, {mine}; {has}"


def _embedded(root: nodes.Mapping, path: Path, option: str) -> Iterator[nodes.Mapping]:
    inner = root.values.pop(EMBEDDED, None)
    line = root.key_lines.pop(EMBEDDED, root.line)
    if inner is None or (isinstance(inner, nodes.Scalar) and inner.value is None):
        return
    if not isinstance(inner, nodes.Mapping):
        allowed = f"{EMBEDDED}: must be the fields of a {KIND} (line {line})"
        raise ConfigError(option, path, allowed)
    head = head_of(inner)
    if head not in ((None, None), (API_VERSION, KIND)):
        raise ConfigError(option, path, f"{EMBEDDED}: {_expected(head)} (line {line})")
    yield inner
