"""Rules for environment variables."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from nodeagent.api.env import (
    ConfigMapKeySelector,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    FileKeySelector,
    ObjectFieldSelector,
    ResourceFieldSelector,
    SecretKeySelector,
)
from nodeagent.api.quantity import Quantity
from nodeagent.api.validation.errors import (
    FieldError,
    forbidden,
    invalid,
    not_found,
    required,
    unsupported,
)
from nodeagent.api.validation.names import (
    check,
    check_if_set,
    check_set,
    config_key_fault,
    env_name_fault,
    inner_path_fault,
    qualified_name_fault,
    subdomain_fault,
)
from nodeagent.api.volumes import Volume

_ENV_FIELDS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_VOLUME_FIELDS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.labels",
    "metadata.annotations",
)
_KEYED_FIELD: Final = re.compile(r"(metadata\.(?:labels|annotations))\['(.*)'\]", re.DOTALL)
_DIVISORS: Final = {
    "cpu": ("1m", "1"),
    "memory": ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"),
}


def check_env(
    path: str, variables: tuple[EnvVar, ...], volumes: Mapping[str, Volume]
) -> Iterator[FieldError]:
    """Judge the variables of a container; ``volumes`` are the pod's, by name."""
    for index, variable in enumerate(variables):
        here = f"{path}[{index}]"
        yield from check(f"{here}.name", variable.name, env_name_fault)
        if variable.value_from is not None:
            yield from _check_source(f"{here}.valueFrom", variable, variable.value_from, volumes)


def _check_source(
    path: str, variable: EnvVar, source: EnvVarSource, volumes: Mapping[str, Volume]
) -> Iterator[FieldError]:
    given = [name for name in source.__struct_fields__ if getattr(source, name) is not None]
    if not given:
        yield invalid(path, "", f"needs one of {', '.join(source.__struct_encode_fields__)}")
    elif variable.value:
        yield invalid(path, "", "may not be set when value is set")
    elif len(given) > 1:
        yield invalid(path, "", "may not have more than one source")
    if source.field_ref is not None:
        yield from check_field_ref(f"{path}.fieldRef", source.field_ref)
    if source.resource_field_ref is not None:
        yield from check_resource_ref(f"{path}.resourceFieldRef", source.resource_field_ref)
    if source.config_map_key_ref is not None:
        yield from _check_key(f"{path}.configMapKeyRef", source.config_map_key_ref)
    if source.secret_key_ref is not None:
        yield from _check_key(f"{path}.secretKeyRef", source.secret_key_ref)
    if source.file_key_ref is not None:
        yield from _check_file_key(f"{path}.fileKeyRef", source.file_key_ref, volumes)


def check_field_ref(
    path: str, selector: ObjectFieldSelector, *, in_volume: bool = False
) -> Iterator[FieldError]:
    """Judge a reference to a field of the pod, in a variable or in a volume's file."""
    if not selector.api_version:
        yield required(f"{path}.apiVersion")
    elif selector.api_version != "v1":
        yield unsupported(f"{path}.apiVersion", selector.api_version, ("v1",))
    here, field_path = f"{path}.fieldPath", selector.field_path
    allowed = _VOLUME_FIELDS if in_volume else _ENV_FIELDS
    if not field_path:
        yield required(here)
    elif match := _KEYED_FIELD.fullmatch(field_path):
        # Annotation keys may be written in capitals; label keys are compared as they are.
        key = match[2].lower() if match[1] == "metadata.annotations" else match[2]
        if fault := qualified_name_fault(key):
            yield invalid(here, field_path, f"its key {fault}")
    elif field_path not in allowed:
        keyed = ("metadata.labels['<key>']", "metadata.annotations['<key>']")
        yield unsupported(here, field_path, (*allowed, *keyed))


def check_resource_ref(
    path: str, selector: ResourceFieldSelector, *, in_volume: bool = False
) -> Iterator[FieldError]:
    """Judge a reference to a container's resource; a volume must say which container."""
    if in_volume:
        yield from check_set(f"{path}.containerName", selector.container_name)
    here, resource = f"{path}.resource", selector.resource
    kind, _, name = resource.partition(".")
    known = name in ("cpu", "memory", "ephemeral-storage") or name.startswith("hugepages-")
    if not resource:
        yield required(here)
    elif kind not in ("limits", "requests") or not known:
        resources = ("cpu", "memory", "ephemeral-storage", "hugepages-<size>")
        allowed = [f"{side}.{each}" for side in ("limits", "requests") for each in resources]
        yield unsupported(here, resource, allowed)
    elif selector.divisor:
        divisors = _DIVISORS["cpu" if name == "cpu" else "memory"]
        if selector.divisor not in map(Quantity, divisors):
            yield unsupported(f"{path}.divisor", str(selector.divisor), divisors)


def _check_key(
    path: str, selector: ConfigMapKeySelector | SecretKeySelector
) -> Iterator[FieldError]:
    yield from check(f"{path}.name", selector.name, subdomain_fault)
    yield from check(f"{path}.key", selector.key, config_key_fault)


def _check_file_key(
    path: str, selector: FileKeySelector, volumes: Mapping[str, Volume]
) -> Iterator[FieldError]:
    yield from check(f"{path}.key", selector.key, env_name_fault)
    yield from check(f"{path}.path", selector.path, inner_path_fault)
    here, name = f"{path}.volumeName", selector.volume_name
    if not name:
        yield required(here)
    elif name not in volumes:
        yield not_found(here, name, "must be one of spec.volumes")
    elif volumes[name].empty_dir is None:
        yield invalid(here, name, "must be an emptyDir volume")


def check_env_from(path: str, sources: tuple[EnvFromSource, ...]) -> Iterator[FieldError]:
    """Judge the ConfigMaps and Secrets that a container takes all its variables from."""
    for index, source in enumerate(sources):
        here = f"{path}[{index}]"
        yield from check_if_set(f"{here}.prefix", source.prefix, env_name_fault)
        if source.config_map_ref is None and source.secret_ref is None:
            yield invalid(here, "", "needs one of configMapRef, secretRef")
        if source.config_map_ref is not None:
            yield from check(
                f"{here}.configMapRef.name", source.config_map_ref.name, subdomain_fault
            )
        if source.secret_ref is not None:
            yield from check(f"{here}.secretRef.name", source.secret_ref.name, subdomain_fault)
            if source.config_map_ref is not None:
                yield forbidden(f"{here}.secretRef", "may not have more than one source")
