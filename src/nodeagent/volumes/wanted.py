"""Which volumes of a pod are needed, and whom their files belong to. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.api import Container, Pod, Volume
from nodeagent.volumes.plugin import Ownership


def needed_volumes(pod: Pod) -> list[Volume]:
    """The volumes that a container mounts, has as a device, or reads variables from."""
    used = {name for container in _containers(pod) for name in _used(container)}
    return [volume for volume in pod.spec.volumes if volume.name in used]


def _containers(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.init_containers
    yield from pod.spec.containers
    yield from pod.spec.ephemeral_containers


def _used(container: Container) -> Iterator[str]:
    yield from (mount.name for mount in container.volume_mounts)
    yield from (device.name for device in container.volume_devices)
    for variable in container.env:
        source = variable.value_from
        if source is not None and source.file_key_ref is not None:
            yield source.file_key_ref.volume_name


def ownership(pod: Pod) -> Ownership:
    """Whom the files of the pod's volumes shall belong to."""
    context = pod.spec.security_context
    if context is None:
        return Ownership(fs_user=_common_user(pod, None))
    return Ownership(
        fs_group=context.fs_group,
        fs_user=_common_user(pod, context.run_as_user),
        on_root_mismatch=context.fs_group_change_policy == "OnRootMismatch",
    )


def _common_user(pod: Pod, of_pod: int | None) -> int | None:
    """The one user that all containers run as; None when there is none, or when it is open."""
    users = set()
    for container in _containers(pod):
        own = container.security_context.run_as_user if container.security_context else None
        users.add(of_pod if own is None else own)
    return users.pop() if len(users) == 1 else None
