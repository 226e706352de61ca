"""The container runtime as the agent sees it: two protocols with the CRI method names.

The gRPC client implements both, and so does the embedded runtime without a socket. Every
method raises :class:`nodeagent.rpc.RpcError`; each call has a deadline of its own
(docs/behaviour/runtime.md, "CRI calls").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from nodeagent.proto.runtime import v1


class RuntimeService(Protocol):
    """Sandboxes and containers. Lists come in any order; times are ns since the epoch."""

    async def version(self) -> v1.VersionResponse:
        """Name the runtime and its versions."""
        ...

    async def status(self, verbose: bool = False) -> v1.StatusResponse:
        """Say whether the runtime and its network are ready."""
        ...

    async def run_pod_sandbox(
        self,
        config: v1.PodSandboxConfig,
        runtime_handler: str = "",
        *,
        timeout: float | None = None,
    ) -> str:
        """Create and start a sandbox; returns its id. ``timeout`` None is the usual 4 min."""
        ...

    async def stop_pod_sandbox(self, pod_sandbox_id: str) -> None:
        """Stop a sandbox with all that runs in it. Idempotent."""
        ...

    async def remove_pod_sandbox(self, pod_sandbox_id: str) -> None:
        """Remove a sandbox with its containers. Idempotent."""
        ...

    async def pod_sandbox_status(
        self, pod_sandbox_id: str, verbose: bool = False
    ) -> v1.PodSandboxStatusResponse:
        """Describe one sandbox; its ``status`` is set. Raises NotFound."""
        ...

    async def list_pod_sandbox(
        self, where: v1.PodSandboxFilter | None = None
    ) -> Sequence[v1.PodSandbox]:
        """List the sandboxes that match, all of them by default."""
        ...

    async def stream_pod_sandboxes(
        self, where: v1.PodSandboxFilter | None = None
    ) -> Sequence[v1.PodSandbox]:
        """The same list, fetched in portions. Raises Unimplemented on older runtimes."""
        ...

    async def create_container(
        self,
        pod_sandbox_id: str,
        config: v1.ContainerConfig,
        sandbox_config: v1.PodSandboxConfig,
    ) -> str:
        """Create a container without starting it; returns its id."""
        ...

    async def start_container(self, container_id: str) -> None:
        """Start a created container."""
        ...

    async def stop_container(self, container_id: str, timeout: int) -> None:
        """Stop a container; it is killed after ``timeout`` seconds. Idempotent."""
        ...

    async def remove_container(self, container_id: str) -> None:
        """Remove a container, by force if it runs. Idempotent."""
        ...

    async def container_status(
        self, container_id: str, verbose: bool = False
    ) -> v1.ContainerStatusResponse:
        """Describe one container; its ``status`` is set. Raises NotFound."""
        ...

    async def list_containers(
        self, where: v1.ContainerFilter | None = None
    ) -> Sequence[v1.Container]:
        """List the containers that match, all of them by default."""
        ...

    async def stream_containers(
        self, where: v1.ContainerFilter | None = None
    ) -> Sequence[v1.Container]:
        """The same list, fetched in portions. Raises Unimplemented on older runtimes."""
        ...

    async def update_container_resources(
        self,
        container_id: str,
        linux: v1.LinuxContainerResources | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Change the limits of a container in place."""
        ...

    async def update_pod_sandbox_resources(
        self,
        pod_sandbox_id: str,
        overhead: v1.LinuxContainerResources | None = None,
        resources: v1.LinuxContainerResources | None = None,
    ) -> None:
        """Tell the runtime that a pod's resources changed."""
        ...

    async def reopen_container_log(self, container_id: str) -> None:
        """Make the runtime open the container's log file anew."""
        ...

    async def exec_sync(
        self, container_id: str, cmd: Sequence[str], timeout: int = 0
    ) -> v1.ExecSyncResponse:
        """Run a command to its end within ``timeout`` seconds, 0 for no limit."""
        ...

    async def exec(self, request: v1.ExecRequest) -> str:
        """Prepare a streamed command; returns the URL to connect to."""
        ...

    async def attach(self, request: v1.AttachRequest) -> str:
        """Prepare streams to a container's first process; returns the URL to connect to."""
        ...

    async def port_forward(self, request: v1.PortForwardRequest) -> str:
        """Prepare streams to ports of a sandbox; returns the URL to connect to."""
        ...

    async def container_stats(self, container_id: str) -> v1.ContainerStats:
        """What one running container uses."""
        ...

    async def list_container_stats(
        self, where: v1.ContainerStatsFilter | None = None
    ) -> Sequence[v1.ContainerStats]:
        """What the containers that match use."""
        ...

    async def stream_container_stats(
        self, where: v1.ContainerStatsFilter | None = None
    ) -> Sequence[v1.ContainerStats]:
        """The same figures, fetched in portions. Raises Unimplemented on older runtimes."""
        ...

    async def pod_sandbox_stats(self, pod_sandbox_id: str) -> v1.PodSandboxStats:
        """What one running sandbox uses."""
        ...

    async def list_pod_sandbox_stats(
        self, where: v1.PodSandboxStatsFilter | None = None
    ) -> Sequence[v1.PodSandboxStats]:
        """What the sandboxes that match use. Raises Unimplemented on some runtimes."""
        ...

    async def stream_pod_sandbox_stats(
        self, where: v1.PodSandboxStatsFilter | None = None
    ) -> Sequence[v1.PodSandboxStats]:
        """The same figures, fetched in portions. Raises Unimplemented on older runtimes."""
        ...

    async def list_metric_descriptors(self) -> Sequence[v1.MetricDescriptor]:
        """Describe the metrics of :meth:`list_pod_sandbox_metrics`."""
        ...

    async def list_pod_sandbox_metrics(self) -> Sequence[v1.PodSandboxMetrics]:
        """The metrics of all sandboxes. Raises Unimplemented on some runtimes."""
        ...

    async def stream_pod_sandbox_metrics(self) -> Sequence[v1.PodSandboxMetrics]:
        """The same metrics, fetched in portions. Raises Unimplemented on older runtimes."""
        ...

    async def update_runtime_config(self, config: v1.RuntimeConfig) -> None:
        """Tell the runtime what the node has learnt, such as its pod network."""
        ...

    async def runtime_config(self) -> v1.RuntimeConfigResponse:
        """How the runtime is configured. Raises Unimplemented on older runtimes."""
        ...

    async def checkpoint_container(
        self, container_id: str, location: str, timeout: int = 0
    ) -> None:
        """Write a checkpoint to the file ``location`` within ``timeout`` seconds, 0 for none.

        Raises:
            InvalidArgument: ``timeout`` is negative.
        """
        ...

    def get_container_events(
        self,
    ) -> AbstractAsyncContextManager[AsyncIterator[v1.ContainerEventResponse]]:
        """Open the stream of container events, from now on.

        The stream is closed on leaving the context. Iterating raises Unimplemented on
        runtimes without events.
        """
        ...


class ImageService(Protocol):
    """Images: what is present, fetching, removing, and the space they take."""

    async def list_images(self, where: v1.ImageFilter | None = None) -> Sequence[v1.Image]:
        """List the images that match, all of them by default."""
        ...

    async def stream_images(self, where: v1.ImageFilter | None = None) -> Sequence[v1.Image]:
        """The same list, fetched in portions. Raises Unimplemented on older runtimes."""
        ...

    async def image_status(
        self, image: v1.ImageSpec, verbose: bool = False
    ) -> v1.ImageStatusResponse:
        """Describe one image; ``image`` of the reply is None when it is not present."""
        ...

    async def pull_image(
        self,
        image: v1.ImageSpec,
        auth: v1.AuthConfig | None = None,
        sandbox_config: v1.PodSandboxConfig | None = None,
    ) -> str:
        """Fetch an image; returns its reference. Only the caller's scope bounds it."""
        ...

    async def remove_image(self, image: v1.ImageSpec) -> None:
        """Remove an image. Idempotent."""
        ...

    async def image_fs_info(self) -> v1.ImageFsInfoResponse:
        """How much space images and containers take, and where."""
        ...
