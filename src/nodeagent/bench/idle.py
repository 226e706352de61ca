"""What an agent at rest costs: processor time and memory, with nothing changing.

Runtime and agent are processes of their own; the figures are the agent's, from /proc.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from nodeagent.bench.children import agent, simulated_runtime, work_dir
from nodeagent.bench.cluster import ClusterBed, ClusterPlace, open_cluster
from nodeagent.bench.figures import Figures, ratio
from nodeagent.bench.manifests import SIMULATED_IMAGE, manifest, pod_name, write
from nodeagent.bench.proc import read_process
from nodeagent.bench.watching import until_running
from nodeagent.cri import CRIClient

_SETTLE_S = 10.0
"""What is left of starting the pods is over by then."""


async def run(
    pods: int,
    containers_per_pod: int,
    seconds: float,
    *,
    settle: float = _SETTLE_S,
    cluster: ClusterPlace | None = None,
) -> Figures:
    """Measure.

    Args:
        pods: how many the agent runs, at least 0.
        containers_per_pod: at least 1.
        seconds: how long it is watched.
        settle: seconds to wait before, after the last container has started.
        cluster: an API server that the pods come from; None for static pods of a node alone.

    Returns:
        ``cpu_percent`` of one core over the interval, ``rss_mb`` at its end, ``rss_begin_mb``,
        ``threads``, ``fds``.

    Raises:
        ValueError: there is nothing to measure.
        BenchError: agent or runtime do not run.
    """
    if pods < 0 or containers_per_pod < 1 or seconds <= 0:
        msg = f"{pods} pods with {containers_per_pod} containers for {seconds:g} s: no measure"
        raise ValueError(msg)
    with work_dir() as base:
        async with (
            _maybe(cluster) as api,
            simulated_runtime(base) as runtime,
            agent(base, runtime.endpoint, cluster.flags if cluster else ()) as child,
            CRIClient(runtime.endpoint) as cri,
        ):
            if api is None:
                write(child.manifests, [manifest(n, containers_per_pod) for n in range(pods)])
            else:
                await api.node_ready(child.tail)
                for number in range(pods):
                    await api.create(pod_name(number), SIMULATED_IMAGE, containers_per_pod)
            await until_running(cri, pods * containers_per_pod, timeout=60 + pods)
            await anyio.sleep(settle)
            began, before = anyio.current_time(), read_process(child.pid)
            await anyio.sleep(seconds)
            after, took = read_process(child.pid), anyio.current_time() - began
    return {
        "pods": pods,
        "containers": pods * containers_per_pod,
        "seconds": round(took, 1),
        "cpu_percent": round(100 * (after.cpu_s - before.cpu_s) / took, 3),
        "rss_mb": round(after.rss_mb, 1),
        "rss_begin_mb": round(before.rss_mb, 1),
        "threads": after.threads,
        "fds": after.fds,
    }


@asynccontextmanager
async def _maybe(place: ClusterPlace | None) -> AsyncIterator[ClusterBed | None]:
    if place is None:
        yield None
        return
    async with open_cluster(place) as api:
        yield api


def compare(small: Figures, large: Figures) -> Figures:
    """The row of two sizes: both, and how much more the large one costs."""
    return {
        "small": small,
        "large": large,
        "pods_ratio": ratio(large["pods"], small["pods"]),
        "cpu_ratio": ratio(large["cpu_percent"], small["cpu_percent"]),
        "rss_ratio": ratio(large["rss_mb"], small["rss_mb"]),
    }
