"""How an agent gets at its container runtime: over a socket, embedded, or the caller's own."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anyio import to_thread
from prometheus_client import CollectorRegistry

from nodeagent.clock import Clock
from nodeagent.config import AgentConfig
from nodeagent.cri import (
    ContainerdEventFeed,
    ContainerdEvents,
    ContainerEventFeed,
    CRIClient,
    CRIEventFeed,
    ImageService,
    RuntimeService,
)
from nodeagent.cri.pods import PodLister
from nodeagent.errors import StartError
from nodeagent.model import HandlerFeatures, PodRuntimeStatus, PodUID, RuntimeFeatures
from nodeagent.node import RuntimeInfo
from nodeagent.proto.runtime import v1
from nodeagent.rpc import RpcError

if TYPE_CHECKING:
    from nodeagent.embedded import Backend

_SOCKET_PATH_LIMIT: Final = 100


@asynccontextmanager
async def open_runtime(
    config: AgentConfig,
    own: tuple[RuntimeService, ImageService] | None,
    registry: CollectorRegistry,
    clock: Clock,
) -> AsyncIterator[tuple[RuntimeService, ImageService, str]]:
    """The runtime, its images, and the name it gives itself.

    Raises:
        StartError: nothing usable answers; says what to start or to try.
    """
    async with AsyncExitStack() as stack:
        if own is not None:
            try:
                version = await own[0].version()
            except RpcError as error:
                msg = f"the given runtime does not answer Version: {error.message or error}"
                raise StartError(msg) from error
            yield (*own, version.runtime_name)
            return
        endpoint = config.container_runtime_endpoint
        if config.embedded:
            endpoint = await stack.enter_async_context(_embedded(config, clock))
        client = CRIClient(
            endpoint,
            config.image_service_endpoint or None,
            registry=registry,
            request_timeout=config.runtime_request_timeout,
        )
        await stack.enter_async_context(client)
        try:
            version = await client.check()
        except RpcError as error:
            raise StartError(error.message or str(error)) from error
        yield client, client, version.runtime_name


@asynccontextmanager
async def _embedded(config: AgentConfig, clock: Clock) -> AsyncIterator[str]:
    """Serve the embedded runtime for as long as the agent runs; its endpoint."""
    from nodeagent.embedded import make_backend, serve_embedded

    scenario = await _scenario(config)
    state = Path(config.root_dir) / "embedded"
    async with AsyncExitStack() as stack:
        socket = await to_thread.run_sync(_socket_path, state, stack)
        backend = make_backend(config.embedded, state, clock=clock)
        if scenario is None:
            serving: AbstractAsyncContextManager[object]
            serving = serve_embedded(socket, backend, clock=clock)
        else:
            serving = scenario(socket, backend, clock)
        try:
            await stack.enter_async_context(serving)
        except (OSError, ValueError) as error:
            msg = f"the embedded runtime cannot start: {_reason(error)}"
            raise StartError(msg) from error
        yield f"unix://{socket}"


async def _scenario(
    config: AgentConfig,
) -> Callable[[Path, Backend, Clock], AbstractAsyncContextManager[object]] | None:
    """How to serve by the scenario file, if there is one. Raises StartError."""
    if not str(config.embedded_scenario):
        return None
    from nodeagent.embedded.scenario import ScenarioError, load_scenario
    from nodeagent.embedded.scenario_run import serve_scenario

    path = Path(config.embedded_scenario)
    try:
        scenario = await to_thread.run_sync(load_scenario, path)
    except ScenarioError as error:
        raise StartError(str(error)) from error
    return lambda socket, backend, clock: serve_scenario(
        socket, backend, scenario, path=path, clock=clock
    )


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror}{where}"
    return str(error)


def _socket_path(state: Path, stack: AsyncExitStack) -> Path:
    """A path for the socket that is short enough for the kernel."""
    state = state.absolute()
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    socket = state / "cri.sock"
    if len(str(socket)) <= _SOCKET_PATH_LIMIT:
        return socket
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nodeagent-"))) / "cri.sock"


def event_feeds(runtime: RuntimeService) -> tuple[ContainerEventFeed, ...]:
    """What may tell of changes in the runtime, best first."""
    feeds: list[ContainerEventFeed] = [CRIEventFeed(runtime)]
    if isinstance(runtime, ContainerdEvents):
        feeds.append(ContainerdEventFeed(runtime))
    return tuple(feeds)


async def inspect_pod(lister: PodLister, uid: PodUID) -> PodRuntimeStatus:
    """A fresh look at one pod; a pod the runtime does not know is empty."""
    pod = await lister.get_pod(uid)
    return PodRuntimeStatus(uid) if pod is None else await lister.inspect(pod)


async def poll_status(runtime: RuntimeService) -> RuntimeInfo:
    """One status poll, in the words that node conditions use."""
    reply = await runtime.status()
    conditions = {c.type: c for c in (reply.status.conditions if reply.status else ())}

    def problem(kind: str, what: str) -> str:
        found = conditions.get(kind)
        if found is None:
            return f"{what}: <nil>"
        if found.status:
            return ""
        return f"{what}: {kind}=false reason:{found.reason} message:{found.message}"

    return RuntimeInfo(
        problem("RuntimeReady", "container runtime not ready"),
        problem("NetworkReady", "container runtime network not ready"),
        runtime_features(reply),
    )


def runtime_features(reply: v1.StatusResponse) -> RuntimeFeatures:
    """What a runtime says that it can do; handlers are sorted by name."""
    none = v1.RuntimeHandlerFeatures()
    handlers = [
        HandlerFeatures(
            handler.name,
            (handler.features or none).recursive_read_only_mounts,
            (handler.features or none).user_namespaces,
        )
        for handler in reply.runtime_handlers
    ]
    own = reply.features or v1.RuntimeFeatures()
    return RuntimeFeatures(
        tuple(sorted(handlers, key=lambda handler: handler.name)),
        own.supplemental_groups_policy,
        own.user_namespaces_host_network,
    )
