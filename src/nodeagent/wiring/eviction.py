"""How the ending of pods that take too much is wired."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry

from nodeagent.api import Pod
from nodeagent.eviction import (
    ContainerUse,
    EvictionManager,
    EvictionMetrics,
    EvictionSides,
    PodUse,
)
from nodeagent.journal import Journal
from nodeagent.model import PodUID
from nodeagent.node import EventRecorder
from nodeagent.pods.workers import PodWorkers
from nodeagent.runtime.qos import is_critical
from nodeagent.stats import StatsCollector, StatsError
from nodeagent.volumes import VolumeManager


def make_eviction(
    pods: Callable[[], Sequence[Pod]],
    workers: PodWorkers,
    volumes: VolumeManager,
    stats: StatsCollector,
    *,
    events: EventRecorder,
    journal: Journal,
    registry: CollectorRegistry,
) -> EvictionManager:
    """What ends pods that take too much.

    Args:
        pods: those that run, may run, or are ending.
        workers: end them.
        volumes: tell what volumes take.
        stats: tell what containers take.
        events: where events about pods go.
        journal: the flight recorder.
        registry: where metrics are registered.
    """

    async def use_of(uid: PodUID, containers: bool) -> PodUse:
        own = await volumes.stats.of_pod(uid, only_local=True)
        found = {one.name: one.usage.used for one in own if one.usage.used is not None}
        use = PodUse(volumes=found)
        return await _with_containers(use, uid, stats) if containers else use

    sides = EvictionSides(
        pods=pods,
        is_critical=is_critical,
        use_of=use_of,
        end=workers.kill_pod_now,
        record=events,
    )
    return EvictionManager(sides, journal, EvictionMetrics(registry))


async def _with_containers(use: PodUse, uid: PodUID, stats: StatsCollector) -> PodUse:
    try:
        snapshot = await stats.snapshot()
    except StatsError:
        return use
    pod = next((one for one in snapshot.pods if one.uid == uid), None)
    if pod is None:
        return use
    node = snapshot.node
    containers = {
        one.name: ContainerUse(
            writable=(one.rootfs.used or 0) if one.rootfs is not None else 0,
            logs=(one.logs.used or 0) if one.logs is not None else 0,
        )
        for one in pod.containers
    }
    # Where nobody says what lies on which device, it is taken to be one.
    apart = (
        node.fs is not None
        and node.image_fs is not None
        and "" not in (node.fs.device, node.image_fs.device)
        and node.fs.device != node.image_fs.device
    )
    return PodUse(volumes=use.volumes, containers=containers, shared_layers=not apart)
