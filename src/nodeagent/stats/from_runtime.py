"""What the runtime says that containers use. Pure."""

from __future__ import annotations

from typing import Final

from nodeagent.proto.runtime import v1
from nodeagent.stats.records import (
    Cpu,
    Fs,
    Interface,
    Io,
    Memory,
    Network,
    Pressure,
    Psi,
    Swap,
    Usage,
)

CONTAINER_NAME: Final = "io.kubernetes.container.name"
POD_UID: Final = "io.kubernetes.pod.uid"


def amount(value: v1.UInt64Value | None) -> int | None:
    """A number that may be missing."""
    return None if value is None else value.value


def container_usage(stats: v1.ContainerStats) -> Usage:
    """What a container uses."""
    return Usage(
        cpu=_cpu(stats.cpu),
        memory=_memory(stats.memory),
        swap=_swap(stats.swap),
        io=_io(stats.io),
    )


def sandbox_usage(stats: v1.LinuxPodSandboxStats) -> Usage:
    """What a pod uses."""
    processes = amount(stats.process.process_count) if stats.process is not None else None
    return Usage(
        cpu=_cpu(stats.cpu), memory=_memory(stats.memory), io=_io(stats.io), processes=processes
    )


def writable_layer(stats: v1.ContainerStats) -> Fs | None:
    """What a container has written."""
    layer = stats.writable_layer
    if layer is None:
        return None
    return Fs(
        time=layer.timestamp,
        used=amount(layer.used_bytes),
        inodes_used=amount(layer.inodes_used),
    )


def network(stats: v1.NetworkUsage | None) -> Network | None:
    """The interfaces of a pod; None when the runtime names none."""
    if stats is None:
        return None
    found = {one.name: one for one in map(_interface, stats.interfaces)}
    default = stats.default_interface
    if default is not None and default.name:
        found.setdefault(default.name, _interface(default))
    if not found:
        return None
    name = default.name if default is not None and default.name else next(iter(found))
    return Network(time=stats.timestamp, default=name, interfaces=tuple(found.values()))


def _interface(one: v1.NetworkInterfaceUsage) -> Interface:
    return Interface(
        one.name,
        amount(one.rx_bytes),
        amount(one.rx_errors),
        amount(one.tx_bytes),
        amount(one.tx_errors),
    )


def _cpu(stats: v1.CpuUsage | None) -> Cpu | None:
    if stats is None:
        return None
    return Cpu(
        time=stats.timestamp,
        usage=amount(stats.usage_core_nano_seconds),
        nano_cores=amount(stats.usage_nano_cores),
        psi=_psi(stats.psi),
    )


def _memory(stats: v1.MemoryUsage | None) -> Memory | None:
    if stats is None:
        return None
    return Memory(
        time=stats.timestamp,
        usage=amount(stats.usage_bytes),
        working_set=amount(stats.working_set_bytes),
        rss=amount(stats.rss_bytes),
        available=amount(stats.available_bytes) or None,
        page_faults=amount(stats.page_faults),
        major_page_faults=amount(stats.major_page_faults),
        psi=_psi(stats.psi),
    )


def _swap(stats: v1.SwapUsage | None) -> Swap | None:
    if stats is None:
        return None
    usage, available = amount(stats.swap_usage_bytes), amount(stats.swap_available_bytes)
    limit = usage + available if usage is not None and available is not None else None
    return Swap(time=stats.timestamp, usage=usage, available=available, limit=limit)


def _io(stats: v1.IoUsage | None) -> Io | None:
    return None if stats is None else Io(time=stats.timestamp, psi=_psi(stats.psi))


def _psi(stats: v1.PsiStats | None) -> Psi | None:
    if stats is None:
        return None
    return Psi(_pressure(stats.some), _pressure(stats.full))


def _pressure(data: v1.PsiData | None) -> Pressure | None:
    if data is None:
        return None
    return Pressure(data.total, data.avg_10, data.avg_60, data.avg_300)
