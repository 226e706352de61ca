"""What the kernel says about a process. Blocking, but /proc never waits for a disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at a process.

    Attributes:
        cpu_s: processor seconds that all its threads have used since its start.
        rss_mb: resident memory, in units of 10^6 bytes.
        threads: number of threads.
        fds: open file descriptors.
    """

    cpu_s: float
    rss_mb: float
    threads: int
    fds: int


def read_process(pid: int) -> Reading:
    """Look at a process of this user.

    Raises:
        ProcessLookupError: there is none with this id.
    """
    home = _PROC / str(pid)
    try:
        # The command name stands in parentheses and may itself hold blanks and parentheses.
        stat = (home / "stat").read_text().rpartition(")")[2].split()
        status = (home / "status").read_text()
        fds = len(os.listdir(home / "fd"))  # noqa: PTH208 - half as long as by Path
    except FileNotFoundError as error:
        msg = f"no process {pid}: it has ended"
        raise ProcessLookupError(msg) from error
    return Reading(
        cpu_s=(int(stat[11]) + int(stat[12])) / _TICKS,
        rss_mb=_kib(status, "VmRSS:") * 1024 / 1e6,
        threads=int(stat[17]),
        fds=fds,
    )


def _kib(status: str, name: str) -> int:
    for line in status.splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0
