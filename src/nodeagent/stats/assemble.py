"""Puts together what runtime, cgroups and files say. Pure.

docs/behaviour/stats.md, "Where figures come from".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nodeagent.model import ContainerState, PodUID, RuntimeContainer, RuntimePod
from nodeagent.proto.runtime import v1
from nodeagent.stats import from_runtime
from nodeagent.stats.rates import Rates
from nodeagent.stats.records import (
    ContainerFigures,
    Cpu,
    Fs,
    Io,
    Memory,
    Network,
    NodeFigures,
    PodFigures,
    Snapshot,
    Swap,
    SystemFigures,
    Usage,
    VolumeFigures,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeAnswers:
    """What the runtime said.

    Attributes:
        pods: all of them.
        sandboxes: figures by sandbox id; empty where the runtime has none.
        containers: figures by container id.
        image_fs: how much images take; None when it did not say.
        container_fs: how much containers write.
        mounts: where these two are.
    """

    pods: Sequence[RuntimePod] = ()
    sandboxes: Mapping[str, v1.LinuxPodSandboxStats] = field(default_factory=dict)
    containers: Mapping[str, v1.ContainerStats] = field(default_factory=dict)
    image_fs: v1.FilesystemUsage | None = None
    container_fs: v1.FilesystemUsage | None = None

    def ids(self) -> list[str]:
        """Ids of all sandboxes and of all containers that run."""
        sandboxes = [s.id for pod in self.pods for s in pod.sandboxes[:1]]
        return [*sandboxes, *(c.id for pod in self.pods for c in running(pod))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What was read from files.

    Attributes:
        time: when, in wall-clock nanoseconds.
        node: figures of the machine, file systems included.
        cgroups: paths by id.
        usages: of these, by id.
        networks: by sandbox id.
        logs: bytes and files of logs, by container id.
    """

    time: int
    node: NodeFigures
    cgroups: Mapping[str, str] = field(default_factory=dict)
    usages: Mapping[str, Usage] = field(default_factory=dict)
    networks: Mapping[str, Network] = field(default_factory=dict)
    logs: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def running(pod: RuntimePod) -> list[RuntimeContainer]:
    """Those that run, the newest of each name."""
    found: dict[str, RuntimeContainer] = {}
    for container in pod.containers:  # newest first
        if container.state is ContainerState.RUNNING:
            found.setdefault(container.name, container)
    return list(found.values())


def snapshot(
    answers: RuntimeAnswers,
    readings: Readings,
    volumes: Mapping[PodUID, Sequence[VolumeFigures]],
    rates: Rates,
) -> Snapshot:
    """One collection.

    Args:
        answers: of the runtime.
        readings: of files.
        volumes: by UID of the pod.
        rates: of counters; learns the present ones.
    """
    joint = _Joint(answers, readings, rates)
    pods = tuple(
        joint.pod(pod, tuple(volumes.get(pod.uid, ()))) for pod in answers.pods if running(pod)
    )
    node = joint.node(pods)
    rates.keep(joint.rated)
    return Snapshot(time=readings.time, node=node, pods=pods)


