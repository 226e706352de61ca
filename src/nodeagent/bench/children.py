"""The processes that a measurement starts: the simulated runtime, and the agent as users run it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
from anyio import to_thread
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from nodeagent.bench.figures import BenchError
from nodeagent.bench.waiting import until

_ANSWER_TIMEOUT: Final = 60.0
_START_TIMEOUT: Final = 60.0
_END_TIMEOUT: Final = 15.0
_TAIL: Final = 2000
NODE: Final = "node1"
"""The node name that agents of measurements have."""


@contextmanager
def work_dir() -> Iterator[Path]:
    """A directory that is gone afterwards; its path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="nodeagent-bench-") as path:
        yield Path(path)


class RuntimeChild:
    """A simulated runtime in a process of its own; made by :func:`simulated_runtime`."""

    def __init__(self, process: Process, endpoint: str) -> None:
        self.pid = process.pid
        self.endpoint = endpoint
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._in = process.stdin
        self._out = TextReceiveStream(process.stdout)
        self._rest = ""
        self._turn = anyio.Lock()

    async def ask(self, op: str, **arguments: Any) -> Any:
        """Have the runtime do something past CRI (``runtime_process.Commands``).

        Raises:
            BenchError: it did not answer.
        """
        async with self._turn:
            await self._in.send(json.dumps({"op": op, **arguments}).encode() + b"\n")
            return (await self.line())["answer"]

    async def line(self) -> dict[str, Any]:
        """The next line that it writes.

        Raises:
            BenchError: there is none.
        """
        try:
            with anyio.fail_after(_ANSWER_TIMEOUT):
                while "\n" not in self._rest:
                    self._rest += await self._out.receive()
        except (TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
            msg = f"the simulated runtime (process {self.pid}) does not answer: {error!r}"
            raise BenchError(msg) from error
        line, _, self._rest = self._rest.partition("\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def end(self, container_id: str, code: int = 137) -> None:
        """End a running container."""
        await self.ask("end", id=container_id, code=code)


@asynccontextmanager
async def simulated_runtime(
    base: Path, latency: Mapping[str, float] | None = None
) -> AsyncIterator[RuntimeChild]:
    """A simulated runtime that serves until the context is left.

    Args:
        base: an existing directory; the socket and the log go there.
        latency: seconds that calls take, by CRI method.
    """
    path = base / "cri.sock"
    settings = json.dumps({"socket": str(path), "latency": dict(latency or {})})
    command = [sys.executable, "-m", "nodeagent.bench.runtime_process", settings]
    with (base / "runtime.log").open("ab") as log:
        process = await anyio.open_process(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
    async with ended(process):
        child = RuntimeChild(process, f"unix://{path}")
        await child.line()
        yield child


@dataclass(frozen=True, slots=True)
class AgentChild:
    """``nodeagent run`` in a process of its own; made by :func:`agent`.

    Attributes:
        pid: its process.
        manifests: its manifest directory.
        log: what it wrote.
        port: its healthz port.
        read_only_port: the port of its pods; 0 for none.
        began_ns: wall time just before the process was started.
    """

    pid: int
    manifests: Path
    log: Path
    port: int
    read_only_port: int
    began_ns: int

    async def get(self, path: str) -> bytes:
        """Answer of its healthz port; errors are OSError."""
        return await self._get(self.port, path)

    async def pods(self) -> list[dict[str, Any]]:
        """Its pods, with the status that it computed."""
        answer = json.loads(await self._get(self.read_only_port, "/pods"))
        return list(answer["items"] or [])

    async def _get(self, port: int, path: str) -> bytes:
        url = f"http://127.0.0.1:{port}{path}"

        def fetch() -> bytes:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return bytes(answer.read())

        return await to_thread.run_sync(fetch)

    async def journal(self) -> list[dict[str, Any]]:
        """All records that it still has, in order."""
        lines = (await self.get("/debug/journal")).splitlines()
        return [json.loads(line) for line in lines]

    async def started(self, process: Process) -> None:
        """Wait until it serves; its sources have taken their first look then.

        Raises:
            BenchError: it ended, or took too long.
        """

        async def serves() -> bool:
            if process.returncode is not None:
                msg = f"the agent ended with code {process.returncode}:\n{self.tail()}"
                raise BenchError(msg)
            try:
                await self.get("/healthz/ping")
            except OSError:
                return False
            return True

        await until("an answer of the agent", serves, timeout=_START_TIMEOUT, explain=self.tail)

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-_TAIL:]


@asynccontextmanager
async def agent(
    base: Path,
    endpoint: str,
    flags: Sequence[str] = (),
    *,
    python: Sequence[str] = (),
    show_pods: bool = False,
) -> AsyncIterator[AgentChild]:
    """An agent with its own directories below ``base``, ended with the context.

    Args:
        base: an existing directory; may hold the directories of an earlier agent.
        endpoint: the container runtime.
        flags: further flags of ``nodeagent run``.
        python: options of the interpreter.
        show_pods: whether it opens its read-only port, too.

    Raises:
        BenchError: it does not start.
    """
    manifests, log = base / "manifests", base / "agent.log"
    port, read_only_port = free_port(), free_port() if show_pods else 0
    manifests.mkdir(exist_ok=True)
    command = [
        *(sys.executable, *python, "-m", "nodeagent", "run"),
        f"--pod-manifest-path={manifests}",
        f"--container-runtime-endpoint={endpoint}",
        f"--root-dir={base / 'root'}",
        f"--pod-logs-dir={base / 'logs'}",
        f"--hostname-override={NODE}",
        "--max-pods=5000",
        f"--healthz-port={port}",
        f"--read-only-port={read_only_port}",
        *flags,
    ]
    with log.open("ab") as out:
        began = time.time_ns()
        process = await anyio.open_process(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    child = AgentChild(process.pid, manifests, log, port, read_only_port, began)
    async with ended(process):
        await child.started(process)
        yield child


@asynccontextmanager
async def ended(process: Process) -> AsyncIterator[None]:
    """End the process on the way out: by the end of its input and SIGTERM, at last by SIGKILL."""
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            if process.stdin is not None:
                await process.stdin.aclose()
            if process.returncode is None:
                process.terminate()
            with anyio.move_on_after(_END_TIMEOUT):
                await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()
            await process.aclose()


def free_port() -> int:
    """A port of loopback that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
