"""How the parts that talk to the API server are wired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from nodeagent.api import Pod
from nodeagent.cluster import Cluster, ClusterLink, Service
from nodeagent.journal import Journal
from nodeagent.model import FullName, PodUID
from nodeagent.node.event_sender import EventSender
from nodeagent.node.lookup import NodeLookup
from nodeagent.objects import ObjectStore
from nodeagent.pods.housekeeping import Sweep
from nodeagent.pods.manager import PodManager
from nodeagent.pods.metrics import PodMetrics
from nodeagent.pods.mirror_pods import MirrorPods, ends_under
from nodeagent.pods.status_manager import StatusManager
from nodeagent.pods.status_writer import PodStatusWriter
from nodeagent.pods.workers import PodWorkers
from nodeagent.sources import Source
from nodeagent.sources.api_source import ApiSource
from nodeagent.wiring.cluster_objects import ClusterObjects
from nodeagent.wiring.node import NodeSide, node_manager


@dataclass(slots=True)
class Telling:
    """What the ring says that the API server has to learn. Without one nobody listens.

    Attributes:
        writer: writes statuses.
        mirrors: makes mirror pods.
    """

    writer: PodStatusWriter | None = None
    mirrors: MirrorPods | None = None

    def status(self, uid: PodUID) -> None:
        """A pod's status has changed, or what of it may be told."""
        if self.writer is not None:
            self.writer.wake(uid)

    def mirror(self, pod: Pod) -> None:
        """The mirror of a static pod is wanted."""
        if self.mirrors is not None:
            self.mirrors.want(pod)

    async def sweep(self, sweep: Sweep) -> None:
        """All sources have spoken, and this is what there is."""
        if self.writer is not None:
            await self.writer.sweep(sweep)
        if self.mirrors is not None:
            await self.mirrors.sweep(sweep)

    def retry_now(self) -> None:
        """The server answers again."""
        for part in (self.writer, self.mirrors):
            if part is not None:
                part.retry_now()

    async def told(self) -> None:
        """Return when everything was said; the caller's scope bounds the wait."""
        for part in (self.mirrors, self.writer):
            if part is not None:
                await part.drained()


@dataclass(frozen=True, slots=True, kw_only=True)
class RingSide:
    """The parts of the ring that the API server is told of.

    Attributes:
        manager: the desired pods.
        statuses: what was computed of them.
        workers: who works on them.
        lookup: this node as the API shows it.
        objects: other objects of the cluster that are watched.
        referred: those that pods refer to.
        sources: where pods come from.
        heard: whether the API server's pods are known.
        journal: flight recorder.
        metrics: of pods.
    """

    manager: PodManager
    statuses: StatusManager
    workers: PodWorkers
    lookup: NodeLookup
    objects: ClusterObjects | None
    referred: ObjectStore
    sources: Sequence[Source]
    heard: Callable[[], bool]
    journal: Journal
    metrics: PodMetrics


def event_sender(link: ClusterLink | None, registry: CollectorRegistry) -> EventSender | None:
    """The way of events to the API server; None without one."""
    return None if link is None else EventSender(link.clients.events, registry)


def build_cluster(
    link: ClusterLink | None,
    sender: EventSender | None,
    telling: Telling,
    ring: RingSide,
    node: NodeSide,
) -> Cluster | None:
    """What runs for the API server; None without one. From here on ``telling`` has listeners."""
    objects = ring.objects
    if link is None or sender is None or objects is None:
        return None
    workers = ring.workers

    def may_run(uid: PodUID) -> bool:
        return workers.view(uid).could_have_running_containers

    def ends(name: FullName) -> bool:
        return ends_under(name, workers.states())

    client = link.clients.main
    telling.writer = PodStatusWriter(
        client,
        ring.statuses,
        ring.manager,
        may_run=may_run,
        journal=ring.journal,
        metrics=ring.metrics,
    )
    telling.mirrors = MirrorPods(
        client,
        ring.lookup.node,
        ring.manager,
        ends=ends,
        heard=ring.heard,
        journal=ring.journal,
    )
    objects.node.subscribe(telling.mirrors.node_changed)
    manager = node_manager(link, ring.lookup, node)
    objects.node.subscribe(manager.node_changed)
    storage = node.storage
    if storage is not None:
        storage.on_node_changed.append(manager.wake)
        objects.node.subscribe(storage.node.retry_now)
        objects.node.subscribe(storage.csi.wake)
    retries = [
        telling.retry_now,
        manager.wake,
        ring.referred.retry_now,
        *(informer.retry_now for informer in objects.informers),
    ]
    retries += [source.retry_now for source in ring.sources if isinstance(source, ApiSource)]
    if storage is not None:
        retries += [storage.node.retry_now, storage.drivers.retry_now]
    link.reach.on_return.extend(retries)
    services: tuple[Service, ...] = (
        *objects.informers,
        ring.referred,
        manager,
        *(storage.services if storage is not None else ()),
        sender,
        telling.writer,
        telling.mirrors,
    )
    return Cluster(link=link, services=services, told=telling.told, node=manager)
