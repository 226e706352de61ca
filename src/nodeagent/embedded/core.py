"""What calls do, whatever the backend: the lives of sandboxes and containers."""

from __future__ import annotations

import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
from anyio import CancelScope

from nodeagent.aio import background
from nodeagent.clock import Clock, SystemClock
from nodeagent.embedded import views
from nodeagent.embedded.backend import StartError
from nodeagent.embedded.events import EventHub
from nodeagent.embedded.faults import Call, Hooks, NoFaults, Work
from nodeagent.embedded.images import ImageStore
from nodeagent.embedded.records import ContainerRecord, Exit, RunState, SandboxRecord
from nodeagent.embedded.signals import stop_signal
from nodeagent.embedded.state import State
from nodeagent.embedded.stream_server import StreamServer
from nodeagent.log import Log
from nodeagent.proto.runtime import v1
from nodeagent.rpc import FailedPrecondition, Internal, NotFound, Unknown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from anyio.abc import TaskGroup

    from nodeagent.embedded.backend import Backend
    from nodeagent.model import ContainerID, SandboxID

T = TypeVar("T")
log = Log("embedded")

CREATED: Final = v1.ContainerEventType.CONTAINER_CREATED_EVENT
STARTED: Final = v1.ContainerEventType.CONTAINER_STARTED_EVENT
STOPPED: Final = v1.ContainerEventType.CONTAINER_STOPPED_EVENT
DELETED: Final = v1.ContainerEventType.CONTAINER_DELETED_EVENT


