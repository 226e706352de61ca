"""Collects figures once for all who ask, and only while somebody asks.

docs/behaviour/stats.md, "Collecting".
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from nodeagent.aio import background
from nodeagent.clock import Clock
from nodeagent.log import Log
from nodeagent.model import PodRuntimeStatus, PodUID, RuntimePod
from nodeagent.proto.runtime import v1
from nodeagent.rpc import RpcError, Unimplemented
from nodeagent.stats.places import Places
from nodeagent.stats.rates import Rates

if TYPE_CHECKING:
    from nodeagent.stats.assemble import RuntimeAnswers
    from nodeagent.stats.reading import Reader
    from nodeagent.stats.records import Snapshot, VolumeFigures

log = Log("stats")

FRESH: Final = 1.0
"""Seconds for which a collection is good enough."""
STALE: Final = 5.0
"""Seconds for which it is still shown, while the next one is being made."""
DEADLINE: Final = 60.0
"""Seconds that a collection may take."""
ASK_AGAIN: Final = 600.0
"""Seconds after which a runtime without figures of sandboxes is asked for them again."""
AFTER_FAILURE: Final = 60.0
_VOLUMES_PATIENCE: Final = 1.0
"""Seconds that a collection waits for volumes to be measured; what comes later is in the next."""


Writer: TypeAlias = "Callable[[Snapshot], bytes]"


class StatsError(Exception):
    """There are no figures; says why."""


class StatsRuntime(Protocol):
    """What is asked of :class:`nodeagent.cri.RuntimeService`."""

    async def list_container_stats(
        self, where: v1.ContainerStatsFilter | None = None
    ) -> Sequence[v1.ContainerStats]:
        """What the containers that match use."""
        ...

    async def list_pod_sandbox_stats(
        self, where: v1.PodSandboxStatsFilter | None = None
    ) -> Sequence[v1.PodSandboxStats]:
        """What the sandboxes that match use. Raises Unimplemented on some runtimes."""
        ...


class StatsImages(Protocol):
    """What is asked of :class:`nodeagent.cri.ImageService`."""

    async def image_fs_info(self) -> v1.ImageFsInfoResponse:
        """How much space images and containers take, and where."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsSides:
    """Who is asked.

    Attributes:
        runtime: the container runtime.
        images: its images.
        list_pods: asks the runtime for its pods.
        details: what is known of one, without asking.
        volumes: measures the volumes of a pod; None when nobody does.
        places: where things are on this machine.
        clock: wall time, for stamps.
    """

    runtime: StatsRuntime
    images: StatsImages
    list_pods: Callable[[], Awaitable[Sequence[RuntimePod]]]
    details: Callable[[PodUID], PodRuntimeStatus]
    volumes: Callable[[PodUID], Awaitable[Sequence[VolumeFigures]]] | None
    places: Places
    clock: Clock


@dataclass(slots=True)
class _Flight:
    """A collection that is being made, and what came of it."""

    over: anyio.Event
    found: Snapshot | None = None
    cause: str = ""


