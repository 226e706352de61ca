"""A machine in a directory, and a runtime that says what it is told to."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from nodeagent.clock import Clock, SystemClock
from nodeagent.model import (
    ContainerID,
    ContainerState,
    PodRuntimeStatus,
    PodUID,
    RuntimeContainer,
    RuntimePod,
    RuntimeSandbox,
    SandboxID,
    SandboxState,
)
from nodeagent.model.runtime import SandboxRuntimeStatus
from nodeagent.proto.runtime import v1
from nodeagent.rpc import RpcError, Unimplemented
from nodeagent.stats import Places, StatsCollector, StatsSides
from nodeagent.stats.records import VolumeFigures

SANDBOX = "5a" * 32
WEB = "3e" * 32
STARTED = 1_700_000_000_000_000_000
NOW = STARTED + 60_000_000_000
MIB = 1 << 20

PSI = "some avg10=1.50 avg60=0.50 avg300=0.10 total=2000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=500000\n"  # noqa: E501

V1 = {
    "cpuacct": {"cpuacct.usage": "3000000000\n", "cpuacct.stat": "user 200\nsystem 100\n"},
    "cpu": {
        "cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 700000000\n",
        "cpu.cfs_period_us": "100000\n",
        "cpu.cfs_quota_us": "50000\n",
        "cpu.shares": "512\n",
    },
    "memory": {
        "memory.usage_in_bytes": f"{100 * MIB}\n",
        "memory.stat": f"cache 1\nrss 2\ntotal_cache {30 * MIB}\ntotal_rss {60 * MIB}\n"
        f"total_inactive_file {20 * MIB}\ntotal_mapped_file {5 * MIB}\n"
        "total_pgfault 900\ntotal_pgmajfault 7\n",
        "memory.limit_in_bytes": f"{200 * MIB}\n",
        "memory.soft_limit_in_bytes": "9223372036854771712\n",
        "memory.max_usage_in_bytes": f"{150 * MIB}\n",
        "memory.failcnt": "3\n",
        "memory.kmem.usage_in_bytes": f"{MIB}\n",
        "memory.memsw.usage_in_bytes": f"{110 * MIB}\n",
        "memory.memsw.limit_in_bytes": f"{250 * MIB}\n",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        "cgroup.procs": "11\n12\n",
    },
    "blkio": {
        "blkio.throttle.io_serviced_recursive": "8:0 Read 5\n8:0 Write 6\n8:0 Total 11\nTotal 11\n",
        "blkio.throttle.io_service_bytes_recursive": "8:0 Read 50\n8:0 Write 60\nTotal 110\n",
    },
    "pids": {"pids.current": "9\n", "pids.max": "max\n"},
}

V2 = {
    "cpu.stat": "usage_usec 3000000\nuser_usec 2000000\nsystem_usec 1000000\n"
    "nr_periods 10\nnr_throttled 4\nthrottled_usec 700000\n",
    "cpu.max": "50000 100000\n",
    "cpu.weight": "20\n",
    "cpu.pressure": PSI,
    "memory.current": f"{100 * MIB}\n",
    "memory.stat": f"anon {60 * MIB}\nfile {30 * MIB}\nkernel {MIB}\ninactive_file {20 * MIB}\n"
    f"file_mapped {5 * MIB}\npgfault 900\npgmajfault 7\n",
    "memory.max": f"{200 * MIB}\n",
    "memory.low": "0\n",
    "memory.peak": f"{150 * MIB}\n",
    "memory.events": "low 0\nhigh 0\nmax 3\noom 2\noom_kill 2\n",
    "memory.pressure": PSI,
    "memory.swap.current": f"{10 * MIB}\n",
    "memory.swap.max": f"{50 * MIB}\n",
    "io.stat": "8:0 rbytes=50 wbytes=60 rios=5 wios=6 dbytes=0 dios=0\n",
    "io.pressure": PSI,
    "pids.current": "9\n",
    "pids.max": "max\n",
    "cgroup.procs": "11\n12\n",
}

NET_DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
  eth0:    1000      10    1    2    0     0          0         0     2000      20    3    4    0     0       0          0
  eth1:       5       1    0    0    0     0          0         0        6       1    0    0    0     0       0          0
"""  # noqa: E501

