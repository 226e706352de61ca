"""How fast the agent answers what monitoring asks, and whether it does anything else meanwhile.

Runtime and agent are processes of their own; who asks are two threads here, one for the questions
and one that asks the agent for as little as possible, all the time: how long that takes tells for
how long the agent's loop did something else.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Sequence
from typing import Final

import anyio
from anyio import to_thread

from nodeagent.bench.children import AgentChild, agent, simulated_runtime, work_dir
from nodeagent.bench.figures import Figures, spread
from nodeagent.bench.manifests import manifest, write
from nodeagent.bench.proc import read_process
from nodeagent.bench.watching import until_running
from nodeagent.cri import CRIClient

PATHS: Final = {
    "pods": "/pods",
    "summary": "/stats/summary",
    "resource": "/metrics/resource",
    "cadvisor": "/metrics/cadvisor",
}
_PING: Final = "/healthz/ping"
_SETTLE_S: Final = 10.0
_PAUSE_S: Final = 0.02
_PING_PAUSE_S: Final = 0.005


async def run(
    pods: int, containers_per_pod: int, requests: int, *, settle: float = _SETTLE_S
) -> Figures:
    """Measure.

    Args:
        pods: how many the agent runs.
        containers_per_pod: at least 1.
        requests: how many of each kind are made, one after the other, fifty in a second.
        settle: seconds to wait before, after the last container has started.

    Returns:
        For each kind its times, its size and the time of the first question, for which figures
        have to be collected; ``loop_lag_*_ms``; the processor time of the agent meanwhile, and
        its memory before the first question and after the last.

    Raises:
        ValueError: there is nothing to measure.
        BenchError: agent or runtime do not run.
    """
    if pods < 1 or containers_per_pod < 1 or requests < 1:
        msg = f"{pods} pods with {containers_per_pod} containers, {requests} requests: no measure"
        raise ValueError(msg)
    with work_dir() as base:
        async with (
            simulated_runtime(base) as runtime,
            agent(base, runtime.endpoint, show_pods=True) as child,
            CRIClient(runtime.endpoint) as cri,
        ):
            write(child.manifests, [manifest(n, containers_per_pod) for n in range(pods)])
            await until_running(cri, pods * containers_per_pod, timeout=60 + pods)
            await anyio.sleep(settle)
            began, before = anyio.current_time(), read_process(child.pid)
            row = await _asked(child, requests)
            after, took = read_process(child.pid), anyio.current_time() - began
    return {
        "pods": pods,
        "containers": pods * containers_per_pod,
        **row,
        "cpu_percent": round(100 * (after.cpu_s - before.cpu_s) / took, 1),
        "rss_before_mb": round(before.rss_mb, 1),
        "rss_after_mb": round(after.rss_mb, 1),
    }


async def _asked(child: AgentChild, requests: int) -> Figures:
    """The questions, with somebody else who asks for as little as possible."""
    over = threading.Event()
    lags: list[float] = []
    row: Figures = {}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(to_thread.run_sync, _ping, child.port, over, lags)
        try:
            for name, path in PATHS.items():
                row[name] = await to_thread.run_sync(_ask, child.read_only_port, path, requests)
        finally:
            over.set()
    return {**row, **spread("loop_lag_ms", lags)}


def _ask(port: int, path: str, requests: int) -> Figures:
    """Ask for one path again and again, over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        first, size = _timed(connection, path)
        times = []
        for _ in range(requests):
            time.sleep(_PAUSE_S)
            times.append(_timed(connection, path)[0])
    finally:
        connection.close()
    return {**_times(times), "first_ms": round(first, 3), "kb": round(size / 1000, 1)}


def _times(values: Sequence[float]) -> Figures:
    return spread("_ms", values)


def _ping(port: int, over: threading.Event, lags: list[float]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        while not over.wait(_PING_PAUSE_S):
            lags.append(_timed(connection, _PING)[0])
    finally:
        connection.close()


def _timed(connection: http.client.HTTPConnection, path: str) -> tuple[float, int]:
    """Milliseconds until an answer is there, and its bytes.

    Raises:
        OSError: there is none, or it is an error.
    """
    began = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != http.client.OK:
        msg = f"{path} is answered with {answer.status}: {body[:200]!r}"
        raise OSError(msg)
    return (time.perf_counter() - began) * 1000, len(body)
