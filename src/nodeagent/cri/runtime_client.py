"""The runtime service over gRPC."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from nodeagent.cri import methods, verify
from nodeagent.cri.caller import Raw
from nodeagent.cri.interned import InternTable
from nodeagent.cri.whole_lists import CONTAINERS, SANDBOXES, UID_LABEL, WholeList
from nodeagent.proto.runtime import v1
from nodeagent.rpc import InvalidArgument, NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from nodeagent.cri.caller import Caller


class RuntimeClient:
    """Implements :class:`nodeagent.cri.RuntimeService`.

    Args:
        caller: makes the calls.
    """

    def __init__(self, caller: Caller) -> None:
        self._runtime = caller
        self._sandboxes = InternTable(v1.PodSandbox)
        self._containers = InternTable(v1.Container)
        self._all_sandboxes = WholeList(
            SANDBOXES, caller, self._sandboxes, lambda: self._all_containers.uids
        )
        self._all_containers = WholeList(
            CONTAINERS, caller, self._containers, lambda: self._all_sandboxes.uids
        )

    async def version(self) -> v1.VersionResponse:
        """See :class:`nodeagent.cri.RuntimeService`."""
        request = v1.VersionRequest(version=verify.CLIENT_VERSION)
        return await self._runtime.call(methods.VERSION, request, v1.VersionResponse)

    async def status(self, verbose: bool = False) -> v1.StatusResponse:
        """See :class:`nodeagent.cri.RuntimeService`."""
        request = v1.StatusRequest(verbose=verbose)
        return await self._runtime.ask(methods.STATUS, request, v1.StatusResponse, verify.status)

    async def run_pod_sandbox(
        self,
        config: v1.PodSandboxConfig,
        runtime_handler: str = "",
        *,
        timeout: float | None = None,
    ) -> str:
        """See :class:`nodeagent.cri.RuntimeService`."""
        request = v1.RunPodSandboxRequest(config=config, runtime_handler=runtime_handler)
        limit = self._runtime.limit(methods.RUN_POD_SANDBOX) if timeout is None else timeout
        with self._runtime.metrics.sandbox_start(runtime_handler):
            return await self._runtime.ask(
                methods.RUN_POD_SANDBOX,
                request,
                v1.RunPodSandboxResponse,
                lambda reply: verify.text(reply.pod_sandbox_id, "pod_sandbox_id"),
                limit,
            )

    async def stop_pod_sandbox(self, pod_sandbox_id: str) -> None:
        """See :class:`nodeagent.cri.RuntimeService`."""
        request = v1.StopPodSandboxRequest(pod_sandbox_id=pod_sandbox_id)
        await self._runtime.call(methods.STOP_POD_SANDBOX, request, v1.StopPodSandboxResponse)

    async def remove_pod_sandbox(self, pod_sandbox_id: str) -> None:
        """See :class:`nodeagent.cri.RuntimeService`."""
        request = v1.RemovePodSandboxRequest(pod_sandbox_id=pod_sandbox_id)
        await self._runtime.call(methods.REMOVE_POD_SANDBOX, request, v1.RemovePodSandboxResponse)

    async def pod_sandbox_status(
        self, pod_sandbox_id: str, verbose: bool = False
    ) -> v1.PodSandboxStatusResponse:
        """See :class:`nodeagent.cri.RuntimeService`."""
        method = methods.POD_SANDBOX_STATUS
        request = v1.PodSandboxStatusRequest(pod_sandbox_id=pod_sandbox_id, verbose=verbose)
        return await self._runtime.ask(
            method,
            request,
            v1.PodSandboxStatusResponse,
            lambda reply: verify.sandbox(reply, pod_sandbox_id),
        )

    async def list_pod_sandbox(
        self, where: v1.PodSandboxFilter | None = None
    ) -> Sequence[v1.PodSandbox]:
        """See :class:`nodeagent.cri.RuntimeService`; unchanged items are the same objects."""
        if where is None:
            return await self._all_sandboxes.fetch()
        self._all_sandboxes.refresh(where.label_selector.get(UID_LABEL, ""))
        request = v1.ListPodSandboxRequest(filter=where)
        table = self._sandboxes
        return await self._runtime.fetch(
            methods.LIST_POD_SANDBOX, request, lambda data: table.decode(data, remember=False)
        )

    async def stream_pod_sandboxes(
        self, where: v1.PodSandboxFilter | None = None
    ) -> Sequence[v1.PodSandbox]:
        """See :class:`nodeagent.cri.RuntimeService`; unchanged items are the same objects."""
        request = v1.StreamPodSandboxesRequest(filter=where)
        table = self._sandboxes
        return await self._runtime.collect(
            methods.STREAM_POD_SANDBOXES,
            request,
            lambda data: table.decode(data, remember=where is None),
        )

    async def create_container(
        self,
        pod_sandbox_id: str,
        config: v1.ContainerConfig,
        sandbox_config: v1.PodSandboxConfig,
    ) -> str:
        """See :class:`nodeagent.cri.RuntimeService`."""
        method = methods.CREATE_CONTAINER
        request = v1.CreateContainerRequest(
            pod_sandbox_id=pod_sandbox_id, config=config, sandbox_config=sandbox_config
        )
        return await self._runtime.ask(
            method,
            request,
            v1.CreateContainerResponse,
            lambda reply: verify.text(reply.container_id, "container_id"),
        )

    async def start_container(self, container_id: str) -> None:
        """See :class:`nodeagent.cri.RuntimeService`."""
        request = v1.StartContainerRequest(container_id=container_id)
        await self._runtime.call(methods.START_CONTAINER, request, v1.StartContainerResponse)

    async def stop_container(self, container_id: str, timeout: int) -> None:
        """See :class:`nodeagent.cri.RuntimeService`; one already gone counts as stopped."""
        method = methods.STOP_CONTAINER
        request = v1.StopContainerRequest(container_id=container_id, timeout=timeout)
        limit = self._runtime.request_timeout + max(timeout, 0)
        with suppress(NotFound):
            await self._runtime.call_within(limit, method, request, v1.StopContainerResponse)

    async def remove_container(self, container_id: str) -> None:
        """See :class:`nodeagent.cri.RuntimeService`."""
        request = v1.RemoveContainerRequest(container_id=container_id)
        await self._runtime.call(methods.REMOVE_CONTAINER, request, v1.RemoveContainerResponse)

    async def container_status(
        self, container_id: str, verbose: bool = False
    ) -> v1.ContainerStatusResponse:
        """See :class:`nodeagent.cri.RuntimeService`."""
        method = methods.CONTAINER_STATUS
        request = v1.ContainerStatusRequest(container_id=container_id, verbose=verbose)
        return await self._runtime.ask(
            method,
            request,
            v1.ContainerStatusResponse,
            lambda reply: verify.container(reply, container_id),
        )

    async def list_containers(
        self, where: v1.ContainerFilter | None = None
    ) -> Sequence[v1.Container]:
        """See :class:`nodeagent.cri.RuntimeService`; unchanged items are the same objects."""
        if where is None:
            return await self._all_containers.fetch()
        self._all_containers.refresh(where.label_selector.get(UID_LABEL, ""))
        request = v1.ListContainersRequest(filter=where)
        table = self._containers
        return await self._runtime.fetch(
            methods.LIST_CONTAINERS, request, lambda data: table.decode(data, remember=False)
        )

    async def stream_containers(
        self, where: v1.ContainerFilter | None = None
    ) -> Sequence[v1.Container]:
        """See :class:`nodeagent.cri.RuntimeService`; unchanged items are the same objects."""
        request = v1.StreamContainersRequest(filter=where)
        table = self._containers
        return await self._runtime.collect(
            methods.STREAM_CONTAINERS,
            request,
            lambda data: table.decode(data, remember=where is None),
        )

    async def update_container_resources(
        self,
        container_id: str,
        linux: v1.LinuxContainerResources | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """See :class:`nodeagent.cri.RuntimeService`."""
        request = v1.UpdateContainerResourcesRequest(
            container_id=container_id, linux=linux, annotations=dict(annotations or {})
        )
        await self._runtime.call(
            methods.UPDATE_CONTAINER_RESOURCES, request, v1.UpdateContainerResourcesResponse
        )

    async def update_pod_sandbox_resources(
        self,
        pod_sandbox_id: str,
        overhead: v1.LinuxContainerResources | None = None,
        resources: v1.LinuxContainerResources | None = None,
    ) -> None:
        """See :class:`nodeagent.cri.RuntimeService`."""
        request = v1.UpdatePodSandboxResourcesRequest(
            pod_sandbox_id=pod_sandbox_id, overhead=overhead, resources=resources
        )
        await self._runtime.call(
            methods.UPDATE_POD_SANDBOX_RESOURCES, request, v1.UpdatePodSandboxResourcesResponse
        )

    async def reopen_container_log(self, container_id: str) -> None:
        """See :class:`nodeagent.cri.RuntimeService`."""
        request = v1.ReopenContainerLogRequest(container_id=container_id)
        await self._runtime.call(
            methods.REOPEN_CONTAINER_LOG, request, v1.ReopenContainerLogResponse
        )

    async def exec_sync(
        self, container_id: str, cmd: Sequence[str], timeout: int = 0
    ) -> v1.ExecSyncResponse:
        """See :class:`nodeagent.cri.RuntimeService`."""
        request = v1.ExecSyncRequest(container_id=container_id, cmd=list(cmd), timeout=timeout)
        # The command's own limit is the runtime's to enforce; without one there is none here.
        limit = self._runtime.request_timeout + timeout if timeout > 0 else None
        return await self._runtime.call_within(
            limit, methods.EXEC_SYNC, request, v1.ExecSyncResponse
        )

    async def exec(self, request: v1.ExecRequest) -> str:
        """See :class:`nodeagent.cri.RuntimeService`."""
        return await self._runtime.ask(
            methods.EXEC, request, v1.ExecResponse, lambda reply: verify.text(reply.url, "url")
        )

    async def attach(self, request: v1.AttachRequest) -> str:
        """See :class:`nodeagent.cri.RuntimeService`."""
        return await self._runtime.ask(
            methods.ATTACH, request, v1.AttachResponse, lambda reply: verify.text(reply.url, "url")
        )

    async def port_forward(self, request: v1.PortForwardRequest) -> str:
        """See :class:`nodeagent.cri.RuntimeService`."""
        return await self._runtime.ask(
            methods.PORT_FORWARD,
            request,
            v1.PortForwardResponse,
            lambda reply: verify.text(reply.url, "url"),
        )

    async def update_runtime_config(self, config: v1.RuntimeConfig) -> None:
        """See :class:`nodeagent.cri.RuntimeService`."""
        request = v1.UpdateRuntimeConfigRequest(runtime_config=config)
        await self._runtime.call(
            methods.UPDATE_RUNTIME_CONFIG, request, v1.UpdateRuntimeConfigResponse
        )

    async def runtime_config(self) -> v1.RuntimeConfigResponse:
        """See :class:`nodeagent.cri.RuntimeService`."""
        return await self._runtime.call(
            methods.RUNTIME_CONFIG, v1.RuntimeConfigRequest(), v1.RuntimeConfigResponse
        )

    async def checkpoint_container(
        self, container_id: str, location: str, timeout: int = 0
    ) -> None:
        """See :class:`nodeagent.cri.RuntimeService`."""
        method = methods.CHECKPOINT_CONTAINER
        if timeout < 0:
            msg = f"the timeout is {timeout} s, it cannot be negative"
            raise InvalidArgument(msg, method.name)
        request = v1.CheckpointContainerRequest(
            container_id=container_id, location=location, timeout=timeout
        )
        limit = max(self._runtime.request_timeout, timeout)
        await self._runtime.call_within(limit, method, request, v1.CheckpointContainerResponse)

    @asynccontextmanager
    async def get_container_events(self) -> AsyncIterator[AsyncIterator[v1.ContainerEventResponse]]:
        """See :class:`nodeagent.cri.RuntimeService`."""
        async with self._runtime.stream(
            methods.GET_CONTAINER_EVENTS, v1.GetEventsRequest(), v1.ContainerEventResponse
        ) as events:
            yield events

    @asynccontextmanager
    async def encoded_container_events(self) -> AsyncIterator[AsyncIterator[bytes]]:
        """See :class:`nodeagent.cri.events.EncodedEvents`."""
        async with self._runtime.stream(
            methods.GET_CONTAINER_EVENTS, v1.GetEventsRequest(), Raw
        ) as events:
            yield events
