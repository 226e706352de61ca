"""The summary of a collection, as ``/stats/summary`` gives it. Pure.

docs/behaviour/stats.md, "Summary".
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from nodeagent.stats.records import (
    ContainerFigures,
    Cpu,
    Fs,
    Interface,
    Io,
    Memory,
    Network,
    NodeFigures,
    PodFigures,
    Pressure,
    Psi,
    Snapshot,
    Swap,
    SystemFigures,
    Usage,
    VolumeFigures,
)

Json = dict[str, Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def encode_summary(found: Snapshot, *, only_cpu_and_memory: bool = False) -> bytes:
    """The JSON text of a summary."""
    return msgspec.json.encode(summary(found, only_cpu_and_memory=only_cpu_and_memory))


def summary(found: Snapshot, *, only_cpu_and_memory: bool = False) -> Json:
    """What is unknown is left out.

    Args:
        found: a collection.
        only_cpu_and_memory: of the node, of pods and of containers.
    """
    view = _View(brief=only_cpu_and_memory)
    return {"node": view.node(found.node), "pods": [view.pod(pod) for pod in found.pods]}


class _View:
    def __init__(self, *, brief: bool) -> None:
        self._brief = brief
        self._times: dict[int, str] = {}

    def node(self, node: NodeFigures) -> Json:
        shown: Json = {
            "nodeName": node.name,
            "systemContainers": [self._system(one) for one in node.system],
            "startTime": self._time(node.started_at),
            **self._usage(node.usage),
        }
        if not self._brief:
            runtime = {
                "imageFs": self._fs(node.image_fs),
                "containerFs": self._fs(node.container_fs),
            }
            rlimit = {
                "time": self._time(node.tasks_time),
                "maxpid": node.most_tasks,
                "curproc": node.tasks,
            }
            shown |= {
                "io": self._io(node.usage.io),
                "network": self._network(node.network),
                "fs": self._fs(node.fs),
                "runtime": _known(runtime),
                "rlimit": _known(rlimit),
                "swap": self._swap(node.usage.swap),
            }
        return _known(shown)

    def pod(self, pod: PodFigures) -> Json:
        shown: Json = {
            "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "startTime": self._time(pod.started_at),
            "containers": [self._container(one) for one in pod.containers],
            **self._usage(pod.usage),
        }
        if not self._brief:
            count = pod.usage.processes
            shown |= {
                "io": self._io(pod.usage.io),
                "network": self._network(pod.network),
                "volume": [self._volume(one) for one in pod.volumes] or None,
                "ephemeral-storage": self._fs(pod.ephemeral),
                "process_stats": None if count is None else {"process_count": count},
                "swap": self._swap(pod.usage.swap),
            }
        return _known(shown)

    def _container(self, one: ContainerFigures) -> Json:
        shown: Json = {
            "name": one.name,
            "startTime": self._time(one.started_at),
            **self._usage(one.usage),
        }
        if not self._brief:
            shown |= {
                "io": self._io(one.usage.io),
                "rootfs": self._fs(one.rootfs),
                "logs": self._fs(one.logs),
                "swap": self._swap(one.usage.swap),
            }
        return _known(shown)

    def _system(self, one: SystemFigures) -> Json:
        started = self._time(one.started_at) if one.started_at else None
        shown = {"name": one.name, "startTime": started, **self._usage(one.usage)}
        return _known(shown)

    def _usage(self, usage: Usage) -> Json:
        return {"cpu": self._cpu(usage.cpu), "memory": self._memory(usage.memory)}

    def _cpu(self, cpu: Cpu | None) -> Json | None:
        if cpu is None:
            return None
        return _known(
            {
                "time": self._time(cpu.time),
                "usageNanoCores": cpu.nano_cores,
                "usageCoreNanoSeconds": cpu.usage,
                "psi": _psi(cpu.psi),
            }
        )

    def _memory(self, memory: Memory | None) -> Json | None:
        if memory is None:
            return None
        return _known(
            {
                "time": self._time(memory.time),
                "availableBytes": memory.available,
                "usageBytes": memory.usage,
                "workingSetBytes": memory.working_set,
                "rssBytes": memory.rss,
                "pageFaults": memory.page_faults,
                "majorPageFaults": memory.major_page_faults,
                "psi": _psi(memory.psi),
            }
        )

    def _io(self, io: Io | None) -> Json | None:
        if io is None or io.psi is None:
            return None
        return {"time": self._time(io.time), "psi": _psi(io.psi)}

    def _swap(self, swap: Swap | None) -> Json | None:
        if swap is None:
            return None
        return _known(
            {
                "time": self._time(swap.time),
                "swapAvailableBytes": swap.available,
                "swapUsageBytes": swap.usage,
            }
        )

    def _fs(self, fs: Fs | None) -> Json | None:
        return None if fs is None else _known(self._room(fs))

    def _room(self, fs: Fs) -> Json:
        return {
            "time": self._time(fs.time),
            "availableBytes": fs.available,
            "capacityBytes": fs.capacity,
            "usedBytes": fs.used,
            "inodesFree": fs.inodes_free,
            "inodes": fs.inodes,
            "inodesUsed": fs.inodes_used,
        }

    def _volume(self, one: VolumeFigures) -> Json:
        claim = one.claim
        health = None if one.abnormal is None else {"abnormal": one.abnormal}
        return _known(
            {
                **self._room(one.fs),
                "name": one.name,
                "pvcRef": None if claim is None else {"namespace": claim[0], "name": claim[1]},
                "volumeHealthStats": health,
            }
        )

    def _network(self, network: Network | None) -> Json | None:
        if network is None:
            return None
        main = network.main
        return {
            "time": self._time(network.time),
            **(_interface(main) if main is not None else {"name": network.default}),
            "interfaces": [_interface(one) for one in network.interfaces],
        }

    def _time(self, stamp: int) -> str:
        """A moment as the API writes it: in whole seconds of UTC."""
        shown = self._times.get(stamp)
        if shown is None:
            moment = _EPOCH + timedelta(seconds=stamp // 1_000_000_000)
            shown = self._times[stamp] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        return shown


def _interface(one: Interface) -> Json:
    return _known(
        {
            "name": one.name,
            "rxBytes": one.rx_bytes,
            "rxErrors": one.rx_errors,
            "txBytes": one.tx_bytes,
            "txErrors": one.tx_errors,
        }
    )


def _psi(psi: Psi | None) -> Json | None:
    if psi is None:
        return None
    zero = Pressure()
    return {"full": _pressure(psi.full or zero), "some": _pressure(psi.some or zero)}


def _pressure(one: Pressure) -> Json:
    return {"total": one.total, "avg10": one.avg10, "avg60": one.avg60, "avg300": one.avg300}


def _known(fields: Mapping[str, Any]) -> Json:
    return {name: value for name, value in fields.items() if value is not None}