PROC = {
    "stat": "cpu  100 20 30 4000 50 6 7 0 9 9\ncpu0 1 1 1 1 1 1 1 0 0 0\nbtime 1690000000\n",
    "meminfo": "MemTotal:  1000000 kB\nMemFree:  400000 kB\nCached: 300000 kB\n"
    "Inactive(file): 100000 kB\nAnonPages: 200000 kB\nMapped: 50000 kB\n"
    "SwapTotal: 2000 kB\nSwapFree: 500 kB\nHugePages_Total:  0\nbroken\n",
    "loadavg": "0.10 0.20 0.30 2/345 6789\n",
    "cpuinfo": "processor: 0\nphysical id: 0\ncore id: 0\n\n"
    "processor: 1\nphysical id: 0\ncore id: 0\n"
    "\nprocessor: 2\nphysical id: 0\ncore id: 1\n",
    "sys/kernel/pid_max": "32768\n",
    "sys/kernel/threads-max": "100000\n",
    "sys/kernel/random/boot_id": "boot-1\n",
    "pressure/cpu": PSI,
    "pressure/memory": PSI,
    "pressure/io": PSI,
    "net/route": "Iface Destination Gateway Flags RefCnt Use Metric Mask\n"
    "eth1 0000000A 0 1 0 0 0 000000FF 0 0 0\neth0 00000000 0100000A 3 0 0 5 00000000 0 0 0\n",
    "self/net/dev": NET_DEV,
    "self/stat": "77 (node (x) agent) S 1 1 1 0 -1 4194560 50 0 5 0 300 200 0 0 20 0 4 0 1000 "
    "100000000 2000 18446744073709551615\n",
    "11/net/dev": NET_DEV,
}


def write(directory: Path, texts: Mapping[str, str]) -> None:
    """Make files."""
    for name, text in texts.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def add_cgroup(root: Path, path: str, version: int, **changed: str) -> None:
    """Make a cgroup; ``changed`` are texts by name, with ``__`` for the dots."""
    base = root / "sys/fs/cgroup"
    other = {name.replace("__", "."): text for name, text in changed.items()}
    if version > 1:
        write(base / path, {**V2, **other})
        return
    for controller, texts in V1.items():
        mine = {name: text for name, text in other.items() if name in texts}
        write(base / controller / path, {**texts, **mine})


def make_machine(root: Path, version: int = 2) -> None:
    """Make a machine with a pod of one container."""
    write(root / "proc", PROC)
    write(root / "sys/dev/block/8:0", {"uevent": "MAJOR=8\nDEVNAME=sda\n"})
    write(root / "etc", {"machine-id": "machine-1\n"})
    (root / "sys/fs/cgroup").mkdir(parents=True)
    if version > 1:
        (root / "sys/fs/cgroup/cgroup.controllers").write_text("cpu memory\n")
    add_cgroup(root, f"kubepods/pod1/{WEB}", version)
    add_cgroup(root, f"kubepods/pod1/{SANDBOX}", version, cgroup__procs="11\n")


def web_pod(**changed: object) -> RuntimePod:
    """A pod that runs ``main``."""
    main = RuntimeContainer(
        ContainerID(WEB),
        "main",
        0,
        ContainerState.RUNNING,
        SandboxID(SANDBOX),
        created_at=STARTED,
        image="registry/web:1",
    )
    sandbox = RuntimeSandbox(SandboxID(SANDBOX), 0, SandboxState.READY, STARTED)
    fields: dict[str, object] = {"sandboxes": (sandbox,), "containers": (main,), **changed}
    return RuntimePod(PodUID("uid-1"), "web", "default", **fields)  # type: ignore[arg-type]


def amount(value: int) -> v1.UInt64Value:
    return v1.UInt64Value(value=value)


def container_stats(
    container_id: str = WEB, cpu: int = 1_000_000_000, nano_cores: int | None = None
) -> v1.ContainerStats:
    """What a runtime says of a container."""
    return v1.ContainerStats(
        attributes=v1.ContainerAttributes(id=container_id),
        cpu=v1.CpuUsage(
            timestamp=NOW,
            usage_core_nano_seconds=amount(cpu),
            usage_nano_cores=None if nano_cores is None else amount(nano_cores),
        ),
        memory=v1.MemoryUsage(
            timestamp=NOW, working_set_bytes=amount(8 * MIB), usage_bytes=amount(9 * MIB)
        ),
        writable_layer=v1.FilesystemUsage(
            timestamp=NOW, used_bytes=amount(4096), inodes_used=amount(3)
        ),
    )