class StatsCollector:
    """Collects what pods and node use.

    Args:
        sides: who is asked.
    """

    def __init__(self, sides: StatsSides) -> None:
        self._sides = sides
        self._reader: Reader | None = None
        self._rates = Rates()
        self._tasks: TaskGroup | None = None
        self._flight: _Flight | None = None
        self._last: Snapshot | None = None
        self._last_at = -math.inf
        self._no_sandboxes_until = -math.inf
        self._volumes: Mapping[PodUID, Sequence[VolumeFigures]] = {}
        self._measured: anyio.Event | None = None
        self._wanted: dict[str, Writer] = {}
        self._texts: dict[str, bytes] = {}
        self.collections = 0
        """How many were made."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Figures can be asked for inside the context."""
        async with background() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None

    async def text(self, kind: str, write: Writer) -> bytes:
        """The figures as a text, written once for all who ask for the same.

        What was asked for lately is written with the next collection, so that nobody waits.

        Args:
            kind: names the text.
            write: makes it; blocking, pure.

        Raises:
            StatsError: there are no figures; says why.
        """
        found = await self.snapshot()
        self._wanted[kind] = write
        known = self._texts.get(kind)
        if known is not None and found is self._last:
            return known
        body = await to_thread.run_sync(write, found)
        if found is self._last:
            self._texts[kind] = body
        return body

    async def snapshot(self) -> Snapshot:
        """The figures: made for this question, or a few seconds old.

        Raises:
            StatsError: there are none; says why.
        """
        age = anyio.current_time() - self._last_at
        if self._last is not None and age < FRESH:
            return self._last
        flight = self._flight or self._depart()
        if self._last is not None and age < STALE:
            return self._last
        await flight.over.wait()
        if flight.found is None:
            raise StatsError(flight.cause)
        return flight.found

    def _depart(self) -> _Flight:
        """Begin a collection that goes on when whoever asked for it goes away."""
        if self._tasks is None:
            raise StatsError("the agent is ending")
        self._flight = flight = _Flight(anyio.Event())
        self._tasks.start_soon(self._collect, flight)
        return flight

    async def _collect(self, flight: _Flight) -> None:
        flight.cause = f"the figures were not there within {DEADLINE:g} s"
        try:
            with anyio.move_on_after(DEADLINE):
                flight.found, self._texts = await self._collected()
                self._last, self._last_at = flight.found, anyio.current_time()
                self.collections += 1
        except RpcError as error:
            flight.cause = str(error)
        except Exception as error:  # noqa: BLE001 - one collection fails, not the agent
            log.fault("collection_failed", error)
            flight.cause = "the figures could not be put together; the log says why"
        finally:
            self._flight = None
            flight.over.set()

    async def _collected(self) -> tuple[Snapshot, dict[str, bytes]]:
        if self._reader is None:
            self._reader = await to_thread.run_sync(_reader, self._sides.places)
        answers = await self._ask()
        volumes = await self._of_volumes([PodUID(pod.uid) for pod in answers.pods])
        wanted, self._wanted = self._wanted, {}
        now = self._sides.clock.time_ns()
        return await to_thread.run_sync(self._put_together, answers, volumes, wanted, now)

    def _put_together(
        self,
        answers: RuntimeAnswers,
        volumes: Mapping[PodUID, Sequence[VolumeFigures]],
        wanted: Mapping[str, Writer],
        now: int,
    ) -> tuple[Snapshot, dict[str, bytes]]:
        """Read and reckon; blocking. Only one thread at a time does this."""
        from nodeagent.stats.assemble import snapshot

        assert self._reader is not None
        readings = self._reader.read(answers, self._on_host_network, now)
        found = snapshot(answers, readings, volumes, self._rates)
        return found, {kind: write(found) for kind, write in wanted.items()}

    def _on_host_network(self, pod: RuntimePod) -> bool:
        known = self._sides.details(PodUID(pod.uid)).sandboxes
        return bool(known) and known[0].host_network

    async def _ask(self) -> RuntimeAnswers:
        from nodeagent.stats.assemble import RuntimeAnswers

        pods = await self._sides.list_pods()
        sandboxes: dict[str, v1.LinuxPodSandboxStats] = {}
        containers: dict[str, v1.ContainerStats] = {}
        for told in await self._sandbox_stats() or ():
            if told.attributes is not None and told.linux is not None:
                sandboxes[told.attributes.id] = told.linux
                containers |= _by_id(told.linux.containers)
        if not containers:
            containers = _by_id(await self._sides.runtime.list_container_stats())
        image_fs, container_fs = await self._file_systems()
        return RuntimeAnswers(
            pods=pods,
            sandboxes=sandboxes,
            containers=containers,
            image_fs=image_fs,
            container_fs=container_fs,
        )

    async def _sandbox_stats(self) -> Sequence[v1.PodSandboxStats] | None:
        """Figures of sandboxes; None from a runtime that has none."""
        now = anyio.current_time()
        if now < self._no_sandboxes_until:
            return None
        try:
            return await self._sides.runtime.list_pod_sandbox_stats()
        except RpcError as error:
            wait = ASK_AGAIN if isinstance(error, Unimplemented) else AFTER_FAILURE
            self._no_sandboxes_until = now + wait
            log.debug("no_sandbox_stats", cause=str(error))
            return None

    async def _file_systems(self) -> tuple[v1.FilesystemUsage | None, v1.FilesystemUsage | None]:
        try:
            told = await self._sides.images.image_fs_info()
        except RpcError as error:
            log.debug("no_image_fs_info", cause=str(error))
            return None, None
        images = next(iter(told.image_filesystems), None)
        return images, next(iter(told.container_filesystems), images)

    # -- volumes, which may take long to measure ---------------------------------------------

    async def _of_volumes(self, uids: Sequence[PodUID]) -> Mapping[PodUID, Sequence[VolumeFigures]]:
        """What is known of volumes; has them measured again beside."""
        if self._sides.volumes is None or self._tasks is None:
            return {}
        if self._measured is None:
            self._measured = measured = anyio.Event()
            self._tasks.start_soon(self._measure, uids, self._sides.volumes, measured)
        else:
            measured = self._measured
        if not self._volumes:
            with anyio.move_on_after(_VOLUMES_PATIENCE):
                await measured.wait()
        return self._volumes

    async def _measure(
        self,
        uids: Sequence[PodUID],
        measure: Callable[[PodUID], Awaitable[Sequence[VolumeFigures]]],
        measured: anyio.Event,
    ) -> None:
        found: dict[PodUID, Sequence[VolumeFigures]] = {}
        try:
            for uid in uids:
                found[uid] = await measure(uid)
        except Exception as error:  # noqa: BLE001 - volumes are left out, the rest is not
            log.fault("volumes_not_measured", error)
        finally:
            self._volumes, self._measured = found, None
            measured.set()


def _reader(places: Places) -> Reader:
    """What reads files; loads what makes figures, which an agent whom nobody asks is without."""
    from nodeagent.stats.reading import Reader

    return Reader(places)


def _by_id(stats: Sequence[v1.ContainerStats]) -> dict[str, v1.ContainerStats]:
    return {one.attributes.id: one for one in stats if one.attributes is not None}
