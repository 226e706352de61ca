"""The devices of a container: its volumes that are no file systems. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodeagent.api import Container
from nodeagent.model.volumes import MountedVolume
from nodeagent.proto.runtime import v1
from nodeagent.runtime.errors import ContainerStartError, Waiting


def build_devices(container: Container, volumes: Mapping[str, MountedVolume]) -> list[v1.Device]:
    """The container's devices.

    Raises:
        ContainerStartError: with CreateContainerConfigError, when there is no such volume.
    """
    devices = []
    for wanted in container.volume_devices:
        volume = volumes.get(wanted.name)
        if volume is None or not volume.block:
            says = f'cannot find volume "{wanted.name}" to pass into container "{container.name}"'
            raise ContainerStartError(Waiting.CONFIG, says)
        devices.append(
            v1.Device(
                container_path=wanted.device_path,
                host_path=volume.host_path,
                permissions="r" if volume.read_only else "mrw",
            )
        )
    return devices


def volume_groups(volumes: Iterable[MountedVolume]) -> list[int]:
    """Groups that a pod's processes need to use its volumes."""
    return sorted({group for volume in volumes for group in volume.groups})
