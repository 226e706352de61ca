"""``/metrics/cadvisor``: the names that dashboards use, from the same figures. Pure.

docs/behaviour/stats.md, "Container metrics".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nodeagent.stats.exposition import Exposition, labels
from nodeagent.stats.records import (
    ContainerFigures,
    Cpu,
    Fs,
    Io,
    Limits,
    Memory,
    Network,
    NodeFigures,
    PodFigures,
    Psi,
    Snapshot,
    Usage,
)

_C: Final = "counter"
_G: Final = "gauge"
#: Name, type, help.
FAMILIES: Final = (
    ("cadvisor_version_info", _G, "Versions of kernel, system and agent, with the value 1"),
    ("container_blkio_device_usage_total", _C, "Bytes read from and written to block devices"),
    ("container_cpu_cfs_periods_total", _C, "Periods of the quota that have passed"),
    ("container_cpu_cfs_throttled_periods_total", _C, "Periods in which the quota was used up"),
    ("container_cpu_cfs_throttled_seconds_total", _C, "Seconds for which tasks were held back"),
    ("container_cpu_system_seconds_total", _C, "Seconds of processor time in the kernel"),
    ("container_cpu_usage_seconds_total", _C, "Seconds of processor time"),
    ("container_cpu_user_seconds_total", _C, "Seconds of processor time outside the kernel"),
    ("container_fs_inodes_free", _G, "Inodes that are free"),
    ("container_fs_inodes_total", _G, "Inodes of the file system"),
    ("container_fs_limit_bytes", _G, "Bytes of the file system"),
    ("container_fs_reads_bytes_total", _C, "Bytes read"),
    ("container_fs_reads_total", _C, "Reads that were completed"),
    ("container_fs_usage_bytes", _G, "Bytes that it takes on the file system"),
    ("container_fs_writes_bytes_total", _C, "Bytes written"),
    ("container_fs_writes_total", _C, "Writes that were completed"),
    ("container_last_seen", _G, "When it was last seen, in Unix time"),
    ("container_memory_cache", _G, "Bytes of memory that are caches of files"),
    ("container_memory_failcnt", _C, "How often the limit of memory was hit"),
    ("container_memory_failures_total", _C, "Page faults"),
    ("container_memory_kernel_usage", _G, "Bytes of memory of the kernel"),
    ("container_memory_mapped_file", _G, "Bytes of mapped files"),
    ("container_memory_max_usage_bytes", _G, "The most bytes of memory it ever used"),
    ("container_memory_rss", _G, "Bytes of anonymous memory"),
    ("container_memory_swap", _G, "Bytes of swap"),
    ("container_memory_usage_bytes", _G, "Bytes of memory, caches included"),
    ("container_memory_working_set_bytes", _G, "Bytes of memory that cannot be given back at once"),
    ("container_network_receive_bytes_total", _C, "Bytes received"),
    ("container_network_receive_errors_total", _C, "Errors while receiving"),
    ("container_network_receive_packets_dropped_total", _C, "Packets dropped while receiving"),
    ("container_network_receive_packets_total", _C, "Packets received"),
    ("container_network_transmit_bytes_total", _C, "Bytes sent"),
    ("container_network_transmit_errors_total", _C, "Errors while sending"),
    ("container_network_transmit_packets_dropped_total", _C, "Packets dropped while sending"),
    ("container_network_transmit_packets_total", _C, "Packets sent"),
    ("container_oom_events_total", _C, "How often something was killed for want of memory"),
    ("container_pressure_cpu_stalled_seconds_total", _C, "Seconds all tasks waited for processors"),
    ("container_pressure_cpu_waiting_seconds_total", _C, "Seconds a task waited for processors"),
    ("container_pressure_io_stalled_seconds_total", _C, "Seconds all tasks waited for devices"),
    ("container_pressure_io_waiting_seconds_total", _C, "Seconds a task waited for devices"),
    ("container_pressure_memory_stalled_seconds_total", _C, "Seconds all tasks waited for memory"),
    ("container_pressure_memory_waiting_seconds_total", _C, "Seconds a task waited for memory"),
    ("container_processes", _G, "Processes"),
    ("container_spec_cpu_period", _G, "Period of the quota in microseconds"),
    ("container_spec_cpu_quota", _G, "Processor time of each period in microseconds"),
    ("container_spec_cpu_shares", _G, "Share of processor time"),
    ("container_spec_memory_limit_bytes", _G, "Limit of memory; 0 for none"),
    ("container_spec_memory_reservation_limit_bytes", _G, "Memory that is reserved"),
    ("container_spec_memory_swap_limit_bytes", _G, "Limit of memory and swap; 0 for none"),
    ("container_start_time_seconds", _G, "When it was started, in Unix time"),
    ("container_threads", _G, "Processes and threads"),
    ("container_threads_max", _G, "The most processes and threads there may be; 0 for no limit"),
    ("machine_cpu_cores", _G, "Processors as the system counts them"),
    ("machine_cpu_physical_cores", _G, "Cores of processors"),
    ("machine_cpu_sockets", _G, "Sockets of processors"),
    ("machine_memory_bytes", _G, "Bytes of memory"),
    ("machine_swap_bytes", _G, "Bytes of swap"),
    ("machine_scrape_error", _G, "1 when the figures could not be collected, else 0"),
)
_NS: Final = 1_000_000_000
_US: Final = 1_000_000


def container_metrics(found: Snapshot | None, versions: Mapping[str, str]) -> bytes:
    """The text; without a collection, that there was an error and nothing else.

    Args:
        found: a collection.
        versions: labels of ``cadvisor_version_info``.
    """
    text = Exposition()
    for family in FAMILIES:
        text.family(*family)
    text.add("machine_scrape_error", int(found is None))
    if found is not None:
        text.add("cadvisor_version_info", 1, labels(versions))
        _Writer(text, found).write()
    return text.text()


class _Writer:
    def __init__(self, text: Exposition, found: Snapshot) -> None:
        self._text = text
        self._found = found

    def write(self) -> None:
        node = self._found.node
        self._machine(node)
        self._subject(node.usage, node.started_at, _named("/"))
        self._fs(node.fs, _named("/"))
        self._network(node.network, _named("/"))
        for pod in self._found.pods:
            self._pod(pod)

    def _pod(self, pod: PodFigures) -> None:
        group = pod.cgroup or f"/kubepods/pod{pod.uid}"
        own = _named(group, pod=pod)
        self._subject(pod.usage, pod.started_at, own)
        self._network(pod.network, _named(group, pod=pod, name=pod.sandbox_id))
        for one in pod.containers:
            path = one.cgroup or f"/kubepods/pod{pod.uid}/{one.id}"
            named = _named(path, pod=pod, one=one, name=one.id)
            self._subject(one.usage, one.started_at, named)
            self._fs(one.rootfs, named)

    def _subject(self, usage: Usage, started_at: int, named: str) -> None:
        add, now = self._text.add, self._found.time
        self._cpu(usage.cpu, named)
        self._memory(usage.memory, named)
        self._io(usage.io, named)
        self._limits(usage.limits, named)
        swap = usage.swap
        if swap is not None:
            add("container_memory_swap", swap.usage, named, swap.time)
        add("container_processes", usage.processes, named)
        add("container_threads", usage.tasks, named)
        add("container_last_seen", now // _NS, named)
        if started_at:
            add("container_start_time_seconds", started_at // _NS, named)

    def _cpu(self, cpu: Cpu | None, named: str) -> None:
        if cpu is None:
            return
        add, at = self._text.add, cpu.time
        add(
            "container_cpu_usage_seconds_total",
            _over(cpu.usage, _NS),
            _with(named, cpu="total"),
            at,
        )
        add("container_cpu_user_seconds_total", _over(cpu.user, _NS), named, at)
        add("container_cpu_system_seconds_total", _over(cpu.system, _NS), named, at)
        if cpu.periods:
            add("container_cpu_cfs_periods_total", cpu.periods, named, at)
            add("container_cpu_cfs_throttled_periods_total", cpu.throttled_periods, named, at)
            seconds = _over(cpu.throttled, _NS)
            add("container_cpu_cfs_throttled_seconds_total", seconds, named, at)
        self._psi("cpu", cpu.psi, named, at)

    def _memory(self, memory: Memory | None, named: str) -> None:
        if memory is None:
            return
        add, at = self._text.add, memory.time
        add("container_memory_usage_bytes", memory.usage, named, at)
        add("container_memory_working_set_bytes", memory.working_set, named, at)
        add("container_memory_rss", memory.rss, named, at)
        add("container_memory_cache", memory.cache, named, at)
        add("container_memory_mapped_file", memory.mapped_file, named, at)
        add("container_memory_max_usage_bytes", memory.max_usage, named, at)
        add("container_memory_failcnt", memory.failures, named, at)
        add("container_memory_kernel_usage", memory.kernel, named, at)
        add("container_oom_events_total", memory.oom_kills, named, at)
        for kind, faults in (
            ("pgfault", memory.page_faults),
            ("pgmajfault", memory.major_page_faults),
        ):
            more = _with(named, failure_type=kind, scope="hierarchy")
            add("container_memory_failures_total", faults, more, at)
        self._psi("memory", memory.psi, named, at)

    def _io(self, io: Io | None, named: str) -> None:
        if io is None:
            return
        add, at = self._text.add, io.time
        for device in io.devices:
            name = self._found.node.devices.get(device.number, device.number)
            own = _with(named, device=name)
            add("container_fs_reads_total", device.reads, own, at)
            add("container_fs_writes_total", device.writes, own, at)
            add("container_fs_reads_bytes_total", device.read_bytes, own, at)
            add("container_fs_writes_bytes_total", device.write_bytes, own, at)
            major, _, minor = device.number.partition(":")
            for kind, size in (("Read", device.read_bytes), ("Write", device.write_bytes)):
                more = _with(named, device=name, major=major, minor=minor, operation=kind)
                add("container_blkio_device_usage_total", size, more, at)
        self._psi("io", io.psi, named, at)

    def _psi(self, kind: str, psi: Psi | None, named: str, at: int) -> None:
        if psi is None:
            return
        for word, one in (("waiting", psi.some), ("stalled", psi.full)):
            if one is not None:
                name = f"container_pressure_{kind}_{word}_seconds_total"
                self._text.add(name, one.total / _US, named, at)

    def _limits(self, limits: Limits | None, named: str) -> None:
        if limits is None:
            return
        add = self._text.add
        add("container_spec_cpu_period", limits.cpu_period, named)
        add("container_spec_cpu_quota", limits.cpu_quota, named)
        add("container_spec_cpu_shares", limits.cpu_shares, named)
        add("container_spec_memory_limit_bytes", limits.memory, named)
        add("container_spec_memory_reservation_limit_bytes", limits.memory_reservation, named)
        add("container_spec_memory_swap_limit_bytes", limits.swap, named)
        add("container_threads_max", limits.tasks or 0, named)

    def _fs(self, fs: Fs | None, named: str) -> None:
        if fs is None:
            return
        add, own = self._text.add, _with(named, device=fs.device)
        add("container_fs_usage_bytes", fs.used, own, fs.time)
        add("container_fs_limit_bytes", fs.capacity, own, fs.time)
        add("container_fs_inodes_free", fs.inodes_free, own, fs.time)
        add("container_fs_inodes_total", fs.inodes, own, fs.time)

    def _network(self, network: Network | None, named: str) -> None:
        if network is None:
            return
        add, at = self._text.add, network.time
        for one in network.interfaces:
            own = _with(named, interface=one.name)
            for way, size, packets, errors, dropped in (
                ("receive", one.rx_bytes, one.rx_packets, one.rx_errors, one.rx_dropped),
                ("transmit", one.tx_bytes, one.tx_packets, one.tx_errors, one.tx_dropped),
            ):
                add(f"container_network_{way}_bytes_total", size, own, at)
                add(f"container_network_{way}_packets_total", packets, own, at)
                add(f"container_network_{way}_errors_total", errors, own, at)
                add(f"container_network_{way}_packets_dropped_total", dropped, own, at)

    def _machine(self, node: NodeFigures) -> None:
        facts = node.machine
        ids = {
            "boot_id": facts.boot_id,
            "machine_id": facts.machine_id,
            "system_uuid": facts.system_uuid,
        }
        named, add = labels(ids), self._text.add
        add("machine_cpu_cores", facts.cores, named)
        add("machine_cpu_physical_cores", facts.physical_cores, named)
        add("machine_cpu_sockets", facts.sockets, named)
        add("machine_memory_bytes", facts.memory, named)
        add("machine_swap_bytes", facts.swap, named)


def _named(
    path: str, *, pod: PodFigures | None = None, one: ContainerFigures | None = None, name: str = ""
) -> str:
    return labels(
        {
            "container": one.name if one is not None else "",
            "id": path,
            "image": one.image if one is not None else "",
            "name": name,
            "namespace": pod.namespace if pod is not None else "",
            "pod": pod.name if pod is not None else "",
        }
    )


def _with(named: str, **more: str) -> str:
    return f"{named},{labels(more)}"


def _over(value: int | None, divisor: int) -> float | None:
    return None if value is None else value / divisor
