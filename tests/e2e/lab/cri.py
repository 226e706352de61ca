"""CRI asked directly, past the agent: what really runs, and the means to disturb it."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio
from anyio.from_thread import BlockingPortal
from grpclib.client import Channel
from grpclib.const import Status
from grpclib.exceptions import GRPCError, StreamTerminatedError
from tests.e2e.lab.processes import Process, find
from tests.e2e.lab.waiting import until

from nodeagent.proto.runtime import v1 as pb

T = TypeVar("T")
U = TypeVar("U")

#: The labels by which every Kubernetes tool finds the containers of a pod.
POD_NAME = "io.kubernetes.pod.name"
POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What a command run inside a container said and how it ended."""

    exit_code: int
    stdout: str
    stderr: str


class Cri:
    """A synchronous CRI client; each call has a deadline. Made by `open_cri`."""

    def __init__(self, portal: BlockingPortal, channel: Channel) -> None:
        self._portal = portal
        self._runtime = pb.RuntimeServiceStub(channel)
        self._images = pb.ImageServiceStub(channel)

    def _call(self, call: Callable[[T], Awaitable[U]], request: T, timeout: float = 30.0) -> U:
        async def bounded() -> U:
            with anyio.fail_after(timeout):
                return await call(request)

        return self._portal.call(bounded)

    def version(self) -> pb.VersionResponse:
        """The runtime's name and version."""
        return self._call(self._runtime.version, pb.VersionRequest())

    def ready(self) -> bool:
        """Whether the runtime and its pod network both say that they are ready.

        A containerd that has just started answers before it can say anything else than that
        its server is not initialized yet.
        """
        try:
            status = self._call(self._runtime.status, pb.StatusRequest()).status
        except (GRPCError, StreamTerminatedError, OSError):
            return False
        return status is not None and all(condition.status for condition in status.conditions)

    def sandboxes(self, pod: str | None = None) -> list[pb.PodSandbox]:
        """All sandboxes, or those of the pod with this full name, newest first."""
        items = self._call(self._runtime.list_pod_sandbox, pb.ListPodSandboxRequest()).items
        mine = [item for item in items if pod is None or item.labels.get(POD_NAME) == pod]
        return sorted(mine, key=lambda item: item.created_at, reverse=True)

    def containers(self, pod: str | None = None) -> list[pb.Container]:
        """All containers, or those of the pod with this full name, newest first."""
        answer = self._call(self._runtime.list_containers, pb.ListContainersRequest())
        mine = [item for item in answer.containers if pod is None or item.labels[POD_NAME] == pod]
        return sorted(mine, key=lambda item: item.created_at, reverse=True)

    def running(self, pod: str | None = None) -> list[pb.Container]:
        """The running containers among `containers`."""
        return [c for c in self.containers(pod) if c.state == pb.ContainerState.CONTAINER_RUNNING]

    def status(self, container: str) -> pb.ContainerStatus:
        """The status of one container."""
        answer = self._container_status(container)
        assert answer.status is not None
        return answer.status

    def process(self, container: str) -> Process:
        """The first process of a running container, as the host sees it."""
        process = find(int(self._info(container)["pid"]))
        assert process is not None, f"container {container} has no process"
        return process

    def oci_spec(self, container: str) -> dict[str, Any]:
        """The OCI runtime specification that a container was made from."""
        spec: dict[str, Any] = self._info(container)["runtimeSpec"]
        return spec

    def _info(self, container: str) -> dict[str, Any]:
        info: dict[str, Any] = json.loads(self._container_status(container).info["info"])
        return info

    def _container_status(self, container: str) -> pb.ContainerStatusResponse:
        request = pb.ContainerStatusRequest(container_id=container, verbose=True)
        return self._call(self._runtime.container_status, request)

    def pod_ip(self, sandbox: str) -> str:
        """The address of a sandbox; empty on the host network."""
        request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox)
        status = self._call(self._runtime.pod_sandbox_status, request).status
        return "" if status is None or status.network is None else status.network.ip

    def exec(self, container: str, *command: str, timeout: int = 10) -> ExecResult:
        """Run a command in a container and wait for its end, at most ``timeout`` seconds."""
        request = pb.ExecSyncRequest(container_id=container, cmd=list(command), timeout=timeout)
        answer = self._call(self._runtime.exec_sync, request, timeout + 10)
        out, err = answer.stdout.decode(), answer.stderr.decode()
        return ExecResult(answer.exit_code, out, err)

    def run_sandbox(self, config: pb.PodSandboxConfig) -> str:
        """Create and start a sandbox; returns its id."""
        request = pb.RunPodSandboxRequest(config=config)
        return self._call(self._runtime.run_pod_sandbox, request, 120).pod_sandbox_id

    def start_container(
        self, sandbox: str, pod: pb.PodSandboxConfig, container: pb.ContainerConfig
    ) -> str:
        """Create and start a container; returns its id."""
        request = pb.CreateContainerRequest(
            pod_sandbox_id=sandbox, config=container, sandbox_config=pod
        )
        cid = self._call(self._runtime.create_container, request).container_id
        self._call(self._runtime.start_container, pb.StartContainerRequest(container_id=cid))
        return cid

    def stop_container(self, container: str, grace: int = 0) -> None:
        """Stop a container behind the agent's back."""
        request = pb.StopContainerRequest(container_id=container, timeout=grace)
        self._call(self._runtime.stop_container, request, grace + 30)

    def remove_sandbox(self, sandbox: str) -> None:
        """Stop and remove a sandbox with all its containers."""
        stop = pb.StopPodSandboxRequest(pod_sandbox_id=sandbox)
        self._call(self._runtime.stop_pod_sandbox, stop, 60)
        remove = pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox)
        self._call(self._runtime.remove_pod_sandbox, remove, 60)

    def remove_everything(self, timeout: float = 30) -> None:
        """Stop and remove all sandboxes, whoever made them; raises TimeoutError."""
        until("an empty runtime", self._none_left, timeout=timeout)

    def _none_left(self) -> bool:
        for sandbox in self.sandboxes():
            # Stopping a container that ends at this moment fails now and then; not twice.
            with suppress(GRPCError):
                self.remove_sandbox(sandbox.id)
        return not self.sandboxes()

    def has_image(self, reference: str) -> bool:
        """Whether an image is present under this name."""
        request = pb.ImageStatusRequest(image=pb.ImageSpec(image=reference))
        return self._call(self._images.image_status, request).image is not None

    def image_size(self, reference: str) -> int:
        """How many bytes the runtime says that an image has."""
        request = pb.ImageStatusRequest(image=pb.ImageSpec(image=reference))
        image = self._call(self._images.image_status, request).image
        assert image is not None, f"there is no image {reference}"
        return image.size

    def pull(self, reference: str) -> str:
        """Pull an image; returns the runtime's reference of it."""
        request = pb.PullImageRequest(image=pb.ImageSpec(image=reference))
        return self._call(self._images.pull_image, request, 60).image_ref

    def remove_image(self, reference: str) -> None:
        """Remove an image; one that is not there counts as removed."""
        request = pb.RemoveImageRequest(image=pb.ImageSpec(image=reference))
        self._call(self._images.remove_image, request)


