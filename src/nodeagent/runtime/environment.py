"""The environment, command and arguments of a container. Pure, given what was read."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeagent.api import (
    ConfigMapKeySelector,
    Container,
    EnvFromSource,
    EnvVarSource,
    FileKeySelector,
    Pod,
    SecretKeySelector,
)
from nodeagent.model.expansion import expand
from nodeagent.runtime.downward import NO_NODE, NodeValues, field_value, resource_value
from nodeagent.runtime.env_file import MAX_KEY, MAX_VALUE
from nodeagent.runtime.errors import ContainerStartError, Waiting


@dataclass(frozen=True, slots=True)
class EnvironmentSources:
    """Everything that variables can come from beside the spec.

    Attributes:
        ips: the pod's addresses as the runtime gives them.
        node: the node.
        config_maps: by name; None for one that does not exist.
        secrets: by name; None for one that does not exist.
        files: by volume and path; None for one that does not exist.
        services: variables that tell where services are.
    """

    ips: tuple[str, ...] = ()
    node: NodeValues = NO_NODE
    config_maps: Mapping[str, Mapping[str, str] | None] = field(default_factory=dict)
    secrets: Mapping[str, Mapping[str, bytes] | None] = field(default_factory=dict)
    files: Mapping[tuple[str, str], Mapping[str, str] | None] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)


NO_SOURCES = EnvironmentSources()


def build_environment(
    pod: Pod, container: Container, sources: EnvironmentSources = NO_SOURCES
) -> dict[str, str]:
    """The container's variables by name (docs/behaviour/runtime.md, "Environment").

    A value may refer to variables that stand before it, and to those of services. A name that is
    given twice has its last value.

    Args:
        pod: the pod.
        container: whose environment.
        sources: what it refers to.

    Raises:
        ContainerStartError: with CreateContainerConfigError, when something that it needs
            does not exist.
    """
    services = dict(sources.services)
    try:
        result = _from_objects(container, sources)
        for variable in container.env:
            if variable.value_from is None:
                known = ChainMap(result, services)
                result[variable.name] = expand(variable.value, known.get)
                continue
            value = _referred(pod, container, variable.value_from, sources)
            if value is not None:
                result[variable.name] = value
    except ValueError as error:
        raise ContainerStartError(Waiting.CONFIG, str(error)) from error
    return {**services, **result}


def _from_objects(container: Container, sources: EnvironmentSources) -> dict[str, str]:
    result: dict[str, str] = {}
    for source in container.env_from:
        for key, value in _whole(source, sources).items():
            result[source.prefix + key] = value
    return result


def _whole(source: EnvFromSource, sources: EnvironmentSources) -> Mapping[str, str]:
    if source.config_map_ref is not None:
        name = source.config_map_ref.name
        found = sources.config_maps.get(name)
        if found is None and not source.config_map_ref.optional:
            raise ValueError(_missing("configmap", name))
        return found or {}
    if source.secret_ref is not None:
        name = source.secret_ref.name
        values = sources.secrets.get(name)
        if values is None and not source.secret_ref.optional:
            raise ValueError(_missing("secret", name))
        return {key: _text(value) for key, value in (values or {}).items()}
    return {}


def _referred(
    pod: Pod, container: Container, source: EnvVarSource, sources: EnvironmentSources
) -> str | None:
    """The value, or None for a variable that is left out."""
    if source.field_ref is not None:
        return field_value(pod, source.field_ref.field_path, sources.ips, sources.node)
    if source.resource_field_ref is not None:
        return resource_value(pod, container, source.resource_field_ref, sources.node)
    namespace = pod.metadata.namespace
    if source.config_map_key_ref is not None:
        return _of_config_map(source.config_map_key_ref, namespace, sources)
    if source.secret_key_ref is not None:
        return _of_secret(source.secret_key_ref, namespace, sources)
    if source.file_key_ref is not None:
        return _of_file(source.file_key_ref, sources)
    return ""


def _of_config_map(
    ref: ConfigMapKeySelector, namespace: str, sources: EnvironmentSources
) -> str | None:
    found = sources.config_maps.get(ref.name)
    if found is not None and ref.key in found:
        return found[ref.key]
    if ref.optional:
        return None
    if found is None:
        raise ValueError(_missing("configmap", ref.name))
    raise ValueError(_no_key(ref.key, "ConfigMap", namespace, ref.name))


def _of_secret(ref: SecretKeySelector, namespace: str, sources: EnvironmentSources) -> str | None:
    found = sources.secrets.get(ref.name)
    if found is not None and ref.key in found:
        return _text(found[ref.key])
    if ref.optional:
        return None
    if found is None:
        raise ValueError(_missing("secret", ref.name))
    raise ValueError(_no_key(ref.key, "Secret", namespace, ref.name))


def _of_file(ref: FileKeySelector, sources: EnvironmentSources) -> str | None:
    where = f'file "{ref.path}" of volume "{ref.volume_name}"'
    if len(ref.key) > MAX_KEY:
        msg = f"environment variable key of {len(ref.key)} characters, {MAX_KEY} are allowed"
        raise ValueError(msg)
    found = sources.files.get((ref.volume_name, ref.path))
    value = found.get(ref.key) if found is not None else None
    if value is None:
        if ref.optional:
            return None
        what = f'key "{ref.key}" not found in' if found is not None else "there is no"
        msg = f"environment variable: {what} {where}"
        raise ValueError(msg)
    if len(value.encode(errors="surrogateescape")) > MAX_VALUE:
        msg = f'value of key "{ref.key}" in {where} is longer than {MAX_VALUE} bytes'
        raise ValueError(msg)
    return value


def _missing(kind: str, name: str) -> str:
    return f'{kind} "{name}" not found'


def _no_key(key: str, kind: str, namespace: str, name: str) -> str:
    return f"couldn't find key {key} in {kind} {namespace}/{name}"


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def expand_all(words: tuple[str, ...], environment: Mapping[str, str]) -> list[str]:
    """Command or arguments with their references to variables replaced."""
    return [expand(word, environment.get) for word in words]
