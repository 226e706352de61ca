"""emptyDir volumes: on disk, in memory, or on huge pages (docs/behaviour/volumes.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from nodeagent.api import EmptyDirVolumeSource, Pod, Quantity, Volume
from nodeagent.api.aggregate import aggregate
from nodeagent.model.volumes import MountedVolume
from nodeagent.volumes.mounter import Mounter, MountError, is_mounted
from nodeagent.volumes.objects import nothing_allocatable
from nodeagent.volumes.ownership import set_group
from nodeagent.volumes.plugin import SetUp, TearDown, VolumeError, directory_name
from nodeagent.volumes.removal import Removal, remove_tree

NAME: Final = "kubernetes.io/empty-dir"
MEMORY: Final = "Memory"
HUGE_PAGES: Final = "HugePages"
_RESOURCE: Final = "hugepages-"
_OPEN_TO_ALL: Final = 0o777


class EmptyDirPlugin:
    """Directories that live as long as their pod.

    Args:
        allocatable: what of the node pods may have; None for all that it has.
    """

    name = NAME
    refreshes = False

    def __init__(
        self, allocatable: Callable[[], Mapping[str, Quantity] | None] = nothing_allocatable
    ) -> None:
        self._allocatable = allocatable

    def handles(self, volume: Volume) -> bool:
        """Whether it is an emptyDir."""
        return volume.empty_dir is not None

    async def set_up(self, request: SetUp) -> MountedVolume:
        """Make the directory, or find that it is there."""
        source = request.volume.empty_dir or EmptyDirVolumeSource()
        mount = self._mount(request.pod, source)
        await request.threads.run(lambda: _make(request, mount))
        return MountedVolume(request.volume.name, str(request.directory), relabel=True)

    async def refresh(self, request: SetUp) -> bool:
        """Nothing follows anything."""
        del request
        return False

    async def tear_down(self, request: TearDown) -> None:
        """Remove the directory, its content, and what was mounted for it."""
        await request.threads.run(lambda: _remove(request))

    def _mount(self, pod: Pod, source: EmptyDirVolumeSource) -> tuple[str, list[str]] | None:
        """The file system to mount and its options; None for a plain directory."""
        if not source.medium:
            return None
        if source.medium == MEMORY:
            size = memory_size(pod, source, self._allocatable())
            return "tmpfs", [f"size={size}"] if size else []
        if source.medium.startswith(HUGE_PAGES):
            return "hugetlbfs", [f"pagesize={page_size(pod, source.medium)}"]
        msg = f'unknown storage medium "{source.medium}"'
        raise VolumeError(msg)


def memory_size(
    pod: Pod, source: EmptyDirVolumeSource, allocatable: Mapping[str, Quantity] | None
) -> int:
    """Bytes that a directory in memory may take: the least of what is known; 0 for no bound."""
    bounds = [
        (allocatable or {}).get("memory"),
        _pod_limit(pod),
        source.size_limit,
    ]
    return min((q.value() for q in bounds if q is not None and q.value() > 0), default=0)


def _pod_limit(pod: Pod) -> Quantity | None:
    level = pod.spec.resources
    own = level.limits.get("memory") if level is not None else None
    return own or aggregate(pod.spec, "limits").get("memory")


def page_size(pod: Pod, medium: str) -> str:
    """The size of the huge pages that a medium stands for (``2Mi``).

    Raises:
        VolumeError: the containers ask for none, for several sizes, or for another one.
    """
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    asked = {
        name.removeprefix(_RESOURCE)
        for container in containers
        for name in (*container.resources.requests, *container.resources.limits)
        if name.startswith(_RESOURCE)
    }
    if not asked:
        msg = (
            f"medium {medium}: hugePages storage requested, "
            "but there is no resource request for huge pages"
        )
        raise VolumeError(msg)
    if medium == HUGE_PAGES:
        if len(asked) > 1:
            msg = "medium: HugePages can't be used if container requests multiple huge page sizes"
            raise VolumeError(msg)
        return asked.pop()
    suffix = medium.removeprefix(f"{HUGE_PAGES}-")
    for size in asked:
        if _same_size(size, suffix):
            return size
    msg = f"medium {medium}: no container requests huge pages of that size"
    raise VolumeError(msg)


def _same_size(one: str, other: str) -> bool:
    try:
        return Quantity(one) == Quantity(other)
    except ValueError:
        return False


def _ready(request: SetUp | TearDown, name: str) -> Path:
    return request.pod_dir / "plugins" / directory_name(NAME) / name / "ready"


def _make(request: SetUp, mount: tuple[str, list[str]] | None) -> None:
    path, ready = request.directory, _ready(request, request.volume.name)
    path.mkdir(parents=True, exist_ok=True, mode=0o750)
    missing = mount is not None and not is_mounted(request.mounter, path)
    if ready.exists() and not missing:
        return
    if mount is not None and missing:
        fs_type, options = mount
        if fs_type == "tmpfs":
            mount_memory(request.mounter, path, options)
        else:
            request.mounter.mount(fs_type, path, source=fs_type, options=options)
    if path.stat().st_mode & 0o7777 != _OPEN_TO_ALL:
        path.chmod(_OPEN_TO_ALL)
    if (group := request.ownership.fs_group) is not None:
        mismatch = request.ownership.on_root_mismatch
        set_group(path, group, on_root_mismatch=mismatch)
    ready.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
    ready.touch(mode=0o640)


def mount_memory(mounter: Mounter, path: Path, options: Sequence[str] = ()) -> None:
    """Mount a file system in memory, which is never swapped where the kernel can do that.

    Raises:
        MountError: it cannot be mounted.
    """
    try:
        # What is in memory must not come to lie on a disk; kernels before 6.4 cannot do that.
        mounter.mount("tmpfs", path, source="tmpfs", options=[*options, "noswap"])
    except MountError:
        mounter.mount("tmpfs", path, source="tmpfs", options=options)


def _remove(request: TearDown) -> None:
    if is_mounted(request.mounter, request.directory):
        request.mounter.unmount(request.directory)
    _expect_gone(remove_tree(request.directory))
    _expect_gone(remove_tree(_ready(request, request.name).parent))


def _expect_gone(removal: Removal) -> None:
    if removal.mounts:
        msg = f"still mounted: {', '.join(removal.mounts)}"
        raise VolumeError(msg)
    if removal.failures:
        raise VolumeError("; ".join(removal.failures))
