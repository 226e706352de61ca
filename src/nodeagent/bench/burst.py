"""Many pods at once: from their manifests to running, against the bare CRI calls.

The agent runs already when the manifests appear; its time ends when the last container has
started, by the runtime's clock. The bare script (``bare``) makes the calls of one pod after the
other with 1, 2, 4, 8 and 16 pods at a time; its best is what the agent is compared with.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import anyio

from nodeagent.bench.beds import Bed, Place, open_bed
from nodeagent.bench.children import AgentChild, agent, work_dir
from nodeagent.bench.figures import BenchError, Figures, percentile, ratio, spread
from nodeagent.bench.manifests import manifest, write
from nodeagent.bench.waiting import until
from nodeagent.bench.watching import remove_pods, until_running

START_LATENCY_S: Final = MappingProxyType({"RunPodSandbox": 0.05, "StartContainer": 0.05})
"""What it takes to start a sandbox and a container in the simulated runtime."""

CONCURRENCIES: Final = (1, 2, 4, 8, 16)
_REPEATS: Final = 3
_TIMEOUT: Final = 120.0


async def run(
    pods: int,
    place: Place | None = None,
    *,
    repeats: int = _REPEATS,
    concurrencies: Sequence[int] = CONCURRENCIES,
) -> Figures:
    """Measure.

    Args:
        pods: how many start at once, at least 1.
        place: a real runtime; None for a simulated one.
        repeats: how often with the agent, and with each concurrency of the bare script.
        concurrencies: pods at a time in the bare script.

    Returns:
        ``agent_s`` and ``bare_s`` (medians; ``bare_s`` of the best concurrency) and their
        ``ratio``; ``agent_known_s``, until the agent itself says of the last pod that it runs;
        ``bare_s_by_concurrency``; p50 and p99 of ``agent_pod_ms``, from the manifests until a pod
        runs.

    Raises:
        ValueError: there is nothing to measure.
        BenchError: agent or runtime do not run.
    """
    if pods < 1 or repeats < 1:
        msg = f"{pods} pods, {repeats} times: both must be at least 1"
        raise ValueError(msg)
    with work_dir() as base:
        async with open_bed(base, place, START_LATENCY_S) as bed:
            await _warm_up(base, bed)
            bare: dict[int, list[float]] = {each: [] for each in concurrencies}
            runs: list[_Run] = []
            # In turn, so that whatever else the machine does meets both alike.
            for number in range(repeats):
                for each in concurrencies:
                    bare[each].append(await bare_seconds(base, bed, pods, each, number))
                runs.append(await _agent(base, bed, pods, number))
    by_concurrency = {each: percentile(times, 0.5) for each, times in bare.items()}
    best = min(by_concurrency, key=by_concurrency.__getitem__)
    agent_s = percentile([run.took_s for run in runs], 0.5)
    return {
        "runtime": bed.name,
        "pods": pods,
        "repeats": repeats,
        "agent_s": round(agent_s, 3),
        "agent_worst_s": round(max(run.took_s for run in runs), 3),
        "agent_known_s": round(percentile([run.known_s for run in runs], 0.5), 3),
        "bare_s": round(by_concurrency[best], 3),
        "bare_concurrency": best,
        "ratio": ratio(agent_s, by_concurrency[best]),
        "bare_s_by_concurrency": {str(k): round(v, 3) for k, v in by_concurrency.items()},
        **spread("agent_pod_ms", [ms for run in runs for ms in run.pod_ms], digits=1),
    }


async def _warm_up(base: Path, bed: Bed) -> None:
    """Once without a clock: what is slow the first time only is no figure of anybody."""
    await bare_seconds(base, bed, 1, 1, -1)


async def bare_seconds(base: Path, bed: Bed, pods: int, concurrency: int, number: int) -> float:
    """Seconds that the bare script takes for so many pods; they are gone afterwards.

    Args:
        base: an existing directory.
        bed: the runtime; no agent may use it, which would stop the script's pods.
        pods: how many it starts.
        concurrency: how many of them at a time.
        number: of the run; with ``concurrency`` it names a directory that does not exist yet.

    Raises:
        BenchError: the script failed.
    """
    directory = base / f"bare-{number}-{concurrency}"
    directory.mkdir()
    settings = {
        "socket": bed.socket,
        "image": bed.image,
        "pods": pods,
        "concurrency": concurrency,
        "directory": str(directory),
    }
    command = [sys.executable, "-m", "nodeagent.bench.bare", json.dumps(settings)]
    with anyio.fail_after(_TIMEOUT):
        done = await anyio.run_process(command, check=False)
    if done.returncode:
        msg = f"the bare script ended with code {done.returncode}: {done.stderr.decode()[-1000:]}"
        raise BenchError(msg)
    figures = json.loads(done.stdout)
    started = await _started(bed, pods)
    await remove_pods(bed.cri)
    return (max(started) - int(figures["began_ns"])) / 1e9


class _Run:
    """One burst with the agent."""

    def __init__(self, began_ns: int, started: Sequence[int], known: Sequence[int]) -> None:
        self.pod_ms = [(ns - began_ns) / 1e6 for ns in started]
        self.took_s = (max(started) - began_ns) / 1e9
        self.known_s = (max(known) - began_ns) / 1e9


async def _agent(base: Path, bed: Bed, pods: int, number: int) -> _Run:
    home = base / f"agent-{number}"
    home.mkdir()
    async with agent(home, bed.endpoint) as child:
        await anyio.sleep(1.0)  # what is left of its start is over
        made = [manifest(n, image=bed.image) for n in range(pods)]
        began = time.time_ns()
        write(child.manifests, made)
        started = await _started(bed, pods)
        known = await _known(child, pods)
    await remove_pods(bed.cri)
    return _Run(began, started, known)


async def _started(bed: Bed, pods: int) -> list[int]:
    """When each of so many containers started, by the runtime's clock, once all have."""
    containers = await until_running(bed.cri, pods, timeout=_TIMEOUT)
    times = []
    for container in containers:
        status = (await bed.cri.container_status(container.id)).status
        times.append(status.started_at if status is not None else 0)
    return times


async def _known(child: AgentChild, pods: int) -> list[int]:
    """When the agent found each pod to be running, by its journal."""

    async def look() -> list[int] | None:
        records: list[dict[str, Any]] = await child.journal()
        times = [r["wall_ns"] for r in records if r["what"] == "PhaseRunning"]
        return times if len(times) >= pods else None

    return await until("the status of all pods", look, timeout=_TIMEOUT, explain=child.tail)
