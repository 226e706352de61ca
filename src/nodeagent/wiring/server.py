"""How the kubelet's API is wired. Loads what it needs only for an agent that serves it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from anyio import to_thread
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Gauge

from nodeagent.aio import background
from nodeagent.api import Pod
from nodeagent.api.node import NodeAddress
from nodeagent.clock import Clock
from nodeagent.cluster import ClusterLink
from nodeagent.config import AgentConfig
from nodeagent.config.effective import effective_configuration, effective_flags
from nodeagent.config.reload import LiveSettings
from nodeagent.config.report import ConfigReport
from nodeagent.config.server_options import ALWAYS_ALLOW
from nodeagent.cri import RuntimeService
from nodeagent.errors import StartError
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import PodRuntimeStatus, PodUID, RuntimePod, full_name
from nodeagent.pleg import PodCache
from nodeagent.pods.manager import PodManager, pod_uid
from nodeagent.pods.status_manager import StatusManager
from nodeagent.server import HealthChecks, health_app, read_only_app
from nodeagent.server.checks import serving
from nodeagent.server.http_metrics import HttpMetrics
from nodeagent.server.stats_app import stats_app
from nodeagent.stats import StatsCollector

if TYPE_CHECKING:
    from nodeagent.kube.credentials.serving_certificates import ServingCertificates
    from nodeagent.server.kubelet.api import KubeletApi
    from nodeagent.server.kubelet.gate import Gate
    from nodeagent.server.kubelet.listener import ApiListener

log = Log("server")

_NOBODY = (
    "no authentication method configured: give --client-ca-file, or let the API server be asked "
    "with --authentication-token-webhook"
)
_NO_CLIENT = (
    "no client provided, cannot use webhook authorization: give --kubeconfig, or "
    "--authorization-mode=AlwaysAllow, and everybody with a certificate of --client-ca-file may "
    "do everything"
)

OpenApi: TypeAlias = Callable[[AsyncExitStack], Awaitable[int]]
"""Opens the API port for as long as the stack lasts; returns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSide:
    """What the API shows and uses.

    Attributes:
        config: settings that the agent has started with.
        settings: those in force.
        report: where the node stands with its configuration.
        manager: the desired pods.
        statuses: what was computed of them.
        cache: what the runtime has of them.
        runtime: the container runtime.
        checks: of health.
        journal: flight recorder.
        registry: the metrics.
        clock: wall clock.
        addresses: of the node.
        checkpoint: writes a checkpoint of a container.
        list_pods: asks the runtime for its pods.
        stats: collects what pods and node use.
        http: count requests.
        refresh: measures what is measured only when metrics are asked for.
        node_addresses: of the Node, as the API server has them.
    """

    config: AgentConfig
    settings: LiveSettings
    report: ConfigReport
    manager: PodManager
    statuses: StatusManager
    cache: PodCache
    runtime: RuntimeService
    checks: HealthChecks
    journal: Journal
    registry: CollectorRegistry
    clock: Clock
    addresses: tuple[str, ...]
    checkpoint: Callable[[Pod, str, int], Awaitable[Path]]
    list_pods: Callable[[], Awaitable[Sequence[RuntimePod]]]
    stats: StatsCollector
    http: HttpMetrics
    refresh: Callable[[], Awaitable[None]]
    node_addresses: Callable[[], Sequence[NodeAddress]] = tuple


class NodePods:
    """Implements :class:`nodeagent.server.kubelet.targets.Pods`."""

    def __init__(self, side: ServerSide) -> None:
        self._side = side

    def find(self, namespace: str, name: str) -> Pod | None:
        """See :class:`nodeagent.server.kubelet.targets.Pods`."""
        pod = self._side.manager.get_by_full_name(full_name(name, namespace))
        return None if pod is None else self._shown(pod)

    def all(self) -> list[Pod]:
        """See :class:`nodeagent.server.kubelet.targets.Pods`."""
        return [self._shown(pod) for pod in self._side.manager.get_pods()]

    def at_runtime(self, uid: PodUID) -> PodRuntimeStatus:
        """See :class:`nodeagent.server.kubelet.targets.Pods`."""
        return self._side.cache.get(uid)

    def translate(self, uid: PodUID) -> PodUID:
        """See :class:`nodeagent.server.kubelet.targets.Pods`."""
        return self._side.manager.translate(uid)

    def _shown(self, pod: Pod) -> Pod:
        status = self._side.statuses.get(pod_uid(pod))
        return pod if status is None else replace(pod, status=status)


