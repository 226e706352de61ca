"""The volumes of one agent: which kinds there are, and who gives what they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from nodeagent.api import Container, Pod, Quantity, ResourceFieldSelector
from nodeagent.clock import Clock
from nodeagent.journal import Journal
from nodeagent.model import PodUID
from nodeagent.node import EventRecorder
from nodeagent.runtime.downward import field_value, node_values, resource_value
from nodeagent.runtime.lookups import Lookups
from nodeagent.runtime.settings import HostFacts, RuntimeSettings
from nodeagent.volumes import VolumeManager
from nodeagent.volumes.content_kinds import content_plugins
from nodeagent.volumes.empty_dir import EmptyDirPlugin
from nodeagent.volumes.host_path import HostPathPlugin
from nodeagent.volumes.image import ImagePlugin
from nodeagent.volumes.local import LocalPlugin
from nodeagent.volumes.metrics import ClaimMetrics
from nodeagent.volumes.nfs import NfsPlugin
from nodeagent.volumes.objects import NoObjects, ObjectSource
from nodeagent.volumes.plugin import PluginRegistry
from nodeagent.wiring.storage import Storage

if TYPE_CHECKING:
    from nodeagent.stats.records import VolumeFigures


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What pods may learn of themselves.

    Attributes:
        settings: how pods are made.
        host: what the host has.
        lookups: who knows the node.
    """

    settings: RuntimeSettings
    host: HostFacts
    lookups: Lookups

    def allocatable(self) -> Mapping[str, Quantity] | None:
        """What of the node pods may have."""
        return node_values(self.settings, self.host, self.lookups.allocatable()).allocatable

    def field(self, pod: Pod, path: str) -> str:
        """A field of the pod. A volume is made before the pod has addresses."""
        return field_value(pod, path, (), node_values(self.settings, self.host))

    def resource(self, pod: Pod, selector: ResourceFieldSelector) -> str:
        """An amount of one of the pod's containers."""
        node = node_values(self.settings, self.host, self.lookups.allocatable())
        return resource_value(pod, Container(), selector, node)


def make_volumes(
    root: Path,
    facts: PodFacts,
    *,
    events: EventRecorder,
    journal: Journal,
    registry: CollectorRegistry,
    clock: Clock,
    objects: ObjectSource | None = None,
    storage: Storage | None = None,
) -> VolumeManager:
    """The volume manager, with all kinds of volumes.

    Args:
        root: the agent's directory.
        facts: what pods may learn of themselves.
        events: where events about pods go.
        journal: the flight recorder.
        registry: where metrics are registered.
        clock: wall clock.
        objects: gives ConfigMaps, Secrets and tokens; without it there are none.
        storage: serves the volumes of a cluster; None without one.
    """
    objects = objects or NoObjects()
    local = LocalPlugin()
    plugins = PluginRegistry(
        (
            EmptyDirPlugin(facts.allocatable),
            HostPathPlugin(),
            *content_plugins(objects, facts),
            ImagePlugin(),
            NfsPlugin(),
            local,
        )
    )
    if storage is not None:
        plugins.add(storage.csi)
        plugins.add(storage.claims(local, plugins))
    manager = VolumeManager(root, journal, plugins=plugins, record=events, clock=clock)
    if storage is not None:
        storage.csi.try_again = manager.try_again
        registry.register(figures := ClaimMetrics(manager.stats))
        storage.beside.append(figures)
    objects.subscribe(manager.object_changed)
    return manager


async def volume_figures(volumes: VolumeManager, uid: PodUID) -> list[VolumeFigures]:
    """What the volumes of a pod take, for who collects figures."""
    # An agent whom nobody asks does without this module.
    from nodeagent.stats.records import Fs, VolumeFigures

    return [
        VolumeFigures(
            name=one.name,
            fs=Fs(
                time=one.usage.time,
                used=one.usage.used,
                capacity=one.usage.capacity,
                available=one.usage.available,
                inodes=one.usage.inodes,
                inodes_free=one.usage.inodes_free,
                inodes_used=one.usage.inodes_used,
            ),
            claim=one.claim,
            local=one.local,
            abnormal=one.usage.abnormal,
        )
        for one in await volumes.stats.of_pod(uid)
    ]
