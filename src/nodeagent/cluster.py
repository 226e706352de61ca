"""The connection of a node to its cluster: how it opens, and what of it runs beside the ring."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus
from prometheus_client import CollectorRegistry

from nodeagent.clock import Clock
from nodeagent.config import AgentConfig, environment_proxy
from nodeagent.kube import KubeClients
from nodeagent.kube.reach import Reach, observed
from nodeagent.log import Log
from nodeagent.node.manager import NodeManager

if TYPE_CHECKING:
    from nodeagent.kube.connect import ClientSettings, Connection

log = Log("cluster")

FLUSH: Final = 5.0
"""Seconds that the agent's end waits for what the API server was not told yet."""


class Service(Protocol):
    """Something that runs until it is cancelled."""

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Run."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLink:
    """The open connection.

    Attributes:
        clients: make the requests.
        reach: whether the server answers.
        connection: its credentials and certificate; None for a connection of the caller's own.
    """

    clients: KubeClients
    reach: Reach
    connection: Connection | None = None

    def reconfigure(self, config: AgentConfig) -> None:
        """Ask as much of the server as these settings allow from now on; never blocks."""
        if self.connection is not None:
            self.connection.reconfigure(client_settings(config))

    def server(self) -> str:
        """URL of the server; "" while it is not known."""
        return self.connection.server if self.connection is not None else ""


@asynccontextmanager
async def open_link(
    config: AgentConfig, own: KubeClients | None, registry: CollectorRegistry, clock: Clock
) -> AsyncIterator[ClusterLink | None]:
    """The connection that the settings ask for; None for a node that stands alone.

    Nothing is asked of the server here: the agent starts also while it is away.

    Args:
        config: settings.
        own: a connection of the caller's own; it stays the caller's to close.
        registry: where metrics are registered.
        clock: wall clock.
    """
    async with AsyncExitStack() as stack:
        clients, connection = own, None
        if clients is None and not config.standalone:
            connection = await stack.enter_async_context(_connected(config, registry, clock))
            clients = connection.clients
        if clients is None:
            yield None
            return
        reach = Reach()
        yield ClusterLink(clients=observed(clients, reach), reach=reach, connection=connection)


def _connected(
    config: AgentConfig, registry: CollectorRegistry, clock: Clock
) -> AbstractAsyncContextManager[Connection]:
    # What this loads is large; an agent that stands alone does without.
    from nodeagent.kube.connect import open_connection
    from nodeagent.kube.credentials.certificates import CertificateSettings

    settings = client_settings(config)
    bootstrap = str(config.bootstrap_kubeconfig)
    certificates = CertificateSettings(
        node_name=config.effective_node_name,
        kubeconfig=Path(config.kubeconfig),
        cert_dir=config.certificates_dir,
        bootstrap_kubeconfig=Path(bootstrap) if bootstrap else None,
        rotate=config.rotate_certificates,
    )
    return open_connection(
        Path(config.kubeconfig),
        settings=settings,
        certificates=certificates,
        registry=registry,
        clock=clock,
        proxy_for=environment_proxy,
    )


def client_settings(config: AgentConfig) -> ClientSettings:
    """How much is asked of the API server, and for how long."""
    from nodeagent.kube.connect import ClientSettings

    requests, events = config.api_limits, config.event_limits
    return ClientSettings(
        qps=requests.qps,
        burst=requests.burst,
        event_qps=events.qps,
        event_burst=events.burst,
        heartbeat_timeout=config.heartbeat_timeout,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What runs for the cluster, beside the ring.

    Attributes:
        link: the connection.
        services: in the order in which they start.
        told: returns when all statuses that are known were sent.
        node: keeps the Node object.
    """

    link: ClusterLink
    services: tuple[Service, ...]
    told: Callable[[], Awaitable[None]]
    node: NodeManager

    async def start(self, tasks: TaskGroup) -> None:
        """Start the services."""
        for service in self.services:
            await tasks.start(service.run)

    async def flush(self) -> None:
        """Give the last statuses some seconds on their way, unless the server is away."""
        if self.link.reach.away_since is not None:
            return
        with anyio.move_on_after(FLUSH) as patience:
            await self.told()
        if patience.cancelled_caught:
            log.warning("statuses_unsent", seconds=FLUSH, remedy="the next agent sends them")
