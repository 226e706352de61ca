"""Calls to the kernel that Python 3.11 does not have."""

from __future__ import annotations

import ctypes
import os
import struct

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MS_SLAVE = 0x80000
_MNT_DETACH = 2

_SYS_MOUNT_SETATTR = 442
_MOUNT_ATTR_RDONLY = 1
_AT_EMPTY_PATH = 0x1000
_AT_RECURSIVE = 0x8000
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _path(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


def unshare(flags: int) -> None:
    """Leave the namespaces named by ``flags`` for new ones."""
    _check(_libc.unshare(flags), "unshare")


def setns(fd: int) -> None:
    """Join the namespace that ``fd`` stands for."""
    _check(_libc.setns(fd, 0), "setns")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Mount, or change a mount."""
    result = _libc.mount(
        _path(source),
        _path(target),
        _path(kind),
        ctypes.c_ulong(flags),
        os.fsencode(data) if data else None,
    )
    _check(result, f"mount {kind or source or ''} on {target}")


def make_readonly(fd: int, *, recursive: bool) -> None:
    """Make the mount that ``fd`` is the root of read-only, with those below it if wanted.

    Raises:
        OSError: nothing was changed; ENOSYS before Linux 5.12.
    """
    attributes = struct.pack("=4Q", _MOUNT_ATTR_RDONLY, 0, 0, 0)
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    result = _libc.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(fd),
        b"",
        ctypes.c_uint(flags),
        attributes,
        ctypes.c_size_t(len(attributes)),
    )
    _check(result, "mount_setattr")


def pivot_root(new: str, old: str) -> None:
    """Make ``new`` the root of this mount namespace and put the old one at ``old``."""
    _check(_libc.pivot_root(_path(new), _path(old)), "pivot_root")


def detach(target: str) -> None:
    """Unmount, as soon as nobody uses it."""
    _check(_libc.umount2(_path(target), _MNT_DETACH), f"umount {target}")


def die_with_parent(signal_number: int) -> None:
    """Have this process get a signal when its parent ends. Lost on a change of user."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "prctl PDEATHSIG")


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl CHILD_SUBREAPER")


def set_name(name: str) -> None:
    """Set what ``ps`` calls this process; 15 bytes count."""
    _check(_libc.prctl(_PR_SET_NAME, os.fsencode(name)[:15], 0, 0, 0), "prctl NAME")


def no_new_privs() -> None:
    """Never gain privileges through an exec from now on."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl NO_NEW_PRIVS")


def drop_bounding_capability(number: int) -> bool:
    """Give a capability up for good; whether there is one of that number."""
    return bool(_libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == 0)
