"""Starting one container, once (docs/behaviour/runtime.md, "Starting", "At most once")."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import anyio
from anyio import to_thread

from nodeagent.aio import linger
from nodeagent.api import EphemeralContainer, Pod
from nodeagent.cri.pods import runtime_container
from nodeagent.model import (
    ContainerID,
    ContainerState,
    RuntimeContainer,
)
from nodeagent.proto.runtime import v1
from nodeagent.rpc import RpcError
from nodeagent.runtime import names
from nodeagent.runtime.container_config import (
    ContainerInputs,
    build_container_config,
)
from nodeagent.runtime.context import LINGER, RuntimeContext
from nodeagent.runtime.downward import node_values
from nodeagent.runtime.env_sources import read_sources
from nodeagent.runtime.environment import EnvironmentSources
from nodeagent.runtime.errors import (
    ContainerStartError,
    Waiting,
    describe,
    name_reserved,
    outcome_unknown,
    start_unknown,
)
from nodeagent.runtime.hash import container_hash
from nodeagent.runtime.images import EnsuredImage, ImageManager, ImageRequest
from nodeagent.runtime.logs import container_log, link_log
from nodeagent.runtime.managed_files import make_files
from nodeagent.runtime.mount_inputs import MountGatherer
from nodeagent.runtime.mounts import ManagedFiles
from nodeagent.runtime.post_start import PostStarts
from nodeagent.runtime.restart import runs_once
from nodeagent.runtime.service_variables import pod_service_variables
from nodeagent.runtime.start_request import StartRequest

_TRIES: Final = 3
"""Attempts in one sync when the runtime says that the name is reserved."""


class ContainerStarter:
    """Takes a container from its spec to a running process, step by step.

    Args:
        context: what the runtime side shares.
        images: makes sure that images are there.
        post_starts: performs what containers want done after their start.
    """

    def __init__(
        self, context: RuntimeContext, images: ImageManager, post_starts: PostStarts
    ) -> None:
        self._context = context
        self._images = images
        self._post_starts = post_starts
        self._mounts = MountGatherer(context, images)

    async def ensure_image(self, request: StartRequest) -> EnsuredImage:
        """Make sure that the container's image is there.

        Raises:
            ContainerStartError: it is not.
        """
        return await self._images.ensure(
            ImageRequest.of(request.pod, request.container, request.sandbox.config)
        )

    async def start(self, request: StartRequest, image: EnsuredImage) -> None:
        """Start a container and perform its hook, or find that it runs already.

        Raises:
            ContainerStartError: it does not run; the reason says which step failed.
        """
        began = anyio.current_time()
        async with self._context.limiter.slot(request.place, "container"):
            created = await self._create(request, image)
            if created is not None:
                await self._run(request, created, began)
        if created is not None:
            address = self._address(request)
            await self._post_starts.run(request.pod, request.container, created[0], address)

    def _address(self, request: StartRequest) -> str:
        ips = request.ips
        if request.pod.spec.host_network:
            ips = self._context.settings.node_ips
        return ips[0] if ips else ""

    async def _create(
        self, request: StartRequest, image: EnsuredImage
    ) -> tuple[ContainerID, int] | None:
        """The created container and its attempt; None when it needs no start."""
        context, name = self._context, request.container.name
        latest = request.status.latest(name)
        attempt = self._first_attempt(request)
        if latest is not None and latest.state is ContainerState.CREATED:
            known = RuntimeContainer(
                id=latest.id,
                name=name,
                attempt=latest.attempt,
                state=latest.state,
                sandbox_id=latest.sandbox_id,
                hash=latest.hash,
            )
            if self._fits(request, known):
                return self._adopted(request, known)
        for _ in range(_TRIES):
            if context.records.container_open(request.uid, name, known=request.sandbox.first):
                found = await self._unseen(request)
                if found is not None:
                    if found.state is ContainerState.CREATED and self._fits(request, found):
                        return self._adopted(request, found)
                    if self._has_run(request, found):
                        self._adopted(request, found)
                        return None
                    attempt = max(attempt, found.attempt + 1)
            files, logged = await self._files(request)
            if latest is None:
                attempt = max(attempt, logged)
            try:
                return await self._create_once(request, image, files, attempt), attempt
            except RpcError as error:
                if not name_reserved(error):
                    raise ContainerStartError(Waiting.CREATE, describe(error)) from error
                context.note("ContainerNameReserved", request.uid, describe(error), container=name)
                attempt += 1
        message = f"the runtime holds the names of {_TRIES} containers before attempt {attempt}"
        raise ContainerStartError(Waiting.CREATE, message)

    def _first_attempt(self, request: StartRequest) -> int:
        """The lowest attempt by all that is known without a look at the log files."""
        latest = request.status.latest(request.container.name)
        if latest is not None:
            return latest.restart_count + 1
        return self._context.records.first_attempt(request.uid, request.container.name)

    def _fits(self, request: StartRequest, found: RuntimeContainer) -> bool:
        """Whether a created container is what the spec asks for, where it is asked for."""
        container = request.container
        return (
            found.sandbox_id == request.sandbox.id
            and found.hash == container_hash(container.name, container.image)
            and self._context.records.usable(request.uid, found.id)
        )

    def _has_run(self, request: StartRequest, found: RuntimeContainer) -> bool:
        lived = (ContainerState.RUNNING, ContainerState.EXITED)
        return found.state in lived and self._fits(request, found)

    def _adopted(self, request: StartRequest, found: RuntimeContainer) -> tuple[ContainerID, int]:
        context, name = self._context, request.container.name
        context.records.settle_container(request.uid, name)
        context.note(
            "ContainerAdopted",
            request.uid,
            f"it was {found.state.value} already",
            container=name,
            id=found.id,
            attempt=found.attempt,
        )
        context.acted(request.uid, "container adopted")
        return found.id, found.attempt

    async def _unseen(self, request: StartRequest) -> RuntimeContainer | None:
        """The newest instance, when it is newer than what the status shows."""
        name = request.container.name
        labels = {names.POD_UID: request.uid, names.CONTAINER_NAME: name}
        where = v1.ContainerFilter(label_selector=labels)
        try:
            listed = await self._context.runtime.list_containers(where)
        except RpcError as error:
            raise ContainerStartError(Waiting.CREATE, describe(error)) from error
        newest = max(
            map(runtime_container, listed), key=lambda c: (c.attempt, c.created_at), default=None
        )
        latest = request.status.latest(name)
        if newest is None or (latest is not None and newest.attempt <= latest.attempt):
            return None
        return newest

    async def _create_once(
        self, request: StartRequest, image: EnsuredImage, files: ManagedFiles, attempt: int
    ) -> ContainerID:
        context, pod, container = self._context, request.pod, request.container
        sources = await self._sources(request)
        inputs = ContainerInputs(
            attempt,
            image.ref,
            image.image,
            await self._mounts.gather(request, sources),
            files,
            userns=_user_namespace(request),
            target=_target(request),
            sources=sources,
        )
        config = build_container_config(pod, container, inputs, context.settings, context.host)
        began = anyio.current_time()
        context.records.unmark_started(request.uid, container.name)
        context.records.begin_container(request.uid, container.name)
        try:
            created = await linger(
                lambda: context.runtime.create_container(
                    request.sandbox.id, config, request.sandbox.config
                ),
                LINGER,
            )
        except RpcError as error:
            if not outcome_unknown(error) and not name_reserved(error):
                context.records.settle_container(request.uid, container.name)
            raise
        context.records.settle_container(request.uid, container.name)
        context.note(
            "ContainerCreated",
            request.uid,
            "",
            anyio.current_time() - began,
            container=container.name,
            id=created,
            attempt=attempt,
        )
        context.say(pod, "Normal", "Created", "Container created", container.name)
        # Nobody has to look yet: it is started at once, or said to have failed.
        return ContainerID(created)

    async def _sources(self, request: StartRequest) -> EnvironmentSources:
        context, lookups = self._context, self._context.lookups
        node = node_values(context.settings, context.host, lookups.allocatable())
        services = pod_service_variables(request.pod, lookups.services)
        read = await read_sources(
            request.pod, request.container, request.ips, node, lookups.objects, request.volumes
        )
        return replace(read, services=services)

    async def _files(self, request: StartRequest) -> tuple[ManagedFiles, int]:
        """The container's files, and the attempt that follows its log files."""
        try:
            return await to_thread.run_sync(
                make_files, self._context, request.pod, request.container, request.ips
            )
        except OSError as error:
            raise ContainerStartError(Waiting.CONFIG, str(error)) from error

    async def _run(
        self, request: StartRequest, created: tuple[ContainerID, int], began: float
    ) -> None:
        cid, attempt = created
        context, pod, name = self._context, request.pod, request.container.name
        if runs_once(pod, request.container):
            context.records.mark_started(request.uid, name, cid)
            # On disk before it runs: also an agent that dies now must not start it twice.
            await context.persist()
        try:
            await linger(lambda: context.runtime.start_container(cid), LINGER)
        except RpcError as error:
            if not start_unknown(error):
                context.records.mark_unusable(request.uid, cid)
            context.acted(request.uid, "container failed to start")
            raise ContainerStartError(Waiting.RUN, describe(error).replace(cid, name)) from error
        took = anyio.current_time() - began
        context.note(
            "ContainerStarted", request.uid, "", took, container=name, id=cid, attempt=attempt
        )
        context.say(pod, "Normal", "Started", "Container started", name)
        context.acted(request.uid, "container started")
        await self._link_log(pod, name, cid, attempt)

    async def _link_log(self, pod: Pod, container: str, cid: str, attempt: int) -> None:
        settings = self._context.settings
        if settings.container_logs_dir is None:
            return
        who = names.PodNames.of(pod)
        log = container_log(settings.pod_logs_dir, who, container, attempt)
        try:
            await to_thread.run_sync(
                link_log, settings.container_logs_dir, log, who, container, cid
            )
        except OSError as error:
            self._context.log.warning("log_link_failed", pod=str(who), error=str(error))


def _user_namespace(request: StartRequest) -> v1.UserNamespace | None:
    """That of the sandbox; None when it has the host's users."""
    linux = request.sandbox.config.linux
    context = linux.security_context if linux is not None else None
    options = context.namespace_options if context is not None else None
    userns = options.userns_options if options is not None else None
    return userns if userns is not None and userns.uids else None


def _target(request: StartRequest) -> str:
    """Id of the container whose processes a debugging container wants to see; "" for none."""
    container = request.container
    if not isinstance(container, EphemeralContainer) or not container.target_container_name:
        return ""
    target = request.status.latest(container.target_container_name)
    if target is None:
        message = f"unable to find target container {container.target_container_name}"
        raise ContainerStartError(Waiting.CONFIG, message)
    return target.id
