"""Rules for volume mounts and raw devices of a container."""

from collections.abc import Iterator, Mapping

from nodeagent.api.container import Container, VolumeMount
from nodeagent.api.validation.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_found,
    required,
)
from nodeagent.api.validation.names import (
    backstep_fault,
    check_if_set,
    check_one_of_if_set,
    inner_path_fault,
)
from nodeagent.api.volumes import Volume


def check_mounts(
    path: str, container: Container, volumes: Mapping[str, Volume]
) -> Iterator[FieldError]:
    """Judge the mounts of a container; ``volumes`` are the pod's, by name."""
    device_paths = {device.device_path for device in container.volume_devices}
    seen: set[str] = set()
    for index, mount in enumerate(container.volume_mounts):
        here = f"{path}.volumeMounts[{index}]"
        yield from _check_volume(f"{here}.name", mount.name, volumes)
        if not mount.mount_path:
            yield required(f"{here}.mountPath")
        elif mount.mount_path in seen:
            yield invalid(f"{here}.mountPath", mount.mount_path, "must be unique")
        elif mount.mount_path in device_paths:
            yield invalid(f"{here}.mountPath", mount.mount_path, "is the path of a volume device")
        seen.add(mount.mount_path)
        yield from _check_mount(here, mount, container)


def _check_volume(path: str, name: str, volumes: Mapping[str, Volume]) -> Iterator[FieldError]:
    if not name:
        yield required(path)
    elif name not in volumes:
        yield not_found(path, name, "must be one of spec.volumes")


def _check_mount(path: str, mount: VolumeMount, container: Container) -> Iterator[FieldError]:
    yield from check_if_set(f"{path}.subPath", mount.sub_path, inner_path_fault)
    yield from check_if_set(f"{path}.subPathExpr", mount.sub_path_expr, inner_path_fault)
    if mount.sub_path and mount.sub_path_expr:
        yield invalid(f"{path}.subPathExpr", mount.sub_path_expr, "may not be set with subPath")
    propagation = mount.mount_propagation
    here = f"{path}.mountPropagation"
    yield from check_one_of_if_set(here, propagation, ("None", "HostToContainer", "Bidirectional"))
    context = container.security_context
    if propagation == "Bidirectional" and not (context is not None and context.privileged):
        yield forbidden(here, "Bidirectional needs a privileged container")
    recursive = mount.recursive_read_only
    here = f"{path}.recursiveReadOnly"
    yield from check_one_of_if_set(here, recursive, ("Disabled", "IfPossible", "Enabled"))
    if recursive in ("IfPossible", "Enabled"):
        if not mount.read_only:
            yield forbidden(here, "needs readOnly to be true")
        if propagation not in (None, "None"):
            yield forbidden(here, "needs mountPropagation to be None")


def check_devices(
    path: str, container: Container, volumes: Mapping[str, Volume]
) -> Iterator[FieldError]:
    """Judge the raw block devices of a container."""
    mounted = {mount.name for mount in container.volume_mounts}
    names: set[str] = set()
    paths: set[str] = set()
    for index, device in enumerate(container.volume_devices):
        here = f"{path}.volumeDevices[{index}]"
        yield from _check_volume(f"{here}.name", device.name, volumes)
        if device.name in names:
            yield duplicate(f"{here}.name", device.name)
        elif device.name in mounted:
            yield invalid(f"{here}.name", device.name, "is mounted as a file system, too")
        volume = volumes.get(device.name)
        if volume and not (volume.persistent_volume_claim or volume.ephemeral):
            detail = "must be a persistentVolumeClaim or ephemeral volume"
            yield invalid(f"{here}.name", device.name, detail)
        if not device.device_path:
            yield required(f"{here}.devicePath")
        elif device.device_path in paths:
            yield invalid(f"{here}.devicePath", device.device_path, "must be unique")
        yield from check_if_set(f"{here}.devicePath", device.device_path, backstep_fault)
        names.add(device.name)
        paths.add(device.device_path)
