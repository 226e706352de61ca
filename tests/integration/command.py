"""The command itself, as a process of its own on the embedded process runtime."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import anyio

from nodeagent.embedded import open_embedded
from nodeagent.embedded.process import ProcessBackend

DEADLINE: Final = 40.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Command:
    """A running ``nodeagent run`` and its two ports.

    Args:
        home: a directory for all its files.
        prefix: a command that runs it, for example as another user.
    """

    def __init__(self, home: Path, prefix: Sequence[str] = ()) -> None:
        self.home = home
        self.prefix = prefix
        self.manifests = home / "manifests"
        self.manifests.mkdir(exist_ok=True)
        self.health = free_port()
        self.read_only = free_port()
        self.process: anyio.abc.Process | None = None

    @property
    def running(self) -> anyio.abc.Process:
        assert self.process is not None
        return self.process

    async def start(self, *flags: str) -> None:
        # Output goes to a file: nobody has to read a pipe, and a failed test can show it.
        with (self.home / "agent.log").open("ab") as log:
            self.process = await anyio.open_process(
                [
                    *self.prefix, sys.executable, "-m", "nodeagent", "run",
                    "--container-runtime-endpoint=embedded",
                    f"--pod-manifest-path={self.manifests}",
                    f"--root-dir={self.home / 'root'}", f"--pod-logs-dir={self.home / 'logs'}",
                    f"--healthz-port={self.health}", f"--read-only-port={self.read_only}",
                    "--hostname-override=n1", "--node-ip=127.0.0.1", *flags,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )  # fmt: skip
        await self.until(self.answers)

    async def answers(self) -> bool:
        return bool(await self.get(self.health, "/healthz"))

    async def get(self, port: int, path: str, **headers: str) -> str:
        """A page, "" while the agent does not answer."""
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{port}{path}", headers=headers) as answer,
            ):
                return await answer.text()
        except aiohttp.ClientError:
            return ""

    async def pods(self) -> dict[str, Any]:
        """The pods by name."""
        import json

        text = await self.get(self.read_only, "/pods")
        items = json.loads(text)["items"] if text else []
        return {pod["metadata"]["name"]: pod for pod in items}

    async def container(self, pod: str, name: str = "main") -> dict[str, Any]:
        """The status of one container; empty while there is none."""
        statuses = (await self.pods()).get(pod, {}).get("status", {}).get("containerStatuses", [])
        return next((s for s in statuses if s["name"] == name), {})

    async def phase(self, pod: str) -> str:
        phase: str = (await self.pods()).get(pod, {}).get("status", {}).get("phase", "")
        return phase

    async def journal(self) -> str:
        return await self.get(self.health, "/debug/journal")

    async def until(self, check: Callable[[], Any], seconds: float = DEADLINE) -> Any:
        """Ask again and again until the answer is true, with a deadline."""
        with anyio.fail_after(seconds):
            while not (found := await check()):
                if self.process is not None and self.process.returncode is not None:
                    raise AssertionError((self.home / "agent.log").read_text())
                # Each question is an HTTP request to another process: that paces the loop.
                await anyio.sleep(0.02)
            return found

    async def runs(self, pod: str) -> None:
        async def check() -> bool:
            return await self.phase(pod) == "Running"

        await self.until(check)

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; the exit code."""
        self.running.send_signal(number)
        with anyio.fail_after(DEADLINE):
            return await self.running.wait()

    def put(self, name: str, text: str) -> None:
        (self.manifests / name).write_text(text)


@asynccontextmanager
async def command(home: Path, prefix: Sequence[str] = ()) -> AsyncIterator[Command]:
    """A command that is not started yet; whatever it started is gone afterwards."""
    it = Command(home, prefix)
    try:
        yield it
    finally:
        with anyio.CancelScope(shield=True):
            if it.process is not None and it.process.returncode is None:
                it.process.kill()
                await it.process.wait()
            await stop_containers(home / "root" / "embedded")


async def stop_containers(state: Path) -> None:
    """Stop what the embedded runtime left running, as its next server does."""
    if state.is_dir():
        async with open_embedded(ProcessBackend(state)) as runtime:
            await runtime.stop_all(0)
