"""What runs containers: the part of the embedded runtime that differs between backends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from anyio.abc import ByteStream

    from nodeagent.embedded.records import ContainerRecord, Exit, SandboxRecord
    from nodeagent.streaming.commands import Command
    from nodeagent.streaming.protocols import Wanted


class StartError(Exception):
    """A container could not be started; it has ended with ``exit``."""

    def __init__(self, end: Exit) -> None:
        super().__init__(end.message)
        self.exit = end


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What a command run in a container wrote, and its exit code."""

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """What a container uses: processor nanoseconds since its start, bytes, processes."""

    cpu_ns: int = 0
    memory_bytes: int = 0
    processes: int = 0
    layer_bytes: int = 0
    layer_inodes: int = 0


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """The file system under the state: a path on it, bytes and inodes that containers take."""

    mountpoint: str
    used_bytes: int
    inodes_used: int


class Backend(Protocol):
    """Runs containers. Every method may raise an RpcError, which becomes the call's answer."""

    name: str
    """Shown to people."""

    def open(
        self, on_exit: Callable[[ContainerRecord, Exit], None]
    ) -> AbstractAsyncContextManager[None]:
        """Be ready inside the context; leaving it leaves containers running.

        ``on_exit`` is called on the event loop, once for each running container that ends.
        """
        ...

    async def pace(self, method: str) -> None:
        """Take the time that the method takes, for backends that simulate it."""
        ...

    def info(self) -> Mapping[str, str]:
        """Facts for people."""
        ...

    def warnings(self, container: ContainerRecord) -> Sequence[str]:
        """What of the container's configuration cannot be honoured here, for people."""
        ...

    async def create_sandbox(self, sandbox: SandboxRecord) -> None:
        """Check and prepare a sandbox, and remember it where the backend remembers things."""
        ...

    async def stop_sandbox(self, sandbox: SandboxRecord) -> None:
        """The sandbox is no longer ready."""
        ...

    async def remove_sandbox(self, sandbox: SandboxRecord) -> None:
        """Forget a sandbox."""
        ...

    async def create(self, container: ContainerRecord, sandbox: SandboxRecord) -> None:
        """Check and prepare a container, and remember it."""
        ...

    async def start(self, container: ContainerRecord, sandbox: SandboxRecord) -> int:
        """Start a created container; returns the wall time of the start in nanoseconds.

        Raises:
            StartError: it could not be started, and never can.
        """
        ...

    def signal(self, container: ContainerRecord, number: int) -> None:
        """Send a signal to the first process; SIGKILL ends all of the container."""
        ...

    async def remove(self, container: ContainerRecord) -> None:
        """Forget a container that does not run, with its files but not its log."""
        ...

    async def exec_sync(
        self, container: ContainerRecord, cmd: Sequence[str], timeout: float | None
    ) -> ExecResult:
        """Run a command in a running container to its end.

        Raises:
            DeadlineExceeded: it took longer than ``timeout`` seconds and was killed.
        """
        ...

    def exec(
        self, container: ContainerRecord, cmd: Sequence[str], wanted: Wanted
    ) -> AbstractAsyncContextManager[Command]:
        """Run a command in a running container with streams; leaving the context kills it."""
        ...

    def attach(
        self, container: ContainerRecord, wanted: Wanted
    ) -> AbstractAsyncContextManager[Command]:
        """The streams of a running container's first process; leaving lets go of them only."""
        ...

    async def connect(self, sandbox: SandboxRecord, port: int) -> ByteStream:
        """Connect to a port of a pod.

        Raises:
            OSError: it cannot be reached.
        """
        ...

    async def reopen_log(self, container: ContainerRecord) -> None:
        """Write the log to a new file under the same path from now on."""
        ...

    async def usage(self, containers: Sequence[ContainerRecord]) -> Mapping[str, Usage]:
        """What running containers use, by id; one that has just ended is left out."""
        ...

    async def disk_usage(self) -> DiskUsage:
        """What all containers take on disk."""
        ...

    async def save_images(self, references: Sequence[str]) -> None:
        """Remember which images are present."""
        ...

    async def recover(self) -> Recovered:
        """What was there before this server started."""
        ...


@dataclass(frozen=True, slots=True)
class Recovered:
    """Sandboxes, containers in the state they are in now, and images from an earlier server."""

    sandboxes: Sequence[SandboxRecord] = ()
    containers: Sequence[ContainerRecord] = ()
    images: Sequence[str] = ()
