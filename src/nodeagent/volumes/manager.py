"""Volumes of pods on this host: directories that live with the pod, and host paths.

docs/behaviour/runtime.md, "Volumes".
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from nodeagent.api import Pod, Volume
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import PodUID, SyncError
from nodeagent.model.volumes import MountedVolume
from nodeagent.volumes.empty_dir import EmptyDirPlugin
from nodeagent.volumes.host_path import HostPathPlugin
from nodeagent.volumes.mounter import Mounter, MountError, SystemMounter
from nodeagent.volumes.plugin import PluginRegistry, SetUp, VolumeError, directory_name
from nodeagent.volumes.removal import Removal, remove_tree
from nodeagent.volumes.threads import DiskThreads

FAILED_MOUNT: Final = "FailedMount"
FAILED_UNMOUNT: Final = "FailedUnMount"
FAILED_DIRECTORIES: Final = "Failed"
_LONGEST_FILE_NAME: Final = 255
_POD_SUBDIRECTORIES: Final = ("volumes", "plugins", "containers")


class VolumeManager:
    """Makes pods' directories and volumes, and removes them.

    Everything is idempotent. Work on the disk is done in threads; a path that hangs (a dead
    network file system) fails its pod after ``timeout`` and holds up nobody else.

    Args:
        root_dir: the agent's directory.
        journal: the flight recorder.
        timeout: seconds that mounting a pod's volumes may take.
        plugins: the kinds of volumes; emptyDir and hostPath by default.
        mounter: mounts.
    """

    def __init__(
        self,
        root_dir: Path,
        journal: Journal | None = None,
        *,
        timeout: float = 123.0,
        plugins: PluginRegistry | None = None,
        mounter: Mounter | None = None,
    ) -> None:
        self._root_dir = root_dir
        self._pods = root_dir / "pods"
        self._plugins = plugins or PluginRegistry((EmptyDirPlugin(), HostPathPlugin()))
        self._mounter = mounter or SystemMounter()
        self._threads = DiskThreads()
        self._journal = journal or Journal()
        self._timeout = timeout
        self._log = Log("volumes")
        self._mounted: dict[PodUID, dict[str, MountedVolume]] = {}

    def pod_dir(self, uid: PodUID) -> Path:
        """The pod's directory."""
        if not _is_file_name(uid):
            message = f"pod UID {uid!r} is no file name"
            raise SyncError(message, reason=FAILED_DIRECTORIES)
        return self._pods / uid

    async def make_pod_dirs(self, uid: PodUID) -> None:
        """Make the pod's directories.

        Raises:
            SyncError: with the reason ``Failed``.
        """
        path = self.pod_dir(uid)
        try:
            await to_thread.run_sync(_make_pod_dirs, path)
        except OSError as error:
            message = f"error making pod data directories: {_say(error)}"
            raise SyncError(message, reason=FAILED_DIRECTORIES) from error

    async def mount(self, pod: Pod) -> dict[str, MountedVolume]:
        """Make all volumes of the pod ready; returns them by name.

        Raises:
            SyncError: with the reason ``FailedMount``, naming the volume.
        """
        uid = PodUID(pod.metadata.uid)
        began = anyio.current_time()
        await self.make_pod_dirs(uid)
        current = ""
        mounted: dict[str, MountedVolume] = {}
        try:
            with anyio.fail_after(self._timeout):
                for volume in pod.spec.volumes:
                    current = volume.name
                    mounted[current] = await self._mount(pod, volume)
        except TimeoutError as error:
            message = f'volume "{current}": no answer within {self._timeout:g}s'
            raise SyncError(message, reason=FAILED_MOUNT) from error
        except (VolumeError, MountError, OSError) as error:
            message = f'volume "{current}": {_say(error)}'
            raise SyncError(message, reason=FAILED_MOUNT) from error
        if mounted != self._mounted.get(uid, {}):
            took = anyio.current_time() - began
            self._journal.record(
                "volumes", "VolumesMounted", uid, "", took, volumes=sorted(mounted)
            )
        self._mounted[uid] = mounted
        return dict(mounted)

    async def _mount(self, pod: Pod, volume: Volume) -> MountedVolume:
        plugin = self._plugins.find(volume)
        if plugin is None:
            message = f'volume "{volume.name}": this kind of volume is not supported'
            raise SyncError(message, reason=FAILED_MOUNT)
        pod_dir = self.pod_dir(PodUID(pod.metadata.uid))
        return await plugin.set_up(
            SetUp(
                pod=pod,
                volume=volume,
                root_dir=self._root_dir,
                directory=pod_dir / "volumes" / directory_name(plugin.name) / volume.name,
                mounter=self._mounter,
                threads=self._threads,
            )
        )

    async def unmount(self, uid: PodUID) -> None:
        """Remove the pod's volumes and its directory; nothing to remove is fine.

        Raises:
            SyncError: something is left: a foreign mount, or what could not be removed.
        """
        self._mounted.pop(uid, None)
        if not _is_file_name(uid):
            # Such a pod never got a directory, and must end all the same.
            return
        path = self.pod_dir(uid)
        began = anyio.current_time()
        existed = await to_thread.run_sync(os.path.lexists, path)
        removal: Removal = await to_thread.run_sync(remove_tree, path)
        if not removal.complete:
            raise SyncError(_left(path, removal), reason=FAILED_UNMOUNT)
        if existed:
            took = anyio.current_time() - began
            self._journal.record("volumes", "PodDirectoryRemoved", uid, "", took)

    async def pods_on_disk(self) -> list[PodUID]:
        """The pods that have a directory."""
        return await to_thread.run_sync(_list_directories, self._pods)


def _is_file_name(uid: PodUID) -> bool:
    if uid in ("", ".", "..") or "/" in uid or "\0" in uid:
        return False
    return len(os.fsencode(uid)) <= _LONGEST_FILE_NAME


def _make_pod_dirs(path: Path) -> None:
    for directory in (path.parent, path, *(path / name for name in _POD_SUBDIRECTORIES)):
        directory.mkdir(parents=True, exist_ok=True, mode=0o750)


def _list_directories(path: Path) -> list[PodUID]:
    found: list[PodUID] = []
    with suppress(FileNotFoundError):
        found = sorted(PodUID(e.name) for e in os.scandir(path) if e.is_dir(follow_symlinks=False))
    return found


def _left(path: Path, removal: Removal) -> str:
    parts = [f"{path} is not removed"]
    if removal.mounts:
        parts.append(f"still mounted: {', '.join(removal.mounts)}")
    if removal.failures:
        parts.append("; ".join(removal.failures))
    return ": ".join(parts)


def _say(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