def is_not_found(error: GRPCError) -> bool:
    """Whether the runtime says that the object does not exist."""
    return error.status is Status.NOT_FOUND


@contextmanager
def open_cri(portal: BlockingPortal, socket: Path) -> Iterator[Cri]:
    """A client of the runtime behind a unix socket, on the portal's event loop."""
    with portal.wrap_async_context_manager(_channel(socket)) as channel:
        yield Cri(portal, channel)


@asynccontextmanager
async def _channel(socket: Path) -> AsyncIterator[Channel]:
    # grpc-go refuses the percent-encoded socket path that would be the default authority.
    async with Channel(path=str(socket)) as channel:
        channel._authority = "localhost"
        yield channel


def sandbox_config(
    name: str, logs: Path, *, uid: str = "", labels: Mapping[str, str] | None = None
) -> pb.PodSandboxConfig:
    """A small sandbox for tests and benches that use the runtime without the agent."""
    uid = uid or f"uid-{name}"
    own = {POD_NAME: name, POD_UID: uid, "io.kubernetes.pod.namespace": "default"}
    return pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(name=name, uid=uid, namespace="default"),
        hostname=name,
        log_directory=str(logs),
        labels={**own, **(labels or {})},
        linux=pb.LinuxPodSandboxConfig(),
    )


def container_config(
    pod: pb.PodSandboxConfig, name: str, image: str, *command: str
) -> pb.ContainerConfig:
    """A small container for such a sandbox."""
    return pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name=name),
        image=pb.ImageSpec(image=image),
        command=list(command),
        log_path=f"{name}.log",
        labels={**pod.labels, CONTAINER_NAME: name},
        linux=pb.LinuxContainerConfig(),
    )