class Core:
    """State, images, events and hooks of one embedded runtime, and the work of its calls.

    Args:
        backend: what runs containers.
        hooks: faults to put in.
        clock: wall time for the stamps that answers show.

    Attributes:
        calls: how many calls each method has had.
        streams: where clients get the streams of commands.
    """

    def __init__(
        self, backend: Backend, *, hooks: Hooks | None = None, clock: Clock | None = None
    ) -> None:
        self.backend = backend
        self.hooks: Hooks = hooks or NoFaults()
        self.clock: Clock = clock or SystemClock()
        self.state = State()
        self.images = ImageStore()
        self.events = EventHub(self.hooks)
        self.calls: dict[str, int] = {}
        self.streams = StreamServer()
        self._tasks: TaskGroup

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Take up what an earlier server left, and run; leaving leaves containers running."""
        async with self.backend.open(self._on_exit), background() as self._tasks:
            self.streams.tasks = self._tasks
            found = await self.backend.recover()
            for name in found.images:
                self.images.pull(name)
            for sandbox in found.sandboxes:
                self.state.add_sandbox(sandbox)
            for container in found.containers:
                self.state.add_container(container, self.state.sandbox(container.sandbox_id))
            log.info(
                "embedded_runtime_open",
                backend=self.backend.name,
                sandboxes=len(found.sandboxes),
                containers=len(found.containers),
                note="for development: not a container runtime",
            )
            yield

    async def through(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work of a call, between the hooks.

        Raises:
            RpcError: the call failed, for whatever reason.
        """
        self.calls[call.method] = self.calls.get(call.method, 0) + 1
        await self.backend.pace(call.method)

        async def run() -> T:
            try:
                return await work()
            except OSError as exc:
                raise Internal(str(exc)) from exc

        return await self.hooks.around(call, Work(run, self._tasks))

    # -- sandboxes

    async def run_sandbox(self, config: v1.PodSandboxConfig, handler: str) -> SandboxID:
        """Make a sandbox; it is ready at once."""
        sandbox_id = self.state.reserve_sandbox(config)
        try:
            sandbox = SandboxRecord(
                id=sandbox_id,
                config=config,
                ip=self.state.new_address(),
                created_at=self.clock.time_ns(),
                runtime_handler=handler,
            )
            await self._or_undo(
                self.backend.create_sandbox(sandbox),
                lambda: self.backend.remove_sandbox(sandbox),
            )
        except BaseException:
            self.state.drop(sandbox_id)
            raise
        self.state.add_sandbox(sandbox)
        self._publish(sandbox_id, CREATED, sandbox)
        self._publish(sandbox_id, STARTED, sandbox)
        return sandbox_id

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Kill what runs in it; it is no longer ready. One that is gone counts as stopped."""
        sandbox = self.state.find_sandbox(sandbox_id)
        if sandbox is None:
            return
        async with anyio.create_task_group() as tg:
            for container in self.state.of_sandbox(sandbox.id):
                tg.start_soon(self.stop, container, 0)
        if sandbox.ready:
            sandbox.ready, sandbox.listed = False, None
            await self.backend.stop_sandbox(sandbox)
            self._publish(sandbox.id, STOPPED, sandbox)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Stop and forget it, with its containers. One that is gone counts as removed."""
        sandbox = self.state.find_sandbox(sandbox_id)
        if sandbox is None:
            return
        await self.stop_sandbox(sandbox.id)
        for container in self.state.of_sandbox(sandbox.id):
            await self.remove(container)
        await self.backend.remove_sandbox(sandbox)
        self._publish(sandbox.id, DELETED, sandbox)
        self.state.drop(sandbox.id)

    # -- containers

    async def create(self, sandbox_id: str, config: v1.ContainerConfig) -> ContainerID:
        """Make a container in a ready sandbox, from an image that is present."""
        sandbox = self._ready(self.state.sandbox(sandbox_id))
        image = self.images.require(config.image.image if config.image else "")
        container_id = self.state.reserve_container(config, sandbox)
        try:
            container = ContainerRecord(
                id=container_id,
                sandbox_id=sandbox.id,
                pod_uid=sandbox.pod_uid,
                config=config,
                image_id=image.id,
                log_path=_log_path(sandbox.config, config),
                created_at=self.clock.time_ns(),
                resources=config.linux.resources if config.linux else None,
            )
            await self._or_undo(
                self.backend.create(container, sandbox), lambda: self.backend.remove(container)
            )
            if sandbox.id not in self.state.sandboxes:
                await self.backend.remove(container)
                msg = f'sandbox "{sandbox.id}" was removed meanwhile'
                raise NotFound(msg)
        except BaseException:
            self.state.drop(container_id)
            raise
        self.state.add_container(container, sandbox)
        for text in self.backend.warnings(container):
            log.warning("not_honoured", container=container.name, pod=sandbox.pod_uid, what=text)
        self._publish(container_id, CREATED, sandbox)
        return container_id

    async def start(self, container_id: str) -> None:
        """Start a created container."""
        container = self.state.container(container_id)
        if container.state is not RunState.CREATED or container.starting:
            state = "starting" if container.starting else container.state.value.name
            msg = f'failed to start container "{container.id}": container is in {state} state'
            raise FailedPrecondition(msg)
        sandbox = self._ready(self.state.sandbox(container.sandbox_id))
        container.starting = True
        try:
            # A caller that gives up must not leave us ignorant of what was started.
            with CancelScope(shield=True):
                started_at = await self.backend.start(container, sandbox)
        except StartError as exc:
            self._on_exit(container, exc.exit)
            msg = f'failed to start container "{container.id}": {exc}'
            raise Unknown(msg) from exc
        finally:
            container.starting = False
        container.mark_running(started_at)
        self._publish(container.id, STARTED, sandbox)

    async def stop(self, container: ContainerRecord, grace: float) -> None:
        """Ask a running container to end, and kill it when ``grace`` seconds have passed."""
        if container.state is not RunState.RUNNING:
            return
        if grace > 0:
            self.backend.signal(container, stop_signal(container.config.stop_signal))
            with anyio.move_on_after(grace):
                await container.exited.wait()
            if container.exited.is_set():
                return
        self.backend.signal(container, signal.SIGKILL)
        await container.exited.wait()

    async def remove(self, container: ContainerRecord) -> None:
        """Kill and forget a container."""
        if container.starting:
            msg = f'container "{container.id}" is in starting state, it cannot be removed'
            raise FailedPrecondition(msg)
        await self.stop(container, 0)
        await self.backend.remove(container)
        if container.id not in self.state.containers:
            return
        self.state.drop(container.id)
        if sandbox := self.state.find_sandbox(container.sandbox_id):
            self._publish(container.id, DELETED, sandbox)

    # -- losses

    async def vanish(self, container: ContainerRecord) -> None:
        """Kill and forget a container without an event, as if somebody else had removed it."""
        self.state.drop(container.id)
        await self.stop(container, 0)
        await self.backend.remove(container)

    async def vanish_sandbox(self, sandbox: SandboxRecord) -> None:
        """Forget a sandbox and its containers without an event."""
        for container in self.state.of_sandbox(sandbox.id):
            await self.vanish(container)
        self.state.drop(sandbox.id)
        await self.backend.remove_sandbox(sandbox)

    # -- looking

    def status_of(self, container: ContainerRecord) -> v1.ContainerStatus:
        """Everything known of a container."""
        return views.container_status(container, self.images.find(container.image_id))

    def statuses_in(self, sandbox: SandboxRecord) -> list[v1.ContainerStatus]:
        """Everything known of the containers of a sandbox."""
        return [self.status_of(one) for one in self.state.of_sandbox(sandbox.id)]

    # -- inner workings

    @staticmethod
    def _ready(sandbox: SandboxRecord) -> SandboxRecord:
        if not sandbox.ready:
            msg = f'sandbox container "{sandbox.id}" is not running'
            raise FailedPrecondition(msg)
        return sandbox

    @staticmethod
    async def _or_undo(work: Awaitable[None], undo: Callable[[], Awaitable[None]]) -> None:
        """Do it, or leave nothing of it behind."""
        try:
            await work
        except BaseException:
            with anyio.move_on_after(5, shield=True):
                await undo()
            raise

    def _on_exit(self, container: ContainerRecord, end: Exit) -> None:
        container.mark_exited(end)
        log.info("container_exited", container=container.name, pod=container.pod_uid, code=end.code)
        if container.id not in self.state.containers:
            return  # it has vanished
        if sandbox := self.state.find_sandbox(container.sandbox_id):
            self._publish(container.id, STOPPED, sandbox)

    def _publish(self, subject: str, kind: v1.ContainerEventType, sandbox: SandboxRecord) -> None:
        if not self.events.has_subscribers:
            return
        self.events.publish(
            v1.ContainerEventResponse(
                container_id=subject,
                container_event_type=kind,
                created_at=self.clock.time_ns(),
                pod_sandbox_status=views.sandbox_status(sandbox),
                containers_statuses=self.statuses_in(sandbox),
            )
        )


def _log_path(sandbox: v1.PodSandboxConfig, config: v1.ContainerConfig) -> str:
    if not sandbox.log_directory or not config.log_path:
        return ""
    return f"{sandbox.log_directory.rstrip('/')}/{config.log_path}"
