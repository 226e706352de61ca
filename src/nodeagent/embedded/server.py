"""Serving the embedded runtime on a unix socket, and using it without one."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from nodeagent.embedded.core import Core
from nodeagent.embedded.doors import ImageDoor, RuntimeDoor
from nodeagent.embedded.image_service import EmbeddedImages
from nodeagent.embedded.records import RunState
from nodeagent.embedded.runtime import EmbeddedRuntime
from nodeagent.embedded.simulated import SimulatedBackend
from nodeagent.log import Log
from nodeagent.rpc.server import Servable, UnixServer, serve_unix

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nodeagent.clock import Clock
    from nodeagent.embedded.backend import Backend
    from nodeagent.embedded.faults import Hooks

BACKENDS: Final = ("process", "simulated")
log = Log("embedded")


@dataclass(frozen=True, slots=True)
class Embedded:
    """An embedded runtime that is open.

    Attributes:
        core: state, images, events and hooks, for tests and tools.
        runtime: :class:`nodeagent.cri.RuntimeService` in this process.
        images: :class:`nodeagent.cri.ImageService` in this process.
    """

    core: Core
    runtime: EmbeddedRuntime
    images: EmbeddedImages

    async def stop_all(self, grace: float) -> None:
        """Stop all containers side by side and all sandboxes, for the end of development runs.

        Args:
            grace: seconds from the stop signal to the kill.
        """
        async with anyio.create_task_group() as tg:
            for container in tuple(self.core.state.containers.values()):
                if container.state is RunState.RUNNING:
                    tg.start_soon(self.core.stop, container, grace)
        for sandbox in tuple(self.core.state.sandboxes.values()):
            await self.core.stop_sandbox(sandbox.id)


def make_backend(name: str, state_dir: Path | None, *, clock: Clock | None = None) -> Backend:
    """A backend by its name.

    Args:
        name: ``process`` or ``simulated``.
        state_dir: where ``process`` keeps its records; not used by ``simulated``.
        clock: wall time for the stamps.

    Raises:
        ValueError: there is no such backend, or ``process`` has no state directory.
    """
    if name == "simulated":
        return SimulatedBackend(clock=clock)
    if name != "process":
        msg = f"embedded runtime backend {name!r}: must be one of {', '.join(BACKENDS)}"
        raise ValueError(msg)
    if state_dir is None:
        raise ValueError("the process backend of the embedded runtime needs a state directory")
    from nodeagent.embedded.process import ProcessBackend

    return ProcessBackend(state_dir, clock=clock)


@asynccontextmanager
async def open_embedded(
    backend: Backend, *, hooks: Hooks | None = None, clock: Clock | None = None
) -> AsyncIterator[Embedded]:
    """Use the embedded runtime in this process, without a socket.

    Leaving the context leaves containers of the process backend running; the next one on the
    same state directory adopts them.
    """
    core = Core(backend, hooks=hooks, clock=clock)
    async with core.open():
        yield Embedded(core, EmbeddedRuntime(core), EmbeddedImages(core))


@asynccontextmanager
async def serve_embedded(
    socket_path: Path,
    backend: Backend,
    *,
    hooks: Hooks | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Embedded]:
    """Serve the embedded runtime on a unix socket (mode 0600) while inside the context.

    Raises:
        ValueError: the path is too long for a socket.
        OSError: the socket cannot be made there.
    """
    async with (
        open_embedded(backend, hooks=hooks, clock=clock) as embedded,
        serve_open(socket_path, embedded),
    ):
        yield embedded


@asynccontextmanager
async def serve_open(
    socket_path: Path, embedded: Embedded, *, max_send: int | None = None
) -> AsyncIterator[UnixServer]:
    """Serve an embedded runtime that is open, while inside the context.

    Leaving and entering again is a server that goes away and comes back with its state kept.

    Args:
        socket_path: where to serve.
        embedded: what to serve.
        max_send: refuse to send a message of more bytes.

    Raises:
        ValueError: the path is too long for a socket.
        OSError: the socket cannot be made there.
    """
    doors: list[Servable] = [RuntimeDoor(embedded.runtime), ImageDoor(embedded.images)]
    async with serve_unix(doors, socket_path, max_send=max_send) as server:
        name = embedded.core.backend.name
        log.info("embedded_runtime_serving", socket=str(socket_path), backend=name)
        yield server


async def run_embedded(
    socket: Path, *, state_dir: Path | None = None, backend: str = "process"
) -> None:
    """Serve until cancelled; containers of the process backend run on.

    Args:
        socket: path of the unix socket.
        state_dir: where sandboxes and containers are recorded; ``SOCKET.state`` by default.
        backend: ``process`` or ``simulated``.
    """
    where = state_dir or socket.with_name(socket.name + ".state")
    async with serve_embedded(socket, make_backend(backend, where)):
        await anyio.sleep_forever()
