# ruff: noqa: D102  (the generated bases describe the methods)
"""The gRPC side: generated server bases on top of the in-process services.

Each method takes a request apart, calls the service, and puts the answer into a response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from nodeagent.embedded.wire import WireCache
from nodeagent.proto.runtime import v1

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from nodeagent.cri import ImageService, RuntimeService

T = TypeVar("T")
PORTION: Final = 256


def portions(items: Sequence[T]) -> Iterator[list[T]]:
    """Cut a list into what one message of a stream holds; at least one portion."""
    for start in range(0, max(len(items), 1), PORTION):
        yield list(items[start : start + PORTION])


class RuntimeDoor(v1.RuntimeServiceBase):
    """Answers runtime.v1.RuntimeService."""

    def __init__(self, service: RuntimeService) -> None:
        self._service = service
        self._sandboxes = WireCache()
        self._containers = WireCache()

    async def version(self, message: v1.VersionRequest) -> v1.VersionResponse:
        return await self._service.version()

    async def status(self, message: v1.StatusRequest) -> v1.StatusResponse:
        return await self._service.status(message.verbose)

    async def update_runtime_config(
        self, message: v1.UpdateRuntimeConfigRequest
    ) -> v1.UpdateRuntimeConfigResponse:
        await self._service.update_runtime_config(message.runtime_config or v1.RuntimeConfig())
        return v1.UpdateRuntimeConfigResponse()

    async def runtime_config(self, message: v1.RuntimeConfigRequest) -> v1.RuntimeConfigResponse:
        return await self._service.runtime_config()

    async def run_pod_sandbox(self, message: v1.RunPodSandboxRequest) -> v1.RunPodSandboxResponse:
        config = message.config or v1.PodSandboxConfig()
        sandbox_id = await self._service.run_pod_sandbox(config, message.runtime_handler)
        return v1.RunPodSandboxResponse(pod_sandbox_id=sandbox_id)

    async def stop_pod_sandbox(
        self, message: v1.StopPodSandboxRequest
    ) -> v1.StopPodSandboxResponse:
        await self._service.stop_pod_sandbox(message.pod_sandbox_id)
        return v1.StopPodSandboxResponse()

    async def remove_pod_sandbox(
        self, message: v1.RemovePodSandboxRequest
    ) -> v1.RemovePodSandboxResponse:
        await self._service.remove_pod_sandbox(message.pod_sandbox_id)
        return v1.RemovePodSandboxResponse()

    async def pod_sandbox_status(
        self, message: v1.PodSandboxStatusRequest
    ) -> v1.PodSandboxStatusResponse:
        return await self._service.pod_sandbox_status(message.pod_sandbox_id, message.verbose)

    async def list_pod_sandbox(
        self, message: v1.ListPodSandboxRequest
    ) -> v1.ListPodSandboxResponse:
        items = await self._service.list_pod_sandbox(message.filter)
        return self._sandboxes.sandboxes(items, whole=message.filter is None)

    async def stream_pod_sandboxes(
        self, message: v1.StreamPodSandboxesRequest
    ) -> AsyncIterator[v1.StreamPodSandboxesResponse]:
        for items in portions(await self._service.stream_pod_sandboxes(message.filter)):
            yield v1.StreamPodSandboxesResponse(pod_sandboxes=items)

    async def create_container(
        self, message: v1.CreateContainerRequest
    ) -> v1.CreateContainerResponse:
        container_id = await self._service.create_container(
            message.pod_sandbox_id,
            message.config or v1.ContainerConfig(),
            message.sandbox_config or v1.PodSandboxConfig(),
        )
        return v1.CreateContainerResponse(container_id=container_id)

    async def start_container(self, message: v1.StartContainerRequest) -> v1.StartContainerResponse:
        await self._service.start_container(message.container_id)
        return v1.StartContainerResponse()

    async def stop_container(self, message: v1.StopContainerRequest) -> v1.StopContainerResponse:
        await self._service.stop_container(message.container_id, message.timeout)
        return v1.StopContainerResponse()

    async def remove_container(
        self, message: v1.RemoveContainerRequest
    ) -> v1.RemoveContainerResponse:
        await self._service.remove_container(message.container_id)
        return v1.RemoveContainerResponse()

    async def list_containers(self, message: v1.ListContainersRequest) -> v1.ListContainersResponse:
        items = await self._service.list_containers(message.filter)
        return self._containers.containers(items, whole=message.filter is None)

    async def stream_containers(
        self, message: v1.StreamContainersRequest
    ) -> AsyncIterator[v1.StreamContainersResponse]:
        for items in portions(await self._service.stream_containers(message.filter)):
            yield v1.StreamContainersResponse(containers=items)

    async def container_status(
        self, message: v1.ContainerStatusRequest
    ) -> v1.ContainerStatusResponse:
        return await self._service.container_status(message.container_id, message.verbose)

    async def update_container_resources(
        self, message: v1.UpdateContainerResourcesRequest
    ) -> v1.UpdateContainerResourcesResponse:
        await self._service.update_container_resources(
            message.container_id, message.linux, message.annotations
        )
        return v1.UpdateContainerResourcesResponse()

    async def update_pod_sandbox_resources(
        self, message: v1.UpdatePodSandboxResourcesRequest
    ) -> v1.UpdatePodSandboxResourcesResponse:
        await self._service.update_pod_sandbox_resources(
            message.pod_sandbox_id, message.overhead, message.resources
        )
        return v1.UpdatePodSandboxResourcesResponse()

    async def reopen_container_log(
        self, message: v1.ReopenContainerLogRequest
    ) -> v1.ReopenContainerLogResponse:
        await self._service.reopen_container_log(message.container_id)
        return v1.ReopenContainerLogResponse()

    async def exec_sync(self, message: v1.ExecSyncRequest) -> v1.ExecSyncResponse:
        return await self._service.exec_sync(message.container_id, message.cmd, message.timeout)

    async def exec(self, message: v1.ExecRequest) -> v1.ExecResponse:
        return v1.ExecResponse(url=await self._service.exec(message))

    async def attach(self, message: v1.AttachRequest) -> v1.AttachResponse:
        return v1.AttachResponse(url=await self._service.attach(message))

    async def port_forward(self, message: v1.PortForwardRequest) -> v1.PortForwardResponse:
        return v1.PortForwardResponse(url=await self._service.port_forward(message))

    async def checkpoint_container(
        self, message: v1.CheckpointContainerRequest
    ) -> v1.CheckpointContainerResponse:
        await self._service.checkpoint_container(
            message.container_id, message.location, message.timeout
        )
        return v1.CheckpointContainerResponse()

    async def container_stats(self, message: v1.ContainerStatsRequest) -> v1.ContainerStatsResponse:
        stats = await self._service.container_stats(message.container_id)
        return v1.ContainerStatsResponse(stats=stats)

    async def list_container_stats(
        self, message: v1.ListContainerStatsRequest
    ) -> v1.ListContainerStatsResponse:
        stats = await self._service.list_container_stats(message.filter)
        return v1.ListContainerStatsResponse(stats=list(stats))

    async def stream_container_stats(
        self, message: v1.StreamContainerStatsRequest
    ) -> AsyncIterator[v1.StreamContainerStatsResponse]:
        for items in portions(await self._service.stream_container_stats(message.filter)):
            yield v1.StreamContainerStatsResponse(container_stats=items)

    async def pod_sandbox_stats(
        self, message: v1.PodSandboxStatsRequest
    ) -> v1.PodSandboxStatsResponse:
        stats = await self._service.pod_sandbox_stats(message.pod_sandbox_id)
        return v1.PodSandboxStatsResponse(stats=stats)

    async def list_pod_sandbox_stats(
        self, message: v1.ListPodSandboxStatsRequest
    ) -> v1.ListPodSandboxStatsResponse:
        stats = await self._service.list_pod_sandbox_stats(message.filter)
        return v1.ListPodSandboxStatsResponse(stats=list(stats))

    async def stream_pod_sandbox_stats(
        self, message: v1.StreamPodSandboxStatsRequest
    ) -> AsyncIterator[v1.StreamPodSandboxStatsResponse]:
        for items in portions(await self._service.stream_pod_sandbox_stats(message.filter)):
            yield v1.StreamPodSandboxStatsResponse(pod_sandbox_stats=items)

    async def list_metric_descriptors(
        self, message: v1.ListMetricDescriptorsRequest
    ) -> v1.ListMetricDescriptorsResponse:
        found = await self._service.list_metric_descriptors()
        return v1.ListMetricDescriptorsResponse(descriptors=list(found))

    async def list_pod_sandbox_metrics(
        self, message: v1.ListPodSandboxMetricsRequest
    ) -> v1.ListPodSandboxMetricsResponse:
        found = await self._service.list_pod_sandbox_metrics()
        return v1.ListPodSandboxMetricsResponse(pod_metrics=list(found))

    async def stream_pod_sandbox_metrics(
        self, message: v1.StreamPodSandboxMetricsRequest
    ) -> AsyncIterator[v1.StreamPodSandboxMetricsResponse]:
        for items in portions(await self._service.stream_pod_sandbox_metrics()):
            yield v1.StreamPodSandboxMetricsResponse(pod_sandbox_metrics=items)

    async def get_container_events(
        self, message: v1.GetEventsRequest
    ) -> AsyncIterator[v1.ContainerEventResponse]:
        async with self._service.get_container_events() as events:
            async for event in events:
                yield event


class ImageDoor(v1.ImageServiceBase):
    """Answers runtime.v1.ImageService."""

    def __init__(self, service: ImageService) -> None:
        self._service = service

    async def list_images(self, message: v1.ListImagesRequest) -> v1.ListImagesResponse:
        return v1.ListImagesResponse(images=list(await self._service.list_images(message.filter)))

    async def stream_images(
        self, message: v1.StreamImagesRequest
    ) -> AsyncIterator[v1.StreamImagesResponse]:
        for items in portions(await self._service.stream_images(message.filter)):
            yield v1.StreamImagesResponse(images=items)

    async def image_status(self, message: v1.ImageStatusRequest) -> v1.ImageStatusResponse:
        return await self._service.image_status(message.image or v1.ImageSpec(), message.verbose)

    async def pull_image(self, message: v1.PullImageRequest) -> v1.PullImageResponse:
        image = message.image or v1.ImageSpec()
        reference = await self._service.pull_image(image, message.auth, message.sandbox_config)
        return v1.PullImageResponse(image_ref=reference)

    async def remove_image(self, message: v1.RemoveImageRequest) -> v1.RemoveImageResponse:
        await self._service.remove_image(message.image or v1.ImageSpec())
        return v1.RemoveImageResponse()

    async def image_fs_info(self, message: v1.ImageFsInfoRequest) -> v1.ImageFsInfoResponse:
        return await self._service.image_fs_info()
