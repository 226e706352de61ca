"""What containers use, read from /proc and from their files. Blocks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from nodeagent.embedded.backend import Usage
from nodeagent.embedded.process.launcher import procs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from nodeagent.embedded.process.store import MonitorFile

_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGESIZE")


def measure(running: Mapping[str, tuple[MonitorFile, Path]]) -> dict[str, Usage]:
    """What running containers use, by id; those that have ended are left out.

    Args:
        running: for each, what its monitor wrote down and where its writable layer is.
    """
    processes = procs.all_processes()
    found = {}
    for container_id, (record, layer) in running.items():
        monitor = processes.get(record.monitor_pid)
        if monitor is None or monitor.start != record.monitor_start:
            continue
        # All that the container started is below its monitor, orphans included.
        below = procs.descendants(monitor.pid, processes)
        ticks = monitor.waited_cpu + sum(stat.cpu + stat.waited_cpu for stat in below)
        size, files = tree_size(layer)
        found[container_id] = Usage(
            cpu_ns=ticks * _TICK_NS,
            memory_bytes=sum(stat.rss_pages for stat in below) * _PAGE,
            processes=len(below),
            layer_bytes=size,
            layer_inodes=files,
        )
    return found


def tree_size(root: Path) -> tuple[int, int]:
    """Bytes and number of files below a directory; zero when it is not there."""
    size = files = 0
    for directory, _, names in os.walk(root):
        for path in (directory, *(os.path.join(directory, name) for name in names)):  # noqa: PTH118
            try:
                stat = os.lstat(path)
            except OSError:
                continue  # it has just gone
            size += stat.st_blocks * 512
            files += 1
    return size, files


def mount_point(path: Path) -> str:
    """Where the file system that holds the path is mounted."""
    found = path.resolve()
    while not found.is_mount() and found != found.parent:
        found = found.parent
    return str(found)
