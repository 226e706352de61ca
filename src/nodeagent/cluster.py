"""The connection of a node to its cluster: how it opens, and what of it runs beside the ring."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus

from nodeagent.kube import KubeClients
from nodeagent.kube.reach import Reach, observed
from nodeagent.log import Log

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
    """

    clients: KubeClients
    reach: Reach


@asynccontextmanager
async def open_link(own: KubeClients | None) -> AsyncIterator[ClusterLink | None]:
    """The connection that the settings ask for; None for a node that stands alone.

    Nothing is asked of the server here: the agent starts also while it is away.

    Args:
        own: a connection of the caller's own; it stays the caller's to close.
    """
    if own is None:
        yield None
        return
    reach = Reach()
    yield ClusterLink(clients=observed(own, reach), reach=reach)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What runs for the cluster, beside the ring.

    Attributes:
        link: the connection.
        services: in the order in which they start.
        told: returns when all statuses that are known were sent.
    """

    link: ClusterLink
    services: tuple[Service, ...]
    told: Callable[[], Awaitable[None]]

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
