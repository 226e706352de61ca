"""Signals of the CRI as numbers of this machine."""

from __future__ import annotations

import signal
from typing import Final

from nodeagent.proto.runtime import v1

_OLD_NAMES: Final = {"SIGCLD": "SIGCHLD", "SIGIOT": "SIGABRT", "SIGPOLL": "SIGIO"}


def stop_signal(asked: v1.Signal) -> int:
    """The number of the signal that asks a container to stop; SIGTERM when none was named."""
    name = asked.name or ""
    if asked == v1.Signal.RUNTIME_DEFAULT:
        return signal.SIGTERM
    for edge, sign in (("SIGRTMIN", 1), ("SIGRTMAX", -1)):
        if name.startswith(edge):
            offset = name.removeprefix(edge).removeprefix("PLUS").removeprefix("MINUS")
            return int(getattr(signal, edge)) + sign * int(offset or 0)
    return int(getattr(signal, _OLD_NAMES.get(name, name), signal.SIGTERM))