def api_opener(side: ServerSide, link: ClusterLink | None) -> OpenApi | None:
    """What opens the API port; None when the configuration asks for none.

    Raises:
        StartError: the settings contradict each other.
    """
    config = side.config
    if not api_port(config, link):
        if config.port and config.enable_server:
            why = "nobody could prove who they are: there is no kubeconfig and no client CA"
            log.info("no_api_port", cause=why, remedy="--client-ca-file, --authorization-mode")
        return None
    return partial(_open, side, link)


def api_port(config: AgentConfig, link: ClusterLink | None) -> int:
    """The API port; 0 for none: then nobody could prove who they are."""
    known = link is not None or str(config.client_ca_file)
    return config.port if config.enable_server and known else 0


async def _open(side: ServerSide, link: ClusterLink | None, stack: AsyncExitStack) -> int:
    config = side.config
    # aiohttp is large: other tasks go on while it loads.
    await to_thread.run_sync(_load)
    from nodeagent.server.kubelet.api import KubeletApi
    from nodeagent.server.kubelet.checkpoint_handler import CheckpointHandler
    from nodeagent.server.kubelet.handlers import DebugHandlers
    from nodeagent.server.kubelet.listener import ApiListener
    from nodeagent.server.kubelet.log_watch import LogWatch
    from nodeagent.server.kubelet.node_handlers import NodeHandlers
    from nodeagent.server.kubelet.pages import Pages
    from nodeagent.server.kubelet.profiles import Profiles
    from nodeagent.server.kubelet.serving import (
        ServingError,
        own_addresses,
        server_context,
        serving_files,
    )
    from nodeagent.server.kubelet.stream_limits import StreamLimits

    watch = LogWatch()
    pods = NodePods(side)
    node_handlers = NodeHandlers(
        list_pods=side.list_pods,
        configuration=partial(_configz, side),
        logs=config.enable_system_log_handler,
        queries=config.enable_system_log_query,
        profiling=config.enable_profiling_handler,
    )
    handlers = DebugHandlers(
        pods=pods,
        runtime=side.runtime,
        watch=watch,
        clock=side.clock,
        limits=lambda: StreamLimits(
            idle=side.settings.current.streaming_connection_idle_timeout,
            lifetime=side.settings.current.streaming_connection_lifetime,
        ),
    )
    node = config.effective_node_name
    apps = (
        health_app(side.checks, side.registry, side.journal, node, side.refresh),
        read_only_app(pods.all),
        stats_app(side.stats, side.registry, side.checks),
    )
    pages = Pages(
        clock=side.clock,
        started=side.clock.now(),
        paths=lambda: api.paths,
        flags=lambda: effective_flags(side.settings.current),
        debug_flags=config.enable_debug_flags_handler,
    )
    parts = (
        handlers,
        node_handlers,
        CheckpointHandler(pods, side.checkpoint),
        pages,
        Profiles(on=config.enable_profiling_handler),
    )
    api = KubeletApi(
        _gate(side, link),
        apps,
        [route for part in parts for route in part.routes()],
        debugging=config.enable_debugging_handlers,
        metrics=side.http,
    )
    side.settings.subscribe(partial(_switch, api))
    tasks = await stack.enter_async_context(background())
    await tasks.start(watch.run)
    certificates = _certificates(side, link)
    if certificates is not None:
        await tasks.start(certificates.run)
    try:
        files = await to_thread.run_sync(
            serving_files,
            config,
            config.certificates_dir.absolute(),
            node,
            own_addresses(side.addresses),
            certificates.file if certificates is not None else None,
        )
        listener = ApiListener(
            api,
            files,
            partial(server_context, options=config),
            address=config.api_address,
            port=config.port,
        )
        await stack.enter_async_context(listener)
        if certificates is not None:
            certificates.changed = listener.look
            # One may have come since the files were read.
            listener.look()
        _tell_of_certificate(side, listener, certificates)
    except ServingError as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise StartError(error.strerror or str(error)) from error
    return listener.port


