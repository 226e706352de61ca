"""The part of the runtime service that reports figures, over gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from anyio import to_thread

from nodeagent.cri import methods, verify
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Message, decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodeagent.cri.caller import Caller

M = TypeVar("M", bound=Message)

_LONG: Final = 16 * 1024
"""Bytes."""


class StatsClient:
    """Implements the figures of :class:`nodeagent.cri.RuntimeService`."""

    _runtime: Caller

    async def container_stats(self, container_id: str) -> v1.ContainerStats:
        """See :class:`nodeagent.cri.RuntimeService`."""
        request = v1.ContainerStatsRequest(container_id=container_id)
        return await self._runtime.ask(
            methods.CONTAINER_STATS,
            request,
            v1.ContainerStatsResponse,
            lambda reply: verify.present(reply.stats, f"container {container_id}"),
        )

    async def list_container_stats(
        self, where: v1.ContainerStatsFilter | None = None
    ) -> Sequence[v1.ContainerStats]:
        """See :class:`nodeagent.cri.RuntimeService`."""
        request = v1.ListContainerStatsRequest(filter=where)
        told = await self._runtime.fetch(methods.LIST_CONTAINER_STATS, request, bytes)
        return (await _decoded(told, v1.ListContainerStatsResponse)).stats

    async def stream_container_stats(
        self, where: v1.ContainerStatsFilter | None = None
    ) -> Sequence[v1.ContainerStats]:
        """See :class:`nodeagent.cri.RuntimeService`."""
        request = v1.StreamContainerStatsRequest(filter=where)
        return await self._runtime.collect(
            methods.STREAM_CONTAINER_STATS,
            request,
            lambda data: decode(data, v1.StreamContainerStatsResponse).container_stats,
        )

    async def pod_sandbox_stats(self, pod_sandbox_id: str) -> v1.PodSandboxStats:
        """See :class:`nodeagent.cri.RuntimeService`."""
        request = v1.PodSandboxStatsRequest(pod_sandbox_id=pod_sandbox_id)
        return await self._runtime.ask(
            methods.POD_SANDBOX_STATS,
            request,
            v1.PodSandboxStatsResponse,
            lambda reply: verify.present(reply.stats, f"sandbox {pod_sandbox_id}"),
        )

    async def list_pod_sandbox_stats(
        self, where: v1.PodSandboxStatsFilter | None = None
    ) -> Sequence[v1.PodSandboxStats]:
        """See :class:`nodeagent.cri.RuntimeService`."""
        request = v1.ListPodSandboxStatsRequest(filter=where)
        told = await self._runtime.fetch(methods.LIST_POD_SANDBOX_STATS, request, bytes)
        return (await _decoded(told, v1.ListPodSandboxStatsResponse)).stats

    async def stream_pod_sandbox_stats(
        self, where: v1.PodSandboxStatsFilter | None = None
    ) -> Sequence[v1.PodSandboxStats]:
        """See :class:`nodeagent.cri.RuntimeService`."""
        request = v1.StreamPodSandboxStatsRequest(filter=where)
        return await self._runtime.collect(
            methods.STREAM_POD_SANDBOX_STATS,
            request,
            lambda data: decode(data, v1.StreamPodSandboxStatsResponse).pod_sandbox_stats,
        )

    async def list_metric_descriptors(self) -> Sequence[v1.MetricDescriptor]:
        """See :class:`nodeagent.cri.RuntimeService`."""
        reply = await self._runtime.call(
            methods.LIST_METRIC_DESCRIPTORS,
            v1.ListMetricDescriptorsRequest(),
            v1.ListMetricDescriptorsResponse,
        )
        return reply.descriptors

    async def list_pod_sandbox_metrics(self) -> Sequence[v1.PodSandboxMetrics]:
        """See :class:`nodeagent.cri.RuntimeService`."""
        reply = await self._runtime.call(
            methods.LIST_POD_SANDBOX_METRICS,
            v1.ListPodSandboxMetricsRequest(),
            v1.ListPodSandboxMetricsResponse,
        )
        return reply.pod_metrics

    async def stream_pod_sandbox_metrics(self) -> Sequence[v1.PodSandboxMetrics]:
        """See :class:`nodeagent.cri.RuntimeService`."""
        return await self._runtime.collect(
            methods.STREAM_POD_SANDBOX_METRICS,
            v1.StreamPodSandboxMetricsRequest(),
            lambda data: decode(data, v1.StreamPodSandboxMetricsResponse).pod_sandbox_metrics,
        )


async def _decoded(data: bytes, kind: type[M]) -> M:
    """A message; a long one is decoded in a thread, for it takes a dozen milliseconds."""
    if len(data) <= _LONG:
        return decode(data, kind)
    return await to_thread.run_sync(decode, data, kind)
