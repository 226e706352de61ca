"""What the runtime side is configured with, and what it must know of the host."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nodeagent.api import Pod


def _no_cgroup_parent(_: Pod) -> str:
    return ""


def default_concurrency() -> int:
    """Sandboxes and containers made side by side at first: sixteen for each core, at most 64.

    A quarter of that is as fast with containerd, and much slower with runtimes that wait more: the
    first pods are done before it is known that more at once are worth it.
    """
    return min(16 * (os.cpu_count() or 1), 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSettings:
    """How images are pulled.

    Attributes:
        serialize_pulls: one pull at a time, in order of asking.
        max_parallel_pulls: bound on parallel pulls; 0 means none.
        pull_qps: pulls per second, 0 for no limit; what exceeds it fails at once.
        pull_burst: pulls that may come at once.
        back_off_initial: seconds of the first back-off after a failed pull.
        back_off_cap: seconds that no back-off exceeds.
        pull_patience: seconds after which a hung pull gives its turn up.
        pull_timeout: seconds after which a pull is given up; 0 for never.
        note_after: seconds after which a waiting container says what it waits for.
        progress_period: seconds between two lines about a long pull.
    """

    serialize_pulls: bool = True
    max_parallel_pulls: int = 0
    pull_qps: float = 5.0
    pull_burst: int = 10
    back_off_initial: float = 10.0
    back_off_cap: float = 300.0
    pull_patience: float = 120.0
    pull_timeout: float = 0.0
    note_after: float = 10.0
    progress_period: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """How pods are made (docs/behaviour/runtime.md).

    Attributes:
        root_dir: the agent's directory; pods live in ``pods/<uid>`` below it.
        pod_logs_dir: where each pod has its log directory.
        container_logs_dir: where symbolic links to log files are made; None for none.
        resolv_conf: the node's resolver file; None for one that names only the node.
        cluster_dns: name servers of the cluster.
        cluster_domain: domain of the cluster; "" for none.
        cpu_cfs_quota: whether CPU limits are enforced.
        cpu_cfs_period: CFS period in microseconds.
        single_process_oom_kill: a process that needs too much memory is killed alone, and not
            its whole container, where the kernel leaves the choice (cgroup v2); None for no.
        limited_swap: containers of burstable pods may swap in proportion to what they request.
        cgroup_parent: gives the parent cgroup of a pod; "" leaves it to the runtime.
        concurrency: sandboxes and containers that are made side by side.
        patience: seconds after which a hung creation gives its place up.
        back_off_initial: seconds of the first crash back-off.
        back_off_cap: seconds that no crash back-off exceeds.
        images: how images are pulled.
        seccomp_default: containers that name no seccomp profile have the runtime's.
        allowed_sysctls: kernel parameters that pods may set beside the safe ones; an entry
            may end with ``*``.
        max_pods: ranges of user ids for pods with their own users.
        node_name: the node's name.
        node_ips: the node's addresses, the primary family first.
    """

    root_dir: Path
    pod_logs_dir: Path = Path("/var/log/pods")
    container_logs_dir: Path | None = None
    resolv_conf: Path | None = Path("/etc/resolv.conf")
    cluster_dns: tuple[str, ...] = ()
    cluster_domain: str = ""
    cpu_cfs_quota: bool = True
    cpu_cfs_period: int = 100_000
    single_process_oom_kill: bool | None = None
    limited_swap: bool = False
    cgroup_parent: Callable[[Pod], str] = _no_cgroup_parent
    concurrency: int = field(default_factory=default_concurrency)
    patience: float = 5.0
    back_off_initial: float = 10.0
    back_off_cap: float = 300.0
    images: ImageSettings = ImageSettings()
    seccomp_default: bool = False
    allowed_sysctls: tuple[str, ...] = ()
    max_pods: int = 110
    node_name: str = ""
    node_ips: tuple[str, ...] = ()


_GIB: Final = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What building configurations needs to know of the host.

    Attributes:
        memory_capacity: bytes of memory.
        swap_capacity: bytes of swap.
        cgroup_v2: whether the unified cgroup hierarchy is in use.
        swap_accounting: whether cgroups can limit swap.
        hugepage_sizes: sizes in bytes of the huge pages that the kernel offers.
        thermal_throttle: paths that are masked in containers because they exist.
        cpus: processors.
        storage_capacity: bytes of the file system of the root directory; 0 when unknown.
        kernel: version of the kernel.
        app_armor: whether AppArmor is enabled.
    """

    memory_capacity: int = 8 * _GIB
    swap_capacity: int = 0
    cgroup_v2: bool = True
    swap_accounting: bool = False
    hugepage_sizes: tuple[int, ...] = ()
    thermal_throttle: tuple[str, ...] = ()
    cpus: int = 1
    storage_capacity: int = 0
    kernel: tuple[int, int] = (6, 0)
    app_armor: bool = True


def detect_host(root: Path = Path("/"), root_dir: Path | None = None) -> HostFacts:
    """Read the facts from the running host. Blocking; meant for a thread.

    Args:
        root: where ``proc`` and ``sys`` are found.
        root_dir: the agent's directory, whose file system counts as local storage.
    """
    cgroup = root / "sys/fs/cgroup"
    cgroup_v2 = (cgroup / "cgroup.controllers").exists()
    swap = _has_swap_limit(root) if cgroup_v2 else _exists_v1_swap(cgroup)
    return HostFacts(
        memory_capacity=_amount(root, "MemTotal") or HostFacts().memory_capacity,
        swap_capacity=_amount(root, "SwapTotal"),
        cgroup_v2=cgroup_v2,
        swap_accounting=swap,
        hugepage_sizes=_hugepage_sizes(root),
        thermal_throttle=_thermal_throttle(root),
        cpus=os.cpu_count() or 1,
        storage_capacity=_storage_capacity(root_dir),
        kernel=_kernel(os.uname().release),
        app_armor=_has_app_armor(root),
    )


def _has_app_armor(root: Path) -> bool:
    with suppress(OSError):
        enabled = (root / "sys/module/apparmor/parameters/enabled").read_text()
        return enabled.startswith("Y")
    return False


def _storage_capacity(root_dir: Path | None) -> int:
    if root_dir is None:
        return 0
    with suppress(OSError):
        found = os.statvfs(root_dir)
        return found.f_blocks * found.f_frsize
    return 0


def _kernel(release: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else HostFacts().kernel


def _amount(root: Path, name: str) -> int:
    """Bytes of memory of a kind; 0 when unknown."""
    with suppress(OSError, ValueError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return 0


def _has_swap_limit(root: Path) -> bool:
    """Whether our own cgroup, which is never the root one, can limit swap."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::/"):
                own = root / "sys/fs/cgroup" / line.removeprefix("0::/")
                if (own / "memory.swap.max").exists():
                    return True
    return next((root / "sys/fs/cgroup").glob("*/memory.swap.max"), None) is not None


def _exists_v1_swap(cgroup: Path) -> bool:
    return (cgroup / "memory/memory.memsw.limit_in_bytes").exists()


def _hugepage_sizes(root: Path) -> tuple[int, ...]:
    sizes = []
    with suppress(OSError):
        for entry in (root / "sys/kernel/mm/hugepages").iterdir():
            text = entry.name.removeprefix("hugepages-").removesuffix("kB")
            if text.isdigit():
                sizes.append(int(text) * 1024)
    return tuple(sorted(sizes))


def _thermal_throttle(root: Path) -> tuple[str, ...]:
    found = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle")
    return tuple(sorted("/" + str(path.relative_to(root)) for path in found))