def _certificates(side: ServerSide, link: ClusterLink | None) -> ServingCertificates | None:
    """Who asks the cluster for the certificate of the port, if somebody does."""
    config = side.config
    if not config.server_tls_bootstrap:
        return None
    if link is None:
        why = "there is no API server to ask for the certificate of the API port"
        log.warning("no_certificate_asked_for", cause=why, now="one is made here")
        return None
    from nodeagent.kube.credentials.serving_certificates import ServingCertificates

    return ServingCertificates(
        config.effective_node_name,
        config.certificates_dir.absolute(),
        client=link.clients.main,
        addresses=side.node_addresses,
        clock=side.clock,
        registry=side.registry,
    )


def _configz(side: ServerSide) -> dict[str, Any]:
    """The configuration in force, and where the node stands with it."""
    return {
        "kubeletconfig": effective_configuration(side.settings.current),
        "nodeagentconfig": side.report.shown(anyio.current_time()),
    }


def _switch(api: KubeletApi, config: AgentConfig) -> None:
    """Switch parts of the API on and off."""
    api.debugging = config.enable_debugging_handlers
    profiling = "" if config.enable_profiling_handler else "profiling"
    api.off |= {
        "logs": "" if config.enable_system_log_handler else "logs",
        "debug/tasks": profiling,
        "debug/pprof": profiling,
        "debug/flags": "" if config.enable_debug_flags_handler else "flags",
    }


def _tell_of_certificate(
    side: ServerSide, listener: ApiListener, certificates: ServingCertificates | None
) -> None:
    """Let health and metrics say how the certificate of the port is."""

    def seconds_left() -> float:
        ends = listener.ends
        return float("inf") if ends is None else (ends - side.clock.now()).total_seconds()

    def trouble() -> str:
        problems = [listener.problem]
        if listener.ends is not None and seconds_left() <= 0:
            at = f"{listener.ends:%Y-%m-%dT%H:%M:%SZ}"
            problems.append(f"the certificate of the API port ended at {at}")
        if certificates is not None:
            problems.append(certificates.problem)
        return "; ".join(filter(None, problems))

    side.checks.add(serving(trouble))
    Gauge(
        "kubelet_certificate_manager_server_ttl_seconds",
        "Seconds until the certificate of the API port ends; negative when it has, +Inf without",
        registry=side.registry,
    ).set_function(seconds_left)


def _gate(side: ServerSide, link: ClusterLink | None) -> Gate:
    from nodeagent.server.kubelet.gate import EverythingAllowed, Gate, Rights, Tokens, has_ended
    from nodeagent.server.kubelet.reviews import AccessReviews, TokenReviews

    config, clock = side.config, side.clock
    tokens: Tokens | None = None
    rights: Rights
    if config.authentication_token_webhook and link is not None:
        ttl = config.authentication_token_webhook_cache_ttl
        tokens = reviews = TokenReviews(link.clients.main, ttl)

        def keep(config: AgentConfig) -> None:
            reviews.ttl = config.authentication_token_webhook_cache_ttl

        side.settings.subscribe(keep)
    if tokens is None and not str(config.client_ca_file) and not config.anonymous_auth:
        raise StartError(_NOBODY)
    if config.authorization_mode == ALWAYS_ALLOW:
        rights = EverythingAllowed()
    elif link is None:
        raise StartError(_NO_CLIENT)
    else:
        rights = access = AccessReviews(
            link.clients.main,
            config.effective_node_name,
            yes=config.authorization_webhook_cache_authorized_ttl,
            no=config.authorization_webhook_cache_unauthorized_ttl,
        )

        def judge(config: AgentConfig) -> None:
            access.yes = config.authorization_webhook_cache_authorized_ttl
            access.no = config.authorization_webhook_cache_unauthorized_ttl

        side.settings.subscribe(judge)
    return Gate(tokens, rights, anonymous=config.anonymous_auth, expired=partial(has_ended, clock))


def _load() -> None:
    import nodeagent.server.kubelet.listener  # noqa: F401
