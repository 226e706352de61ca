"""How storage drivers of a cluster are wired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry

from nodeagent.api.storage import CSIDriver
from nodeagent.cluster import ClusterLink, Service
from nodeagent.config import AgentConfig
from nodeagent.csi.drivers import CsiDrivers
from nodeagent.csi.metrics import CsiMetrics
from nodeagent.csi.node_storage import NodeStorage
from nodeagent.csi.registration import CSI_PLUGIN, PluginWatcher
from nodeagent.csi.registry import DriverRegistry
from nodeagent.journal import Journal
from nodeagent.kube import paths
from nodeagent.kube.informer import Informer
from nodeagent.kube.reflector import Reflected

PLUGINS: str = "plugins_registry"
"""The directory, below the agent's own, where plugins put their sockets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """What serves the volumes of a cluster.

    Attributes:
        registry: the drivers that are there.
        drivers: how drivers want to be treated.
        node: shows them to the API server.
        plugins: takes the plugins that register themselves.
        metrics: where calls are counted.
        on_node_changed: told that the node's status should be looked at again.
    """

    registry: DriverRegistry
    drivers: Informer[CSIDriver]
    node: NodeStorage
    plugins: PluginWatcher
    metrics: CsiMetrics
    on_node_changed: list[Callable[[], None]] = field(default_factory=list)

    @property
    def services(self) -> tuple[Service, ...]:
        """What runs, in the order in which it starts."""
        return self.drivers, self.node, self.registry, self.plugins


def build_storage(
    link: ClusterLink | None, config: AgentConfig, journal: Journal, registry: CollectorRegistry
) -> Storage | None:
    """What serves the volumes of the cluster; None without an API server."""
    if link is None:
        return None
    client, told = link.clients.main, list[Callable[[], None]]()

    def node_changed() -> None:
        for tell in told:
            tell()

    metrics = CsiMetrics(registry)
    drivers = DriverRegistry()
    node = NodeStorage(client, config.effective_node_name, journal, node_changed)
    reflected = Reflected(paths.CSI_DRIVERS, "csidrivers", {}, journal)
    return Storage(
        registry=drivers,
        drivers=Informer(client, CSIDriver, "CSIDriver", reflected),
        node=node,
        plugins=PluginWatcher(
            Path(config.root_dir).absolute() / PLUGINS,
            {CSI_PLUGIN: CsiDrivers(drivers, node, metrics)},
            journal,
            metrics,
        ),
        metrics=metrics,
        on_node_changed=told,
    )
