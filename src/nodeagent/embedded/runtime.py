"""The embedded runtime as the agent uses it in-process: no socket, the same rules and hooks."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from nodeagent._version import __version__
from nodeagent.embedded import filters, views
from nodeagent.embedded.faults import Call
from nodeagent.embedded.stats import StatsCalls, nothing, refuse
from nodeagent.embedded.stream_server import serve_ports, serve_streams
from nodeagent.proto.runtime import v1
from nodeagent.rpc import InvalidArgument
from nodeagent.streaming.protocols import Wanted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from nodeagent.embedded.records import ContainerRecord, SandboxRecord

RUNTIME_NAME: Final = "nodeagent-embedded"
API_VERSION: Final = "v1"
KUBELET_API_VERSION: Final = "0.1.0"
NOTE: Final = (
    "the embedded runtime is for development: images have no content, containers are processes"
    " of this machine on its network, and resource limits are not enforced"
)


class EmbeddedRuntime(StatsCalls):
    """:class:`nodeagent.cri.RuntimeService`, in this process.

    Args:
        core: what does the work. Its context must be open.
    """

    # -- the runtime itself

    async def version(self) -> v1.VersionResponse:
        """Name the runtime and its versions."""
        return await self._call("Version", self._version)

    async def status(self, verbose: bool = False) -> v1.StatusResponse:
        """Say that all is ready, and that this is for development."""
        return await self._call("Status", partial(self._status, verbose))

    async def update_runtime_config(self, config: v1.RuntimeConfig) -> None:
        """Take note of nothing: pods share the host's network."""
        del config
        await self._call("UpdateRuntimeConfig", nothing)

    async def runtime_config(self) -> v1.RuntimeConfigResponse:
        """No systemd is involved."""
        return await self._call("RuntimeConfig", self._runtime_config)

    # -- sandboxes

    async def run_pod_sandbox(
        self,
        config: v1.PodSandboxConfig,
        runtime_handler: str = "",
        *,
        timeout: float | None = None,
    ) -> str:
        """Create a sandbox; returns its id. ``timeout`` is the caller's business here."""
        del timeout
        if runtime_handler:
            msg = f'failed to get sandbox runtime: no runtime for "{runtime_handler}" is configured'
            raise InvalidArgument(msg)
        pod = config.metadata or v1.PodSandboxMetadata()
        call = Call("RunPodSandbox", pod.uid, pod_name=pod.name, namespace=pod.namespace)
        return await self.core.through(
            call, partial(self.core.run_sandbox, config, runtime_handler)
        )

    async def stop_pod_sandbox(self, pod_sandbox_id: str) -> None:
        """Kill all that runs in a sandbox; it is no longer ready. Idempotent."""
        call = self._about_sandbox("StopPodSandbox", pod_sandbox_id)
        await self.core.through(call, partial(self.core.stop_sandbox, pod_sandbox_id))

    async def remove_pod_sandbox(self, pod_sandbox_id: str) -> None:
        """Remove a sandbox with its containers. Idempotent."""
        call = self._about_sandbox("RemovePodSandbox", pod_sandbox_id)
        await self.core.through(call, partial(self.core.remove_sandbox, pod_sandbox_id))

    async def pod_sandbox_status(
        self, pod_sandbox_id: str, verbose: bool = False
    ) -> v1.PodSandboxStatusResponse:
        """Describe one sandbox; its containers are asked for one by one. Raises NotFound."""
        call = self._about_sandbox("PodSandboxStatus", pod_sandbox_id)
        return await self.core.through(call, partial(self._sandbox_status, pod_sandbox_id, verbose))

    async def list_pod_sandbox(
        self, where: v1.PodSandboxFilter | None = None
    ) -> Sequence[v1.PodSandbox]:
        """List the sandboxes that match; one that did not change is the same object."""
        call = self._about_labels("ListPodSandbox", where)
        return await self.core.through(call, partial(self._list_sandboxes, where))

    async def stream_pod_sandboxes(
        self, where: v1.PodSandboxFilter | None = None
    ) -> Sequence[v1.PodSandbox]:
        """The same list."""
        call = self._about_labels("StreamPodSandboxes", where)
        return await self.core.through(call, partial(self._list_sandboxes, where))

    async def update_pod_sandbox_resources(
        self,
        pod_sandbox_id: str,
        overhead: v1.LinuxContainerResources | None = None,
        resources: v1.LinuxContainerResources | None = None,
    ) -> None:
        """Check that the sandbox is there; limits are not enforced."""
        del overhead, resources
        call = self._about_sandbox("UpdatePodSandboxResources", pod_sandbox_id)
        await self.core.through(call, partial(self._find_sandbox, pod_sandbox_id))

    # -- containers

    async def create_container(
        self,
        pod_sandbox_id: str,
        config: v1.ContainerConfig,
        sandbox_config: v1.PodSandboxConfig | None = None,
    ) -> str:
        """Create a container without starting it; returns its id."""
        del sandbox_config  # the sandbox's own is used
        name = config.metadata.name if config.metadata else ""
        call = replace(self._about_sandbox("CreateContainer", pod_sandbox_id), container=name)
        return await self.core.through(call, partial(self.core.create, pod_sandbox_id, config))

    async def start_container(self, container_id: str) -> None:
        """Start a created container."""
        call = self._about("StartContainer", container_id)
        await self.core.through(call, partial(self.core.start, container_id))

    async def stop_container(self, container_id: str, timeout: int) -> None:
        """Stop a container; it is killed after ``timeout`` seconds. Idempotent."""
        call = self._about("StopContainer", container_id)
        await self.core.through(call, partial(self._stop, container_id, timeout))

    async def remove_container(self, container_id: str) -> None:
        """Remove a container, by force if it runs. Idempotent."""
        call = self._about("RemoveContainer", container_id)
        await self.core.through(call, partial(self._remove, container_id))

    async def container_status(
        self, container_id: str, verbose: bool = False
    ) -> v1.ContainerStatusResponse:
        """Describe one container. Raises NotFound."""
        call = self._about("ContainerStatus", container_id)
        return await self.core.through(call, partial(self._container_status, container_id, verbose))

    async def list_containers(
        self, where: v1.ContainerFilter | None = None
    ) -> Sequence[v1.Container]:
        """List the containers that match; one that did not change is the same object."""
        call = self._about_labels("ListContainers", where)
        return await self.core.through(call, partial(self._list_containers, where))

    async def stream_containers(
        self, where: v1.ContainerFilter | None = None
    ) -> Sequence[v1.Container]:
        """The same list."""
        call = self._about_labels("StreamContainers", where)
        return await self.core.through(call, partial(self._list_containers, where))

    async def update_container_resources(
        self,
        container_id: str,
        linux: v1.LinuxContainerResources | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Record limits so that the status shows them; they are not enforced."""
        del annotations
        call = self._about("UpdateContainerResources", container_id)
        await self.core.through(call, partial(self._update_resources, container_id, linux))

    async def reopen_container_log(self, container_id: str) -> None:
        """Write the container's log to a new file under the same path."""
        call = self._about("ReopenContainerLog", container_id)
        await self.core.through(call, partial(self._reopen_log, container_id))

    async def exec_sync(
        self, container_id: str, cmd: Sequence[str], timeout: int = 0
    ) -> v1.ExecSyncResponse:
        """Run a command to its end within ``timeout`` seconds, 0 for no limit."""
        call = self._about("ExecSync", container_id)
        return await self.core.through(call, partial(self._exec_sync, container_id, cmd, timeout))

    # -- streams

    async def exec(self, request: v1.ExecRequest) -> str:
        """Where a command with streams gets run, once."""
        call = self._about("Exec", request.container_id)
        return await self.core.through(call, partial(self._exec, request))

    async def attach(self, request: v1.AttachRequest) -> str:
        """Where one gets the streams of a container's first process, once."""
        call = self._about("Attach", request.container_id)
        return await self.core.through(call, partial(self._attach, request))

    async def port_forward(self, request: v1.PortForwardRequest) -> str:
        """Where one gets connected to ports of a pod."""
        call = self._about_sandbox("PortForward", request.pod_sandbox_id)
        return await self.core.through(call, partial(self._port_forward, request))

    # -- checkpoints: not here

    async def checkpoint_container(
        self, container_id: str, location: str, timeout: int = 0
    ) -> None:
        """Refuse: processes cannot be written to a file here."""
        del location, timeout
        call = self._about("CheckpointContainer", container_id)
        await self.core.through(call, partial(refuse, "checkpoints", "use containerd with CRIU"))

    # -- events

    @asynccontextmanager
    async def get_container_events(self) -> AsyncIterator[AsyncIterator[v1.ContainerEventResponse]]:
        """Receive container events from now on."""
        with self.core.events.subscribe() as subscription:
            await self._call("GetContainerEvents", nothing)
            yield subscription

    # -- inner workings

    async def _version(self) -> v1.VersionResponse:
        return v1.VersionResponse(
            version=KUBELET_API_VERSION,
            runtime_name=RUNTIME_NAME,
            runtime_version=__version__,
            runtime_api_version=API_VERSION,
        )

    async def _status(self, verbose: bool) -> v1.StatusResponse:
        ready = [
            v1.RuntimeCondition(type=kind, status=True, reason="Embedded", message=NOTE)
            for kind in ("RuntimeReady", "NetworkReady")
        ]
        info = {"note": NOTE, "backend": self.core.backend.name, **self.core.backend.info()}
        return v1.StatusResponse(
            status=v1.RuntimeStatus(conditions=ready),
            info=info if verbose else {},
            runtime_handlers=[v1.RuntimeHandler(features=v1.RuntimeHandlerFeatures())],
            features=v1.RuntimeFeatures(),
        )

    async def _runtime_config(self) -> v1.RuntimeConfigResponse:
        linux = v1.LinuxRuntimeConfiguration(cgroup_driver=v1.CgroupDriver.CGROUPFS)
        return v1.RuntimeConfigResponse(linux=linux)

    async def _find_sandbox(self, sandbox_id: str) -> None:
        self.core.state.sandbox(sandbox_id)

    async def _sandbox_status(self, sandbox_id: str, verbose: bool) -> v1.PodSandboxStatusResponse:
        sandbox = self.core.state.sandbox(sandbox_id)
        return v1.PodSandboxStatusResponse(
            status=views.sandbox_status(sandbox),
            info={"note": NOTE, "ip": sandbox.ip} if verbose else {},
            timestamp=self.core.clock.time_ns(),
        )

    async def _list_sandboxes(self, where: v1.PodSandboxFilter | None) -> Sequence[v1.PodSandbox]:
        found: list[SandboxRecord] = list(self.core.state.sandboxes.values())
        return [views.list_sandbox(one) for one in found if filters.wants_sandbox(where, one)]

    async def _list_containers(self, where: v1.ContainerFilter | None) -> Sequence[v1.Container]:
        found: list[ContainerRecord] = list(self.core.state.containers.values())
        return [views.list_container(one) for one in found if filters.wants_container(where, one)]

    async def _stop(self, container_id: str, timeout: int) -> None:
        if container := self.core.state.find_container(container_id):
            await self.core.stop(container, timeout)

    async def _remove(self, container_id: str) -> None:
        if container := self.core.state.find_container(container_id):
            await self.core.remove(container)

    async def _container_status(
        self, container_id: str, verbose: bool
    ) -> v1.ContainerStatusResponse:
        container = self.core.state.container(container_id)
        info = {}
        if verbose:
            info = {"note": NOTE, "sandboxID": container.sandbox_id}
            info["notHonoured"] = json.dumps(list(self.core.backend.warnings(container)))
        return v1.ContainerStatusResponse(status=self.core.status_of(container), info=info)

    async def _update_resources(
        self, container_id: str, linux: v1.LinuxContainerResources | None
    ) -> None:
        container = self.core.state.container(container_id)
        if linux is not None:
            container.resources = linux

    async def _reopen_log(self, container_id: str) -> None:
        await self.core.backend.reopen_log(self.core.state.running(container_id))

    async def _exec_sync(
        self, container_id: str, cmd: Sequence[str], timeout: int
    ) -> v1.ExecSyncResponse:
        container = self.core.state.running(container_id)
        if not cmd:
            raise InvalidArgument("exec cmd must not be empty")
        done = await self.core.backend.exec_sync(container, cmd, timeout or None)
        return v1.ExecSyncResponse(stdout=done.stdout, stderr=done.stderr, exit_code=done.exit_code)

    async def _exec(self, request: v1.ExecRequest) -> str:
        container = self.core.state.running(request.container_id)
        if not request.cmd:
            raise InvalidArgument("exec cmd must not be empty")
        wanted = _wanted(request)
        run = partial(self.core.backend.exec, container, list(request.cmd), wanted)
        serve = partial(serve_streams, wanted=wanted, run=run)
        return await self.core.streams.promise("exec", serve)

    async def _attach(self, request: v1.AttachRequest) -> str:
        container = self.core.state.running(request.container_id)
        wanted = _wanted(request)
        run = partial(self.core.backend.attach, container, wanted)
        serve = partial(serve_streams, wanted=wanted, run=run)
        return await self.core.streams.promise("attach", serve)

    async def _port_forward(self, request: v1.PortForwardRequest) -> str:
        sandbox = self.core.state.sandbox(request.pod_sandbox_id)
        connect = partial(self.core.backend.connect, sandbox)
        serve = partial(serve_ports, ports=list(request.port), connect=connect)
        return await self.core.streams.promise("portforward", serve)


def _wanted(request: v1.ExecRequest | v1.AttachRequest) -> Wanted:
    if request.tty and request.stderr:
        raise InvalidArgument("tty and stderr cannot both be true")
    if not (request.stdin or request.stdout or request.stderr):
        raise InvalidArgument("one of stdin, stdout, or stderr must be set")
    return Wanted(request.stdin, request.stdout, request.stderr, request.tty)
