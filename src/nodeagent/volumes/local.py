"""Directories of this node that a persistent volume stands for (docs/behaviour/volumes.md)."""

from __future__ import annotations

from pathlib import Path

from nodeagent.api import Volume
from nodeagent.model.volumes import MountedVolume
from nodeagent.volumes.hand_over import hand_over
from nodeagent.volumes.mounter import Mounter, MountError, is_mounted
from nodeagent.volumes.plugin import SetUp, TearDown, VolumeError
from nodeagent.volumes.usage import Measure, VolumeUsage, room


class LocalPlugin:
    """Local volumes. No pod names one itself: who resolves claims calls :meth:`set_up_path`."""

    name = "kubernetes.io/local-volume"
    refreshes = False

    def handles(self, volume: Volume) -> bool:
        """Pods name none."""
        del volume
        return False

    async def set_up(self, request: SetUp) -> MountedVolume:
        """Pods name none."""
        msg = f'volume "{request.volume.name}" is no local volume'
        raise VolumeError(msg)

    async def set_up_path(
        self, request: SetUp, path: str, *, read_only: bool = False
    ) -> MountedVolume:
        """Show a directory of the node as a volume.

        Args:
            request: whose volume; its directory is one of this plugin.
            path: the directory.
            read_only: whether the pod may only read.

        Raises:
            VolumeError: it is none.
        """
        if ".." in Path(path).parts or not path.startswith("/"):
            msg = f"invalid path: {path} local volume: must be absolute and without '..'"
            raise VolumeError(msg)
        directory = request.directory
        await request.threads.run(lambda: _bind(request.mounter, Path(path), directory, read_only))
        if not read_only:
            await hand_over(request, directory)
        name = request.volume.name
        return MountedVolume(name, str(directory), read_only=read_only, relabel=True)

    async def refresh(self, request: SetUp) -> bool:
        """Nothing follows anything."""
        del request
        return False

    async def measure(self, request: Measure) -> VolumeUsage | None:
        """What its file system takes and has: it may be large, and is not the pod's alone."""
        return await request.usages.in_thread(request.path, room)

    async def tear_down(self, request: TearDown) -> None:
        """Unmount it, and remove the empty directory."""
        await request.threads.run(lambda: unmount_and_remove(request.mounter, request.directory))


def _bind(mounter: Mounter, source: Path, target: Path, read_only: bool) -> None:
    if not source.is_dir():
        msg = f"local volume {source} is not a directory of this node"
        raise VolumeError(msg)
    target.mkdir(parents=True, exist_ok=True, mode=0o750)
    if is_mounted(mounter, target):
        return
    try:
        mounter.bind(source, target, read_only=read_only)
    except MountError:
        target.rmdir()
        raise


def unmount_and_remove(mounter: Mounter, path: Path) -> None:
    """Unmount what is mounted at a path, and remove the directory, which is empty then. Blocking.

    Raises:
        MountError: it is in use.
        OSError: it is not empty: that is not ours to remove.
    """
    if is_mounted(mounter, path):
        mounter.unmount(path)
    if path.exists():
        path.rmdir()
