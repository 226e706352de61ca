"""The file system of a container: an overlay of the host's, with the pod's volumes in it.

Runs in the process that becomes the container, as root. What the container writes goes to
the overlay's upper layer; the host's own files are never written to, except through the
mounts that the pod asked for.
"""

from __future__ import annotations

import os
import socket
import stat

from nodeagent.embedded.process.launcher import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodeagent.embedded.process.launcher.spec import IsolationSpec, MountSpec

_DISKS = frozenset(
    [
        "bcachefs",
        "btrfs",
        "erofs",
        "exfat",
        "ext2",
        "ext3",
        "ext4",
        "f2fs",
        "jfs",
        "nfs",
        "nfs4",
        "ntfs3",
        "squashfs",
        "vfat",
        "virtiofs",
        "xfs",
        "zfs",
        "9p",
    ]
)
"""File systems whose mounts a container sees, read-only, where the host has them."""
_OURS = ("/proc", "/sys", "/dev", "/run")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = (
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
)
_QUIET = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC


def enter(isolation: IsolationSpec, directory: str, cwd: str) -> None:
    """Move this process into the container's file system and namespaces.

    Args:
        isolation: what it looks like.
        directory: the container's own directory on the host.
        cwd: the working directory, made when it is missing.

    Raises:
        OSError: something of it cannot be done.
    """
    flags = linux.CLONE_NEWNS
    flags |= linux.CLONE_NEWUTS if isolation["hostname"] else 0
    flags |= linux.CLONE_NEWIPC if isolation["own_ipc"] else 0
    linux.unshare(flags)
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_SLAVE)
    merged = _overlay(directory, isolation["upper"])
    _bind_host_disks(merged, isolation["hide"])
    # Opened here, because the host's paths are out of sight below.
    sources = [_open_source(one) for one in isolation["mounts"]]
    devices = [_open_source(one) for one in [*_std_devices(), *isolation["devices"]]]
    host_dev = os.open("/dev", os.O_PATH | os.O_DIRECTORY) if isolation["all_devices"] else -1
    outside = os.open("/", os.O_PATH | os.O_DIRECTORY)
    os.chroot(merged)
    os.chdir("/")
    _mount_kernel(host_dev)
    for fd, one in zip(devices, [*_std_devices(), *isolation["devices"]], strict=True):
        _bind(fd, one)
    mounts = zip(sources, isolation["mounts"], strict=True)
    for fd, one in sorted(mounts, key=lambda pair: pair[1]["target"].count("/")):
        _bind(fd, one)
    _protect(isolation)
    _leave_host(outside, merged)
    if isolation["hostname"]:
        socket.sethostname(isolation["hostname"])
    os.makedirs(cwd or "/", mode=0o755, exist_ok=True)  # noqa: PTH103
    if isolation["readonly_root"]:
        linux.mount(None, "/", None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY)


def _overlay(directory: str, upper: str) -> str:
    base, merged = f"{directory}/rootfs", f"{directory}/merged"
    for path in (base, merged):
        os.makedirs(path, mode=0o755, exist_ok=True)  # noqa: PTH103 - pathlib is heavy
    if upper == "tmpfs":
        linux.mount("tmpfs", base, "tmpfs", 0, "mode=0755")
    for path in (f"{base}/upper", f"{base}/work"):
        os.makedirs(path, mode=0o755, exist_ok=True)  # noqa: PTH103
        os.chmod(path, 0o755)  # noqa: PTH101, S103 - upper's mode is that of the root directory
    escaped = base.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")
    options = f"lowerdir=/,upperdir={escaped}/upper,workdir={escaped}/work"
    linux.mount("overlay", merged, "overlay", linux.MS_NODEV, options)
    return merged


