"""The last words of a container: what it wrote into its termination log.

docs/behaviour/phase.md, "Container statuses".
"""

from __future__ import annotations

import os
import stat
from typing import Final

from anyio import to_thread

from nodeagent.proto.runtime import v1

TERMINATION_PATH_ANNOTATION: Final = "io.kubernetes.container.terminationMessagePath"
MESSAGE_LIMIT: Final = 4096
"""Bytes; of a longer message the end counts."""


async def final_message(status: v1.ContainerStatus) -> str:
    """The runtime's message, followed by what an ended container left in its termination log.

    A log that cannot be read is the message's end itself: somebody waits for what was in it.
    """
    source = termination_log(status)
    if source is None:
        return status.message
    try:
        words = await to_thread.run_sync(_tail, source)
    except OSError as error:
        words = f"cannot read the termination log {source}: {error.strerror}"
    return ": ".join(part for part in (status.message, words) if part)


def termination_log(status: v1.ContainerStatus) -> str | None:
    """Where the log of an ended container lies on this machine; None when it has none."""
    path = status.annotations.get(TERMINATION_PATH_ANNOTATION)
    if not path or int(status.state) != v1.ContainerState.CONTAINER_EXITED.value:
        return None
    # A later mount covers an earlier one, and the log is mounted last.
    found = [m.host_path for m in status.mounts if m.container_path == path and m.host_path]
    return found[-1] if found else None


def _tail(path: str) -> str:
    # The container may have put anything there: never wait for the other end of a FIFO.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(0, "not a regular file")
        start = max(facts.st_size - MESSAGE_LIMIT, 0)
        return os.pread(descriptor, MESSAGE_LIMIT, start).decode(errors="replace")
    finally:
        os.close(descriptor)
