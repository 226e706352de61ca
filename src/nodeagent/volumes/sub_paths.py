"""Parts of volumes, found without ever leaving the volume (docs/behaviour/volumes.md, "subPath").

A container may turn any part of a volume into a link at any time. So each step is taken from
the descriptor of the step before, and what was reached is mounted by its descriptor: a path is
never looked up again. All functions block.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Final

from nodeagent.volumes.mounter import Mounter, MountError, is_mounted, unmount_below
from nodeagent.volumes.removal import Removal, remove_tree

_O_PATH: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_O_TOP: Final = os.O_PATH | os.O_CLOEXEC
_MOST_LINKS: Final = 40
DIRECTORY: Final = "volume-subpaths"


class SubPathError(Exception):
    """A part of a volume cannot be used; the text says why."""


def open_beneath(top: Path, sub_path: str) -> int:
    """Open a part of a volume, which links in the volume cannot lead out of.

    Args:
        top: the volume; links on the way to it are followed.
        sub_path: relative to it.

    Returns:
        A descriptor (``O_PATH``); the caller closes it.

    Raises:
        SubPathError: it leads out of the volume.
        OSError: it does not exist, or is below a file.
    """
    return _walk(top, sub_path, None)


def make_beneath(top: Path, sub_path: str) -> None:
    """Make the directories of a part of a volume that are missing, with the volume's mode.

    Raises:
        SubPathError: it leads out of the volume.
        OSError: one cannot be made.
    """
    mode = stat.S_IMODE(top.stat().st_mode)
    os.close(_walk(top, sub_path, mode))


def _walk(top: Path, sub_path: str, mode: int | None) -> int:
    steps = [os.open(top, _O_TOP)]
    left = deque(sub_path.split("/"))
    links = 0
    try:
        while left:
            name = left.popleft()
            if name in ("", "."):
                continue
            if name == "..":
                if len(steps) == 1:
                    raise SubPathError(_escape(sub_path))
                os.close(steps.pop())
                continue
            step = _open_step(steps[-1], name, mode)
            if not stat.S_ISLNK(os.fstat(step).st_mode):
                steps.append(step)
                continue
            links += 1
            try:
                left.extendleft(reversed(_followed(step, sub_path, links)))
            finally:
                os.close(step)
        return os.dup(steps[-1])
    finally:
        for step in steps:
            os.close(step)


def _open_step(parent: int, name: str, mode: int | None) -> int:
    try:
        return os.open(name, _O_PATH, dir_fd=parent)
    except FileNotFoundError:
        if mode is None:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
        made = os.open(name, _O_PATH | os.O_DIRECTORY, dir_fd=parent)
        try:
            # The umask had its say in what was made.
            Path(f"/proc/self/fd/{made}").chmod(mode)
        except BaseException:
            os.close(made)
            raise
        return made
    return os.open(name, _O_PATH, dir_fd=parent)


def _followed(link: int, sub_path: str, links: int) -> list[str]:
    if links > _MOST_LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), sub_path)
    target = os.readlink("", dir_fd=link)
    if target.startswith("/"):
        raise SubPathError(_escape(sub_path))
    return target.split("/")


def _escape(sub_path: str) -> str:
    return f'a link in subPath "{sub_path}" leads out of the volume'


def bind_sub_path(
    mounter: Mounter, pod_dir: Path, top: Path, place: tuple[str, str, int], sub_path: str
) -> Path:
    """Mount a part of a volume at a place of its own, which containers cannot change.

    Args:
        mounter: mounts.
        pod_dir: the pod's directory.
        top: the volume.
        place: name of the volume, name of the container, index of the mount in the container.
        sub_path: relative to the volume.

    Returns:
        Where it is mounted.

    Raises:
        SubPathError: it leads out of the volume.
        MountError: it cannot be mounted.
        OSError: it does not exist.
    """
    volume, container, index = place
    target = pod_dir / DIRECTORY / volume / container / str(index)
    found = open_beneath(top, sub_path)
    try:
        if is_mounted(mounter, target):
            if _same(found, target):
                return target
            mounter.unmount(target, lazy=True)
        _make_place(target, is_directory=stat.S_ISDIR(os.fstat(found).st_mode))
        mounter.bind(f"/proc/self/fd/{found}", target)
    finally:
        os.close(found)
    return target


def _same(found: int, target: Path) -> bool:
    with suppress(OSError):
        here, there = os.fstat(found), target.stat()
        return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
    return False


def _make_place(target: Path, *, is_directory: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
    if target.is_dir() != is_directory:
        with suppress(FileNotFoundError):
            if target.is_dir():
                target.rmdir()
            else:
                target.unlink()
    if is_directory:
        target.mkdir(exist_ok=True, mode=0o750)
    else:
        target.touch(mode=0o640)


def clean_sub_paths(mounter: Mounter, pod_dir: Path) -> None:
    """Unmount and remove all that was mounted for the containers of a pod.

    Raises:
        MountError: something is left.
    """
    top = pod_dir / DIRECTORY
    if not os.path.lexists(top):
        return
    unmount_below(mounter, top)
    removal: Removal = remove_tree(top)
    if not removal.complete:
        msg = f"{top} is not removed: {'; '.join((*removal.mounts, *removal.failures))}"
        raise MountError(msg)
