"""A real API server as measurements use it: pods go in, and a watch tells what became of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.bench.children import NODE
from nodeagent.bench.figures import BenchError
from nodeagent.bench.manifests import NAMESPACE, manifest
from nodeagent.bench.waiting import until
from nodeagent.kube import ApiError, KubeClient, KubeError, paths
from nodeagent.kube.connect import ClientSettings, open_clients

_NAMESPACES: Final = "/api/v1/namespaces"
_TIMEOUT: Final = 120.0
_ANY: Final = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ClusterPlace:
    """An API server that the caller provides.

    Attributes:
        admin: kubeconfig of somebody who may do everything.
        node: kubeconfig of the node ``node1``, for the agent.
    """

    admin: Path
    node: Path

    @property
    def flags(self) -> tuple[str, ...]:
        """What the agent is started with."""
        return (f"--kubeconfig={self.node}",)


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, frozen=True):
    conditions: list[_Condition] = []


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _Seen(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    status: _Status = _Status()

    @property
    def ready(self) -> bool:
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)


class _List(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    items: list[_Seen] = []


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: _Seen = _Seen()


class PodTimes:
    """When pods were seen on a watch to become ready, and to go; loop time."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], float] = {}
        self._news = anyio.Event()

    def take(self, line: bytes) -> None:
        """One event of the watch.

        Raises:
            BenchError: the watch has ended with an error.
        """
        event = msgspec.json.decode(line, type=_Event)
        if event.type == "ERROR":
            msg = f"the watch of pods ended: {line[:300].decode(errors='replace')}"
            raise BenchError(msg)
        name, now = event.object.metadata.name, anyio.current_time()
        if event.type == "DELETED":
            self._times.setdefault(("gone", name), now)
        elif event.object.ready:
            self._times.setdefault(("ready", name), now)
        else:
            return
        self._news.set()
        self._news = anyio.Event()

    async def ready(self, name: str) -> float:
        """When the pod was first seen ready; waits for it."""
        return await self._when("ready", name)

    async def gone(self, name: str) -> float:
        """When the pod was seen to be gone; waits for it."""
        return await self._when("gone", name)

    async def _when(self, what: str, name: str) -> float:
        with anyio.move_on_after(_TIMEOUT):
            while (what, name) not in self._times:
                await self._news.wait()
            return self._times[what, name]
        msg = f"pod {name} is not {what} within {_TIMEOUT:g} s"
        raise BenchError(msg)


class ClusterBed:
    """An API server without pods of the bench; made by :func:`open_cluster`."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.times = PodTimes()

    async def create(self, name: str, image: str, containers: int = 1) -> None:
        """Post a pod that is bound to the agent's node."""
        pod = manifest(0, containers, image)
        pod["metadata"]["name"] = name
        pod["spec"] |= {"nodeName": NODE, "automountServiceAccountToken": False}
        await self._client.post(paths.pods_in(NAMESPACE), pod, _ANY)

    async def delete(self, name: str, *, grace: int = 1) -> None:
        """Delete a pod; what is not there is fine."""
        with _nothing_there():
            await self._client.delete(paths.pod(NAMESPACE, name), grace_seconds=grace)

    async def node_ready(self, explain: Callable[[], str]) -> None:
        """Wait until the agent's node is ready."""

        async def look() -> bool:
            node = _Seen()
            with _nothing_there():
                node = await self._client.get(paths.node(NODE), _Seen)
            return node.ready

        await until("a ready node", look, timeout=_TIMEOUT, explain=explain)

    async def begin(self) -> None:
        """Make the namespace, and remove what an earlier measurement left."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        with suppress(ApiError):  # it is there
            await self._client.post(_NAMESPACES, body, _ANY)
        await self.clear()

    async def clear(self) -> None:
        """Delete all pods of the bench and the node, at once."""
        pods = await self._client.get(paths.pods_in(NAMESPACE), _List)
        for pod in pods.items:
            await self.delete(pod.metadata.name, grace=0)
        with _nothing_there():
            await self._client.delete(paths.node(NODE))

    async def watch(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Follow the pods of the bench until cancelled."""
        path = paths.pods_in(NAMESPACE)
        since = (await self._client.get(path, _List)).metadata.resource_version
        async with self._client.watch(path, {"resourceVersion": since}) as lines:
            task_status.started()
            async for line in lines:
                self.times.take(line)
        raise BenchError("the API server ended the watch of pods")


@contextmanager
def _nothing_there() -> Iterator[None]:
    """Suppress the answer that there is no such object."""
    try:
        yield
    except ApiError as error:
        if not error.not_found:
            raise


@asynccontextmanager
async def open_cluster(place: ClusterPlace) -> AsyncIterator[ClusterBed]:
    """The API server at ``place``; it is left without pods of the bench.

    Raises:
        BenchError: the server cannot be used.
    """
    async with open_clients(place.admin, settings=ClientSettings(qps=0)) as clients:
        bed = ClusterBed(clients.main)
        try:
            await bed.begin()
            async with anyio.create_task_group() as tasks:
                await tasks.start(bed.watch)
                try:
                    yield bed
                finally:
                    tasks.cancel_scope.cancel()
        except KubeError as error:
            msg = f"the API server of {place.admin}: {error}"
            raise BenchError(msg) from error
        finally:
            with anyio.CancelScope(shield=True), suppress(KubeError):
                await bed.clear()


def operation_seconds(metrics: str, operations: frozenset[str]) -> float:
    """Seconds spent in CRI calls of these kinds, by the agent's metrics page."""
    total = 0.0
    for line in metrics.splitlines():
        if line.startswith("kubelet_runtime_operations_duration_seconds_sum{"):
            labels, _, value = line.rpartition(" ")
            if any(f'operation_type="{name}"' in labels for name in operations):
                total += float(value)
    return total
