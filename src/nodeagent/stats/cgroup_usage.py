"""What a cgroup uses, from the texts of its files. Pure.

docs/behaviour/stats.md, "Cgroups".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nodeagent.stats import texts
from nodeagent.stats.records import Cpu, Io, Limits, Memory, Swap, Usage

#: The files of cgroup v1 that are read, by controller.
FILES_V1: Final[Mapping[str, tuple[str, ...]]] = {
    "cpuacct": ("cpuacct.usage", "cpuacct.stat"),
    "cpu": ("cpu.stat", "cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.shares"),
    "memory": (
        "memory.usage_in_bytes",
        "memory.stat",
        "memory.limit_in_bytes",
        "memory.soft_limit_in_bytes",
        "memory.max_usage_in_bytes",
        "memory.failcnt",
        "memory.kmem.usage_in_bytes",
        "memory.memsw.usage_in_bytes",
        "memory.memsw.limit_in_bytes",
        "memory.oom_control",
        "cgroup.procs",
    ),
    "blkio": (
        "blkio.throttle.io_serviced_recursive",
        "blkio.throttle.io_service_bytes_recursive",
    ),
    "pids": ("pids.current", "pids.max"),
}

#: The files of cgroup v2 that are read.
FILES_V2: Final = (
    "cpu.stat",
    "cpu.max",
    "cpu.weight",
    "cpu.pressure",
    "memory.current",
    "memory.stat",
    "memory.max",
    "memory.low",
    "memory.peak",
    "memory.events",
    "memory.pressure",
    "memory.swap.current",
    "memory.swap.max",
    "io.stat",
    "io.pressure",
    "pids.current",
    "pids.max",
    "cgroup.procs",
)

_TICKS_NS: Final = 10_000_000
"""Of ``cpuacct.stat``, whose unit is a hundredth of a second on every architecture."""
_US: Final = 1000


def usage_v1(files: Mapping[str, str], now: int) -> Usage:
    """What a cgroup of v1 uses.

    Args:
        files: texts by name; those that could not be read are missing.
        now: when they were read.
    """
    get = files.get
    split, held = texts.flat(get("cpuacct.stat")), texts.flat(get("cpu.stat"))
    cpu = Cpu(
        time=now,
        usage=texts.number(get("cpuacct.usage")),
        user=_times(split.get("user"), _TICKS_NS),
        system=_times(split.get("system"), _TICKS_NS),
        periods=held.get("nr_periods"),
        throttled_periods=held.get("nr_throttled"),
        throttled=held.get("throttled_time"),
    )
    quota = texts.number(get("cpu.cfs_quota_us"))
    most = texts.limit(get("memory.limit_in_bytes"))
    most_swap = texts.limit(get("memory.memsw.limit_in_bytes"))
    limits = Limits(
        cpu_period=texts.number(get("cpu.cfs_period_us")),
        cpu_quota=quota if quota is not None and quota > 0 else None,
        cpu_shares=texts.number(get("cpu.shares")),
        memory=most,
        memory_reservation=texts.limit(get("memory.soft_limit_in_bytes")),
        swap=most_swap,
        tasks=texts.number(get("pids.max")),
    )
    stat = texts.flat(get("memory.stat"))
    used = texts.number(get("memory.usage_in_bytes"))
    with_swap = texts.number(get("memory.memsw.usage_in_bytes"))
    memory = Memory(
        time=now,
        usage=used,
        working_set=(working := _working_set(used, _either(stat, "total_inactive_file"))),
        available=_left(working, most),
        rss=_either(stat, "total_rss", "rss"),
        page_faults=_either(stat, "total_pgfault", "pgfault"),
        major_page_faults=_either(stat, "total_pgmajfault", "pgmajfault"),
        cache=_either(stat, "total_cache", "cache"),
        mapped_file=_either(stat, "total_mapped_file", "mapped_file"),
        max_usage=texts.number(get("memory.max_usage_in_bytes")),
        failures=texts.number(get("memory.failcnt")),
        kernel=texts.number(get("memory.kmem.usage_in_bytes")),
        oom_kills=texts.flat(get("memory.oom_control")).get("oom_kill"),
    )
    swap = None
    if with_swap is not None and used is not None:
        room = most_swap - most if most and most_swap >= most else None
        swap = _swap(now, max(with_swap - used, 0), room)
    io = Io(
        time=now,
        devices=texts.io_v1(
            get("blkio.throttle.io_serviced_recursive"),
            get("blkio.throttle.io_service_bytes_recursive"),
        ),
    )
    return _whole(cpu, memory, swap, io, limits, files)


def usage_v2(files: Mapping[str, str], now: int) -> Usage:
    """What a cgroup of v2 uses.

    Args:
        files: texts by name; those that could not be read are missing.
        now: when they were read.
    """
    get = files.get
    times = texts.flat(get("cpu.stat"))
    cpu = Cpu(
        time=now,
        usage=_times(times.get("usage_usec"), _US),
        user=_times(times.get("user_usec"), _US),
        system=_times(times.get("system_usec"), _US),
        periods=times.get("nr_periods"),
        throttled_periods=times.get("nr_throttled"),
        throttled=_times(times.get("throttled_usec"), _US),
        psi=texts.pressure(get("cpu.pressure")),
    )
    quota, period = texts.cpu_max(get("cpu.max"))
    weight = texts.number(get("cpu.weight"))
    most, most_swap = texts.limit(get("memory.max")), texts.number(get("memory.swap.max"))
    limits = Limits(
        cpu_period=period,
        cpu_quota=quota,
        cpu_shares=None if weight is None else texts.shares_of_weight(weight),
        memory=most,
        memory_reservation=texts.limit(get("memory.low")),
        swap=most + most_swap if most and most_swap is not None else 0,
        tasks=texts.number(get("pids.max")),
    )
    stat, events = texts.flat(get("memory.stat")), texts.flat(get("memory.events"))
    kernel = [stat[key] for key in ("kernel_stack", "slab", "pagetables", "sock") if key in stat]
    memory = Memory(
        time=now,
        usage=(used := texts.number(get("memory.current"))),
        working_set=(working := _working_set(used, stat.get("inactive_file"))),
        available=_left(working, most),
        rss=stat.get("anon"),
        page_faults=stat.get("pgfault"),
        major_page_faults=stat.get("pgmajfault"),
        cache=stat.get("file"),
        mapped_file=stat.get("file_mapped"),
        max_usage=texts.number(get("memory.peak")),
        failures=events.get("max"),
        kernel=stat.get("kernel", sum(kernel) if kernel else None),
        oom_kills=events.get("oom_kill"),
        psi=texts.pressure(get("memory.pressure")),
    )
    in_swap = texts.number(get("memory.swap.current"))
    swap = None if in_swap is None else _swap(now, in_swap, most_swap)
    io = Io(time=now, devices=texts.io_v2(get("io.stat")), psi=texts.pressure(get("io.pressure")))
    return _whole(cpu, memory, swap, io, limits, files)


def _working_set(used: int | None, inactive_file: int | None) -> int | None:
    return None if used is None else max(used - (inactive_file or 0), 0)


def _left(working_set: int | None, most: int) -> int | None:
    return max(most - working_set, 0) if most and working_set is not None else None


def _swap(now: int, used: int, most: int | None) -> Swap:
    available = None if most is None else max(most - used, 0)
    return Swap(time=now, usage=used, available=available, limit=most)


def _whole(
    cpu: Cpu, memory: Memory, swap: Swap | None, io: Io, limits: Limits, files: Mapping[str, str]
) -> Usage:
    processes = files.get("cgroup.procs")
    return Usage(
        cpu=cpu if cpu.usage is not None else None,
        memory=memory if memory.usage is not None else None,
        swap=swap,
        io=io if io.devices or io.psi is not None else None,
        processes=None if processes is None else len(processes.split()),
        tasks=texts.number(files.get("pids.current")),
        limits=limits,
    )


def _times(value: int | None, factor: int) -> int | None:
    return None if value is None else value * factor


def _either(values: Mapping[str, int], *names: str) -> int | None:
    return next((values[name] for name in names if name in values), None)
