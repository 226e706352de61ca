"""Run a command that cannot make namespaces: ``python without_namespaces.py COMMAND...``.

As on machines whose kernel or seccomp profile forbids it: unshare answers EPERM. On a kind of
machine that is not listed here nothing is forbidden.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from typing import Final

UNSHARE: Final = {"x86_64": 272, "aarch64": 97, "riscv64": 97, "ppc64le": 282, "s390x": 303}
"""Number of the system call."""
_PR_SET_SECCOMP: Final = 22
_PR_SET_NO_NEW_PRIVS: Final = 38
_FILTER_MODE: Final = 2
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_EPERM: Final = 1


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def forbid() -> None:
    """Forbid it to this process and its children, for good."""
    steps = (
        (_LOAD, 0, 0, 0),  # the number of the call
        (_JUMP_IF_EQUAL, 0, 1, UNSHARE[platform.machine()]),
        (_RETURN, 0, 0, _ERROR | _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = _Program(len(steps), ctypes.cast(code, ctypes.c_void_p))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _FILTER_MODE, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    if platform.machine() in UNSHARE:
        forbid()
    os.execvp(sys.argv[1], sys.argv[1:])
