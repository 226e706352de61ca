"""Volumes whose files follow objects, tokens and fields of the pod.

docs/behaviour/volumes.md, "Content". One plugin class for the four kinds: they differ in what
they are made of, and in whether that lies on the disk or in memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.api import Volume
from nodeagent.log import Log
from nodeagent.model import SyncError
from nodeagent.model.volumes import MountedVolume
from nodeagent.volumes.atomic_writer import (
    Payload,
    PayloadError,
    clean_payload,
    has_payload,
    write_payload,
)
from nodeagent.volumes.content import Files
from nodeagent.volumes.empty_dir import mount_memory
from nodeagent.volumes.mounter import MountError, is_mounted
from nodeagent.volumes.objects import NO_CLIENT
from nodeagent.volumes.ownership import set_group
from nodeagent.volumes.plugin import SetUp, TearDown, VolumeError
from nodeagent.volumes.removal import remove_tree

log = Log("volumes")

_OPEN_TO_ALL: Final = 0o777


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a volume is made of, read but not yet put together.

    Attributes:
        inputs: all that was read; equal inputs make equal files.
        files: puts the files together; may take long for large objects, so it is done in a
            thread. Raises ``PayloadError``.
    """

    inputs: tuple[object, ...]
    files: Callable[[], Files]


class _UnknownError(VolumeError):
    """Nobody can tell now what belongs into a volume."""


Gather = Callable[[SetUp], Awaitable[Gathered]]
"""Reads what a volume is made of. Raises ``SyncError`` or ``PayloadError``."""


class ContentPlugin:
    """Files written in one step, and again when what they come from has changed.

    Args:
        name: ``kubernetes.io/configmap`` ...
        word: what the volume is called in messages.
        handles: whether a volume is of this kind.
        gather: reads what it is made of.
        in_memory: whether the files lie in memory and never on a disk.
    """

    refreshes = True

    def __init__(
        self,
        name: str,
        word: str,
        handles: Callable[[Volume], bool],
        gather: Gather,
        *,
        in_memory: bool,
    ) -> None:
        self.name = name
        self._word = word
        self._handles = handles
        self._gather = gather
        self._in_memory = in_memory
        # What each volume was last made of. Objects are shared with whoever gave them.
        self._written: dict[Hashable, tuple[object, ...]] = {}

    def handles(self, volume: Volume) -> bool:
        """Whether a volume is of this kind."""
        return self._handles(volume)

    async def set_up(self, request: SetUp) -> MountedVolume:
        """Read, then mount, then write; what fails leaves nothing behind.

        While nobody can tell what belongs there, what an earlier agent wrote for the pod will do.
        """
        key = (request.uid, request.volume.name)
        self._written.pop(key, None)
        path = str(request.directory)
        mounted = MountedVolume(request.volume.name, path, read_only=True, relabel=True)
        try:
            gathered = await self._read(request)
        except _UnknownError as error:
            if not await request.threads.run(lambda: self._stands(request)):
                raise
            log.info(
                "volume_kept_as_it_is",
                pod=request.uid,
                volume=request.volume.name,
                cause=str(error),
            )
            return mounted
        await request.threads.run(lambda: self._make(request, gathered))
        self._written[key] = gathered.inputs
        return mounted

    def _stands(self, request: SetUp) -> bool:
        """Whether the whole content lies there, as it once was."""
        path = request.directory
        if self._in_memory and not is_mounted(request.mounter, path):
            return False
        return has_payload(path)

    async def refresh(self, request: SetUp) -> bool:
        """Write again what has changed."""
        key = (request.uid, request.volume.name)
        gathered = await self._read(request)
        if self._written.get(key) == gathered.inputs:
            return False
        written = await request.threads.run(lambda: self._write(request, self._payload(gathered)))
        self._written[key] = gathered.inputs
        return written

    async def tear_down(self, request: TearDown) -> None:
        """Unmount and remove."""
        self._written.pop((request.uid, request.name), None)
        await request.threads.run(lambda: _remove(request))

    async def _read(self, request: SetUp) -> Gathered:
        name = request.volume.name
        try:
            return await self._gather(request)
        except SyncError as error:
            if str(error) == NO_CLIENT:
                msg = f"cannot setup {self._word} volume {name} because {NO_CLIENT}"
                raise VolumeError(msg) from error
            raise _UnknownError(str(error)) from error
        except PayloadError as error:
            raise VolumeError(str(error)) from error

    def _make(self, request: SetUp, gathered: Gathered) -> None:
        payload = self._payload(gathered)
        path = request.directory
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o750)
            if self._in_memory and not is_mounted(request.mounter, path):
                mount_memory(request.mounter, path)
            if path.stat().st_mode & 0o7777 & ~0o2000 != _OPEN_TO_ALL:
                path.chmod(_OPEN_TO_ALL)
            self._write(request, payload)
        except MountError:
            # Secret files must not come to lie on the disk below.
            path.rmdir()
            raise

    def _payload(self, gathered: Gathered) -> Payload:
        try:
            return clean_payload(gathered.files())
        except PayloadError as error:
            raise VolumeError(str(error)) from error

    def _write(self, request: SetUp, payload: Payload) -> bool:
        group = request.ownership.fs_group
        prepare: Callable[[Path], None] | None = None
        if group is not None:
            directory = request.directory
            prepare = lambda _version: set_group(directory, group, read_only=True)  # noqa: E731
        return write_payload(request.directory, payload, prepare, request.clock)


def _remove(request: TearDown) -> None:
    if is_mounted(request.mounter, request.directory):
        request.mounter.unmount(request.directory)
    removal = remove_tree(request.directory)
    if not removal.complete:
        raise VolumeError(", ".join((*removal.mounts, *removal.failures)))
