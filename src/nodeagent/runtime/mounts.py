"""The mounts of a container (docs/behaviour/volumes.md, "subPath", "Mounts")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nodeagent.api import Container, VolumeMount
from nodeagent.model import PodUID, SyncError
from nodeagent.model.expansion import expand
from nodeagent.model.volumes import MountedVolume
from nodeagent.proto.runtime import v1
from nodeagent.runtime.errors import ContainerStartError, Waiting
from nodeagent.runtime.lookups import SubPaths

ETC_HOSTS: Final = "/etc/hosts"
_PROPAGATION: Final = {
    "HostToContainer": v1.MountPropagation.PROPAGATION_HOST_TO_CONTAINER,
    "Bidirectional": v1.MountPropagation.PROPAGATION_BIDIRECTIONAL,
}
_PRIVATE: Final = v1.MountPropagation.PROPAGATION_PRIVATE


@dataclass(frozen=True, slots=True)
class ManagedFiles:
    """Files that the agent makes for a container; None where there is none."""

    etc_hosts: Path | None = None
    termination_log: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MountInputs:
    """What mounts are made from, besides the container's spec.

    Attributes:
        volumes: the pod's volumes by name.
        sub_paths: the path to mount, by place of the mount, where that is no whole volume.
        images: what the runtime calls the images that are volumes, by volume.
        recursive_read_only: whether the handler can make what is mounted below read-only, too.
    """

    volumes: Mapping[str, MountedVolume] = field(default_factory=dict)
    sub_paths: Mapping[int, str] = field(default_factory=dict)
    images: Mapping[str, v1.ImageSpec] = field(default_factory=dict)
    recursive_read_only: bool = False


def sub_path_of(mount: VolumeMount, environment: Mapping[str, str]) -> str:
    """The part of a volume that a mount shows; "" for all of it. Pure.

    Raises:
        ContainerStartError: it refers to a variable without a value, or cannot be one.
    """
    path = mount.sub_path
    if mount.sub_path_expr:
        path = _expanded(mount.sub_path_expr, environment)
    if path.startswith("/"):
        msg = f"error SubPath `{path}` must not be an absolute path"
        raise _wrong(msg)
    if ".." in path.split("/"):
        msg = f"unable to provision SubPath `{path}`: must not contain '..'"
        raise _wrong(msg)
    return path


def _expanded(expression: str, environment: Mapping[str, str]) -> str:
    missing: list[str] = []

    def value(name: str) -> str | None:
        found = environment.get(name)
        if not found and name not in missing:
            missing.append(name)
        return found

    path = expand(expression, value)
    if missing:
        msg = f"missing value for {', '.join(missing)}"
        raise _wrong(msg)
    return path


async def prepare_sub_paths(
    uid: PodUID,
    container: Container,
    volumes: Mapping[str, MountedVolume],
    environment: Mapping[str, str],
    service: SubPaths,
) -> dict[int, str]:
    """Have the parts of volumes mounted that a container asks for; paths by place of the mount.

    Raises:
        ContainerStartError: with CreateContainerConfigError.
    """
    prepared = {}
    for index, mount in enumerate(container.volume_mounts):
        sub_path = sub_path_of(mount, environment)
        volume = _volume(container, mount, volumes)
        if not sub_path or volume.image:
            continue
        where = f'volumeMount "{mount.name}" of container "{container.name}"'
        try:
            await service.make(volume, sub_path)
        except SyncError as error:
            msg = f"failed to create subPath directory for {where}"
            raise _wrong(msg, error) from error
        try:
            path = await service.prepare(uid, container.name, index, volume, sub_path)
        except SyncError as error:
            msg = f"failed to prepare subPath for {where}"
            raise _wrong(msg, error) from error
        prepared[index] = path
    return prepared


def build_mounts(
    container: Container,
    inputs: MountInputs,
    files: ManagedFiles,
    userns: v1.UserNamespace | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[v1.Mount]:
    """The container's mounts: its volumes, then the hosts file, then the termination log.

    With a user namespace all of them show its ids. Pure.

    Raises:
        ContainerStartError: with CreateContainerConfigError, when one cannot be made.
    """
    mounts = [
        _volume_mount(container, index, inputs, environment or {})
        for index in range(len(container.volume_mounts))
    ]
    taken = {mount.container_path for mount in mounts}
    if files.etc_hosts is not None and ETC_HOSTS not in taken:
        mounts.append(_managed(ETC_HOSTS, files.etc_hosts))
    if files.termination_log is not None:
        mounts.append(_managed(container.termination_message_path, files.termination_log))
    if userns is not None:
        for one in mounts:
            one.uid_mappings, one.gid_mappings = userns.uids, userns.gids
    return mounts


def _managed(container_path: str, host_path: Path) -> v1.Mount:
    # It lies among the agent's files: with SELinux the container may touch it only once relabelled.
    return v1.Mount(container_path=container_path, host_path=str(host_path), selinux_relabel=True)


def _volume_mount(
    container: Container, index: int, inputs: MountInputs, environment: Mapping[str, str]
) -> v1.Mount:
    mount = container.volume_mounts[index]
    volume = _volume(container, mount, inputs.volumes)
    made = v1.Mount(
        container_path="/" + mount.mount_path.lstrip("/"),
        host_path=inputs.sub_paths.get(index, volume.host_path),
        readonly=mount.read_only or volume.read_only,
        propagation=_PROPAGATION.get(mount.mount_propagation or "", _PRIVATE),
        recursive_read_only=_is_recursive(mount, inputs.recursive_read_only),
        selinux_relabel=volume.relabel,
    )
    if volume.image:
        made.host_path, made.readonly = "", True
        made.image = inputs.images.get(mount.name)
        made.image_sub_path = sub_path_of(mount, environment)
    return made


def _volume(
    container: Container, mount: VolumeMount, volumes: Mapping[str, MountedVolume]
) -> MountedVolume:
    volume = volumes.get(mount.name)
    if volume is None:
        says = f'cannot find volume "{mount.name}" to mount into container "{container.name}"'
        raise _wrong(says)
    return volume


def _is_recursive(mount: VolumeMount, supported: bool) -> bool:
    wanted = mount.recursive_read_only or "Disabled"
    if wanted == "Disabled":
        return False
    if wanted == "IfPossible":
        return supported
    if wanted != "Enabled":
        msg = f'unknown recursive read-only mode "{wanted}"'
        raise _wrong(msg)
    if not mount.read_only:
        says = "requested recursive read-only mode, but it is not read-only"
        msg = f'volume "{mount.name}" {says}'
        raise _wrong(msg)
    if mount.mount_propagation not in (None, "", "None"):
        says = "requested recursive read-only mode, but it is not compatible with propagation"
        msg = f'volume "{mount.name}" {says} {mount.mount_propagation}'
        raise _wrong(msg)
    if not supported:
        says = "requested recursive read-only mode, but it is not supported by the runtime"
        msg = f'volume "{mount.name}" {says}'
        raise _wrong(msg)
    return True


def _wrong(text: str, cause: SyncError | None = None) -> ContainerStartError:
    message = text if cause is None else f"{text}: {cause}"
    return ContainerStartError(Waiting.CONFIG, message)
