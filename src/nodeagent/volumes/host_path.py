"""hostPath volumes: checks of the path's kind (docs/behaviour/volumes.md, "hostPath")."""

from __future__ import annotations

import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.api import HostPathVolumeSource, Volume
from nodeagent.model.volumes import MountedVolume
from nodeagent.volumes.plugin import SetUp, TearDown, VolumeError


class HostPathError(VolumeError):
    """The path is not what the volume's type says."""


class HostPathPlugin:
    """Files and directories of the host. They are nobody's, and outlive the pod."""

    name = "kubernetes.io/host-path"
    refreshes = False

    def handles(self, volume: Volume) -> bool:
        """Whether it is a hostPath."""
        return volume.host_path is not None

    async def set_up(self, request: SetUp) -> MountedVolume:
        """Check the path, and create it where its type says so."""
        source = request.volume.host_path or HostPathVolumeSource()
        path = Path(source.path)
        if ".." in path.parts:
            msg = f"invalid HostPath `{source.path}`: must not contain '..'"
            raise HostPathError(msg)
        if source.type:
            kind = source.type
            await request.threads.run(lambda: prepare_host_path(path, kind))
        return MountedVolume(request.volume.name, source.path)

    async def refresh(self, request: SetUp) -> bool:
        """Nothing follows anything."""
        del request
        return False

    async def tear_down(self, request: TearDown) -> None:
        """Nothing was made that belongs to the pod."""


@dataclass(frozen=True, slots=True)
class _Kind:
    noun: str
    matches: Callable[[int], bool]


def _no_directory(mode: int) -> bool:
    return not stat.S_ISDIR(mode)


_DIRECTORY: Final = _Kind("a directory", stat.S_ISDIR)
_FILE: Final = _Kind("a file", _no_directory)
_KINDS: Final = {
    "DirectoryOrCreate": _DIRECTORY,
    "Directory": _DIRECTORY,
    "FileOrCreate": _FILE,
    "File": _FILE,
    "Socket": _Kind("a socket file", stat.S_ISSOCK),
    "CharDevice": _Kind("a character device", stat.S_ISCHR),
    "BlockDevice": _Kind("a block device", stat.S_ISBLK),
}


def prepare_host_path(path: Path, kind: str) -> None:
    """Check a host path, and create it for the ``OrCreate`` types. Blocking.

    Args:
        path: the path on the host; symbolic links are followed.
        kind: the volume's type, "" for no check at all.

    Raises:
        HostPathError: it is not what the type asks for.
    """
    if not kind:
        return
    wanted = _KINDS.get(kind)
    if wanted is None:
        msg = f"{kind} is an invalid volume type"
        raise HostPathError(msg)
    try:
        if kind == "DirectoryOrCreate":
            _create_directory(path)
        elif kind == "FileOrCreate":
            _create_file(path)
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise HostPathError(_mismatch(path, wanted) + ": it does not exist") from None
    except OSError as error:
        msg = f"hostPath type check failed: {path}: {error.strerror}"
        raise HostPathError(msg) from error
    if not wanted.matches(mode):
        raise HostPathError(_mismatch(path, wanted))


def _mismatch(path: Path, wanted: _Kind) -> str:
    return f"hostPath type check failed: {path} is not {wanted.noun}"


def _create_directory(path: Path) -> None:
    with suppress(FileExistsError, NotADirectoryError):
        path.mkdir(parents=True, mode=0o755)


def _create_file(path: Path) -> None:
    # Exclusive, so that an existing file, device or directory is never touched.
    with suppress(FileExistsError), path.open("xb"):
        path.chmod(0o644)