class _Joint:
    """What is needed for each part."""

    def __init__(self, answers: RuntimeAnswers, readings: Readings, rates: Rates) -> None:
        self._answers = answers
        self._readings = readings
        self._rates = rates
        self.rated: list[str] = []

    def pod(self, pod: RuntimePod, volumes: tuple[VolumeFigures, ...]) -> PodFigures:
        containers = tuple(self.container(one) for one in running(pod))
        sandbox = pod.sandboxes[0] if pod.sandboxes else None
        sandbox_id = sandbox.id if sandbox is not None else ""
        told = self._answers.sandboxes.get(sandbox_id)
        own = self._readings.usages.get(sandbox_id, Usage())
        sums = together([*(one.usage for one in containers), own])
        usage = over(from_runtime.sandbox_usage(told), sums) if told is not None else sums
        network = self._readings.networks.get(sandbox_id)
        if network is None and told is not None:
            network = from_runtime.network(told.network)
        return PodFigures(
            uid=pod.uid,
            name=pod.name,
            namespace=pod.namespace,
            sandbox_id=sandbox_id,
            cgroup=self._readings.cgroups.get(sandbox_id, ""),
            started_at=sandbox.created_at if sandbox is not None else 0,
            containers=containers,
            usage=self._rated(f"pod/{pod.uid}", usage),
            network=network,
            volumes=volumes,
            ephemeral=self._ephemeral(containers, volumes),
        )

    def container(self, one: RuntimeContainer) -> ContainerFigures:
        told = self._answers.containers.get(one.id)
        read = self._readings.usages.get(one.id, Usage())
        usage = read if told is None else over(read, from_runtime.container_usage(told))
        layer = from_runtime.writable_layer(told) if told is not None else None
        return ContainerFigures(
            name=one.name,
            id=one.id,
            image=one.image,
            cgroup=self._readings.cgroups.get(one.id, ""),
            started_at=one.created_at,
            usage=self._rated(one.id, usage),
            rootfs=_placed(layer, self._readings.node.container_fs),
            logs=self._logs(one.id),
        )

    def node(self, pods: Iterable[PodFigures]) -> NodeFigures:
        node = self._readings.node
        usage = together([pod.usage for pod in pods])
        system = [
            replace(one, usage=self._rated(f"system/{one.name}", one.usage))
            for one in (*node.system, SystemFigures(name="pods", usage=usage))
        ]
        return replace(node, usage=self._rated("node", node.usage), system=tuple(system))

    def _rated(self, key: str, usage: Usage) -> Usage:
        cpu = usage.cpu
        if cpu is None or cpu.usage is None:
            return usage
        self.rated.append(key)
        rate = self._rates.rate(key, cpu.time, cpu.usage)
        return usage if rate is None else replace(usage, cpu=replace(cpu, nano_cores=rate))

    def _logs(self, container_id: str) -> Fs | None:
        found = self._readings.logs.get(container_id)
        if found is None:
            return None
        used, files = found
        layer = Fs(time=self._readings.time, used=used, inodes_used=files)
        return _placed(layer, self._readings.node.fs)

    def _ephemeral(
        self, containers: Iterable[ContainerFigures], volumes: Iterable[VolumeFigures]
    ) -> Fs | None:
        parts = [fs for one in containers for fs in (one.rootfs, one.logs)]
        parts += [one.fs for one in volumes if one.local]
        known = [fs for fs in parts if fs is not None and fs.used is not None]
        if not known:
            return None
        whole = Fs(
            time=self._readings.time,
            used=_sum(fs.used for fs in known),
            inodes_used=_sum(fs.inodes_used for fs in known),
        )
        return _placed(whole, self._readings.node.fs)


def _placed(part: Fs | None, whole: Fs | None) -> Fs | None:
    """What something takes, with the room there is on its file system."""
    if part is None or whole is None:
        return part
    return replace(whole, time=part.time, used=part.used, inodes_used=part.inodes_used)


def over(first: Usage, second: Usage) -> Usage:
    """The figures of the first, and where it has none those of the second."""
    return Usage(
        cpu=first.cpu or second.cpu,
        memory=first.memory or second.memory,
        swap=first.swap or second.swap,
        io=first.io or second.io,
        processes=second.processes if first.processes is None else first.processes,
        tasks=second.tasks if first.tasks is None else first.tasks,
        limits=first.limits or second.limits,
    )


def together(usages: Sequence[Usage]) -> Usage:
    """The sum of what several use; pressure and limits have none."""
    cpus = [one.cpu for one in usages if one.cpu is not None]
    memories = [one.memory for one in usages if one.memory is not None]
    swaps = [one.swap for one in usages if one.swap is not None]
    ios = [one.io for one in usages if one.io is not None]
    return Usage(
        cpu=_cpus(cpus) if cpus else None,
        memory=_memories(memories) if memories else None,
        swap=_swaps(swaps) if swaps else None,
        io=Io(time=max(one.time for one in ios)) if ios else None,
        processes=_sum(one.processes for one in usages),
        tasks=_sum(one.tasks for one in usages),
    )


def _cpus(cpus: Sequence[Cpu]) -> Cpu:
    return Cpu(
        time=max(one.time for one in cpus),
        usage=_sum(one.usage for one in cpus),
        nano_cores=_sum(one.nano_cores for one in cpus),
        user=_sum(one.user for one in cpus),
        system=_sum(one.system for one in cpus),
    )


def _memories(memories: Sequence[Memory]) -> Memory:
    available = [one.available for one in memories]
    return Memory(
        time=max(one.time for one in memories),
        usage=_sum(one.usage for one in memories),
        working_set=_sum(one.working_set for one in memories),
        rss=_sum(one.rss for one in memories),
        # A part without a limit leaves the whole without one.
        available=None if None in available else _sum(available),
        page_faults=_sum(one.page_faults for one in memories),
        major_page_faults=_sum(one.major_page_faults for one in memories),
        cache=_sum(one.cache for one in memories),
        mapped_file=_sum(one.mapped_file for one in memories),
        failures=_sum(one.failures for one in memories),
    )


def _swaps(swaps: Sequence[Swap]) -> Swap:
    return Swap(
        time=max(one.time for one in swaps),
        usage=_sum(one.usage for one in swaps),
        available=_sum(one.available for one in swaps),
    )


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
