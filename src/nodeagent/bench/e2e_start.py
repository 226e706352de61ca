"""Pods through a real API server onto a real runtime: from POST to Ready, from DELETE to gone.

Times are the client's: from the moment before the request until the watch shows the pod ready,
or gone. First one pod at a time, then many at once. Beside them stands what the CRI calls of the
same starts take: for one pod by the agent's metrics, for many at once by the bare script of
``burst``, which no agent takes part in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import anyio

from nodeagent.bench.beds import Bed, Place, open_bed
from nodeagent.bench.burst import bare_seconds
from nodeagent.bench.children import AgentChild, agent, work_dir
from nodeagent.bench.cluster import ClusterBed, ClusterPlace, open_cluster, operation_seconds
from nodeagent.bench.figures import Figures, percentile, spread

_REPEATS: Final = 3
_SETTLE_S: Final = 2.0
_BARE_AT_ONCE: Final = (4, 8, 16)
"""Pods at a time in the bare script; the best of these counts."""
#: The calls without which no pod starts; the agent waits for them one after the other.
_CALLS: Final = frozenset({"run_podsandbox", "image_status", "create_container", "start_container"})


@dataclass(slots=True)
class _Times:
    """Seconds of one pod at a time, and of all at once."""

    start: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)
    delete: list[float] = field(default_factory=list)
    start_all: list[float] = field(default_factory=list)
    bare_all: dict[int, list[float]] = field(default_factory=dict)
    delete_all: list[float] = field(default_factory=list)


async def run(
    pods: int, at_once: int, place: Place | None, cluster: ClusterPlace, *, repeats: int = _REPEATS
) -> Figures:
    """Measure.

    Args:
        pods: how many are started and deleted one after the other, at least 1.
        at_once: how many are started, and then deleted, together; at least 1.
        place: a real runtime; None for a simulated one.
        cluster: the API server.
        repeats: how often many are started together.

    Returns:
        ``start_ms`` (POST to Ready) and ``delete_ms`` (DELETE to gone), with p50, p99 and worst;
        ``own_ms``: what is left of a start without the CRI calls that it cannot do without, and
        ``calls_ms``: those calls; ``start_all_s`` and ``delete_all_s``, until the last one
        (medians), and ``bare_start_all_s``: the same starts by CRI calls alone.

    Raises:
        ValueError: there is nothing to measure.
        BenchError: agent, runtime or API server do not run.
    """
    if pods < 1 or at_once < 1 or repeats < 1:
        msg = f"{pods} pods, {at_once} at once, {repeats} times: all must be at least 1"
        raise ValueError(msg)
    times = _Times()
    with work_dir() as base:
        async with open_cluster(cluster) as api, open_bed(base, place) as bed:
            await bare_seconds(base, bed, 1, 1, -1)  # what is slow the first time counts for nobody
            for each in _BARE_AT_ONCE:
                runs = [await bare_seconds(base, bed, at_once, each, n) for n in range(repeats)]
                times.bare_all[each] = runs
            async with agent(base, bed.endpoint, cluster.flags) as child:
                await api.node_ready(child.tail)
                await anyio.sleep(_SETTLE_S)
                await _one(child, api, bed, "warm-up", _Times())
                for number in range(pods):
                    await _one(child, api, bed, f"one-{number}", times)
                for number in range(repeats):
                    await _many(api, bed, [f"all-{number}-{n}" for n in range(at_once)], times)
    bare = {each: percentile(seconds, 0.5) for each, seconds in times.bare_all.items()}
    best = min(bare, key=bare.__getitem__)
    return {
        "runtime": bed.name,
        "pods": pods,
        **spread("start_ms", _ms(times.start), digits=1),
        **spread("own_ms", _ms(times.own), digits=1),
        **spread("calls_ms", _ms(times.calls), digits=1),
        **spread("delete_ms", _ms(times.delete), digits=1),
        "at_once": at_once,
        "start_all_s": round(percentile(times.start_all, 0.5), 3),
        "bare_start_all_s": round(bare[best], 3),
        "bare_concurrency": best,
        "delete_all_s": round(percentile(times.delete_all, 0.5), 3),
    }


async def _one(child: AgentChild, api: ClusterBed, bed: Bed, name: str, times: _Times) -> None:
    """Start one pod and delete it."""
    before = await _in_calls(child)
    began = anyio.current_time()
    await api.create(name, bed.image)
    took = await api.times.ready(name) - began
    times.start.append(took)
    calls = await _in_calls(child) - before
    times.calls.append(calls)
    times.own.append(took - calls)
    began = anyio.current_time()
    await api.delete(name)
    times.delete.append(await api.times.gone(name) - began)


async def _many(api: ClusterBed, bed: Bed, names: list[str], times: _Times) -> None:
    """Start pods together, and delete them together."""
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(api.create, name, bed.image)
    times.start_all.append(max([await api.times.ready(name) for name in names]) - began)
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(api.delete, name)
    times.delete_all.append(max([await api.times.gone(name) for name in names]) - began)


async def _in_calls(child: AgentChild) -> float:
    """Seconds that the agent has spent in the calls of starts so far."""
    return operation_seconds((await child.get("/metrics")).decode(), _CALLS)


def _ms(seconds: list[float]) -> list[float]:
    return [value * 1000 for value in seconds]
