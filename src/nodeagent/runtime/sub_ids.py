"""Which user ids of the host pods with users of their own may have.

docs/behaviour/runtime.md, "User namespaces".
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
from typing import Final

from anyio import to_thread

from nodeagent.model import SyncError
from nodeagent.program import ProgramError, run_program
from nodeagent.runtime.errors import SyncReason

LENGTH: Final = 65536
"""Ids that a pod gets; the ranges of pods begin at multiples of it."""
USER: Final = "kubelet"
"""Whose subordinate ids they are."""
_ALL: Final = range(LENGTH, 2**32 - LENGTH, LENGTH)
_PROGRAM: Final = "getsubids"
_PATIENCE: Final = 10.0
_LINE: Final = re.compile(rf"0:\s+{USER}\s+(\d{{1,10}})\s+(\d{{1,10}})\s*", re.ASCII)


async def pod_ids(pods: int) -> range:
    """The first ids of all ranges that pods may have.

    Those that the host has set aside for the user ``kubelet``, where ``getsubids`` tells;
    without user or program all but the lowest.

    Args:
        pods: how many ranges there have to be.

    Raises:
        SyncError: what is set aside is of no use; says why.
    """
    program = await to_thread.run_sync(_program)
    if program is None:
        return _ALL
    users, groups = [await _ask(program, *options) for options in ((), ("-g",))]
    if users != groups:
        raise _unusable("user and group ids are not the same")
    return parse_ids(users, pods)


def parse_ids(text: str, pods: int) -> range:
    """Read what ``getsubids`` says. Pure.

    Raises:
        SyncError: it is of no use; says why.
    """
    found = _LINE.fullmatch(text)
    if found is None:
        raise _unusable("there is not exactly one range of ids")
    first, count = int(found[1]), int(found[2])
    if first < LENGTH or first % LENGTH or count % LENGTH or first + count > 2**32:
        msg = f"{first} and {count} are not multiples of {LENGTH} from {LENGTH} to 2^32"
        raise _unusable(msg)
    if count // LENGTH < pods:
        msg = f"{count} ids are not enough for {pods} pods with {LENGTH} each"
        raise _unusable(msg)
    return range(first, first + count, LENGTH)


def _program() -> str | None:
    try:
        pwd.getpwnam(USER)
    except KeyError:
        return None
    return shutil.which(_PROGRAM)


async def _ask(program: str, *options: str) -> str:
    try:
        answer = await run_program([program, *options, USER], b"", dict(os.environ), _PATIENCE)
    except ProgramError as error:
        msg = f"{_PROGRAM} {error}"
        raise _unusable(msg) from error
    return answer.decode(errors="replace")


def _unusable(why: str) -> SyncError:
    message = f"user ids for pods with hostUsers: false, set aside for the user {USER}: {why}"
    return SyncError(message, reason=SyncReason.CREATE_SANDBOX)
