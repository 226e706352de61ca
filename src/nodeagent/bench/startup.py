"""How long it takes from the start of the process to the first sync, standalone."""

from __future__ import annotations

import re
from typing import Any, Final

from nodeagent.bench.children import AgentChild, agent, simulated_runtime, work_dir
from nodeagent.bench.figures import Figures, percentile, spread
from nodeagent.bench.manifests import manifest, write
from nodeagent.bench.waiting import until

_TIMEOUT: Final = 60.0
_SYNCED: Final = ("pods", "SyncPod")
_IMPORT: Final = re.compile(r"^import time:.*\|\s+(?P<name>[\w.]+)$", re.MULTILINE)
WATCHED: Final = ("kubernetes_asyncio", "cryptography", "rich", "aiohttp")
"""Packages of which the figures say whether a standalone agent has loaded them."""


async def run(repeats: int = 10) -> Figures:
    """Measure.

    Args:
        repeats: how many agents are started one after the other, at least 1.

    Returns:
        ``startup_ms`` (median) with ``_p99_ms`` beside it, and ``kubernetes_asyncio_imported``,
        with the other ``WATCHED`` packages and ``modules`` (their number).

    Raises:
        ValueError: there is nothing to measure.
        BenchError: agent or runtime do not run.
    """
    if repeats < 1:
        raise ValueError("startup: it must be measured at least once")
    times = [await _start() for _ in range(repeats)]
    modules = await _modules()
    loaded = {name.partition(".")[0] for name in modules}
    return {
        "repeats": repeats,
        "startup_ms": round(percentile(times, 0.5), 1),
        **spread("startup_ms", times, digits=1),
        "modules": len(modules),
        **{f"{name}_imported": name in loaded for name in WATCHED},
    }


async def _start() -> float:
    """Milliseconds from the start of the process to its first sync of a pod."""
    with work_dir() as base:
        (base / "manifests").mkdir()
        write(base / "manifests", [manifest(0)])
        async with (
            simulated_runtime(base) as runtime,
            agent(base, runtime.endpoint) as child,
        ):
            record = await _first_sync(child)
            began = record["wall_ns"] - record.get("duration", 0.0) * 1e9
            return float(began - child.began_ns) / 1e6


async def _first_sync(child: AgentChild) -> dict[str, Any]:
    """The record that the first sync of a pod has ended; its duration says when it began."""

    async def look() -> dict[str, Any] | None:
        records = await child.journal()
        return next((r for r in records if (r["component"], r["what"]) == _SYNCED), None)

    return await until("the first sync of a pod", look, timeout=_TIMEOUT, explain=child.tail)


async def _modules() -> set[str]:
    """What an agent has imported when it has run a pod; the interpreter itself writes it down."""
    with work_dir() as base:
        (base / "manifests").mkdir()
        write(base / "manifests", [manifest(0)])
        async with (
            simulated_runtime(base) as runtime,
            agent(base, runtime.endpoint, python=("-X", "importtime")) as child,
        ):
            await _first_sync(child)
            return set(_IMPORT.findall(child.log.read_text(errors="replace")))
