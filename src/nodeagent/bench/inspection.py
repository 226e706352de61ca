"""What it takes to look at pods that changed: side by side, and one after the other.

The runtime is a process of its own and takes its time for each status call. The agent's PLEG
inspects the changed pods side by side; the same inspections one after the other are what a
kubelet does.
"""

from __future__ import annotations

import time
from typing import Final

import anyio

from nodeagent.bench.children import RuntimeChild, simulated_runtime, work_dir
from nodeagent.bench.figures import Figures, percentile, ratio, spread
from nodeagent.bench.waiting import until
from nodeagent.channels import Channel, WhenFull
from nodeagent.cri import CRIClient
from nodeagent.cri.pods import PodLister
from nodeagent.model import PodLifecycleEvent
from nodeagent.pleg import Pleg, PlegSettings, PodCache

_REPEATS: Final = 5
_SERIAL_REPEATS: Final = 2


async def run(
    pods: int,
    changed: int,
    latency_ms: float,
    *,
    containers_per_pod: int = 1,
    repeats: int = _REPEATS,
    serial_repeats: int = _SERIAL_REPEATS,
) -> Figures:
    """Measure.

    Args:
        pods: how many pods the runtime has, at least 1.
        changed: how many of them appear between two looks, at most ``pods``.
        latency_ms: what each status call takes in the runtime.
        containers_per_pod: at least 1.
        repeats: how often the changed pods are looked at side by side.
        serial_repeats: how often one after the other.

    Returns:
        ``concurrent_ms`` and ``serial_ms`` (medians, with ``_p99_ms`` beside them) from the start
        of the relist until the last changed pod is known, and ``serial_per_concurrent``.

    Raises:
        ValueError: there is nothing to measure.
        BenchError: the runtime does not run.
    """
    if not 1 <= changed <= pods or containers_per_pod < 1:
        msg = f"{changed} changed of {pods} pods with {containers_per_pod} containers: no measure"
        raise ValueError(msg)
    latency = dict.fromkeys(("PodSandboxStatus", "ContainerStatus"), latency_ms / 1000)
    with work_dir() as base:
        async with simulated_runtime(base, latency) as runtime, CRIClient(runtime.endpoint) as cri:
            rest, containers = pods - changed, containers_per_pod
            await runtime.ask("make", first=0, count=rest, containers=containers)
            lister = PodLister(cri)
            concurrent = [
                await _concurrent(runtime, lister, rest, changed, containers)
                for _ in range(repeats)
            ]
            await runtime.ask("make", first=rest, count=changed, containers=containers)
            serial = [await _serial(cri, rest) for _ in range(serial_repeats)]
    return {
        "pods": pods,
        "changed": changed,
        "inspect_latency_ms": latency_ms,
        "concurrency": PlegSettings().concurrency,
        "concurrent_ms": percentile(concurrent, 0.5),
        "serial_ms": percentile(serial, 0.5),
        **spread("concurrent_ms", concurrent),
        **spread("serial_ms", serial),
        "serial_per_concurrent": ratio(percentile(serial, 0.5), percentile(concurrent, 0.5)),
    }


async def _concurrent(
    runtime: RuntimeChild, lister: PodLister, known: int, changed: int, containers: int
) -> float:
    """Have PLEG know all pods, let the changed ones appear, and time one relist with its looks."""
    channel = Channel[PodLifecycleEvent]("pleg", 100_000, WhenFull.COALESCE)
    pleg = Pleg(lister, PodCache(), channel, settings=PlegSettings(period=3600.0))

    async def relisted() -> bool:
        return pleg.last_relist is not None

    async with anyio.create_task_group() as tasks:
        await tasks.start(pleg.run)
        await until("the first relist", relisted, timeout=60, pause=0.01)
        await pleg.settled()
        await runtime.ask("make", first=known, count=changed, containers=containers)
        began = time.perf_counter()
        await pleg.relist()
        await pleg.settled()
        took = time.perf_counter() - began
        tasks.cancel_scope.cancel()
    channel.dispose()
    await runtime.ask("remove", first=known, count=changed)
    return took * 1000


async def _serial(cri: CRIClient, known: int) -> float:
    """Time the same look as a kubelet takes it: one call after the other."""
    began = time.perf_counter()
    pods = await PodLister(cri).list_pods()
    for uid in sorted(pods)[known:]:
        for sandbox in pods[uid].sandboxes:
            await cri.pod_sandbox_status(sandbox.id)
        for container in pods[uid].containers:
            await cri.container_status(container.id)
    return (time.perf_counter() - began) * 1000
