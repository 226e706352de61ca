"""The parts of a running agent, in the order in which they start and end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup
from prometheus_client import CollectorRegistry

from nodeagent.aio import keeping_step
from nodeagent.api import Pod
from nodeagent.channels import SyncChannels, SyncLoop
from nodeagent.checkpointer import Checkpointer
from nodeagent.cluster import Cluster, Service
from nodeagent.config import AgentConfig
from nodeagent.config.reload import LiveSettings
from nodeagent.cri import RuntimeService
from nodeagent.errors import StartError
from nodeagent.intake import RunningSources, running_sources
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import PodUID, Snapshot
from nodeagent.node import RuntimeState
from nodeagent.pleg import EventWatch, Pleg, PodCache
from nodeagent.pods.admission_desk import AdmissionDesk
from nodeagent.pods.dead_containers import DeadContainerRemover
from nodeagent.pods.housekeeping import Housekeeping
from nodeagent.pods.manager import PodManager
from nodeagent.pods.sources_ready import SourcesReady
from nodeagent.pods.status_manager import StatusManager
from nodeagent.pods.work_queue import WorkQueue
from nodeagent.pods.workers import PodWorkers
from nodeagent.probes import ProbeManager
from nodeagent.runtime.credential_config import ProvidersConfig
from nodeagent.runtime.gc import ContainerGC
from nodeagent.runtime.image_gc import ImageGC
from nodeagent.runtime.log_rotation import LogRotation
from nodeagent.runtime.manager import RuntimeManager
from nodeagent.server import (
    App,
    HealthChecks,
    HttpListener,
    health_app,
    joined,
    metrics_app,
    read_only_app,
)
from nodeagent.server.http_metrics import READ_ONLY, CountedApp, HttpMetrics
from nodeagent.server.stats_app import stats_app
from nodeagent.sources import PodMux, Source
from nodeagent.stats import StatsCollector
from nodeagent.volumes import VolumeManager

log = Log("agent")

_SHARE_FOR_GRACE = 0.75


@dataclass(slots=True, kw_only=True)
class Parts:
    """Everything a running agent consists of."""

    config: AgentConfig
    """What the agent has started with."""
    settings: LiveSettings
    """What is in force."""
    channels: SyncChannels
    manager: PodManager
    statuses: StatusManager
    cache: PodCache
    pleg: Pleg
    runtime: RuntimeManager
    volumes: VolumeManager
    runtime_state: RuntimeState
    workers: PodWorkers
    queue: WorkQueue
    housekeeping: Housekeeping
    admission: AdmissionDesk
    probes: ProbeManager
    dead: DeadContainerRemover
    client: RuntimeService
    """Makes the calls of the runtime."""
    set_providers: Callable[[ProvidersConfig], None]
    """Has others give logins for images from now on."""
    gc: ContainerGC
    image_gc: ImageGC
    log_rotation: LogRotation
    sources: list[Source]
    """Those that run; shared with who asks how they are."""
    sources_ready: SourcesReady
    mux: PodMux
    loop: SyncLoop
    events: EventWatch
    checkpoint: Checkpointer
    beside: tuple[Service, ...]
    """What else runs for the node."""
    cluster: Cluster | None
    """What runs for the API server; None for an agent that stands alone."""
    checks: HealthChecks
    journal: Journal
    registry: CollectorRegistry
    stats: StatsCollector
    http: HttpMetrics
    refresh: Callable[[], Awaitable[None]]
    """Measures what is measured only when metrics are asked for."""
    node_event: Callable[[str, str, str], None]
    """Says something about the node: type, reason, text."""
    open_api: Callable[[AsyncExitStack], Awaitable[int]] | None = None
    """Opens the API port; None when there is none."""
    ports: dict[str, int] = field(default_factory=dict)
    left_running: tuple[PodUID, ...] = ()
    """Pods that did not stop in time when the agent ended."""
    _running: RunningSources | None = None

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Run the ring; sources start last and end first.

        What tells the API server ends after the ring: it has the last word of every pod.
        """
        await self.checkpoint.load()
        async with anyio.create_task_group() as telling:
            async with self._ring(telling):
                yield
            if self.cluster is not None:
                await self.cluster.flush()
            telling.cancel_scope.cancel()

    @asynccontextmanager
    async def _ring(self, telling: TaskGroup) -> AsyncIterator[None]:
        async with anyio.create_task_group() as ring:
            with keeping_step():
                await ring.start(self.checkpoint.run)
                await ring.start(self.pleg.run)
                await ring.start(self.runtime_state.run)
                await ring.start(self.volumes.run)
                await ring.start(self.probes.run)
                await ring.start(self.runtime.run)
                await ring.start(self.workers.run)
                await ring.start(self.dead.run)
                await ring.start(self.image_gc.run)
                await ring.start(self.log_rotation.run)
                await ring.start(self.housekeeping.run)
                await ring.start(self.admission.run)
                await ring.start(self.loop.run)
                await ring.start(self.events.run)
                for service in self.beside:
                    await ring.start(service.run)
                if self.cluster is not None:
                    await self.cluster.start(telling)
            async with running_sources(self.sources, self.mux.publish, self.journal) as running:
                self._running = running
                yield
                self._running = None
            if self.settings.current.stop_pods_on_exit:
                await self._stop_pods()
            ring.cancel_scope.cancel()

    async def replace_source(self, name: str, source: Source | None) -> None:
        """Let another source of pods take the place of one, or of none.

        What the old one gave stays wanted until the new one has spoken; without a new one it is
        not wanted any more.
        """
        assert self._running is not None
        await self._running.end(name)
        self.sources[:] = [other for other in self.sources if other.name != name]
        if source is None:
            await self.mux.publish(Snapshot(name, ()))
            return
        self.sources.append(source)
        self.mux.storage.forget(name)
        self.sources_ready.forget(name)
        self._running.start(source)

    def dispose(self) -> None:
        """Close the channels; what still lies in them is gone."""
        for channel in self.channels.all():
            channel.dispose()
        self.dead.channel.dispose()

    async def _stop_pods(self) -> None:
        timeout = self.settings.current.stop_pods_timeout
        log.info("stopping_pods", timeout=timeout)
        # A pod with a longer grace period is cut short in time to be killed within the timeout.
        grace = max(1, int(timeout * _SHARE_FOR_GRACE))
        wanted = [PodUID(pod.metadata.uid) for pod in self.manager.get_pods()]
        self.left_running = await self.workers.stop_all(timeout, grace)
        for uid in wanted:
            self.runtime.forgive_exits(uid)
        if self.left_running:
            uids = ",".join(self.left_running)
            log.warning("pods_left_running", uids=uids, cause="not done in time")
        else:
            log.info("pods_stopped")

    async def open_listeners(
        self, stack: AsyncExitStack, pods: Callable[[], Sequence[Pod]]
    ) -> None:
        """Open the ports that the configuration asks for.

        Raises:
            StartError: a port cannot be opened.
        """
        config = self.config
        await stack.enter_async_context(self.stats.open())
        refresh = self.refresh
        health = health_app(
            self.checks, self.registry, self.journal, config.effective_node_name, refresh
        )
        figures = stats_app(self.stats, self.registry, self.checks)
        wanted: list[tuple[str, App, str, int]] = []
        if config.healthz_port:
            app = joined(health, figures)
            wanted.append(("healthz", app, config.healthz_bind_address, config.healthz_port))
        if config.read_only_port and config.enable_server:
            app, address = read_only_app(pods), config.effective_read_only_address
            app = joined(app, metrics_app(self.registry, refresh), figures)
            app = CountedApp(app, self.http, READ_ONLY)
            wanted.append(("read-only", app, address, config.read_only_port))
        for name, app, address, port in wanted:
            try:
                listener = await stack.enter_async_context(HttpListener(name, app, address, port))
            except OSError as error:
                raise StartError(error.strerror or str(error)) from error
            self.ports[name] = listener.port
        if self.open_api is not None:
            self.ports["api"] = await self.open_api(stack)
