"""A runtime that lives in dictionaries and speaks CRI on a socket, as the test tells it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio

from nodeagent.proto.runtime import v1


def container_status(container_id: str, **changes: Any) -> v1.ContainerStatus:
    values: dict[str, Any] = {
        "id": container_id,
        "metadata": v1.ContainerMetadata(name="web"),
        "state": v1.ContainerState.CONTAINER_RUNNING,
        "created_at": 1,
        "image": v1.ImageSpec(image="nginx"),
        "image_ref": "sha256:1",
    }
    return v1.ContainerStatus(**{**values, **changes})


def sandbox_status(sandbox_id: str, **changes: Any) -> v1.PodSandboxStatus:
    values: dict[str, Any] = {
        "id": sandbox_id,
        "metadata": v1.PodSandboxMetadata(name="web", namespace="default", uid="u1"),
        "created_at": 1,
    }
    return v1.PodSandboxStatus(**{**values, **changes})


class FakeRuntime(v1.RuntimeServiceBase):
    """Answers what ``replies`` holds for a method, else something that passes all checks.

    A callable reply gets the request. An exception is raised.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.requests: dict[str, Any] = {}
        self.replies: dict[str, Any] = {}
        self.gates: dict[str, anyio.Event] = {}
        self.containers: dict[str, v1.Container] = {}
        self.events: list[v1.ContainerEventResponse | Exception] = []

    def stall(self, method: str) -> anyio.Event:
        """Hold every call to ``method`` until the returned event is set."""
        self.gates[method] = anyio.Event()
        return self.gates[method]

    async def _answer(self, method: str, request: Any, usual: Callable[[], Any]) -> Any:
        self.calls[method] += 1
        self.requests[method] = request
        if gate := self.gates.get(method):
            await gate.wait()
        reply = self.replies.get(method)
        if isinstance(reply, Exception):
            raise reply
        if callable(reply):
            return reply(request)
        return usual() if reply is None else reply

    async def version(self, message: v1.VersionRequest) -> v1.VersionResponse:
        return await self._answer(  # type: ignore[no-any-return]
            "Version",
            message,
            lambda: v1.VersionResponse(
                version=message.version,
                runtime_name="fake",
                runtime_version="1",
                runtime_api_version="v1",
            ),
        )

    async def get_container_events(
        self, message: v1.GetEventsRequest
    ) -> AsyncIterator[v1.ContainerEventResponse]:
        self.calls["GetContainerEvents"] += 1
        while self.events:
            event = self.events.pop(0)
            if isinstance(event, Exception):
                raise event
            yield event
        if gate := self.gates.get("GetContainerEvents"):
            await gate.wait()

    async def stream_containers(
        self, message: v1.StreamContainersRequest
    ) -> AsyncIterator[v1.StreamContainersResponse]:
        await self._answer("StreamContainers", message, lambda: None)
        for item in list(self.containers.values()):
            yield v1.StreamContainersResponse(containers=[item])

    def list_them(self) -> v1.ListContainersResponse:
        items = list(self.containers.values())
        random.shuffle(items)
        return v1.ListContainersResponse(containers=items)


def _usual(fake: FakeRuntime, request: Any) -> dict[str, Callable[[], Any]]:
    return {
        "Status": lambda: v1.StatusResponse(
            status=v1.RuntimeStatus(
                conditions=[
                    v1.RuntimeCondition(type="RuntimeReady", status=True),
                    v1.RuntimeCondition(type="NetworkReady", status=True),
                ]
            )
        ),
        "RunPodSandbox": lambda: v1.RunPodSandboxResponse(pod_sandbox_id="s1"),
        "PodSandboxStatus": lambda: v1.PodSandboxStatusResponse(
            status=sandbox_status(request.pod_sandbox_id)
        ),
        "CreateContainer": lambda: v1.CreateContainerResponse(container_id="c1"),
        "ContainerStatus": lambda: v1.ContainerStatusResponse(
            status=container_status(request.container_id)
        ),
        "ListContainers": fake.list_them,
        "Exec": lambda: v1.ExecResponse(url="http://x"),
        "Attach": lambda: v1.AttachResponse(url="http://x"),
        "PortForward": lambda: v1.PortForwardResponse(url="http://x"),
        "ContainerStats": lambda: v1.ContainerStatsResponse(stats=v1.ContainerStats()),
        "PodSandboxStats": lambda: v1.PodSandboxStatsResponse(stats=v1.PodSandboxStats()),
    }


def _handler(name: str, method: str, reply: type[Any]) -> Any:
    async def handle(self: FakeRuntime, message: Any) -> Any:
        return await self._answer(method, message, _usual(self, message).get(method, reply))

    handle.__name__ = name
    return handle


def _fill() -> None:
    for path, handler in FakeRuntime().__mapping__().items():
        method = path.rpartition("/")[2]
        name = "".join(f"_{c.lower()}" if c.isupper() else c for c in method).lstrip("_")
        if name not in vars(FakeRuntime) and not handler.cardinality.server_streaming:
            setattr(FakeRuntime, name, _handler(name, method, handler.reply_type))


_fill()


class FakeImages(v1.ImageServiceBase):
    """An image service with one image."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.pulled = "sha256:1"
        self.size = 5
        self.gate: anyio.Event | None = None

    async def image_fs_info(self, message: v1.ImageFsInfoRequest) -> v1.ImageFsInfoResponse:
        self.calls["ImageFsInfo"] += 1
        return v1.ImageFsInfoResponse()

    async def list_images(self, message: v1.ListImagesRequest) -> v1.ListImagesResponse:
        return v1.ListImagesResponse(images=[v1.Image(id="i1", size=self.size)])

    async def image_status(self, message: v1.ImageStatusRequest) -> v1.ImageStatusResponse:
        if message.image is None or message.image.image == "absent":
            return v1.ImageStatusResponse()
        return v1.ImageStatusResponse(image=v1.Image(id="i1", size=self.size))

    async def pull_image(self, message: v1.PullImageRequest) -> v1.PullImageResponse:
        if self.gate is not None:
            await self.gate.wait()
        return v1.PullImageResponse(image_ref=self.pulled)

    async def remove_image(self, message: v1.RemoveImageRequest) -> v1.RemoveImageResponse:
        self.calls["RemoveImage"] += 1
        return v1.RemoveImageResponse()
