"""How fast a large log is served, beside ``cat`` through the same kind of socket.

The client speaks TLS to the agent, as the API server does; ``cat`` is given a socket of its own
by socat, with the same certificate. Then the end of the log is asked for, and many follow logs
in which nothing happens.
"""

from __future__ import annotations

import os
import ssl
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from nodeagent.bench.children import AgentChild, agent, free_port, simulated_runtime, work_dir
from nodeagent.bench.figures import BenchError, Figures, percentile, spread
from nodeagent.bench.manifests import NAMESPACE, manifest, pod_name, write
from nodeagent.bench.proc import read_process
from nodeagent.bench.stream_end import PART
from nodeagent.bench.tls import connected, serving_certificate, serving_flags, socat
from nodeagent.bench.waiting import until
from nodeagent.bench.watching import until_running
from nodeagent.cri import CRIClient

_MEGABYTE: Final = 1_000_000
_TIMEOUT: Final = 120.0
_BLOCK: Final = 4 * _MEGABYTE
_PATH: Final = f"/containerLogs/{NAMESPACE}/{pod_name(0)}-node1/container-0"
_LOOK_S: Final = 0.05
_TAILS: Final = 100
_CONTENT: Final = "GET /api/v1/things/{number} 200 12ms user=somebody request={number:032x}"


async def run(megabytes: int, repeats: int, followers: int, seconds: float) -> Figures:
    """Measure.

    Args:
        megabytes: size of the log, at least 1.
        repeats: how often it is served; the median counts.
        followers: how many follow a log in which nothing happens.
        seconds: for how long they do.

    Returns:
        ``agent_mb_s`` and ``cat_mb_s`` (where there is a socat) in bytes of the file,
        ``memory_mb`` that serving takes at the most; ``tail_cpu_ms`` and ``tail_*_ms`` for the
        last ten lines; ``quiet`` with the processor time of the agent without and with followers.

    Raises:
        ValueError: there is nothing to measure.
        BenchError: agent or runtime do not run.
    """
    if megabytes < 1 or repeats < 1 or followers < 1 or seconds <= 0:
        msg = f"{megabytes} MB {repeats} times, {followers} followers, {seconds} s: no measure"
        raise ValueError(msg)
    with work_dir() as base:
        certificate = await to_thread.run_sync(serving_certificate, base)
        port = free_port()
        flags = [*serving_flags(port, certificate), "--container-log-max-size=-1"]
        async with (
            simulated_runtime(base) as runtime,
            agent(base, runtime.endpoint, flags) as child,
            CRIClient(runtime.endpoint) as cri,
        ):
            write(child.manifests, [manifest(0)])
            await until_running(cri, 1, timeout=_TIMEOUT)
            (container,) = await cri.list_containers()
            status = (await cri.container_status(container.id)).status
            assert status is not None
            log = Path(status.log_path)
            await to_thread.run_sync(_fill, log, megabytes)
            await until("the agent to serve logs", lambda: _serves(port), timeout=_TIMEOUT)
            return await _measured(certificate, log, port, child, repeats) | {
                "megabytes": megabytes,
                "quiet": await _quiet(log, port, child, followers, seconds),
            }


async def _measured(
    certificate: Path, log: Path, port: int, child: AgentChild, repeats: int
) -> Figures:
    tail = await _tail(port, child)
    size = (await to_thread.run_sync(log.stat)).st_size / _MEGABYTE
    before = read_process(child.pid).rss_mb
    rates, worst = await to_thread.run_sync(_served, port, size, repeats, child.pid)
    row: Figures = {"agent_mb_s": round(percentile(rates, 0.5), 1)}
    async with socat(certificate, f"EXEC:cat {log}", "-U") as other:
        if other:
            took = [await to_thread.run_sync(_take, other, b"") for _ in range(repeats)]
            row["cat_mb_s"] = round(size / percentile([seconds for seconds, _ in took], 0.5), 1)
            row["agent_to_cat"] = round(row["agent_mb_s"] / row["cat_mb_s"], 3)
    return {**row, "memory_mb": round(worst - before, 1), **tail}


