"""How the volumes of a cluster, and the drivers that serve them, are wired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from prometheus_client import CollectorRegistry

from nodeagent.api.node import Node
from nodeagent.api.storage import CSIDriver
from nodeagent.cluster import ClusterLink, Service
from nodeagent.config import AgentConfig
from nodeagent.csi.drivers import CsiDrivers
from nodeagent.csi.limits import DriverLimits
from nodeagent.csi.metrics import CsiMetrics
from nodeagent.csi.node_storage import NodeStorage
from nodeagent.csi.registration import CSI_PLUGIN, PluginWatcher
from nodeagent.csi.registry import DriverRegistry
from nodeagent.journal import Journal
from nodeagent.kube import paths
from nodeagent.kube.informer import Informer
from nodeagent.kube.reflector import Reflected
from nodeagent.volumes.claim_plugin import ClaimPlugin
from nodeagent.volumes.claims import Claims
from nodeagent.volumes.csi_attach import Attachments
from nodeagent.volumes.csi_calls import CallMaker
from nodeagent.volumes.csi_expand import Expander
from nodeagent.volumes.csi_plugin import CsiParts, CsiPlugin
from nodeagent.volumes.csi_stages import Stages
from nodeagent.volumes.csi_volume import attach_required
from nodeagent.volumes.known_drivers import KnownDrivers
from nodeagent.volumes.last_heard import LastHeard
from nodeagent.volumes.local import LocalPlugin
from nodeagent.volumes.mounter import SystemMounter
from nodeagent.volumes.objects import ObjectSource
from nodeagent.volumes.plugin import PluginRegistry

PLUGINS: Final = "plugins_registry"
"""The directory, below the agent's own, where plugins put their sockets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """What serves the volumes of a cluster.

    Attributes:
        registry: the drivers that are there.
        drivers: how drivers want to be treated.
        node: shows them to the API server.
        plugins: takes the plugins that register themselves.
        attachments: the volumes that are attached.
        stages: the volumes that are staged.
        csi: the kind of volumes that drivers serve.
        claims: given directories of this node and other kinds, the kind of volumes that pods
            claim.
        heard: what was heard last of volumes.
        known: what was heard last of drivers.
        on_node_changed: told that the node's status should be looked at again.
        beside: what else runs.
    """

    registry: DriverRegistry
    drivers: Informer[CSIDriver]
    node: NodeStorage
    plugins: PluginWatcher
    attachments: Attachments
    stages: Stages
    csi: CsiPlugin
    claims: Callable[[LocalPlugin, PluginRegistry], ClaimPlugin]
    heard: LastHeard
    known: KnownDrivers
    on_node_changed: list[Callable[[], None]] = field(default_factory=list)
    beside: list[Service] = field(default_factory=list)

    @property
    def services(self) -> tuple[Service, ...]:
        """What runs, in the order in which it starts."""
        return (
            self.drivers,
            self.node,
            self.registry,
            self.plugins,
            self.stages,
            _Recall(self),
            *self.beside,
        )


class _Recall:
    """Tells which volumes of an earlier agent are still in use, once that is known."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Tell, and be done."""
        task_status.started()
        storage = self._storage
        await storage.stages.ready()
        await storage.drivers.wait_synced()
        for stage in storage.stages.all():
            if attach_required(storage.drivers.get(stage.driver)):
                storage.attachments.want(stage.unique_name)
        storage.attachments.complete()
        await anyio.sleep_forever()


def build_storage(
    link: ClusterLink | None,
    config: AgentConfig,
    journal: Journal,
    registry: CollectorRegistry,
    *,
    node: Callable[[], Node | None],
    objects: ObjectSource,
) -> Storage | None:
    """What serves the volumes of the cluster; None without an API server.

    Args:
        link: the connection to the API server.
        config: settings.
        journal: the flight recorder.
        registry: where metrics are registered.
        node: this node as the API server shows it.
        objects: gives tokens of pods.
    """
    if link is None:
        return None
    client, name = link.clients.main, config.effective_node_name
    root = Path(config.root_dir).absolute()
    told: list[Callable[[], None]] = []

    def node_changed() -> None:
        for tell in told:
            tell()

    metrics, drivers = CsiMetrics(registry), DriverRegistry()
    shown = NodeStorage(client, name, journal, node_changed)
    reflected = Reflected(paths.CSI_DRIVERS, "csidrivers", {}, journal)
    wishes = Informer(client, CSIDriver, "CSIDriver", reflected)
    known, heard = KnownDrivers(wishes), LastHeard(client)
    attachments = Attachments(heard, name, node, managed=config.enable_controller_attach_detach)
    stages = Stages(root, drivers, attachments, metrics, journal, SystemMounter())
    calls = CallMaker(client, objects)
    csi = CsiPlugin(
        CsiParts(
            root=root,
            node_name=name,
            registry=drivers,
            find_driver=known.find,
            calls=calls,
            attachments=attachments,
            stages=stages,
            metrics=metrics,
        )
    )
    expander = Expander(root, drivers, calls, client, name)
    attachments.on_wanted.append(node_changed)
    attachments.on_told.append(csi.wake)
    wishes.subscribe(csi.wake)
    drivers.on_change += [lambda _driver: csi.wake(), lambda _driver: stages.wake()]
    limits = DriverLimits(drivers, known.limit_period, shown)
    drivers.on_change.append(lambda _driver: limits.wake())
    wishes.subscribe(limits.wake)
    attachments.on_full.append(limits.ask_now)
    takers = {CSI_PLUGIN: CsiDrivers(drivers, shown, metrics)}
    return Storage(
        registry=drivers,
        drivers=wishes,
        node=shown,
        plugins=PluginWatcher(root / PLUGINS, takers, journal, metrics),
        attachments=attachments,
        stages=stages,
        csi=csi,
        claims=lambda local, others: ClaimPlugin(Claims(heard), csi, local, others, expander, node),
        heard=heard,
        known=known,
        on_node_changed=told,
        beside=[limits],
    )
