"""Opens the clients of an agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from anyio import to_thread
from prometheus_client import CollectorRegistry

from nodeagent.aio import background
from nodeagent.clock import Clock, SystemClock
from nodeagent.kube.access import AccessSource
from nodeagent.kube.client import KubeClient, KubeClients
from nodeagent.kube.config import KubeConfig
from nodeagent.kube.credentials.certificates import CertificateSettings, ClientCertificates
from nodeagent.kube.credentials.keeper import AccessKeeper
from nodeagent.kube.credentials.store import CertificateStore
from nodeagent.kube.http_client import HttpClient
from nodeagent.kube.library import library
from nodeagent.kube.metrics import ClientMetrics
from nodeagent.kube.service_account import InCluster
from nodeagent.kube.throttle import Throttle
from nodeagent.kube.transport import Transport

ProxyFor: TypeAlias = Callable[[str], str | None]
"""The proxy for a URL, None for a direct connection."""


def _no_proxy(_url: str) -> str | None:
    return None


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


@dataclass(frozen=True, slots=True)
class Connection:
    """What connects an agent to its API server.

    Attributes:
        clients: for requests.
        keeper: the credentials.
        certificates: looks after the client certificate; None when nobody asked for that.
        clock: tells whether a certificate is good now.
        reconfigure: makes other limits count from now on; never blocks.
    """

    clients: KubeClients
    keeper: AccessKeeper
    certificates: ClientCertificates | None
    clock: Clock
    reconfigure: Callable[[ClientSettings], None] = lambda _settings: None

    @property
    def server(self) -> str:
        """URL of the server, without a password; "" while it is not known."""
        return self.keeper.access.shown if self.keeper.access is not None else ""

    @property
    def problem(self) -> str:
        """What is wrong with credentials or certificate; "" for nothing."""
        if self.keeper.access is None:
            return self.keeper.why_none
        found = self.keeper.problem or (self.certificates.problem if self.certificates else "")
        return found or self._out_of_date()

    def _out_of_date(self) -> str:
        """Why no server can accept the client certificate in force; "" when one can."""
        access, now = self.keeper.access, self.clock.now()
        validity = access.validity if access is not None else None
        if validity is None or validity.begins <= now < validity.ends:
            return ""
        where = f"the client certificate of {self.keeper.source}"
        if now < validity.begins:
            begins = f"{validity.begins:%Y-%m-%d %H:%M:%S} UTC"
            return f"{where} is not good before {begins}: is the clock of this machine right?"
        ends = f"{validity.ends:%Y-%m-%d %H:%M:%S} UTC"
        return f"{where} ended {ends}: put a new one there, or let the agent rotate it"

    @property
    def certificate_ends(self) -> datetime | None:
        """When the client certificate in force ends; None without one."""
        access = self.keeper.access
        return access.validity.ends if access is not None and access.validity else None


@asynccontextmanager
async def open_clients(
    source: AccessSource | Path | str,
    *,
    settings: ClientSettings | None = None,
    registry: CollectorRegistry | None = None,
    clock: Clock | None = None,
    proxy_for: ProxyFor = _no_proxy,
) -> AsyncIterator[KubeClients]:
    """The clients of the API server that a kubeconfig names; see :func:`open_connection`."""
    async with open_connection(
        source, settings=settings, registry=registry, clock=clock, proxy_for=proxy_for
    ) as connection:
        yield connection.clients


@asynccontextmanager
async def open_connection(
    source: AccessSource | Path | str,
    *,
    settings: ClientSettings | None = None,
    certificates: CertificateSettings | None = None,
    registry: CollectorRegistry | None = None,
    clock: Clock | None = None,
    proxy_for: ProxyFor = _no_proxy,
) -> AsyncIterator[Connection]:
    """The connection to the API server that a kubeconfig names.

    It opens also when the server is away, or the kubeconfig cannot be used yet: then requests
    raise UnreachableError, which says why, until it can.

    Args:
        source: a kubeconfig file; "" for the service account of the pod that this runs in.
        settings: limits.
        certificates: how the node gets its client certificate; None leaves it as it is.
        registry: where metrics are registered; None for none.
        clock: wall time, for tokens and certificates that end.
        proxy_for: the proxy for a URL by the environment, None for a direct connection.
    """
    settings, clock = settings or ClientSettings(), clock or SystemClock()
    registry = registry or CollectorRegistry()
    # aiohttp is large: other tasks go on while it loads.
    await to_thread.run_sync(_load_libraries)
    metrics = ClientMetrics(registry)
    bootstraps = certificates is not None and certificates.bootstrap_kubeconfig is not None
    keeper = AccessKeeper(_source(source, certificates, clock), clock, bootstraps=bootstraps)

    @asynccontextmanager
    async def open_other(other: AccessSource) -> AsyncIterator[KubeClient]:
        async with _running(AccessKeeper(other, clock), metrics, proxy_for) as found:
            yield found(None, settings.timeout)

    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(_running(keeper, metrics, proxy_for))
        requests = Throttle(settings.qps, settings.burst)
        events = Throttle(settings.event_qps, settings.event_burst)
        heartbeat = client(None, settings.heartbeat_timeout)
        clients = KubeClients(
            main=client(requests, settings.timeout),
            events=client(events, settings.timeout),
            heartbeat=heartbeat,
        )

        def reconfigure(new: ClientSettings) -> None:
            requests.change(new.qps, new.burst)
            events.change(new.event_qps, new.event_burst)
            heartbeat.change_timeout(new.heartbeat_timeout)

        manager = None
        if certificates is not None and certificates.needed:
            manager = ClientCertificates(
                certificates,
                keeper=keeper,
                client=clients.main,
                open_client=open_other,
                clock=clock,
                registry=registry,
            )
            tasks = await stack.enter_async_context(background())
            await tasks.start(manager.run)
        yield Connection(clients, keeper, manager, clock, reconfigure)


@asynccontextmanager
async def _running(
    keeper: AccessKeeper, metrics: ClientMetrics, proxy_for: ProxyFor
) -> AsyncIterator[Callable[[Throttle | None, float], HttpClient]]:
    """What makes clients that use a keeper's access, while that is looked after."""
    transport = Transport(metrics, proxy_for)
    keeper.changed = transport.move
    await keeper.load()

    def client(throttle: Throttle | None, timeout: float) -> HttpClient:
        return HttpClient(keeper, transport, throttle=throttle, timeout=timeout)

    async with background() as tasks:
        await tasks.start(transport.run)
        await tasks.start(keeper.run)
        yield client


def _source(
    given: AccessSource | Path | str, certificates: CertificateSettings | None, clock: Clock
) -> AccessSource:
    if not isinstance(given, (str, Path)):
        return given
    if not str(given):
        return InCluster()
    rotated = None
    if certificates is not None and certificates.rotate:
        rotated = CertificateStore(certificates.cert_dir.absolute()).current
    return KubeConfig(Path(given), rotated=rotated, clock=clock)


def _load_libraries() -> None:
    import aiohttp  # noqa: F401

    library()
