"""Processes as /proc shows them."""

from __future__ import annotations

import os
import signal


class ProcessStat:
    """What ``/proc/PID/stat`` says, as far as it is needed here. Times are clock ticks."""

    __slots__ = ("cpu", "parent", "pid", "rss_pages", "start", "state", "waited_cpu")

    def __init__(self, pid: int, text: str) -> None:
        # The name stands in brackets and may hold spaces and brackets itself.
        fields = text[text.rindex(")") + 2 :].split(" ")
        self.pid = pid
        self.state = fields[0]
        self.parent = int(fields[1])
        self.cpu = int(fields[11]) + int(fields[12])
        self.waited_cpu = int(fields[13]) + int(fields[14])
        self.start = int(fields[19])
        self.rss_pages = int(fields[21])


def read_file(path: str) -> str:
    """The content of a small file of the kernel.

    Plain system calls, because Python's files would touch much of the memory that a monitor
    shares with others, and so make it its own.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 65536).decode("utf-8", "replace")
    finally:
        os.close(fd)


def read_stat(pid: int) -> ProcessStat | None:
    """Look at one process; None when there is none."""
    try:
        return ProcessStat(pid, read_file(f"/proc/{pid}/stat"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since the boot; 0 when there is none.

    A process that has ended and was not waited for counts as none.
    """
    stat = read_stat(pid)
    return 0 if stat is None or stat.state in "ZX" else stat.start


def boot_id() -> str:
    """What tells this boot of the machine from others."""
    return read_file("/proc/sys/kernel/random/boot_id").strip()


def all_processes() -> dict[int, ProcessStat]:
    """Look at every process."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib is heavy
        if name.isdigit():
            stat = read_stat(int(name))
            if stat is not None:
                found[stat.pid] = stat
    return found


def descendants(pid: int, processes: dict[int, ProcessStat]) -> list[ProcessStat]:
    """The children of a process, their children and so on; not the process itself."""
    children: dict[int, list[ProcessStat]] = {}
    for stat in processes.values():
        children.setdefault(stat.parent, []).append(stat)
    found: list[ProcessStat] = []
    queue = [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found.extend(below)
        queue.extend(stat.pid for stat in below)
    return found


def kill_descendants(pid: int) -> None:
    """Kill all processes below one."""
    for stat in descendants(pid, all_processes()):
        try:
            os.kill(stat.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
