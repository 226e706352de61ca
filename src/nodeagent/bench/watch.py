"""What it costs to keep up with an API server: the first list, and one event.

The list is read twice from the same bytes: by the agent, up to the updates for the sync loop, and
by kubernetes-asyncio into its models. Events come from a server in a process of its own, over
HTTP, through the agent's client, source, merge, sync loop and handlers to the worker of the pod;
the workers do nothing but take the time.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.streams.text import TextReceiveStream
from prometheus_client import CollectorRegistry

from nodeagent.api import Pod, PodStatus
from nodeagent.bench.api_pods import NODE, as_list, fill
from nodeagent.bench.children import ended, work_dir
from nodeagent.bench.figures import BenchError, Figures, percentile, ratio, spread
from nodeagent.bench.waiting import until
from nodeagent.bench.watch_server import SENT
from nodeagent.channels import SyncChannels, SyncLoop
from nodeagent.clock import SystemClock
from nodeagent.journal import Journal
from nodeagent.kube import KubeClient
from nodeagent.kube.connect import open_clients
from nodeagent.kube.object_store import ObjectStore
from nodeagent.kube.objects import Bad, ObjectReader
from nodeagent.model import API_SOURCE, PodRuntimeStatus, PodUID, RuntimePod, Snapshot, UpdateType
from nodeagent.pods.handlers import HandlerHooks, PodHandlers
from nodeagent.pods.manager import PodManager
from nodeagent.pods.metrics import PodMetrics
from nodeagent.pods.protocols import StatusFn
from nodeagent.pods.sources_ready import SourcesReady
from nodeagent.pods.work_queue import WorkQueue
from nodeagent.pods.workers import PodWorkers
from nodeagent.sources import PodMux, PodStorage
from nodeagent.sources.api_source import ApiSource
from nodeagent.testing import ApiStore

_TIMEOUT: Final = 120.0
_WARM_UP: Final = 50
"""Events before the first that counts."""


async def run(pods: int = 500, events: int = 500, repeats: int = 15) -> Figures:
    """Measure.

    Args:
        pods: how many the node has, at least 1.
        events: how many are timed, at least 1.
        repeats: how often the list is read, at least 1.

    Returns:
        ``list_ms`` (median) and ``models_ms`` of kubernetes-asyncio, and ``list_per_models``;
        ``list_mb``; ``event_p50_ms``, ``event_p99_ms`` and ``event_worst_ms``.

    Raises:
        ValueError: there is nothing to measure.
        BenchError: the server does not do its part.
    """
    if pods < 1 or events < 1 or repeats < 1:
        msg = f"{pods} pods, {events} events, {repeats} times: all must be at least 1"
        raise ValueError(msg)
    store = ApiStore()
    fill(store, pods)
    data = as_list(store)
    size_mb = round(len(data) / 1e6, 2)
    own, models = await _lists(data, repeats)
    del store, data
    # An agent has no models beside it, nor what other measurements left in this process: with
    # them a collection of garbage takes several times as long.
    gc.collect()
    gc.freeze()
    try:
        times = await _events(pods, events)
    finally:
        gc.unfreeze()
    return {
        "pods": pods,
        "list_mb": size_mb,
        "list_ms": round(percentile(own, 0.5), 2),
        "list_p99_ms": round(percentile(own, 0.99), 2),
        "models_ms": round(percentile(models, 0.5), 2),
        "list_per_models": ratio(percentile(own, 0.5), percentile(models, 0.5), digits=4),
        "events": len(times),
        **spread("event_ms", times, digits=2),
    }


# Lists.


async def _lists(data: bytes, repeats: int) -> tuple[list[float], list[float]]:
    """Milliseconds of the agent, and of kubernetes-asyncio's models, in turn."""
    from kubernetes_asyncio.client import ApiClient

    class Response:
        """What the library takes for an answer."""

        def __init__(self, data: bytes) -> None:
            self.data = data

    own, models = [], []
    async with ApiClient() as client:
        response = Response(data)
        for number in range(repeats):
            own.append(_timed(lambda: _read(data)))
            if number % 3 == 0:
                # They take so long that fewer will do.
                models.append(_timed(lambda: client.deserialize(response, "V1PodList")))
    return own, models


def _timed(work: Callable[[], object]) -> float:
    gc.collect()
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


def _refused(bad: Bad) -> None:
    msg = f"{bad.key}: {bad.cause}"
    raise BenchError(msg)


def _read(data: bytes) -> object:
    """From the bytes of a list to the updates for the sync loop."""
    store: ObjectStore[Pod] = ObjectStore(ObjectReader(Pod, "Pod"), _refused)
    store.replace(store.reader.read_list(data))
    merged = PodStorage(SystemClock(), Journal(16))
    return merged.merge(Snapshot(API_SOURCE, tuple(store.objects.values())))


