"""Opens the clients of an agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread
from prometheus_client import CollectorRegistry

from nodeagent.aio import background
from nodeagent.clock import Clock, SystemClock
from nodeagent.kube.access import AccessSource
from nodeagent.kube.client import KubeClients
from nodeagent.kube.config import KubeConfig
from nodeagent.kube.credentials.keeper import AccessKeeper
from nodeagent.kube.http_client import HttpClient
from nodeagent.kube.library import library
from nodeagent.kube.metrics import ClientMetrics
from nodeagent.kube.service_account import InCluster
from nodeagent.kube.throttle import Throttle
from nodeagent.kube.transport import Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How many requests the clients make, and how long these may take.

    Attributes:
        qps: requests per second of the main client; 0 means no limit.
        burst: requests of it that may come at once.
        event_qps: events per second; 0 means no limit.
        event_burst: events that may come at once.
        timeout: seconds for a request.
        heartbeat_timeout: seconds for one of the heartbeat client, which has no limit.
    """

    qps: float = 50.0
    burst: int = 100
    event_qps: float = 50.0
    event_burst: int = 100
    timeout: float = 60.0
    heartbeat_timeout: float = 10.0


@asynccontextmanager
async def open_clients(
    source: AccessSource | Path | str,
    *,
    settings: ClientSettings | None = None,
    registry: CollectorRegistry | None = None,
    clock: Clock | None = None,
    proxy_for: Callable[[str], str | None] = lambda _url: None,
) -> AsyncIterator[KubeClients]:
    """The clients of the API server that a kubeconfig names.

    They open also when the server is away, or the kubeconfig cannot be used yet: then requests
    raise UnreachableError, which says why, until it can.

    Args:
        source: a kubeconfig file; "" for the service account of the pod that this runs in.
        settings: limits.
        registry: where metrics are registered; None for none.
        clock: wall time, for tokens that end.
        proxy_for: the proxy for a URL by the environment, None for a direct connection.
    """
    settings = settings or ClientSettings()
    # aiohttp is large: other tasks go on while it loads.
    await to_thread.run_sync(_load_libraries)
    keeper = AccessKeeper(_source(source), clock or SystemClock())
    transport = Transport(ClientMetrics(registry or CollectorRegistry()), proxy_for)
    keeper.changed = transport.move
    await keeper.load()
    async with background() as tasks:
        await tasks.start(transport.run)
        await tasks.start(keeper.run)
        yield clients(keeper, transport, settings)


def clients(keeper: AccessKeeper, transport: Transport, settings: ClientSettings) -> KubeClients:
    """The clients of one agent, which share their connections."""
    return KubeClients(
        main=HttpClient(
            keeper,
            transport,
            throttle=Throttle(settings.qps, settings.burst),
            timeout=settings.timeout,
        ),
        events=HttpClient(
            keeper,
            transport,
            throttle=Throttle(settings.event_qps, settings.event_burst),
            timeout=settings.timeout,
        ),
        heartbeat=HttpClient(keeper, transport, timeout=settings.heartbeat_timeout),
    )


def _source(given: AccessSource | Path | str) -> AccessSource:
    if isinstance(given, (str, Path)):
        return KubeConfig(Path(given)) if str(given) else InCluster()
    return given


def _load_libraries() -> None:
    import aiohttp  # noqa: F401

    library()
