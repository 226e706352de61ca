"""Holding on to processes without mistaking another one for them."""

from __future__ import annotations

import os
import select
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nodeagent.embedded.process.launcher import procs

if TYPE_CHECKING:
    from nodeagent.embedded.process.store import MonitorFile


@dataclass(eq=False, slots=True)
class Handle:
    """A running container: file descriptors that stand for its two processes.

    Process ids are reused; a descriptor always means the process it was opened for, and it
    becomes readable when that ends.
    """

    record: MonitorFile
    monitor_fd: int
    container_fd: int

    def signal(self, number: int) -> None:
        """Send a signal to the container's first process, if there still is one."""
        if self.container_fd >= 0:
            _send(self.container_fd, number)

    def signal_monitor(self, number: int) -> None:
        """Send a signal to the monitor, if there still is one."""
        _send(self.monitor_fd, number)

    def close(self) -> None:
        """Let go of both."""
        for fd in (self.monitor_fd, self.container_fd):
            if fd >= 0:
                os.close(fd)
        self.monitor_fd = self.container_fd = -1


def check_kernel() -> None:
    """See that processes can be held on to.

    Raises:
        OSError: the kernel is too old.
    """
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError) as exc:
        msg = "the process backend of the embedded runtime needs Linux 5.3 or newer (pidfd_open)"
        raise OSError(msg) from exc


def open_handle(record: MonitorFile, boot_id: str) -> Handle | None:
    """Take hold of what a monitor has written down; None when it does not run any more."""
    if record.boot_id != boot_id:
        return None
    monitor_fd = open_process(record.monitor_pid, record.monitor_start)
    if monitor_fd < 0:
        return None
    return Handle(record, monitor_fd, open_process(record.pid, record.start))


def open_process(pid: int, start: int) -> int:
    """A descriptor for the process with that id that started then; -1 when it has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return -1
    # Looked at after opening: had the id been reused, it would have been before.
    if procs.start_time(pid) != start:
        os.close(fd)
        return -1
    return fd


def kill_process(pid: int, start: int) -> None:
    """Kill the process with that id that started then, if it still runs."""
    fd = open_process(pid, start)
    if fd >= 0:
        _send(fd, signal.SIGKILL)
        os.close(fd)


def wait_for_end(pid: int, start: int, seconds: float) -> bool:
    """Wait in this thread until the process has ended; whether it has."""
    fd = open_process(pid, start)
    if fd < 0:
        return True
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(int(seconds * 1000)))
    finally:
        os.close(fd)


def _send(fd: int, number: int) -> None:
    try:
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return