# Events.


class _Syncer:
    """Takes the time when a worker takes up a pod that has changed."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.created = 0

    async def sync_pod(
        self, update_type: UpdateType, pod: Pod, _mirror: Pod | None, _status: PodRuntimeStatus
    ) -> bool:
        now = time.monotonic_ns()
        self.created += update_type is UpdateType.CREATE
        if sent := pod.metadata.annotations.get(SENT):
            self.times.append((now - int(sent)) / 1e6)
        return False

    async def sync_terminating_pod(
        self, pod: Pod, status: PodRuntimeStatus, grace: int | None, status_fn: StatusFn | None
    ) -> None:
        raise NotImplementedError

    async def sync_terminating_runtime_pod(
        self, running: RuntimePod, status: PodRuntimeStatus
    ) -> None:
        raise NotImplementedError

    async def sync_terminated_pod(self, pod: Pod, status: PodRuntimeStatus) -> None:
        raise NotImplementedError


class _Nothing:
    """A runtime that is up, and of whose pods nothing is known."""

    ready = True

    def errors(self) -> Sequence[str]:
        return ()

    async def wait_ready(self) -> None:
        return

    def get(self, uid: PodUID) -> PodRuntimeStatus:
        return PodRuntimeStatus(uid)

    async def get_newer_than(self, uid: PodUID, time: float) -> PodRuntimeStatus:
        return PodRuntimeStatus(uid)


class _NoStatuses:
    """No status is computed."""

    def get(self, uid: PodUID) -> PodStatus | None:
        return None

    def set(self, pod: Pod, status: PodStatus) -> bool:
        return False

    def __iter__(self) -> Iterator[PodUID]:
        return iter(())

    def remove_orphans(self, known: Iterable[PodUID]) -> None:
        return


@asynccontextmanager
async def _ring(client: KubeClient) -> AsyncIterator[_Syncer]:
    """A source and all that lies between it and the workers, at work."""
    syncer, nothing, journal = _Syncer(), _Nothing(), Journal()
    queue, manager, metrics = WorkQueue(), PodManager(), PodMetrics(CollectorRegistry())
    workers = PodWorkers(syncer, nothing, queue, nothing, journal=journal, metrics=metrics)
    storage = PodStorage(SystemClock(), journal)
    handlers = PodHandlers(
        manager,
        workers,
        queue,
        nothing,
        _NoStatuses(),
        SourcesReady(lambda: {API_SOURCE}, lambda: storage.seen_sources),
        HandlerHooks(wake_housekeeping=lambda: None, remove_dead=lambda _uid, _id: True),
        journal=journal,
        metrics=metrics,
    )
    channels = SyncChannels()
    source = ApiSource(client, NODE, journal=journal)
    async with anyio.create_task_group() as tasks:
        await tasks.start(workers.run)
        await tasks.start(SyncLoop(handlers, channels, journal=journal).run)
        await tasks.start(source.run, PodMux(storage, channels.config).publish)
        yield syncer
        tasks.cancel_scope.cancel()
    for channel in channels.all():
        channel.dispose()


async def _events(pods: int, events: int) -> list[float]:
    """Milliseconds from the change of a pod in the server to its worker."""
    settings = json.dumps({"pods": pods})
    command = [sys.executable, "-m", "nodeagent.bench.watch_server", settings]
    process = await anyio.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None
    )
    async with ended(process):
        assert process.stdin is not None
        assert process.stdout is not None
        answers = _answers(TextReceiveStream(process.stdout))
        with work_dir() as base:
            config = _kubeconfig(base, (await anext(answers))["url"])
            async with open_clients(config) as clients, _ring(clients.main) as syncer:
                await _until(lambda: syncer.created == pods, "all pods to be with their workers")
                for count in (_WARM_UP, events):
                    syncer.times.clear()
                    await process.stdin.send(f"{count}\n".encode())
                    await anext(answers)
                    await _until(lambda: len(syncer.times) >= count, "all changes")  # noqa: B023
                return list(syncer.times)
    raise AssertionError


async def _until(holds: Callable[[], bool], what: str) -> None:
    async def look() -> bool:
        return holds()

    await until(what, look, timeout=_TIMEOUT, pause=0.05)


async def _answers(out: TextReceiveStream) -> AsyncIterator[dict[str, Any]]:
    rest = ""
    async for text in out:
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            yield json.loads(line)
    raise BenchError("the API server of the measurement has ended")


def _kubeconfig(base: Path, url: str) -> Path:
    path = base / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "clusters": [{"name": "bench", "cluster": {"server": url}}],
        "users": [{"name": "bench", "user": {}}],
    }
    path.write_text(json.dumps(config))
    return path
