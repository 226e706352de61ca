"""Who a program runs as: user, groups, capabilities."""

from __future__ import annotations

import os

from nodeagent.embedded.process.launcher import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodeagent.embedded.process.launcher.spec import IdentitySpec

_CAPABILITIES = 64


def take_on(identity: IdentitySpec, *, mapped: bool) -> None:
    """Become who the program is to run as. For good; the root directory must be final.

    Args:
        identity: who.
        mapped: this process is in a user namespace, where it has the right ids already.

    Raises:
        OSError: this process may not.
    """
    _adjust_oom_score(identity["oom_score_adj"])
    root = mapped or os.geteuid() == 0
    if root and identity["capabilities"] is not None:
        _keep_capabilities(set(identity["capabilities"]))
    if not mapped:
        _switch(identity)
    if identity["no_new_privs"]:
        linux.no_new_privs()


def _switch(identity: IdentitySpec) -> None:
    uid, gid = wanted_ids(identity, os.getuid(), os.getgid())
    if os.geteuid() != 0:
        _check_unchanged(identity, uid)
        return
    merged = _groups_of(uid) if identity["merge_groups"] else set()
    groups = sorted({*identity["groups"], *merged})
    # Only what changes: a root without privileges may still stay who it is.
    if sorted(os.getgroups()) != groups:
        os.setgroups(groups)
    if os.getgid() != gid:
        os.setgid(gid)
    if os.getuid() != uid:
        os.setuid(uid)


def _check_unchanged(identity: IdentitySpec, uid: int) -> None:
    if uid != os.geteuid():
        raise OSError(1, f"running as user {uid} needs root")
    if identity["gid"] not in (None, os.getegid()):
        raise OSError(1, f"running as group {identity['gid']} needs root")
    missing = sorted({*identity["groups"]} - {*os.getgroups(), os.getegid()})
    if missing:
        raise OSError(1, f"supplementary groups {missing} need root")


def home_of(uid: int) -> str:
    """The home directory of a user, ``/`` when it has none."""
    for fields in _read_table("/etc/passwd", 7):
        if fields[2] == str(uid):
            return fields[5] or "/"
    return "/"


def wanted_ids(identity: IdentitySpec, own_uid: int, own_gid: int) -> tuple[int, int]:
    """The user and group ids that are asked for.

    Args:
        identity: who.
        own_uid: the user when nobody is asked for.
        own_gid: the group in that case.

    Raises:
        OSError: a user is named that does not exist.
    """
    uid = identity["uid"]
    default = own_gid
    if identity["username"]:
        for fields in _read_table("/etc/passwd", 7):
            if fields[0] == identity["username"]:
                uid, default = int(fields[2]), int(fields[3])
                break
        else:
            raise OSError(2, f"no user {identity['username']!r} in /etc/passwd")
    elif uid is not None:
        default = next(
            (int(row[3]) for row in _read_table("/etc/passwd", 7) if row[2] == str(uid)), 0
        )
    gid = identity["gid"]
    return own_uid if uid is None else uid, default if gid is None else gid


def _groups_of(uid: int) -> set[int]:
    names = {row[0] for row in _read_table("/etc/passwd", 7) if row[2] == str(uid)}
    return {int(row[2]) for row in _read_table("/etc/group", 4) if names & set(row[3].split(","))}


def _read_table(path: str, columns: int) -> list[list[str]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            rows = [line.rstrip("\n").split(":") for line in file]
    except OSError:
        return []
    return [row for row in rows if len(row) >= columns and row[2].isdigit()]


def _keep_capabilities(kept: set[int]) -> None:
    # An exec by root takes what the bounding set has; one by others has none anyway.
    for number in range(_CAPABILITIES):
        if number not in kept and not linux.drop_bounding_capability(number):
            return


def _adjust_oom_score(score: int | None) -> None:
    if score is None:
        return
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return  # there is none
    try:  # noqa: SIM105 - contextlib is heavy
        os.write(fd, str(score).encode())
    except OSError:
        pass  # lowering it takes a privilege that is often missing
    os.close(fd)
