"""What of the cluster's objects is watched, and who is asked about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import anyio

from nodeagent.api.node import Node
from nodeagent.api.quantity import Quantity
from nodeagent.api.runtime_class import RuntimeClass
from nodeagent.api.service import Service
from nodeagent.cluster import ClusterLink
from nodeagent.journal import Journal
from nodeagent.kube import paths
from nodeagent.kube.informer import Informer
from nodeagent.kube.reach import Reach
from nodeagent.kube.reflector import Reflected
from nodeagent.model import ContainerID, PodUID
from nodeagent.node.cluster_objects import ClusterRuntimeClasses, ClusterServices
from nodeagent.node.lookup import NodeLookup
from nodeagent.objects.store import VariableReader
from nodeagent.runtime.lookups import Describe, Lookups
from nodeagent.sources.api_source import PATIENCE
from nodeagent.wiring.objects import NodeObjects


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObjects:
    """The objects that are watched, beside pods.

    Attributes:
        node: the Node of this machine.
        services: those that have an address.
        runtime_classes: all of them.
        handlers: where these lead, also while nobody can be asked.
        known_services: the services, also while nobody can be asked.
    """

    node: Informer[Node]
    services: Informer[Service]
    runtime_classes: Informer[RuntimeClass]
    handlers: ClusterRuntimeClasses
    known_services: ClusterServices

    @property
    def informers(self) -> tuple[Informer[Node], Informer[Service], Informer[RuntimeClass]]:
        """All of them."""
        return self.node, self.services, self.runtime_classes


class ServicesWhileAway:
    """The services; without a server for long enough, whatever is known of them.

    A pod that ran before goes on without the variables rather than not at all.

    Args:
        services: as the watch shows them.
        reach: whether the server answers, and what it refuses.
        trouble_since: loop time since when they cannot be asked for; None while they can.
    """

    def __init__(
        self,
        services: ClusterServices,
        reach: Reach,
        trouble_since: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._services = services
        self._reach = reach
        self._trouble_since = trouble_since

    @property
    def synced(self) -> bool:
        """Whether no more is to be expected for now."""
        if self._services.synced:
            return True
        if any(kind == paths.SERVICES.rpartition("/")[2] for _, kind in self._reach.refusals):
            return False  # that has to be mended, and the pod says so
        known = (self._reach.away_since, self._trouble_since())
        since = min((moment for moment in known if moment is not None), default=None)
        return since is not None and anyio.current_time() - since >= PATIENCE

    def in_namespaces(self, namespaces: Iterable[str]) -> Iterable[Service]:
        """Those of some namespaces."""
        return self._services.in_namespaces(namespaces)


def watch_objects(
    link: ClusterLink | None, node_name: str, journal: Journal
) -> ClusterObjects | None:
    """Who watches the cluster's objects; None without an API server."""
    if link is None:
        return None
    client = link.clients.main
    own = {"fieldSelector": f"metadata.name={node_name}"}
    classes = Informer(
        client,
        RuntimeClass,
        "RuntimeClass",
        Reflected(paths.RUNTIME_CLASSES, "runtimeclasses", {}, journal),
    )
    # All, also those without an address: not every API server can select by it.
    services = Informer(
        client, Service, "Service", Reflected(paths.SERVICES, "services", {}, journal)
    )
    return ClusterObjects(
        node=Informer(client, Node, "Node", Reflected(paths.NODES, "nodes", own, journal)),
        services=services,
        runtime_classes=classes,
        handlers=ClusterRuntimeClasses(classes),
        known_services=ClusterServices(services),
    )


def node_lookup(objects: ClusterObjects | None, node_name: str) -> NodeLookup:
    """Who knows the Node of this machine."""
    if objects is None:
        return NodeLookup(standalone=True)
    return NodeLookup(lambda: objects.node.get(node_name))


def make_lookups(
    objects: ClusterObjects | None,
    link: ClusterLink | None,
    node: NodeLookup,
    *,
    referred: NodeObjects,
    describe: Describe,
    ended: Callable[[PodUID, ContainerID], bool],
) -> Lookups:
    """Who is asked for what pods refer to."""
    variables = VariableReader(referred.store)
    if objects is None or link is None:
        return Lookups(describe=describe, objects=variables, ended=ended)

    def allocatable() -> Mapping[str, Quantity] | None:
        found = node.any_node()
        return None if found is None else found.status.allocatable

    return Lookups(
        describe=describe,
        objects=variables,
        ended=ended,
        runtime_classes=objects.handlers,
        services=ServicesWhileAway(
            objects.known_services,
            link.reach,
            lambda: objects.services.reflector.trouble_since,
        ),
        allocatable=allocatable,
    )
