"""A runtime server that dies and comes back, loses things, and has bad connections."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from anyio import TASK_STATUS_IGNORED

from nodeagent.aio import background
from nodeagent.embedded.fault_plan import FaultPlan
from nodeagent.embedded.fault_rules import like, names_pod
from nodeagent.embedded.server import Embedded, open_embedded, serve_open
from nodeagent.log import Log
from nodeagent.rpc import Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from anyio.abc import TaskGroup, TaskStatus

    from nodeagent.clock import Clock
    from nodeagent.embedded.backend import Backend
    from nodeagent.embedded.core import Core
    from nodeagent.embedded.records import ContainerRecord, SandboxRecord
    from nodeagent.rpc import RpcError, UnixServer

log = Log("embedded.faults")


class RuntimeServer:
    """An embedded runtime on a socket, and what can befall it. See :func:`serve_faulty`.

    Attributes:
        embedded: the runtime; it lives on while the server is dead.
        plan: the faults of its calls and events.
        socket: where it serves.
        max_send: bytes that a message may have, from the next start on; None for no limit.
    """

    def __init__(
        self,
        socket: Path,
        embedded: Embedded,
        plan: FaultPlan,
        tasks: TaskGroup,
        max_send: int | None,
    ) -> None:
        self.embedded = embedded
        self.plan = plan
        self.socket = socket
        self.max_send = max_send
        self._tasks = tasks
        self._served: UnixServer | None = None
        self._end = anyio.Event()
        self._ended = anyio.Event()

    @property
    def core(self) -> Core:
        """State, images and events of the runtime."""
        return self.embedded.core

    @property
    def alive(self) -> bool:
        """Whether it serves."""
        return self._served is not None

    async def start(self) -> None:
        """Serve, on the path it had before. Raises OSError."""
        if self._served is None:
            await self._tasks.start(self._serve)

    async def die(self) -> None:
        """Be gone as if killed: connections are dropped, the socket file stays behind.

        Calls under way are not answered. Containers live on, as they do under containerd.
        """
        if self._served is not None:
            self._served.kill()
            await self.stop()

    async def stop(self) -> None:
        """Be gone in order: clients are told, and the socket file is removed."""
        if self._served is not None:
            self._end.set()
            await self._ended.wait()

    async def restart(self, down: float = 0.0) -> None:
        """Die, and come back after some seconds with what was not lost meanwhile."""
        await self.die()
        await anyio.sleep(down)
        await self.start()

    # -- what it may lose

    async def lose(
        self,
        *,
        pod: str = "",
        container: str = "",
        share: float = 1.0,
        sandboxes: bool = False,
        seed: int = 0,
    ) -> list[str]:
        """Forget containers and kill what runs of them, without an event.

        Args:
            pod: pattern of the pods that lose containers, as in :class:`Fault`.
            container: pattern of the containers' names.
            share: which part of them, at random.
            sandboxes: lose whole sandboxes, with all that is in them; ``container`` is not asked.
            seed: of the dice.

        Returns:
            The ids of what is lost: containers, or sandboxes.
        """
        if sandboxes:
            lost = _sample([one.id for one in find_sandboxes(self.core, pod)], share, seed)
            for sandbox_id in lost:
                await self.core.vanish_sandbox(self.core.state.sandbox(sandbox_id))
        else:
            lost = _sample([one.id for one in find(self.core, pod, container)], share, seed)
            for container_id in lost:
                await self.core.vanish(self.core.state.container(container_id))
        log.info("lost", kind="sandboxes" if sandboxes else "containers", number=len(lost))
        return lost

    # -- connections

    def goaway(self) -> None:
        """Send GOAWAY on all connections: what was asked is answered, new calls go elsewhere."""
        if self._served is not None:
            self._served.goaway()

    def drop_connections(self) -> None:
        """Close all connections without a word, and take new ones."""
        if self._served is not None:
            self._served.drop()

    def stall(self, *, new: bool = False) -> None:
        """Let no byte through any more on the connections there are.

        Args:
            new: nor on new ones, like a server that is frozen.
        """
        if self._served is not None:
            self._served.stall(new=new)

    def resume(self) -> None:
        """Undo :meth:`stall`."""
        if self._served is not None:
            self._served.resume()

    def cut_streams(self, error: RpcError | None = None) -> None:
        """End all event streams with an error."""
        self.core.events.cut(error or Unavailable("the stream was cut"))

    async def _serve(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        self._end, self._ended = anyio.Event(), anyio.Event()
        try:
            async with serve_open(self.socket, self.embedded, max_send=self.max_send) as served:
                self._served = served
                task_status.started()
                await self._end.wait()
        finally:
            self._served = None
            self._ended.set()


@asynccontextmanager
async def serve_faulty(
    socket: Path,
    backend: Backend,
    *,
    plan: FaultPlan | None = None,
    clock: Clock | None = None,
    max_send: int | None = None,
) -> AsyncIterator[RuntimeServer]:
    """Serve the embedded runtime on a unix socket, so that it can die and come back.

    Args:
        socket: path of the socket.
        backend: what runs containers.
        plan: faults of its calls and events; may be changed through ``server.plan``.
        clock: wall time for the stamps.
        max_send: refuse to send a message of more bytes: 16 MiB in containerd.

    Raises:
        ValueError: the path is too long for a socket.
        OSError: the socket cannot be made there.
    """
    plan = plan or FaultPlan()
    async with open_embedded(backend, hooks=plan, clock=clock) as embedded, background() as tasks:
        server = RuntimeServer(socket, embedded, plan, tasks, max_send)
        await server.start()
        try:
            yield server
        finally:
            await server.stop()


def find_sandboxes(core: Core, pod: str = "") -> list[SandboxRecord]:
    """The sandboxes of the pods that a pattern names, in order of creation."""
    return [
        one
        for one in core.state.sandboxes.values()
        if names_pod(pod, one.pod_uid, one.metadata.namespace, one.metadata.name)
    ]


def find(core: Core, pod: str = "", container: str = "") -> list[ContainerRecord]:
    """The containers that patterns name, by sandbox and in order of creation."""
    return [
        one
        for sandbox in find_sandboxes(core, pod)
        for one in core.state.of_sandbox(sandbox.id)
        if like(one.name, container)
    ]


def _sample(ids: Iterable[str], share: float, seed: int) -> list[str]:
    every = list(ids)
    chosen = random.Random(seed).sample(range(len(every)), round(share * len(every)))
    return [every[number] for number in sorted(chosen)]
