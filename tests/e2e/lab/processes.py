"""Processes by id: who they are, whom they started, and ending exactly those."""

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.lab.waiting import until

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """One process; the start time tells it from a later one that reuses its id."""

    pid: int
    started: int  # clock ticks after boot

    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        stat = _stat(self.pid)
        return stat is not None and stat.started == self.started and stat.state not in "ZX"

    def kill(self, signum: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal unless the process is gone."""
        if self.alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signum)


@dataclass(frozen=True, slots=True)
class _Stat:
    state: str
    parent: int
    started: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name stands in parentheses and may itself hold blanks and parentheses.
    fields = text.rpartition(")")[2].split()
    return _Stat(state=fields[0], parent=int(fields[1]), started=int(fields[19]))


def find(pid: int) -> Process | None:
    """The process with this id, or None when there is none."""
    stat = _stat(pid)
    return None if stat is None else Process(pid, stat.started)


def _all_pids() -> Iterator[int]:
    for entry in PROC.iterdir():
        if entry.name.isdecimal():
            yield int(entry.name)


def command_line(pid: int) -> list[str]:
    """The arguments of a process; empty when it is gone or a kernel thread."""
    try:
        raw = (PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [part.decode(errors="replace") for part in raw.split(b"\0") if part]


def that_name(path: Path) -> list[Process]:
    """The processes whose command line mentions this path or something below it."""
    named = (pid for pid in _all_pids() if any(str(path) in word for word in command_line(pid)))
    return [process for pid in named if (process := find(pid)) is not None]


def that_complain_below(directory: Path) -> list[Process]:
    """The processes whose standard error is a file below this directory, removed or not."""
    found = []
    # Processes end meanwhile, and some may not be looked into.
    for pid in _all_pids():
        with suppress(OSError):
            target = str((PROC / str(pid) / "fd/2").readlink()).removesuffix(" (deleted)")
            if Path(target).is_relative_to(directory) and (process := find(pid)) is not None:
                found.append(process)
    return found


def with_descendants(roots: Iterable[Process]) -> list[Process]:
    """The given processes and everything below them, parents first."""
    children: dict[int, list[Process]] = {}
    for pid in _all_pids():
        stat = _stat(pid)
        if stat is not None:
            children.setdefault(stat.parent, []).append(Process(pid, stat.started))
    out: list[Process] = []
    todo = list(roots)
    while todo:
        process = todo.pop(0)
        out.append(process)
        todo.extend(children.get(process.pid, ()))
    return out


def end_all(processes: Iterable[Process], *, timeout: float = 10.0) -> None:
    """Kill these processes and wait until none of them is left."""
    doomed = list(processes)
    for process in doomed:
        process.kill()
    until(
        f"the end of processes {[process.pid for process in doomed]}",
        lambda: not any(process.alive() for process in doomed),
        timeout=timeout,
    )
