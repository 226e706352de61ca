"""How fast the bytes of exec, attach and port-forward go through the agent, and through socat.

The client here speaks TLS to the agent, as the API server does; the agent, a process of its own,
has a plain connection to the runtime's end of the stream, in the runtime's process. socat is
given the same two ends and the same certificate.
"""

from __future__ import annotations

import ssl
import time
from typing import Final

from anyio import to_thread

from nodeagent.bench.children import (
    AgentChild,
    RuntimeChild,
    agent,
    free_port,
    simulated_runtime,
    work_dir,
)
from nodeagent.bench.figures import BenchError, Figures, percentile
from nodeagent.bench.manifests import NAMESPACE, manifest, pod_name, write
from nodeagent.bench.proc import read_process
from nodeagent.bench.stream_end import PART, TO_CLIENT, TO_RUNTIME
from nodeagent.bench.tls import connected, serving_certificate, serving_flags, socat
from nodeagent.bench.waiting import until
from nodeagent.bench.watching import until_running
from nodeagent.cri import CRIClient

ENOUGH_MB_S: Final = 200.0
"""What is fast enough on any machine; half of socat is, too."""
_MEGABYTE: Final = 1_000_000
_TIMEOUT: Final = 60.0
_EXEC: Final = f"/exec/{NAMESPACE}/{pod_name(0)}-node1/container-0?command=x&input=1&output=1"


async def run(megabytes: int, repeats: int) -> Figures:
    """Measure.

    Args:
        megabytes: sent in each direction each time, at least 1.
        repeats: how often; the median counts.

    Returns:
        ``agent`` and ``socat`` (where there is one) with ``to_client_mb_s`` and
        ``to_runtime_mb_s``; ``slowest_mb_s`` of the agent's, ``wanted_mb_s``, and the agent's
        memory before and at the most after a stream.

    Raises:
        ValueError: there is nothing to measure.
        BenchError: agent or runtime do not run.
    """
    if megabytes < 1 or repeats < 1:
        msg = f"{megabytes} MB {repeats} times: no measure"
        raise ValueError(msg)
    with work_dir() as base:
        certificate = await to_thread.run_sync(serving_certificate, base)
        port = free_port()
        async with (
            simulated_runtime(base) as runtime,
            agent(base, runtime.endpoint, serving_flags(port, certificate)) as child,
            CRIClient(runtime.endpoint) as cri,
        ):
            write(child.manifests, [manifest(0)])
            await until_running(cri, 1, timeout=_TIMEOUT)
            end = int(await runtime.ask("streams", direction=TO_CLIENT, size=1))
            await until("the agent to serve streams", lambda: _serves(port), timeout=_TIMEOUT)
            before = read_process(child.pid).rss_mb
            row, rss = await _directions(port, runtime, megabytes, repeats, child)
            through: Figures = {"agent": row}
            async with socat(certificate, f"TCP:127.0.0.1:{end}") as other:
                if other:
                    through["socat"], _ = await _directions(other, runtime, megabytes, repeats)
    return {**compared(through), "rss_before_mb": round(before, 1), "rss_worst_mb": round(rss, 1)}


def compared(through: Figures) -> Figures:
    """The figures, with the slowest of the agent's and what it is to be compared with."""
    slowest = min(through["agent"].values())
    other = through.get("socat")
    wanted = min(ENOUGH_MB_S, *(rate / 2 for rate in other.values())) if other else ENOUGH_MB_S
    return {**through, "slowest_mb_s": slowest, "wanted_mb_s": round(wanted, 1)}


async def _serves(port: int) -> bool:
    """Whether the agent knows of the container, and lets streams through."""
    try:
        await to_thread.run_sync(_send_through, port, TO_CLIENT, 1)
    except (OSError, BenchError):
        return False
    return True


async def _directions(
    port: int,
    runtime: RuntimeChild,
    megabytes: int,
    repeats: int,
    child: AgentChild | None = None,
) -> tuple[Figures, float]:
    """Rates through one port, and the most memory that the agent had after a stream."""
    rates: Figures = {}
    worst = 0.0
    for name, direction in (("to_client_mb_s", TO_CLIENT), ("to_runtime_mb_s", TO_RUNTIME)):
        size = megabytes * _MEGABYTE
        await runtime.ask("streams", direction=direction, size=size)
        found = []
        for _ in range(repeats):
            took = await to_thread.run_sync(_send_through, port, direction, size)
            found.append(megabytes / took)
            if child is not None:
                worst = max(worst, read_process(child.pid).rss_mb)
        rates[name] = round(percentile(found, 0.5), 1)
    return rates, worst


def _send_through(port: int, direction: str, size: int) -> float:
    """Seconds from the answer to the upgrade until the last byte is there.

    Raises:
        BenchError: there is no upgrade.
        OSError: the connection broke.
    """
    with connected(port) as stream:
        stream.sendall(
            f"POST {_EXEC} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            "X-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n".encode()
        )
        head = b""
        while b"\r\n\r\n" not in head:
            if not (data := stream.recv(1)):
                msg = f"no upgrade: {head!r}"
                raise BenchError(msg)
            head += data
        if not head.startswith(b"HTTP/1.1 101 "):
            msg = f"no upgrade: {head!r}"
            raise BenchError(msg)
        began = time.perf_counter()
        if direction == TO_CLIENT:
            _take(stream, size)
        else:
            part = bytes(PART)
            for at in range(0, size, PART):
                stream.sendall(part[: size - at])
            _take(stream, 1)
        return time.perf_counter() - began


def _take(stream: ssl.SSLSocket, size: int) -> None:
    buffer = bytearray(PART)
    while size > 0:
        if not (count := stream.recv_into(buffer)):
            msg = f"{size} bytes have not come through"
            raise BenchError(msg)
        size -= count
