"""The CRI client: runtime and image service over one unix socket, or over two."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final, Self

from prometheus_client import CollectorRegistry

from nodeagent.cri import methods, verify
from nodeagent.cri.caller import Caller, Raw
from nodeagent.cri.containerd_events import NAMESPACE
from nodeagent.cri.endpoint import DEFAULT_ENDPOINT, not_reached, socket_path
from nodeagent.cri.image_client import ImageClient
from nodeagent.cri.metrics import RuntimeMetrics
from nodeagent.cri.runtime_client import RuntimeClient
from nodeagent.cri.stats_client import StatsClient
from nodeagent.log import Log
from nodeagent.proto.runtime import v1
from nodeagent.rpc import DeadlineExceeded, RpcChannel, RpcError, Unavailable, Unimplemented

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

log = Log("cri")

STARTUP_TIMEOUT: Final = 30.0
"""Seconds that a runtime has to say its version when the agent starts."""


class CRIClient(RuntimeClient, StatsClient, ImageClient):
    """Implements ``RuntimeService`` and ``ImageService`` over gRPC.

    Use as an async context manager; connections are made when the first call needs them, and
    made anew after the runtime restarted. Any number of tasks may call at once. Every error is
    an :class:`nodeagent.rpc.RpcError` with the name of the call.

    Args:
        endpoint: ``unix:///path`` of the runtime service.
        image_endpoint: that of the image service; None for the same connection.
        registry: where metrics are registered; None for one of its own.
        request_timeout: seconds that an ordinary call may take; sandboxes get twice as long.

    Attributes:
        endpoint: see Args.
        image_endpoint: see Args; never None.

    Raises:
        ValueError: an endpoint is not usable.
    """

    def __init__(
        self,
        endpoint: str = DEFAULT_ENDPOINT,
        image_endpoint: str | None = None,
        *,
        registry: CollectorRegistry | None = None,
        request_timeout: float = methods.DEFAULT_TIMEOUT,
    ) -> None:
        self.endpoint = endpoint
        self.image_endpoint = image_endpoint or endpoint
        metrics = self._metrics = RuntimeMetrics(registry or CollectorRegistry())
        channel = RpcChannel(socket_path(endpoint))
        image_channel = channel
        if self.image_endpoint != endpoint:
            image_channel = RpcChannel(socket_path(self.image_endpoint))
        self._channels = {channel, image_channel}
        runtime = Caller(channel, "runtime.v1.RuntimeService", metrics, request_timeout)
        images = Caller(image_channel, "runtime.v1.ImageService", metrics, request_timeout)
        self._containerd = Caller(
            channel, "containerd.services.events.v1.Events", metrics, request_timeout
        )
        self._callers = (runtime, images, self._containerd)
        RuntimeClient.__init__(self, runtime)
        ImageClient.__init__(self, images)

    def change_timeout(self, seconds: float) -> None:
        """Give ordinary calls so many seconds from now on."""
        for caller in self._callers:
            caller.request_timeout = seconds

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; calls in flight raise Unavailable."""
        async with AsyncExitStack() as stack:
            for channel in self._channels:
                stack.push_async_callback(channel.aclose)

    @asynccontextmanager
    async def containerd_events(self) -> AsyncIterator[AsyncIterator[bytes]]:
        """See :class:`nodeagent.cri.containerd_events.ContainerdEvents`."""
        everything = Raw(b"")
        async with self._containerd.stream(
            methods.CONTAINERD_EVENTS, everything, Raw, {"containerd-namespace": NAMESPACE}
        ) as envelopes:
            yield envelopes

    async def check(self, timeout: float = STARTUP_TIMEOUT) -> v1.VersionResponse:
        """Make sure that a runtime with this interface answers, and an image service too.

        Args:
            timeout: seconds that each of the two has to answer.

        Raises:
            Unavailable: nothing answers; the message says where and what to do.
            RpcError: something answers that cannot be used.
        """
        request = v1.VersionRequest(version=verify.CLIENT_VERSION)
        try:
            reply = await self._runtime.ask(
                methods.VERSION, request, v1.VersionResponse, verify.version, timeout
            )
        except (Unavailable, DeadlineExceeded, Unimplemented) as exc:
            raise not_reached(self.endpoint, exc) from exc
        try:
            await self._images.call_within(
                timeout, methods.IMAGE_FS_INFO, v1.ImageFsInfoRequest(), v1.ImageFsInfoResponse
            )
        except (Unavailable, DeadlineExceeded, Unimplemented) as exc:
            own = self.image_endpoint != self.endpoint
            raise not_reached(self.image_endpoint, exc, images=own) from exc
        log.info(
            "runtime_connected",
            endpoint=self.endpoint,
            runtime=reply.runtime_name,
            version=reply.runtime_version,
            api=reply.runtime_api_version,
        )
        await self._note_support(timeout)
        return reply

    async def _note_support(self, timeout: float) -> None:
        """See whether the runtime tells its configuration, which kubelets begin to need."""
        request = v1.RuntimeConfigRequest()
        try:
            await self._runtime.call_within(
                timeout, methods.RUNTIME_CONFIG, request, v1.RuntimeConfigResponse
            )
        except Unimplemented:
            self._metrics.loses_support()
        except RpcError as exc:  # nothing here depends on it
            log.debug("runtime_config_unknown", endpoint=self.endpoint, error=str(exc))


@asynccontextmanager
async def connect(
    endpoint: str = DEFAULT_ENDPOINT,
    image_endpoint: str | None = None,
    *,
    registry: CollectorRegistry | None = None,
    timeout: float = STARTUP_TIMEOUT,
) -> AsyncIterator[CRIClient]:
    """Open a client and make sure that the runtime answers; see :meth:`CRIClient.check`."""
    async with CRIClient(endpoint, image_endpoint, registry=registry) as client:
        await client.check(timeout)
        yield client