def _bind_host_disks(merged: str, hidden: list[str]) -> None:
    """Show the host's other disks: an overlay has only the one file system of its lower layer."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
        lines = file.read().splitlines()
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split(" ")[4].encode("utf-8", "surrogateescape")
        path = os.fsdecode(point.decode("unicode_escape").encode("latin-1"))
        if path == "/" or after.split(" ")[0] not in _DISKS:
            continue
        if any(path == top or path.startswith(top + "/") for top in (*_OURS, *hidden)):
            continue
        try:
            linux.mount(path, merged + path, None, linux.MS_BIND)
            _make_readonly(merged + path)
        except OSError:
            continue  # its mount point is itself on a file system that is not shown


def _open_source(one: MountSpec) -> int:
    try:
        return os.open(one["source"], os.O_PATH)
    except FileNotFoundError:
        os.makedirs(one["source"], mode=0o755, exist_ok=True)  # noqa: PTH103
        return os.open(one["source"], os.O_PATH)


def _std_devices() -> list[MountSpec]:
    found: list[MountSpec] = []
    for name in _DEVICES:
        path = f"/dev/{name}"
        found.append({"source": path, "target": path, "readonly": False, "private": True})
    return found


def _mount_kernel(host_dev: int) -> None:
    linux.mount("proc", "/proc", "proc", _QUIET)
    linux.mount("sysfs", "/sys", "sysfs", _QUIET | linux.MS_RDONLY)
    linux.mount("tmpfs", "/run", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=0755")
    if host_dev >= 0:
        linux.mount(f"/proc/self/fd/{host_dev}", "/dev", None, linux.MS_BIND | linux.MS_REC)
        return
    linux.mount("tmpfs", "/dev", "tmpfs", linux.MS_NOSUID, "mode=0755,size=65536k")
    for name in ("pts", "shm"):
        os.mkdir(f"/dev/{name}")  # noqa: PTH102
    options = "newinstance,ptmxmode=0666,mode=0620"
    linux.mount("devpts", "/dev/pts", "devpts", linux.MS_NOSUID | linux.MS_NOEXEC, options)
    linux.mount("shm", "/dev/shm", "tmpfs", _QUIET, "mode=1777,size=65536k")  # noqa: S108
    for name, target in _LINKS:
        os.symlink(target, f"/dev/{name}")  # noqa: PTH211


def _bind(fd: int, one: MountSpec) -> None:
    """Put what ``fd`` stands for at the target, whose links lead nowhere but inside."""
    target = os.path.realpath(one["target"])
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.makedirs(target, mode=0o755, exist_ok=True)  # noqa: PTH103
    elif not os.path.exists(target):  # noqa: PTH110
        os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)  # noqa: PTH103, PTH120
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    linux.mount(f"/proc/self/fd/{fd}", target, None, linux.MS_BIND | linux.MS_REC)
    os.close(fd)
    if one["private"]:
        linux.mount(None, target, None, linux.MS_PRIVATE | linux.MS_REC)
    if one["readonly"]:
        _make_readonly(target)


def _make_readonly(target: str) -> None:
    kept = os.statvfs(target).f_flag & _QUIET
    flags = linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | kept
    linux.mount(None, target, None, flags)


def _protect(isolation: IsolationSpec) -> None:
    for path in isolation["masked"]:
        if os.path.isdir(path):  # noqa: PTH112
            linux.mount("tmpfs", path, "tmpfs", _QUIET | linux.MS_RDONLY)
        elif os.path.exists(path):  # noqa: PTH110
            linux.mount("/dev/null", path, None, linux.MS_BIND)
    for path in isolation["readonly_paths"]:
        if os.path.exists(path):  # noqa: PTH110
            linux.mount(path, path, None, linux.MS_BIND | linux.MS_REC)
            _make_readonly(path)


def _leave_host(outside: int, merged: str) -> None:
    """Exchange the root of the mount namespace, so that the host's mounts are gone for good."""
    os.fchdir(outside)
    os.chroot(".")
    os.chdir(merged)
    linux.pivot_root(".", ".")
    linux.detach(".")
    os.chdir("/")
    os.close(outside)
