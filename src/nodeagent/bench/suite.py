"""All rows of the suite, one after the other."""

from __future__ import annotations

import os
import platform
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

from nodeagent.bench import (
    actions,
    api,
    burst,
    e2e_start,
    idle,
    inspection,
    logs,
    probes,
    react,
    relist,
    soak,
    splicing,
    startup,
    status,
    volumes,
    watch,
)
from nodeagent.bench.beds import Place
from nodeagent.bench.cluster import ClusterPlace
from nodeagent.bench.figures import BenchError, Figures, not_measured
from nodeagent.rpc import RpcError


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much the suite does; the defaults are what the targets are stated for."""

    relist_pods: int = 125
    relist_containers: int = 4
    inspect_pods: int = 500
    inspect_latency_ms: float = 5.0
    idle_pods: int = 110
    idle_many_pods: int = 500
    idle_containers: int = 2
    idle_seconds: float = 30.0
    settle_seconds: float = 10.0
    react_pods: int = 50
    burst_pods: int = 50
    startups: int = 10
    soak_minutes: float = 2.0
    soak_pods: int = 50
    probe_pods: int = 100
    probes: int = 3
    probe_seconds: float = 15.0
    watch_pods: int = 500
    watch_events: int = 500
    action_containers: int = 5
    action_repeats: int = 5000
    status_pods: int = 110
    status_latency_ms: float = 5.0
    status_seconds: float = 60.0
    volumes: int = 20
    volume_keys: int = 10
    volume_pods: int = 100
    volumes_at_rest: int = 500
    start_pods: int = 30
    start_at_once: int = 30
    api_pods: int = 110
    api_requests: int = 300
    exec_megabytes: int = 200
    exec_repeats: int = 3
    log_megabytes: int = 1024
    log_repeats: int = 3
    log_followers: int = 200
    log_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class Containerd:
    """A real runtime for the rows that need one.

    Attributes:
        place: where it is; None when there is none.
        why_not: then: why.
        cluster: a real API server; None when there is none.
        why_no_cluster: then: why.
    """

    place: Place | None = None
    why_not: str = "no --containerd-endpoint was given"
    cluster: ClusterPlace | None = None
    why_no_cluster: str = "no --admin-kubeconfig was given"


Row: TypeAlias = Callable[[Sizes, Containerd], Awaitable[Figures]]


async def _relist(sizes: Sizes, _real: Containerd) -> Figures:
    return dict(relist.run(sizes.relist_pods, sizes.relist_containers))


async def _inspect(sizes: Sizes, _real: Containerd) -> Figures:
    pods = sizes.inspect_pods
    return await inspection.run(pods, pods, sizes.inspect_latency_ms)


async def _idle(sizes: Sizes, _real: Containerd) -> Figures:
    small, large = [
        await idle.run(pods, sizes.idle_containers, sizes.idle_seconds, settle=sizes.settle_seconds)
        for pods in (sizes.idle_pods, sizes.idle_many_pods)
    ]
    return idle.compare(small, large)


async def _idle_cluster(sizes: Sizes, real: Containerd) -> Figures:
    if real.cluster is None:
        return not_measured(real.why_no_cluster)
    pods, containers = sizes.idle_pods, sizes.idle_containers
    settle = sizes.settle_seconds
    return await idle.run(pods, containers, sizes.idle_seconds, settle=settle, cluster=real.cluster)


async def _e2e_start(sizes: Sizes, real: Containerd) -> Figures:
    if real.place is None:
        return not_measured(real.why_not)
    if real.cluster is None:
        return not_measured(real.why_no_cluster)
    return await e2e_start.run(sizes.start_pods, sizes.start_at_once, real.place, real.cluster)


async def _react(sizes: Sizes, _real: Containerd) -> Figures:
    return await react.run(sizes.react_pods, settle=sizes.settle_seconds)


async def _react_real(sizes: Sizes, real: Containerd) -> Figures:
    if real.place is None:
        return not_measured(real.why_not)
    return await react.run(sizes.react_pods, real.place, settle=sizes.settle_seconds)


async def _burst(sizes: Sizes, _real: Containerd) -> Figures:
    return await burst.run(sizes.burst_pods)


async def _burst_real(sizes: Sizes, real: Containerd) -> Figures:
    if real.place is None:
        return not_measured(real.why_not)
    return await burst.run(sizes.burst_pods, real.place)


async def _startup(sizes: Sizes, _real: Containerd) -> Figures:
    return await startup.run(sizes.startups)


async def _probes(sizes: Sizes, _real: Containerd) -> Figures:
    return await probes.run(sizes.probe_pods, sizes.probes, 1, sizes.probe_seconds)


async def _actions(sizes: Sizes, _real: Containerd) -> Figures:
    return actions.run(sizes.action_containers, sizes.action_repeats)


async def _status(sizes: Sizes, _real: Containerd) -> Figures:
    return await status.run(sizes.status_pods, sizes.status_latency_ms, sizes.status_seconds)


async def _watch(sizes: Sizes, _real: Containerd) -> Figures:
    return await watch.run(sizes.watch_pods, sizes.watch_events)


async def _volumes(sizes: Sizes, _real: Containerd) -> Figures:
    return await volumes.run(
        sizes.volumes, sizes.volume_keys, sizes.volume_pods, sizes.volumes_at_rest
    )


async def _api(sizes: Sizes, _real: Containerd) -> Figures:
    pods, containers = sizes.api_pods, sizes.idle_containers
    return await api.run(pods, containers, sizes.api_requests, settle=sizes.settle_seconds)


async def _exec(sizes: Sizes, _real: Containerd) -> Figures:
    return await splicing.run(sizes.exec_megabytes, sizes.exec_repeats)


async def _logs(sizes: Sizes, _real: Containerd) -> Figures:
    return await logs.run(
        sizes.log_megabytes, sizes.log_repeats, sizes.log_followers, sizes.log_seconds
    )


async def _soak(sizes: Sizes, _real: Containerd) -> Figures:
    return await soak.run(sizes.soak_minutes, sizes.soak_pods)


ROWS: Final[Mapping[str, Row]] = MappingProxyType(
    {
        "relist": _relist,
        "inspect": _inspect,
        "idle": _idle,
        "idle cluster": _idle_cluster,
        "react": _react,
        "react containerd": _react_real,
        "burst": _burst,
        "burst containerd": _burst_real,
        "e2e-start": _e2e_start,
        "startup": _startup,
        "soak": _soak,
        "probes": _probes,
        "actions": _actions,
        "watch": _watch,
        "status": _status,
        "volumes": _volumes,
        "api": _api,
        "exec": _exec,
        "logs": _logs,
    }
)


def _nobody(_row: str) -> None:
    return


async def run(
    sizes: Sizes | None = None,
    real: Containerd | None = None,
    *,
    tell: Callable[[str], None] = _nobody,
) -> Figures:
    """Measure everything; takes minutes.

    Args:
        sizes: how much.
        real: the runtime for the rows that need a real one.
        tell: is told the name of each row before it is measured.

    Returns:
        ``machine`` and ``rows``. A row that could not be measured says why instead.
    """
    rows: dict[str, Figures] = {}
    about = machine()
    for name, measure in ROWS.items():
        tell(name)
        try:
            rows[name] = await measure(sizes or Sizes(), real or Containerd())
        except (BenchError, RpcError, OSError) as error:
            rows[name] = not_measured(f"failed: {error}")
    return {"machine": about, "rows": rows}


def machine() -> Figures:
    """Where and when figures were taken; ``load_before`` is the load average of that minute."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date": datetime.now(tz=UTC).strftime("%Y-%m-%d"),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "unknown")
