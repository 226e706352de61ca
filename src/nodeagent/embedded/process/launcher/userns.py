"""A user namespace: what makes a process without privileges root of a small world of its own."""

from __future__ import annotations

import os

from nodeagent.embedded.process.launcher import identity, linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodeagent.embedded.process.launcher.spec import IdentitySpec


def enter(who: IdentitySpec, flags: int) -> None:
    """Move this process into new namespaces, in which it has all capabilities.

    This user is the only one there: inside under the id that is asked for, 0 by default, and to
    the rest of the machine as before. Whatever belongs to others belongs to nobody.

    Args:
        who: gives the ids inside.
        flags: ``CLONE_NEW...`` of the other namespaces to make.

    Raises:
        OSError: the kernel or its administrator does not allow it, or there is no such user.
    """
    uid, gid = identity.wanted_ids(who, 0, 0)
    if who["groups"]:
        raise OSError(1, f"supplementary groups {who['groups']} need root")
    outside_uid, outside_gid = os.geteuid(), os.getegid()
    linux.unshare(linux.CLONE_NEWUSER | flags)
    _write("setgroups", "deny")  # a condition for the next but one
    _write("uid_map", f"{uid} {outside_uid} 1")
    _write("gid_map", f"{gid} {outside_gid} 1")


def _write(name: str, text: str) -> None:
    fd = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
