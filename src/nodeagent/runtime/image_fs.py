"""How full the file system is on which the runtime keeps images."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import anyio
from anyio import to_thread

from nodeagent.proto.runtime import v1
from nodeagent.rpc import RpcError

_TIMEOUT: Final = 30.0


class ImageFsService(Protocol):
    """The part of :class:`nodeagent.cri.ImageService` that tells where images lie."""

    async def image_fs_info(self) -> v1.ImageFsInfoResponse:
        """How much space images and containers take, and where."""
        ...


@dataclass(frozen=True, slots=True)
class FsUsage:
    """A file system, in bytes.

    Attributes:
        mountpoint: a directory of it.
        capacity: its size.
        available: what an ordinary user may still write.
        used: what is taken.
    """

    mountpoint: str
    capacity: int
    available: int
    used: int


Statvfs = Callable[[str], os.statvfs_result]


class ImageFilesystem:
    """Asks the runtime where images lie, and the kernel how full it is there.

    Args:
        images: the image service.
        statvfs: asks the kernel; blocking.
    """

    def __init__(self, images: ImageFsService, statvfs: Statvfs = os.statvfs) -> None:
        self._images = images
        self._statvfs = statvfs

    async def usage(self) -> FsUsage:
        """How it is now.

        Raises:
            RpcError: the runtime does not say.
            OSError: the kernel does not.
        """
        reply = await self._images.image_fs_info()
        places = [fs.fs_id.mountpoint for fs in reply.image_filesystems if fs.fs_id is not None]
        if not places or not places[0] or "\0" in places[0]:
            raise FileNotFoundError(2, "the runtime does not say where it keeps images")
        with anyio.fail_after(_TIMEOUT):
            # A disk that hangs must not hold up the agent: the thread is left behind instead.
            found = await to_thread.run_sync(self._statvfs, places[0], abandon_on_cancel=True)
        return FsUsage(
            places[0],
            capacity=found.f_blocks * found.f_frsize,
            available=min(found.f_bavail, found.f_blocks) * found.f_frsize,
            used=(found.f_blocks - found.f_bfree) * found.f_frsize,
        )

    async def used_bytes(self) -> int | None:
        """What is taken; None when nobody can say."""
        try:
            return (await self.usage()).used
        except (RpcError, OSError):
            return None
