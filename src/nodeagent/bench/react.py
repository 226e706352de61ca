"""How fast a container that dies is replaced, and how soon the agent sees what it did itself.

Containers are ended one at a time behind the agent's back, each in a pod of its own, so that no
crash back-off is waited for. All times are the runtime's own: when the old container ended, when
the new one was created.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import anyio

from nodeagent.bench.beds import Bed, Place, open_bed
from nodeagent.bench.children import agent, work_dir
from nodeagent.bench.figures import Figures, spread
from nodeagent.bench.manifests import manifest, write
from nodeagent.bench.waiting import until
from nodeagent.bench.watching import until_running
from nodeagent.cri import CRIClient
from nodeagent.proto.runtime import v1
from nodeagent.rpc import NotFound

_TIMEOUT: Final = 120.0
_SETTLE_S: Final = 5.0
_LOOK_S: Final = 0.02
_POD_UID: Final = "io.kubernetes.pod.uid"
_OWN_ACTIONS: Final = frozenset({"ContainerStarted"})
"""Records of changes after which PLEG must look; it is told what a new sandbox is like."""


async def run(pods: int, place: Place | None = None, *, settle: float = _SETTLE_S) -> Figures:
    """Measure.

    Args:
        pods: how many there are; one container of each is ended, at least 1.
        place: a real runtime; None for a simulated one.
        settle: seconds between the start of the last pod and the first end.

    Returns:
        ``p50_ms``, ``p99_ms``, ``worst_ms`` from the end of a container to the creation of its
        replacement; ``kill_p50_ms``... from the moment before it was ended; and
        ``own_action_visible_p50_ms``... from the end of the agent's own call until its pod cache
        shows what the call did.

    Raises:
        ValueError: there is nothing to measure.
        BenchError: agent or runtime do not run.
    """
    if pods < 1:
        raise ValueError("react: there must be at least 1 pod")
    with work_dir() as base:
        async with open_bed(base, place) as bed, agent(base, bed.endpoint) as child:
            write(child.manifests, [manifest(n, image=bed.image) for n in range(pods)])
            containers = await until_running(bed.cri, pods, timeout=_TIMEOUT)
            await anyio.sleep(settle)
            dice, since = random.Random(0), time.time_ns()
            replaced = []
            for container in sorted(containers, key=lambda c: c.labels[_POD_UID]):
                # Anywhere between two of the agent's relists.
                await anyio.sleep(0.1 + dice.random())
                replaced.append(await _replace(bed, container))
            visible = own_actions_ms(await child.journal(), since)
    return {
        "runtime": bed.name,
        "pods": pods,
        **spread("ms", [one.from_exit_ms for one in replaced], digits=2),
        **spread("kill_ms", [one.from_kill_ms for one in replaced], digits=2),
        "own_actions": len(visible),
        **spread("own_action_visible_ms", visible, digits=2),
    }


@dataclass(frozen=True, slots=True)
class Replaced:
    """How long a replacement took, from the end of the old container and from the kill."""

    from_exit_ms: float
    from_kill_ms: float


async def _replace(bed: Bed, container: v1.Container) -> Replaced:
    """End a container and wait for the one that takes its place."""
    killed = time.time_ns()
    await bed.end(container.id)
    where = v1.ContainerFilter(label_selector={_POD_UID: container.labels[_POD_UID]})

    async def look() -> v1.Container | None:
        found = await bed.cri.list_containers(where)
        return next((c for c in found if _attempt(c) > _attempt(container)), None)

    what = f"a replacement for container {container.id}"
    new = await until(what, look, timeout=_TIMEOUT, pause=_LOOK_S)
    ended = await _finished_at(bed.cri, container.id) or killed
    return Replaced((new.created_at - ended) / 1e6, (new.created_at - killed) / 1e6)


def _attempt(container: v1.Container) -> int:
    return container.metadata.attempt if container.metadata is not None else 0


async def _finished_at(cri: CRIClient, container: str) -> int:
    try:
        status = (await cri.container_status(container)).status
    except NotFound:
        return 0
    return status.finished_at if status is not None else 0


def own_actions_ms(records: Sequence[Mapping[str, Any]], since_ns: int = 0) -> list[float]:
    """Milliseconds from the agent's calls until its cache showed what they did, by its journal.

    The record of a call is written when it has returned, that of PLEG's event right after the
    cache was set; one that an event of the runtime brought even before counts as 0. Calls before
    ``since_ns`` (wall time) do not count.
    """
    shown: dict[str, int] = {}
    for record in records:
        if (record["component"], record["what"]) == ("pleg", "ContainerStarted"):
            shown.setdefault(record["fields"]["id"], record["wall_ns"])
    times = []
    for record in records:
        if record["component"] != "runtime" or record["what"] not in _OWN_ACTIONS:
            continue
        done, seen = record["wall_ns"], shown.get(record["fields"]["id"])
        if done >= since_ns and seen is not None:
            times.append(max(0, seen - done) / 1e6)
    return times
