"""How many requests it takes to tell an API server of pods' statuses, and how many at rest.

The API server is one in memory, whose answers take a while. First the status writer alone: a
burst of changes, one in each pod, and a burst in which pods change again while their change is
under way. Then a whole agent, whose requests are counted while nothing happens.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
from msgspec.structs import replace

from nodeagent.agent import NodeAgent
from nodeagent.api import Pod, PodCondition, PodStatus
from nodeagent.api.codec import convert
from nodeagent.bench.children import NODE, simulated_runtime, work_dir
from nodeagent.bench.figures import BenchError, Figures
from nodeagent.bench.manifests import manifest
from nodeagent.bench.waiting import until
from nodeagent.clock import SystemClock
from nodeagent.config import AgentConfig
from nodeagent.kube import KubeClients, PatchKind, Query
from nodeagent.model.annotations import CONFIG_SOURCE
from nodeagent.pods.manager import PodManager, pod_uid
from nodeagent.pods.status_manager import StatusManager
from nodeagent.pods.status_writer import PodStatusWriter
from nodeagent.testing import ApiStore, StoreClient
from nodeagent.testing.api_store import Request

T = TypeVar("T")

_PATIENCE_S: Final = 60.0
_LEASE_PERIOD_S: Final = 10.0
_SETTLE_S: Final = 25.0
"""What is left of starting the pods is told by then, also by the node."""
_POD: Final = re.compile(r"/api/v1/namespaces/[^/]+/pods/([^/]+)(?:/status)?")


class _SlowClient(StoreClient):
    """A client whose requests take a while."""

    def __init__(self, store: ApiStore, latency: float) -> None:
        super().__init__(store)
        self._latency = latency

    async def get(
        self,
        path: str,
        wanted: type[T],
        *,
        query: Query | None = None,
        timeout: float | None = None,
    ) -> T:
        await anyio.sleep(self._latency)
        return await super().get(path, wanted, query=query, timeout=timeout)

    async def patch(
        self,
        path: str,
        patch: Mapping[str, Any] | list[Any],
        wanted: type[T],
        *,
        kind: PatchKind = PatchKind.STRATEGIC,
        timeout: float | None = None,
    ) -> T:
        await anyio.sleep(self._latency)
        return await super().patch(path, patch, wanted, kind=kind, timeout=timeout)


async def run(
    pods: int = 110, latency_ms: float = 5.0, seconds: float = 60.0, *, settle: float = _SETTLE_S
) -> Figures:
    """Measure.

    Args:
        pods: how many there are, at least 1.
        latency_ms: what each request takes.
        seconds: how long the agent is watched at rest; 0 leaves the agent out.
        settle: seconds to wait before that, after the last pod is Running.

    Returns:
        ``burst`` and ``again``: ``gets_per_pod`` and ``patches_per_pod`` of the pod with the most,
        ``told_s`` from the first change until the server has all. ``rest``: ``seconds``,
        ``pod_writes``, ``node_writes``, ``lease_writes`` and ``lease_writes_per_10_s``.

    Raises:
        ValueError: there is nothing to measure.
        BenchError: the server was not told in time.
    """
    if pods < 1 or latency_ms < 0 or seconds < 0:
        msg = f"{pods} pods, {latency_ms:g} ms, {seconds:g} s: no measure"
        raise ValueError(msg)
    figures = {"pods": pods, "latency_ms": latency_ms, **await _bursts(pods, latency_ms / 1000)}
    if seconds:
        figures["rest"] = await _rest(pods, seconds, settle)
    return figures


def bound_pod(number: int) -> dict[str, Any]:
    """A pod that is bound to the node of the bench."""
    pod = manifest(number)
    pod["spec"] = {**pod["spec"], "nodeName": NODE}
    return pod


async def _bursts(pods: int, latency: float) -> Figures:
    store, manager = ApiStore(), PodManager()
    for number in range(pods):
        pod = convert(store.create(bound_pod(number)), Pod)
        metadata = replace(pod.metadata, annotations={CONFIG_SOURCE: "api"})
        manager.add(replace(pod, metadata=metadata))
    statuses = StatusManager(
        SystemClock(),
        lambda uid: writer.wake(uid),  # noqa: PLW0108 - made below
        loop_time=anyio.current_time,
    )
    writer = PodStatusWriter(
        _SlowClient(store, latency), statuses, manager, may_run=lambda _uid: False
    )

    def change(phase: str) -> None:
        for pod in manager.get_pods():
            ready = PodCondition(type="Ready", status="True", message=phase)
            statuses.set(pod, PodStatus(phase="Running", message=phase, conditions=(ready,)))

    async def burst(changes: int) -> Figures:
        store.requests.clear()
        began = anyio.current_time()
        for turn in range(changes):
            change(f"{began} {turn}")
            await anyio.sleep(latency / 2)
        with anyio.move_on_after(_PATIENCE_S) as patience:
            await writer.drained()
        if patience.cancelled_caught:
            msg = f"statuses of {pods} pods: not told within {_PATIENCE_S:g} s"
            raise BenchError(msg)
        counts = per_pod(store.requests)
        return {
            "changes": pods * changes,
            "gets_per_pod": max(counts["GET"].values(), default=0),
            "patches_per_pod": max(counts["PATCH"].values(), default=0),
            "told_s": round(anyio.current_time() - began, 3),
        }

    async with anyio.create_task_group() as tasks:
        await tasks.start(writer.run)
        figures = {"burst": await burst(1), "again": await burst(4)}
        tasks.cancel_scope.cancel()
    if wrong := [
        pod.metadata.name for pod in manager.get_pods() if not _told(store, statuses, pod)
    ]:
        msg = f"the server shows another status of {', '.join(wrong[:3])}"
        raise BenchError(msg)
    return figures


def _told(store: ApiStore, statuses: StatusManager, pod: Pod) -> bool:
    shown = convert(store.get("pods", pod.metadata.name, pod.metadata.namespace), Pod).status
    return shown == statuses.get(pod_uid(pod))


def per_pod(requests: list[Request]) -> dict[str, Counter[str]]:
    """How often each pod was read and written, by verb and name."""
    counts: dict[str, Counter[str]] = {"GET": Counter(), "PATCH": Counter()}
    for request in requests:
        found = _POD.fullmatch(request.path)
        if found is not None and request.method in counts:
            counts[request.method][found[1]] += 1
    return counts


async def _rest(pods: int, seconds: float, settle: float) -> Figures:
    store = ApiStore()
    for number in range(pods):
        store.create(bound_pod(number))
    clients = KubeClients(
        main=StoreClient(store), events=StoreClient(store), heartbeat=StoreClient(store)
    )

    async def all_run() -> bool:
        return all(item["status"].get("phase") == "Running" for item in store.all("pods"))

    with work_dir() as base:
        async with (
            simulated_runtime(base) as runtime,
            NodeAgent(_config(base, runtime.endpoint), cluster=clients),
        ):
            await until("all pods Running", all_run, timeout=_PATIENCE_S + pods, pause=0.2)
            await anyio.sleep(settle)
            store.requests.clear()
            began = anyio.current_time()
            await anyio.sleep(seconds)
            took, written = anyio.current_time() - began, writes(store.requests)
    return {
        "seconds": round(took, 1),
        "pod_writes": written["pods"],
        "node_writes": written["nodes"],
        "lease_writes": written["leases"],
        "lease_writes_per_10_s": round(written["leases"] * _LEASE_PERIOD_S / took, 2),
    }


def writes(requests: list[Request]) -> Counter[str]:
    """How often objects of each kind were written."""
    written: Counter[str] = Counter()
    for request in requests:
        if request.method in ("POST", "PUT", "PATCH", "DELETE"):
            kinds = re.findall(r"/(pods|nodes|leases|events)(?=/|$)", request.path)
            written[kinds[0] if kinds else request.path] += 1
    return written


def _config(base: Path, endpoint: str) -> AgentConfig:
    return AgentConfig(
        container_runtime_endpoint=endpoint,
        root_dir=base / "root",
        pod_logs_dir=base / "logs",
        container_logs_dir=base / "containers",
        node_name=NODE,
        node_ip="127.0.0.1",
        healthz_port=0,
        image_gc_high_threshold_percent=100,
        make_iptables_util_chains=False,
        max_pods=5000,
    )