def sandbox_stats(containers: Sequence[v1.ContainerStats] = ()) -> v1.PodSandboxStats:
    """What a runtime says of a sandbox."""
    eth0 = v1.NetworkInterfaceUsage(
        name="eth0",
        rx_bytes=amount(1),
        rx_errors=amount(2),
        tx_bytes=amount(3),
        tx_errors=amount(4),
    )
    return v1.PodSandboxStats(
        attributes=v1.PodSandboxAttributes(id=SANDBOX),
        linux=v1.LinuxPodSandboxStats(
            cpu=v1.CpuUsage(timestamp=NOW, usage_core_nano_seconds=amount(5_000_000_000)),
            memory=v1.MemoryUsage(timestamp=NOW, working_set_bytes=amount(70 * MIB)),
            network=v1.NetworkUsage(timestamp=NOW, default_interface=eth0, interfaces=[eth0]),
            process=v1.ProcessUsage(timestamp=NOW, process_count=amount(6)),
            containers=list(containers),
        ),
    )


@dataclass
class SaidRuntime:
    """Says what it is told to, and counts the questions.

    Attributes:
        pods: that it has.
        containers: figures; None for no answer at all.
        sandboxes: figures; None when it has no such call.
        failure: raised by every call about figures of sandboxes.
        gate: holds answers back until it is set.
        calls: that were made.
    """

    pods: list[RuntimePod] = field(default_factory=lambda: [web_pod()])
    containers: list[v1.ContainerStats] = field(default_factory=lambda: [container_stats()])
    sandboxes: list[v1.PodSandboxStats] | None = None
    failure: RpcError | None = None
    broken: RpcError | None = None
    images: v1.ImageFsInfoResponse | None = None
    gate: anyio.Event | None = None
    calls: list[str] = field(default_factory=list)

    async def list_pods(self) -> list[RuntimePod]:
        self.calls.append("pods")
        if self.gate is not None:
            await self.gate.wait()
        if self.broken is not None:
            raise self.broken
        return self.pods

    async def list_container_stats(
        self, where: v1.ContainerStatsFilter | None = None
    ) -> Sequence[v1.ContainerStats]:
        self.calls.append("containers")
        return self.containers

    async def list_pod_sandbox_stats(
        self, where: v1.PodSandboxStatsFilter | None = None
    ) -> Sequence[v1.PodSandboxStats]:
        self.calls.append("sandboxes")
        if self.failure is not None:
            raise self.failure
        if self.sandboxes is None:
            raise Unimplemented("unknown method ListPodSandboxStats")
        return self.sandboxes

    async def image_fs_info(self) -> v1.ImageFsInfoResponse:
        self.calls.append("images")
        if self.images is None:
            raise Unimplemented("unknown method ImageFsInfo")
        return self.images


Volumes = Callable[[PodUID], Awaitable[Sequence[VolumeFigures]]]


@dataclass
class Bench:
    """A collector and what it looks at."""

    collector: StatsCollector
    runtime: SaidRuntime
    root: Path
    host_network: bool = False


@asynccontextmanager
async def collecting(
    tmp_path: Path,
    runtime: SaidRuntime | None = None,
    *,
    version: int = 2,
    volumes: Volumes | None = None,
    clock: Clock | None = None,
    runtime_pid: Callable[[], int | None] = lambda: None,
) -> AsyncIterator[Bench]:
    """A collector over a machine in a directory."""
    root = tmp_path / "machine"
    if not root.exists():
        make_machine(root, version)
    runtime = runtime or SaidRuntime()
    (tmp_path / "logs").mkdir(exist_ok=True)

    def details(uid: PodUID) -> PodRuntimeStatus:
        sandbox = SandboxRuntimeStatus(
            SandboxID(SANDBOX), 0, SandboxState.READY, host_network=bench.host_network
        )
        return PodRuntimeStatus(uid, sandboxes=(sandbox,))

    sides = StatsSides(
        runtime=runtime,
        images=runtime,
        list_pods=runtime.list_pods,
        details=details,
        volumes=volumes,
        places=Places(
            node="node1",
            root_dir=tmp_path,
            logs_dir=tmp_path / "logs",
            runtime_pid=runtime_pid,
            root=root,
        ),
        clock=clock or SystemClock(),
    )
    collector = StatsCollector(sides)
    bench = Bench(collector, runtime, root)
    async with collector.open():
        yield bench


def tick() -> int:
    """Ticks of the processor clock in a second."""
    return os.sysconf("SC_CLK_TCK")
