"""Mounting: one small door to ``mount(2)``.

All methods block, and a mount of a dead server may block for ever: call them only in a thread
of :class:`nodeagent.volumes.threads.DiskThreads`.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from nodeagent.volumes.mounts import MountPoint, read_mounts

MS_RDONLY: Final = 0x1
MS_NOSUID: Final = 0x2
MS_NODEV: Final = 0x4
MS_NOEXEC: Final = 0x8
MS_REMOUNT: Final = 0x20
MS_NOATIME: Final = 0x400
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_SHARED: Final = 0x100000
_MNT_DETACH: Final = 0x2
_UMOUNT_NOFOLLOW: Final = 0x8

_FLAGS: Final = {
    "ro": MS_RDONLY,
    "nosuid": MS_NOSUID,
    "nodev": MS_NODEV,
    "noexec": MS_NOEXEC,
    "noatime": MS_NOATIME,
}
_HELPER_TIMEOUT: Final = 110.0
_NOT_MOUNTED: Final = (errno.EINVAL, errno.ENOENT, errno.ENOTDIR)


class MountError(Exception):
    """A mount could not be made or undone; the text says which, why, and what to do."""


class Mounter(Protocol):
    """Mounts and unmounts. Blocking."""

    def mount(
        self, fs_type: str, target: Path, *, source: str = "none", options: Sequence[str] = ()
    ) -> None:
        """Mount a file system that the kernel mounts by itself (tmpfs, hugetlbfs).

        Raises:
            MountError: it cannot be mounted.
        """
        ...

    def mount_with_helper(
        self, fs_type: str, target: Path, *, source: str, options: Sequence[str] = ()
    ) -> None:
        """Mount a file system with the system's own program (nfs).

        Raises:
            MountError: it cannot be mounted.
        """
        ...

    def bind(self, source: Path | str, target: Path, *, read_only: bool = False) -> None:
        """Show a directory or file at another place, with all that is mounted in it.

        Args:
            source: what to show; ``/proc/self/fd/<n>`` for what a descriptor has open.
            target: an existing directory or file, of the same kind.
            read_only: whether nothing may be changed through it.

        Raises:
            MountError: it cannot be mounted; nothing is left behind.
        """
        ...

    def unmount(self, target: Path, *, lazy: bool = False) -> None:
        """Undo the newest mount at a path; one that is not there is undone already.

        Args:
            target: the path; a link there is not followed.
            lazy: also one in use, which then goes when nobody uses it any more.

        Raises:
            MountError: it is in use.
        """
        ...

    def mounts(self, below: Path) -> list[MountPoint]:
        """The mounts at or below a path, in the order in which they were made."""
        ...


class SystemMounter:
    """Mounts by ``mount(2)``; needs the rights of root."""

    def mount(
        self, fs_type: str, target: Path, *, source: str = "none", options: Sequence[str] = ()
    ) -> None:
        """Mount a file system that the kernel mounts by itself."""
        flags, data = _split(options)
        _mount(source, target, fs_type, flags, data)

    def mount_with_helper(
        self, fs_type: str, target: Path, *, source: str, options: Sequence[str] = ()
    ) -> None:
        """Mount a file system with the system's own program."""
        command = ["mount", "-t", fs_type]
        if options:
            command += ["-o", ",".join(options)]
        command += [source, str(target)]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_HELPER_TIMEOUT)
        except FileNotFoundError:
            msg = f"{_what(fs_type, source, target)}: there is no program 'mount' on this node"
            raise MountError(msg) from None
        except subprocess.TimeoutExpired:
            msg = f"{_what(fs_type, source, target)}: no answer within {_HELPER_TIMEOUT:g}s"
            raise MountError(msg) from None
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode(errors="replace").strip() or f"exit {error.returncode}"
            msg = f"{_what(fs_type, source, target)}: {said}"
            raise MountError(msg) from None

    def bind(self, source: Path | str, target: Path, *, read_only: bool = False) -> None:
        """Show a directory or file at another place."""
        _mount(str(source), target, "", MS_BIND | MS_REC, "")
        if read_only:
            try:
                _mount("none", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY | _kept(target), "")
            except MountError:
                self.unmount(target, lazy=True)
                raise

    def unmount(self, target: Path, *, lazy: bool = False) -> None:
        """Undo the newest mount at a path."""
        flags = _UMOUNT_NOFOLLOW | (_MNT_DETACH if lazy else 0)
        if _libc().umount2(os.fsencode(target), flags) == 0:
            return
        number = ctypes.get_errno()
        if number not in _NOT_MOUNTED:
            msg = f"unmount {target}: {_reason(number)}"
            raise MountError(msg)

    def mounts(self, below: Path) -> list[MountPoint]:
        """The mounts at or below a path."""
        return read_mounts(below)


def is_mounted(mounter: Mounter, path: Path) -> bool:
    """Whether something is mounted right at a path. Blocking."""
    real = os.path.realpath(path)
    return any(point.path == real for point in mounter.mounts(path))


def unmount_below(mounter: Mounter, path: Path) -> None:
    """Undo every mount at or below a path, the newest first. Blocking.

    Raises:
        MountError: one is in use; the others of its kind may be left.
    """
    for point in reversed(mounter.mounts(path)):
        mounter.unmount(Path(point.path))


def _mount(source: str, target: Path, fs_type: str, flags: int, data: str) -> None:
    done = _libc().mount(
        os.fsencode(source),
        os.fsencode(target),
        fs_type.encode() or None,
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    if done != 0:
        what = _what(fs_type or "bind", source, target)
        msg = f"{what}: {_reason(ctypes.get_errno())}"
        raise MountError(msg)


def _kept(target: Path) -> int:
    """The flags of a mount that a read-only one of it must keep: no one may drop them."""
    found = os.statvfs(target).f_flag
    kept = 0
    for have, flag in (
        (os.ST_NOSUID, MS_NOSUID),
        (os.ST_NODEV, MS_NODEV),
        (os.ST_NOEXEC, MS_NOEXEC),
        (os.ST_NOATIME, MS_NOATIME),
    ):
        kept |= flag if found & have else 0
    return kept


def _split(options: Iterable[str]) -> tuple[int, str]:
    """Flags of the kernel, and the words that the file system itself understands."""
    flags, data = 0, []
    for option in options:
        if option in _FLAGS:
            flags |= _FLAGS[option]
        else:
            data.append(option)
    return flags, ",".join(data)


def _what(fs_type: str, source: str, target: Path) -> str:
    named = f" {source}" if source not in ("none", "") else ""
    return f"mount {fs_type}{named} on {target}"


def _reason(number: int) -> str:
    text = os.strerror(number)
    if number in (errno.EPERM, errno.EACCES):
        return f"{text} (only root may mount: run the agent as root)"
    return text


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)
