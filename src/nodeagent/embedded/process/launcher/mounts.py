"""Mounting, as it is done for all containers."""

from __future__ import annotations

import os
import stat

from nodeagent.embedded.process.launcher import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodeagent.embedded.process.launcher.spec import IsolationSpec, MountSpec

QUIET = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
KERNEL = ("/proc", "/sys", "/dev", "/run")
"""Directories that a container does not have from the host's file system."""


def is_below(path: str, *tops: str) -> bool:
    """Whether the path is one of these directories or lies in one."""
    return any(path == top or path.startswith(top.rstrip("/") + "/") for top in tops)


def host_mounts() -> list[tuple[str, str]]:
    """Mount point and kind of file system of each mount that this process sees."""
    found = []
    with open("/proc/self/mountinfo", "rb") as file:  # noqa: PTH123 - pathlib is heavy
        lines = file.read().splitlines()
    for line in lines:
        before, _, after = line.partition(b" - ")
        point = _unescaped(before.split(b" ")[4])
        found.append((os.fsdecode(point), os.fsdecode(after.split(b" ")[0])))
    return found


def _unescaped(text: bytes) -> bytes:
    """The kernel writes blanks and the like as a backslash and three octal digits."""
    first, *rest = text.split(b"\\")
    return first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in rest)


def prepare(directory: str, upper: str) -> str:
    """Make the directories that a root file system is put together from; returns their parent.

    Args:
        directory: the container's own directory.
        upper: ``tmpfs`` to have what the container writes in memory.
    """
    base = f"{directory}/rootfs"
    for path in (base, f"{directory}/merged"):
        os.makedirs(path, mode=0o755, exist_ok=True)  # noqa: PTH103
    if upper == "tmpfs":
        linux.mount("tmpfs", base, "tmpfs", 0, "mode=0755")
    for path in (f"{base}/upper", f"{base}/work"):
        os.makedirs(path, mode=0o755, exist_ok=True)  # noqa: PTH103
        os.chmod(path, 0o755)  # noqa: PTH101, S103 - upper's mode is that of the root directory
    return base


def overlay(lower: str, upper: str, work: str, target: str, *options: str) -> None:
    """Show ``lower`` at ``target``; changes go to ``upper``."""
    paths = (("lowerdir", lower), ("upperdir", upper), ("workdir", work))
    text = ",".join([*(f"{name}={_escaped(path)}" for name, path in paths), *options])
    linux.mount("overlay", target, "overlay", linux.MS_NODEV, text)


def _escaped(path: str) -> str:
    return path.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")


def open_source(one: MountSpec) -> int:
    """Take hold of what is to be mounted; a directory is made when there is nothing."""
    try:
        return os.open(one["source"], os.O_PATH)
    except FileNotFoundError:
        os.makedirs(one["source"], mode=0o755, exist_ok=True)  # noqa: PTH103
        return os.open(one["source"], os.O_PATH)


def bind(fd: int, one: MountSpec) -> None:
    """Put what ``fd`` stands for at the target, whose links lead nowhere but inside."""
    target = os.path.realpath(one["target"])
    make_point(target, is_directory=stat.S_ISDIR(os.fstat(fd).st_mode))
    linux.mount(f"/proc/self/fd/{fd}", target, None, linux.MS_BIND | linux.MS_REC)
    os.close(fd)
    if one["private"]:
        linux.mount(None, target, None, linux.MS_PRIVATE | linux.MS_REC)
    if one["readonly"]:
        remount_readonly(target)


def make_point(path: str, *, is_directory: bool) -> None:
    """Make something to mount on, if there is nothing."""
    if is_directory:
        os.makedirs(path, mode=0o755, exist_ok=True)  # noqa: PTH103
    elif not os.path.exists(path):  # noqa: PTH110
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)  # noqa: PTH103, PTH120
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))


def remount_readonly(target: str) -> None:
    """Make one mount read-only and leave it otherwise as it is."""
    kept = os.statvfs(target).f_flag & QUIET
    flags = linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | kept
    linux.mount(None, target, None, flags)


def protect(isolation: IsolationSpec) -> None:
    """Hide the masked paths, and make the read-only ones so."""
    for path in isolation["masked"]:
        if os.path.isdir(path):  # noqa: PTH112
            linux.mount("tmpfs", path, "tmpfs", QUIET | linux.MS_RDONLY)
        elif os.path.exists(path):  # noqa: PTH110
            linux.mount("/dev/null", path, None, linux.MS_BIND)
    for path in isolation["readonly_paths"]:
        if os.path.exists(path):  # noqa: PTH110
            linux.mount(path, path, None, linux.MS_BIND | linux.MS_REC)
            remount_readonly(path)
