"""Directories of NFS servers (docs/behaviour/volumes.md, "nfs")."""

from __future__ import annotations

from nodeagent.api import NFSVolumeSource, Volume
from nodeagent.model.volumes import MountedVolume
from nodeagent.volumes.local import unmount_and_remove
from nodeagent.volumes.mounter import MountError, is_mounted
from nodeagent.volumes.plugin import SetUp, TearDown
from nodeagent.volumes.usage import Measure, VolumeUsage, room


class NfsPlugin:
    """Mounted by the system's own program; what is in it is the server's."""

    name = "kubernetes.io/nfs"
    refreshes = False

    def handles(self, volume: Volume) -> bool:
        """Whether it is of an NFS server."""
        return volume.nfs is not None

    async def set_up(self, request: SetUp) -> MountedVolume:
        """Mount it, unless it is."""
        source = request.volume.nfs or NFSVolumeSource()
        await request.threads.run(lambda: _mount(request, source))
        return MountedVolume(
            request.volume.name, str(request.directory), read_only=source.read_only
        )

    async def refresh(self, request: SetUp) -> bool:
        """The server's changes are seen anyway."""
        del request
        return False

    async def measure(self, request: Measure) -> VolumeUsage | None:
        """What its file system takes and has: it may be large, and is not the pod's alone."""
        return await request.usages.in_thread(request.path, room)

    async def tear_down(self, request: TearDown) -> None:
        """Unmount it, and remove the empty directory; never anything that is the server's."""
        await request.threads.run(lambda: unmount_and_remove(request.mounter, request.directory))


def export(source: NFSVolumeSource) -> str:
    """``server:path``, an IPv6 address in brackets. Pure."""
    server = source.server
    if ":" in server and not server.startswith("["):
        server = f"[{server}]"
    return f"{server}:{source.path}"


def _mount(request: SetUp, source: NFSVolumeSource) -> None:
    path = request.directory
    path.mkdir(parents=True, exist_ok=True, mode=0o750)
    if is_mounted(request.mounter, path):
        return
    options = ("ro",) if source.read_only else ()
    try:
        request.mounter.mount_with_helper("nfs", path, source=export(source), options=options)
    except MountError:
        path.rmdir()
        raise
