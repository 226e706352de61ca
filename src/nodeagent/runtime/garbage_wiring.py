"""What collects garbage, wired from the settings: for an agent and for the command."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.clock import Clock
from nodeagent.config import AgentConfig
from nodeagent.cri import ImageService, RuntimeService
from nodeagent.journal import Journal
from nodeagent.runtime.events import NodeEvents
from nodeagent.runtime.gc import ContainerGC, ListPods
from nodeagent.runtime.gc_plan import GCPolicy, Removable
from nodeagent.runtime.image_fs import ImageFilesystem
from nodeagent.runtime.image_gc import ImageGC
from nodeagent.runtime.image_gc_plan import ImageGCPolicy
from nodeagent.runtime.images import ImageAccess
from nodeagent.runtime.log_rotation import LogRotation
from nodeagent.runtime.log_rotation_plan import RotationPolicy
from nodeagent.runtime.metrics import RuntimeMetrics

POD_LOGS: Final = "/var/log/pods"
CONTAINER_LOGS: Final = Path("/var/log/containers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What garbage is collected on.

    Attributes:
        runtime: sandboxes and containers.
        images: images.
        list_pods: lists all pods that the runtime has.
        removable: whether everything of a pod may go.
        spared: names and ids of images that are in use without a container.
        sources_ready: whether all sources have spoken.
        events: told of failures.
        journal: the flight recorder.
        metrics: counters.
    """

    runtime: RuntimeService
    images: ImageService
    list_pods: ListPods
    removable: Removable
    spared: Callable[[], Iterable[str]]
    sources_ready: Callable[[], bool]
    events: NodeEvents
    journal: Journal
    metrics: RuntimeMetrics


def container_logs_dir(config: AgentConfig) -> Path | None:
    """Where links to log files lie; None for nowhere."""
    if str(config.container_logs_dir):
        return Path(config.container_logs_dir).absolute()
    return CONTAINER_LOGS if str(config.pod_logs_dir) == POD_LOGS else None


def gc_policy(config: AgentConfig) -> GCPolicy:
    """Which dead containers are kept."""
    return GCPolicy(
        min_age=config.minimum_container_ttl_duration,
        max_per_pod_container=config.maximum_dead_containers_per_container,
        max_containers=config.maximum_dead_containers,
    )


def image_gc_policy(config: AgentConfig) -> ImageGCPolicy:
    """When images go."""
    return ImageGCPolicy(
        # Images of the embedded runtime take no space.
        high_percent=100 if config.embedded else config.image_gc_high_threshold_percent,
        low_percent=config.image_gc_low_threshold_percent,
        min_age=config.image_minimum_gc_age,
        max_age=config.image_maximum_gc_age,
    )


def rotation_policy(config: AgentConfig) -> RotationPolicy:
    """When logs are rotated."""
    return RotationPolicy(
        max_size=config.container_log_max_size,
        max_files=config.container_log_max_files,
        period=config.container_log_monitor_interval,
        workers=config.container_log_max_workers,
    )


def make_container_gc(config: AgentConfig, node: Node) -> ContainerGC:
    """Build what removes dead containers, sandboxes and logs."""
    return ContainerGC(
        node.runtime,
        node.list_pods,
        removable=node.removable,
        sources_ready=node.sources_ready,
        logs_dir=Path(config.pod_logs_dir).absolute(),
        links_dir=container_logs_dir(config),
        policy=gc_policy(config),
        journal=node.journal,
        events=node.events,
    )


def make_image_gc(config: AgentConfig, node: Node, access: ImageAccess | None = None) -> ImageGC:
    """Build what removes images."""
    records = access.records if access is not None else None
    gc = ImageGC(
        images=node.images,
        node=node.runtime,
        disk=ImageFilesystem(node.images),
        policy=image_gc_policy(config),
        spared=node.spared,
        sources_ready=node.sources_ready,
        events=node.events,
        journal=node.journal,
        metrics=node.metrics,
    )
    if records is not None:
        gc.forget = records.prune
    return gc


def make_log_rotation(
    config: AgentConfig, runtime: RuntimeService, journal: Journal, clock: Clock
) -> LogRotation:
    """Build what rotates container logs."""
    return LogRotation(
        runtime=runtime,
        logs_dir=Path(config.pod_logs_dir).absolute(),
        policy=rotation_policy(config),
        clock=clock,
        journal=journal,
    )
