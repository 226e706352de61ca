"""The file system of a container: an overlay of the host's, with the pod's volumes in it.

Runs in the process that becomes the container, as root or in a user namespace. What the
container writes goes to the overlay's upper layer; the host's own files are never written to,
except through the mounts that the pod asked for.
"""

from __future__ import annotations

import os
import socket
import stat

from nodeagent.embedded.process.launcher import linux, mounts
from nodeagent.embedded.process.launcher.user_root import UserRoot

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
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = (
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
)


def enter(isolation: IsolationSpec, directory: str, cwd: str) -> None:
    """Move this process into the container's file system and namespaces.

    In a user namespace that must have been entered before.

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
    # Opened here, because the host's paths are out of sight below.
    devices = _opened([*_std_devices(), *isolation["devices"]])
    volumes = _opened(isolation["mounts"])
    outside = os.open("/", os.O_PATH | os.O_DIRECTORY)
    base, merged = mounts.prepare(directory, isolation["upper"]), f"{directory}/merged"
    user_root = UserRoot(base, merged) if isolation["user"] else None
    if user_root is None:
        mounts.overlay("/", f"{base}/upper", f"{base}/work", merged)
        _bind_host_disks(merged, isolation["hide"])
    else:
        user_root.build([*map(_point, [*devices, *volumes]), (cwd or "/", True)])
    _bind_kernel(isolation, merged)
    os.chroot(merged)
    os.chdir("/")
    _mount_kernel(isolation)
    for fd, one in [*devices, *sorted(volumes, key=lambda pair: pair[1]["target"].count("/"))]:
        mounts.bind(fd, one)
    mounts.protect(isolation)
    _leave_host(outside, merged)
    if isolation["hostname"]:
        socket.sethostname(isolation["hostname"])
    os.makedirs(cwd or "/", mode=0o755, exist_ok=True)  # noqa: PTH103 - pathlib is heavy
    if isolation["readonly_root"]:
        _seal(user_root)


def _seal(user_root: UserRoot | None) -> None:
    if user_root is None:
        linux.mount(None, "/", None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY)
    else:
        user_root.seal()


def _opened(wanted: list[MountSpec]) -> list[tuple[int, MountSpec]]:
    return [(mounts.open_source(one), one) for one in wanted]


def _point(opened: tuple[int, MountSpec]) -> tuple[str, bool]:
    return opened[1]["target"], stat.S_ISDIR(os.fstat(opened[0]).st_mode)


def _bind_host_disks(merged: str, hidden: list[str]) -> None:
    """Show the host's other disks: an overlay has only the one file system of its lower layer."""
    for path, kind in mounts.host_mounts():
        if path == "/" or kind not in _DISKS or mounts.is_below(path, *mounts.KERNEL, *hidden):
            continue
        try:
            linux.mount(path, merged + path, None, linux.MS_BIND)
            mounts.remount_readonly(merged + path)
        except OSError:
            continue  # its mount point is itself on a file system that is not shown


def _std_devices() -> list[MountSpec]:
    found: list[MountSpec] = []
    for name in _DEVICES:
        path = f"/dev/{name}"
        found.append({"source": path, "target": path, "readonly": False, "private": True})
    return found


def _bind_kernel(isolation: IsolationSpec, merged: str) -> None:
    """Show those of the host's that it gets, or that it cannot have new ones of."""
    tops = ["/dev"] if isolation["all_devices"] else []
    if isolation["user"]:
        tops.append("/sys")  # new ones are for those who own the network namespace
        if not isolation["own_pid"]:
            tops.append("/proc")  # the same, for the process namespace
    for top in tops:
        linux.mount(top, merged + top, None, linux.MS_BIND | linux.MS_REC)
    if isolation["user"]:
        fd = os.open(f"{merged}/sys", os.O_PATH)
        linux.make_readonly(fd, recursive=True)
        os.close(fd)


def _mount_kernel(isolation: IsolationSpec) -> None:
    if isolation["own_pid"] or not isolation["user"]:
        linux.mount("proc", "/proc", "proc", mounts.QUIET)
    if not isolation["user"]:
        linux.mount("sysfs", "/sys", "sysfs", mounts.QUIET | linux.MS_RDONLY)
    linux.mount("tmpfs", "/run", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=0755")
    if not isolation["all_devices"]:
        _mount_dev()


def _mount_dev() -> None:
    linux.mount("tmpfs", "/dev", "tmpfs", linux.MS_NOSUID, "mode=0755,size=65536k")
    for name in ("pts", "shm"):
        os.mkdir(f"/dev/{name}")  # noqa: PTH102
    options = "newinstance,ptmxmode=0666,mode=0620"
    linux.mount("devpts", "/dev/pts", "devpts", linux.MS_NOSUID | linux.MS_NOEXEC, options)
    linux.mount("shm", "/dev/shm", "tmpfs", mounts.QUIET, "mode=1777,size=65536k")  # noqa: S108
    for name, target in _LINKS:
        os.symlink(target, f"/dev/{name}")  # noqa: PTH211


def _leave_host(outside: int, merged: str) -> None:
    """Exchange the root of the mount namespace, so that the host's mounts are gone for good."""
    os.fchdir(outside)
    os.chroot(".")
    os.chdir(merged)
    linux.pivot_root(".", ".")
    linux.detach(".")
    os.chdir("/")
    os.close(outside)
