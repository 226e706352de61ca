"""What this package needs of the container runtime: a part of the CRI protocols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nodeagent.proto.runtime import v1


class ContainerRuntime(Protocol):
    """The part of :class:`nodeagent.cri.RuntimeService` that pods are made with.

    Every method raises :class:`nodeagent.rpc.RpcError`.
    """

    async def run_pod_sandbox(self, config: v1.PodSandboxConfig, runtime_handler: str = "") -> str:
        """Create and start a sandbox; returns its id."""
        ...

    async def stop_pod_sandbox(self, pod_sandbox_id: str) -> None:
        """Stop a sandbox with all that runs in it."""
        ...

    async def remove_pod_sandbox(self, pod_sandbox_id: str) -> None:
        """Remove a sandbox with its containers."""
        ...

    async def pod_sandbox_status(self, pod_sandbox_id: str) -> v1.PodSandboxStatusResponse:
        """Describe one sandbox."""
        ...

    async def list_pod_sandbox(
        self, where: v1.PodSandboxFilter | None = None
    ) -> Sequence[v1.PodSandbox]:
        """List the sandboxes that match, all of them by default."""
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
        """Stop a container; it is killed after ``timeout`` seconds."""
        ...

    async def remove_container(self, container_id: str) -> None:
        """Remove a container."""
        ...

    async def checkpoint_container(
        self, container_id: str, location: str, timeout: int = 0
    ) -> None:
        """Write a checkpoint to a file."""
        ...

    async def exec_sync(
        self, container_id: str, cmd: Sequence[str], timeout: int = 0
    ) -> v1.ExecSyncResponse:
        """Run a command in a container to its end, without limit if ``timeout`` is 0."""
        ...

    async def list_containers(
        self, where: v1.ContainerFilter | None = None
    ) -> Sequence[v1.Container]:
        """List the containers that match, all of them by default."""
        ...


class ImagePuller(Protocol):
    """The part of :class:`nodeagent.cri.ImageService` that starting containers needs."""

    async def image_status(self, image: v1.ImageSpec) -> v1.ImageStatusResponse:
        """Describe one image; ``image`` of the reply is None when it is not present."""
        ...

    async def pull_image(
        self,
        image: v1.ImageSpec,
        auth: v1.AuthConfig | None = None,
        sandbox_config: v1.PodSandboxConfig | None = None,
    ) -> str:
        """Fetch an image; returns its reference."""
        ...


class ImageStore(Protocol):
    """The part of :class:`nodeagent.cri.ImageService` that knows what is there."""

    async def image_status(self, image: v1.ImageSpec) -> v1.ImageStatusResponse:
        """Describe one image; ``image`` of the reply is None when it is not present."""
        ...
