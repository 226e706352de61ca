"""What the whole machine uses. Blocking; meant for a thread."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from nodeagent.stats import texts
from nodeagent.stats.cgroup_tree import Cgroups, read
from nodeagent.stats.records import (
    Cpu,
    Fs,
    Io,
    MachineFacts,
    Memory,
    Network,
    NodeFigures,
    Swap,
    SystemFigures,
    Usage,
)

_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGESIZE")
_IDLE: Final = (3, 4)
"""Columns of ``/proc/stat`` in which nothing is done: idle, and waiting for a disk."""
_USER: Final = (0, 1)
_GUEST: Final = 8
"""The first of the columns that count again what others have."""


class Machine:
    """Reads what a machine uses.

    Args:
        cgroups: its cgroups.
        root: where ``proc`` and ``sys`` are found.
    """

    def __init__(self, cgroups: Cgroups, root: Path = Path("/")) -> None:
        self._cgroups = cgroups
        self._proc = str(root / "proc")
        self._sys = str(root / "sys")
        self._cores, self._sockets = 0, 0
        self._devices: dict[str, str] = {}

    def figures(self, name: str, now: int) -> NodeFigures:
        """All but file systems and what runs beside the pods.

        Args:
            name: of the node.
            now: wall time.
        """
        memory = texts.meminfo(self._read("meminfo"))
        threads = (self._read("loadavg") or "").partition("/")[2].partition(" ")[0]
        usage = self._usage(memory, now)
        return NodeFigures(
            name=name,
            started_at=self.booted_at(),
            usage=usage,
            network=self.network("self", now, default=self._read("net/route")),
            most_tasks=texts.least(
                texts.number(self._read("sys/kernel/pid_max")),
                texts.number(self._read("sys/kernel/threads-max")),
            ),
            tasks=texts.number(threads),
            tasks_time=now,
            machine=self._facts(memory),
            devices=self._named(usage),
        )

    def booted_at(self) -> int:
        """When the machine was started, in wall-clock nanoseconds; 0 when it does not say."""
        return texts.flat(self._read("stat")).get("btime", 0) * 1_000_000_000

    def network(self, process: int | str, now: int, default: str | None = None) -> Network | None:
        """The interfaces that a process sees.

        Args:
            process: its number, or ``self``.
            now: wall time.
            default: its routes, when the default one says which interface counts.
        """
        found = texts.interfaces(read(f"{self._proc}/{process}/net/dev"))
        if not found:
            return None
        names = [one.name for one in found]
        routed = texts.default_interface(default)
        best = next((name for name in (routed, "eth0") if name in names), names[0])
        return Network(time=now, default=best, interfaces=found)

    def process(self, pid: int | str, name: str, now: int) -> SystemFigures | None:
        """What one process uses, of which nobody knows a cgroup; None when it is gone.

        Args:
            pid: its number, or ``self``.
            name: how it is called.
            now: wall time.
        """
        stat = read(f"{self._proc}/{pid}/stat")
        fields = stat.rpartition(")")[2].split() if stat else []
        if len(fields) < 22:
            return None
        minor, major, user, system = (int(fields[n]) for n in (7, 9, 11, 12))
        resident = int(fields[21]) * _PAGE
        return SystemFigures(
            name=name,
            started_at=self.booted_at() + int(fields[19]) * _TICK_NS,
            usage=Usage(
                cpu=Cpu(time=now, usage=(user + system) * _TICK_NS),
                memory=Memory(
                    time=now,
                    usage=resident,
                    working_set=resident,
                    rss=resident,
                    page_faults=minor + major,
                    major_page_faults=major,
                ),
            ),
        )

    def _usage(self, meminfo: dict[str, int], now: int) -> Usage:
        """Of cgroups where they know, else of ``/proc``."""
        top = self._cgroups.usage("/", now)
        pressure = {
            kind: texts.pressure(self._read(f"pressure/{kind}")) for kind in ("cpu", "memory", "io")
        }
        cpu = top.cpu or self._cpu(now)
        memory = top.memory or _memory(meminfo, top.memory, now)
        total = meminfo.get("MemTotal")
        if total is not None and memory.working_set is not None:
            memory = replace(memory, available=max(total - memory.working_set, 0))
        return Usage(
            cpu=replace(cpu, psi=pressure["cpu"]),
            memory=replace(memory, psi=pressure["memory"]),
            swap=_swap(meminfo, now),
            io=replace(top.io or Io(time=now), psi=pressure["io"]),
            processes=top.processes,
            tasks=top.tasks,
            limits=top.limits,
        )

    def _cpu(self, now: int) -> Cpu:
        line = (self._read("stat") or "").partition("\n")[0].split()[1:]
        ticks = [texts.number(column) or 0 for column in line][:_GUEST]
        busy = sum(amount for n, amount in enumerate(ticks) if n not in _IDLE)
        user = sum(amount for n, amount in enumerate(ticks) if n in _USER)
        return Cpu(
            time=now,
            usage=busy * _TICK_NS,
            user=user * _TICK_NS,
            system=(busy - user) * _TICK_NS,
        )

    def _facts(self, memory: dict[str, int]) -> MachineFacts:
        if not self._sockets:
            self._cores, self._sockets = texts.topology(self._read("cpuinfo"))
        count = os.cpu_count() or 0
        return MachineFacts(
            cores=count,
            physical_cores=self._cores or count,
            sockets=self._sockets or 1,
            memory=memory.get("MemTotal", 0),
            swap=memory.get("SwapTotal", 0),
            machine_id=(read(f"{self._proc}/../etc/machine-id") or "").strip(),
            system_uuid=(read(f"{self._sys}/class/dmi/id/product_uuid") or "").strip(),
            boot_id=(self._read("sys/kernel/random/boot_id") or "").strip(),
        )

    def device_name(self, number: str) -> str:
        """The name of a block device by its numbers; these, when nobody knows a name."""
        known = self._devices.get(number)
        if known is None:
            lines = (read(f"{self._sys}/dev/block/{number}/uevent") or "").splitlines()
            names = [line.removeprefix("DEVNAME=") for line in lines if line.startswith("DEVNAME=")]
            known = self._devices[number] = f"/dev/{names[0]}" if names else number
        return known

    def _named(self, usage: Usage) -> dict[str, str]:
        if usage.io is not None:
            for device in usage.io.devices:
                self.device_name(device.number)
        return self._devices

    def _read(self, name: str) -> str | None:
        return read(f"{self._proc}/{name}")


def _memory(meminfo: dict[str, int], known: Memory | None, now: int) -> Memory:
    """Of the machine, whose own cgroup of v2 does not tell."""
    if "MemTotal" not in meminfo:
        return known or Memory(time=now)
    used = meminfo["MemTotal"] - meminfo.get("MemFree", 0)
    return Memory(
        time=now,
        usage=used,
        working_set=max(used - meminfo.get("Inactive(file)", 0), 0),
        rss=meminfo.get("AnonPages"),
        cache=meminfo.get("Cached"),
        mapped_file=meminfo.get("Mapped"),
    )


def _swap(meminfo: dict[str, int], now: int) -> Swap:
    total, free = meminfo.get("SwapTotal", 0), meminfo.get("SwapFree", 0)
    return Swap(time=now, usage=total - free, available=free, limit=total)


def file_system(path: str, now: int, machine: Machine) -> Fs | None:
    """The file system that holds a path; None when it cannot be looked at."""
    try:
        room, info = os.statvfs(path), os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    number = f"{os.major(info.st_dev)}:{os.minor(info.st_dev)}"
    return Fs(
        time=now,
        used=(room.f_blocks - room.f_bfree) * room.f_frsize,
        capacity=room.f_blocks * room.f_frsize,
        available=room.f_bavail * room.f_frsize,
        inodes=room.f_files,
        inodes_free=room.f_ffree,
        inodes_used=room.f_files - room.f_ffree,
        device=machine.device_name(number),
    )


def directory_size(path: str) -> tuple[int, int]:
    """Bytes and entries of a directory of files; zeros when it is not there."""
    size = entries = 0
    try:
        with os.scandir(path) as found:
            for entry in found:
                size += entry.stat(follow_symlinks=False).st_size
                entries += 1
    except OSError:
        return size, entries
    return size, entries