def _fill(log: Path, megabytes: int) -> None:
    """Write a log as containers write theirs: the same four megabytes over and over."""
    lines: list[bytes] = []
    size = number = 0
    while size < min(_BLOCK, megabytes * _MEGABYTE):
        time_ = f"2026-01-01T00:{number // 6000 % 60:02}:{number % 60:02}.{number % 10**9:09}Z"
        line = f"{time_} stdout F {_CONTENT.format(number=number)}\n".encode()
        lines.append(line)
        size, number = size + len(line), number + 1
    block = b"".join(lines)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        while file.tell() < megabytes * _MEGABYTE:
            file.write(block)


def _head(query: str, connection: str = "close") -> bytes:
    return f"GET {_PATH}{query} HTTP/1.1\r\nHost: x\r\nConnection: {connection}\r\n\r\n".encode()


def _take(port: int, head: bytes) -> tuple[float, int]:
    """Seconds from the question to the last byte, and how many bytes there were."""
    buffer = bytearray(PART)
    with connected(port) as stream:
        began, size = time.perf_counter(), 0
        stream.sendall(head)
        while True:
            try:
                count = stream.recv_into(buffer)
            except ssl.SSLEOFError:
                count = 0  # socat says no goodbye
            if not count:
                return time.perf_counter() - began, size
            size += count


async def _serves(port: int) -> bool:
    try:
        _, size = await to_thread.run_sync(_take, port, _head("?tailLines=1"))
    except OSError:
        return False
    return size > 0


def _served(port: int, size: float, repeats: int, pid: int) -> tuple[list[float], float]:
    """Megabytes of the file a second, each time, and the most memory that was seen.

    Raises:
        BenchError: the answer is no log.
    """
    over = threading.Event()
    seen = [read_process(pid).rss_mb]

    def look() -> None:
        while not over.wait(_LOOK_S):
            seen.append(read_process(pid).rss_mb)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        rates = []
        for _ in range(repeats):
            took, count = _take(port, _head(""))
            if count < size * _MEGABYTE / 3:
                msg = f"{count} bytes came of a log of {size:.0f} MB"
                raise BenchError(msg)
            rates.append(size / took)
    finally:
        over.set()
        looking.join()
    return rates, max(seen)


async def _tail(port: int, child: AgentChild) -> Figures:
    """What the last ten lines take: until they are there, and of the processor."""
    await to_thread.run_sync(_tails, port, 5)
    before = read_process(child.pid).cpu_s
    times = await to_thread.run_sync(_tails, port, _TAILS)
    cpu = read_process(child.pid).cpu_s - before
    return {"tail_cpu_ms": round(1000 * cpu / _TAILS, 3), **spread("tail_ms", times)}


def _tails(port: int, count: int) -> list[float]:
    """Milliseconds of each question for the last ten lines, over one connection."""
    times = []
    with connected(port) as stream:
        for _ in range(count):
            began = time.perf_counter()
            stream.sendall(_head("?tailLines=10", "keep-alive"))
            got = b""
            while not got.endswith(b"\r\n0\r\n\r\n"):
                if not (data := stream.recv(PART)):
                    msg = f"the answer broke off: {got[:200]!r}"
                    raise BenchError(msg)
                got += data
            times.append((time.perf_counter() - began) * 1000)
    return times


async def _quiet(
    log: Path, port: int, child: AgentChild, followers: int, seconds: float
) -> Figures:
    """The agent's processor time without followers, and with many."""
    # What is followed is at its end at once.
    os.truncate(log, 0)
    alone = await _cpu_percent(child, seconds)
    with ExitStack() as stack:
        for _ in range(followers):
            stream = stack.enter_context(connected(port))
            stream.sendall(_head("?follow=true"))
            await to_thread.run_sync(stream.recv, 1024)
        followed = await _cpu_percent(child, seconds)
    return {
        "followers": followers,
        "cpu_percent_alone": alone,
        "cpu_percent": followed,
        "more_percent": round(max(followed - alone, 0.0), 2),
    }


async def _cpu_percent(child: AgentChild, seconds: float) -> float:
    await anyio.sleep(1)
    began, before = anyio.current_time(), read_process(child.pid).cpu_s
    await anyio.sleep(seconds)
    used = read_process(child.pid).cpu_s - before
    return round(100 * used / (anyio.current_time() - began), 2)
