"""What pods, containers and the node use, as one collection found it.

Amounts are bytes, nanoseconds of processor time, and counts; None where nobody says. Times are
wall-clock nanoseconds. A time of pressure is in microseconds, as the kernel gives it.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Pressure:
    """How long something has waited: in all (µs), and as percentages of the last seconds."""

    total: int = 0
    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0


@dataclass(frozen=True, slots=True)
class Psi:
    """Pressure on some of the tasks, and on all of them."""

    some: Pressure | None = None
    full: Pressure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """Processor time.

    Attributes:
        time: when it was read.
        usage: nanoseconds in all.
        nano_cores: present rate, in billionths of a processor.
        user: nanoseconds of it outside the kernel.
        system: nanoseconds of it in the kernel.
        periods: of the quota, that have passed.
        throttled_periods: in which the quota was used up.
        throttled: nanoseconds that tasks were held back.
        psi: pressure.
    """

    time: int = 0
    usage: int | None = None
    nano_cores: int | None = None
    user: int | None = None
    system: int | None = None
    periods: int | None = None
    throttled_periods: int | None = None
    throttled: int | None = None
    psi: Psi | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory in bytes, and faults.

    Attributes:
        time: when it was read.
        usage: all of it, caches included.
        working_set: what cannot be given back at once.
        rss: anonymous memory.
        available: what is left to the limit; None without one.
        page_faults: in all.
        major_page_faults: of these, those that read from a disk.
        cache: of files.
        mapped_file: of mapped files.
        max_usage: the most there ever was.
        failures: how often the limit was hit.
        kernel: of the kernel.
        oom_kills: how often something was killed for want of memory.
        psi: pressure.
    """

    time: int = 0
    usage: int | None = None
    working_set: int | None = None
    rss: int | None = None
    available: int | None = None
    page_faults: int | None = None
    major_page_faults: int | None = None
    cache: int | None = None
    mapped_file: int | None = None
    max_usage: int | None = None
    failures: int | None = None
    kernel: int | None = None
    oom_kills: int | None = None
    psi: Psi | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Swap in bytes: used, left, and the most there may be."""

    time: int = 0
    usage: int | None = None
    available: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceIo:
    """What was read from and written to a block device: ``number`` is its major:minor."""

    number: str
    reads: int = 0
    writes: int = 0
    read_bytes: int = 0
    write_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Io:
    """Work of block devices."""

    time: int = 0
    devices: tuple[DeviceIo, ...] = ()
    psi: Psi | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fs:
    """A file system, and how much of it something takes.

    Attributes:
        time: when it was read.
        used: bytes.
        capacity: bytes of the file system.
        available: bytes of it that are free for anybody.
        inodes: of the file system.
        inodes_free: of the file system.
        inodes_used: files and directories.
        device: what it lies on.
    """

    time: int = 0
    used: int | None = None
    capacity: int | None = None
    available: int | None = None
    inodes: int | None = None
    inodes_free: int | None = None
    inodes_used: int | None = None
    device: str = ""


@dataclass(frozen=True, slots=True)
class Interface:
    """What went through a network interface; None where nobody says."""

    name: str
    rx_bytes: int | None = None
    rx_errors: int | None = None
    tx_bytes: int | None = None
    tx_errors: int | None = None
    rx_packets: int | None = None
    rx_dropped: int | None = None
    tx_packets: int | None = None
    tx_dropped: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The interfaces of a network namespace; ``default`` names the one that counts."""

    time: int = 0
    default: str = ""
    interfaces: tuple[Interface, ...] = ()

    @property
    def main(self) -> Interface | None:
        """The interface that counts."""
        return next((one for one in self.interfaces if one.name == self.default), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a cgroup is held to; 0 and None for no limit.

    Attributes:
        cpu_period: microseconds.
        cpu_quota: microseconds in each period.
        cpu_shares: in the words of cgroup v1.
        memory: bytes.
        memory_reservation: bytes.
        swap: bytes of memory and swap together.
        tasks: processes and threads.
    """

    cpu_period: int | None = None
    cpu_quota: int | None = None
    cpu_shares: int | None = None
    memory: int = 0
    memory_reservation: int = 0
    swap: int = 0
    tasks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one cgroup, container or pod uses.

    Attributes:
        cpu: processor time.
        memory: memory.
        swap: swap.
        io: block devices.
        processes: how many there are.
        tasks: processes and threads.
        limits: what it is held to.
    """

    cpu: Cpu | None = None
    memory: Memory | None = None
    swap: Swap | None = None
    io: Io | None = None
    processes: int | None = None
    tasks: int | None = None
    limits: Limits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFigures:
    """A running container.

    Attributes:
        name: in its pod.
        id: at the runtime.
        image: its name.
        cgroup: path of its cgroup; "" when none was found.
        started_at: when.
        usage: what it uses.
        rootfs: its writable layer.
        logs: its logs.
    """

    name: str
    id: str = ""
    image: str = ""
    cgroup: str = ""
    started_at: int = 0
    usage: Usage = field(default_factory=Usage)
    rootfs: Fs | None = None
    logs: Fs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeFigures:
    """A volume of a pod.

    Attributes:
        name: in the pod.
        fs: what it takes.
        claim: namespace and name of its claim; None when it has none.
        local: whether it takes from the node's own storage.
        abnormal: whether its driver says that something is wrong; None when it does not say.
    """

    name: str
    fs: Fs
    claim: tuple[str, str] | None = None
    local: bool = False
    abnormal: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFigures:
    """A pod that runs.

    Attributes:
        uid: as sources gave it.
        name: its name.
        namespace: its namespace.
        sandbox_id: of its sandbox.
        cgroup: path of its sandbox's cgroup; "" when none was found.
        started_at: when.
        containers: those that run.
        usage: of all of it together.
        network: None on the host's network.
        volumes: those that were measured.
        ephemeral: what it takes of the node's own storage.
    """

    uid: str
    name: str
    namespace: str
    sandbox_id: str = ""
    cgroup: str = ""
    started_at: int = 0
    containers: tuple[ContainerFigures, ...] = ()
    usage: Usage = field(default_factory=Usage)
    network: Network | None = None
    volumes: tuple[VolumeFigures, ...] = ()
    ephemeral: Fs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemFigures:
    """What runs beside the pods, or all pods: ``kubelet``, ``runtime``, ``pods``."""

    name: str
    started_at: int = 0
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """Processors and memory, as far as the machine says."""

    cores: int = 0
    physical_cores: int = 0
    sockets: int = 0
    memory: int = 0
    swap: int = 0
    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFigures:
    """The machine.

    Attributes:
        name: of the node.
        started_at: when it booted.
        usage: of all of it.
        network: its interfaces.
        fs: the file system of the agent's directory.
        image_fs: that of images.
        container_fs: that of what containers write.
        most_tasks: processes and threads that there may be.
        tasks: that there are.
        system: what runs beside the pods.
        machine: what it is.
        devices: names of block devices by number.
    """

    name: str = ""
    started_at: int = 0
    usage: Usage = field(default_factory=Usage)
    network: Network | None = None
    fs: Fs | None = None
    image_fs: Fs | None = None
    container_fs: Fs | None = None
    most_tasks: int | None = None
    tasks: int | None = None
    tasks_time: int = 0
    system: tuple[SystemFigures, ...] = ()
    machine: MachineFacts = field(default_factory=MachineFacts)
    devices: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One collection: when it was made, of what, and why pods are missing, if they are."""

    time: int
    node: NodeFigures
    pods: tuple[PodFigures, ...] = ()
    trouble: str = ""
