"""Reading what the variables of a container refer to (docs/behaviour/runtime.md, "Environment")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anyio import to_thread

from nodeagent.api import Container, EnvVarSource, FileKeySelector, Pod
from nodeagent.model import SyncError
from nodeagent.model.volumes import MountedVolume
from nodeagent.runtime.downward import NodeValues
from nodeagent.runtime.env_file import EnvFileError, read_env_file
from nodeagent.runtime.environment import EnvironmentSources
from nodeagent.runtime.errors import ContainerStartError, Waiting
from nodeagent.runtime.lookups import ObjectReader


async def read_sources(
    pod: Pod,
    container: Container,
    ips: tuple[str, ...],
    node: NodeValues,
    objects: ObjectReader,
    volumes: Mapping[str, MountedVolume],
) -> EnvironmentSources:
    """Read every ConfigMap, Secret and file that the container's variables need, each once.

    Raises:
        ContainerStartError: with CreateContainerConfigError, when one cannot be read. One that
            does not exist is no error here.
    """
    namespace = pod.metadata.namespace
    try:
        return EnvironmentSources(
            ips,
            node,
            {
                name: await objects.get_config_map(namespace, name)
                for name in dict.fromkeys(_config_maps(container))
            },
            {
                name: await objects.get_secret(namespace, name)
                for name in dict.fromkeys(_secrets(container))
            },
            {
                (ref.volume_name, ref.path): await _read(ref, volumes)
                for ref in dict.fromkeys(_files(container))
            },
        )
    except SyncError as error:
        raise ContainerStartError(Waiting.CONFIG, str(error)) from error


async def _read(
    ref: FileKeySelector, volumes: Mapping[str, MountedVolume]
) -> Mapping[str, str] | None:
    volume = volumes.get(ref.volume_name)
    if volume is None:
        msg = f'cannot find the volume "{ref.volume_name}" referenced by FileKeyRef'
        raise ContainerStartError(Waiting.CONFIG, msg)
    try:
        return await to_thread.run_sync(read_env_file, volume.host_path, ref.path)
    except (EnvFileError, OSError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        msg = f'couldn\'t parse env file "{ref.path}" of volume "{ref.volume_name}": {cause}'
        raise ContainerStartError(Waiting.CONFIG, msg) from error


def _config_maps(container: Container) -> Iterator[str]:
    yield from (s.config_map_ref.name for s in container.env_from if s.config_map_ref)
    for source in _sources(container):
        if source.config_map_key_ref is not None:
            yield source.config_map_key_ref.name


def _secrets(container: Container) -> Iterator[str]:
    yield from (s.secret_ref.name for s in container.env_from if s.secret_ref)
    for source in _sources(container):
        if source.secret_key_ref is not None:
            yield source.secret_key_ref.name


def _files(container: Container) -> Iterator[FileKeySelector]:
    return (s.file_key_ref for s in _sources(container) if s.file_key_ref is not None)


def _sources(container: Container) -> Iterator[EnvVarSource]:
    return (v.value_from for v in container.env if v.value_from is not None)
