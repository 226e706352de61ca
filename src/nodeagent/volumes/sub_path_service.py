"""Mounting parts of volumes for containers, as the runtime side asks for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from nodeagent.model import PodUID, SyncError
from nodeagent.model.volumes import MountedVolume
from nodeagent.volumes.mounter import Mounter, MountError
from nodeagent.volumes.sub_paths import SubPathError, bind_sub_path, make_beneath
from nodeagent.volumes.threads import DiskThreads

T = TypeVar("T")

_DEADLINE: Final = 60.0


class SubPathService:
    """Prepares parts of volumes.

    Args:
        pods_dir: where pods have their directories.
        mounter: mounts.
        threads: where blocking work is done.
    """

    def __init__(self, pods_dir: Path, mounter: Mounter, threads: DiskThreads) -> None:
        self._pods_dir = pods_dir
        self._mounter = mounter
        self._threads = threads

    async def make(self, volume: MountedVolume, sub_path: str) -> None:
        """Make the directories of a part of a volume that are missing.

        Raises:
            SyncError: they cannot be made.
        """
        if volume.read_only:
            return
        top = Path(volume.host_path)
        await self._run(lambda: make_beneath(top, sub_path))

    async def prepare(
        self, uid: PodUID, container: str, index: int, volume: MountedVolume, sub_path: str
    ) -> str:
        """Mount a part of a volume where containers cannot change what it is.

        Args:
            uid: the pod.
            container: the container.
            index: place of the mount among those of the container.
            volume: the volume.
            sub_path: relative to it; checked to have no ``..``.

        Returns:
            The path to mount in the container.

        Raises:
            SyncError: it does not exist, leads out of the volume, or cannot be mounted.
        """
        top, pod_dir = Path(volume.host_path), self._pods_dir / uid
        place = (volume.name, container, index)
        return str(
            await self._run(lambda: bind_sub_path(self._mounter, pod_dir, top, place, sub_path))
        )

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await self._threads.run(work, _DEADLINE)
        except TimeoutError:
            msg = f"the volume does not answer within {_DEADLINE:g}s"
            raise SyncError(msg) from None
        except OSError as error:
            raise SyncError(error.strerror or str(error)) from error
        except (SubPathError, MountError) as error:
            raise SyncError(str(error)) from error
