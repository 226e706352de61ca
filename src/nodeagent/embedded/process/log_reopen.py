"""Making a monitor go on in a new log file."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Final

from anyio import to_thread

from nodeagent.embedded.process.launcher.logs import open_log
from nodeagent.rpc import DeadlineExceeded, Unknown

if TYPE_CHECKING:
    from nodeagent.embedded.process.handles import Handle

_PATIENCE: Final = 5.0
_LOOK_EVERY: Final = 0.005


async def reopen_log(handle: Handle, directory: str, path: str) -> None:
    """Make the log file anew and wait until the monitor has it open.

    Args:
        handle: the running container.
        directory: the sandbox's log directory.
        path: the log file, relative to it.

    Raises:
        Unknown: the file cannot be made.
        DeadlineExceeded: the monitor does not take it up.
    """
    try:
        wanted = await to_thread.run_sync(_make, directory, path)
    except OSError as exc:
        msg = f"failed to reopen container log: {exc}"
        raise Unknown(msg) from exc
    handle.signal_monitor(signal.SIGUSR1)
    if not await to_thread.run_sync(_wait_until_open, handle.record.monitor_pid, wanted):
        msg = f"the monitor did not reopen the log within {_PATIENCE:g} s"
        raise DeadlineExceeded(msg)


def _make(directory: str, path: str) -> tuple[int, int]:
    fd = open_log(directory, path)
    try:
        return _identity(os.fstat(fd))
    finally:
        os.close(fd)


def _wait_until_open(pid: int, wanted: tuple[int, int]) -> bool:
    until = time.monotonic() + _PATIENCE
    while not _has_open(pid, wanted):
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_EVERY)
    return True


def _has_open(pid: int, wanted: tuple[int, int]) -> bool:
    """Whether the process has that file open; a process that has ended counts as yes."""
    where = f"/proc/{pid}/fd"
    try:
        names = os.listdir(where)  # noqa: PTH208
    except OSError:
        return True
    for name in names:
        try:
            found = os.stat(f"{where}/{name}")  # noqa: PTH116
        except FileNotFoundError:
            continue
        if _identity(found) == wanted:
            return True
    return False


def _identity(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino
