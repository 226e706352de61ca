"""The process backend with a sandbox ready for containers, and what tests ask about it."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from nodeagent.embedded import ContainerRecord, Embedded, open_embedded
from nodeagent.embedded.process import ProcessBackend
from nodeagent.embedded.process.launcher import procs
from nodeagent.embedded.process.store import MonitorFile
from nodeagent.proto.runtime import v1
from nodeagent.testing.cri_configs import IMAGE, container_config, sandbox_config

PATIENCE = 20.0
"""Seconds after which a wait has failed."""


class Lab:
    """One open runtime and one sandbox in it."""

    def __init__(self, embedded: Embedded, backend: ProcessBackend, root: Path) -> None:
        self.embedded = embedded
        self.runtime = embedded.runtime
        self.backend = backend
        self.root = root
        self.sandbox = ""

    @property
    def means(self) -> str:
        """By what containers are isolated here: ``root``, ``user`` or ``none``."""
        return self.backend.info()["isolation"].split()[0].rstrip(":")

    @property
    def isolated(self) -> bool:
        """Whether containers have a file system of their own here."""
        return self.means != "none"

    async def create(self, *command: str, name: str = "main", **options: Any) -> str:
        config = container_config(name, command, **options)
        return await self.runtime.create_container(self.sandbox, config)

    async def start(self, *command: str, name: str = "main", **options: Any) -> str:
        container_id = await self.create(*command, name=name, **options)
        await self.runtime.start_container(container_id)
        return container_id

    async def run(self, *command: str, **options: Any) -> v1.ContainerStatus:
        """Run a container to its end."""
        return await self.ended(await self.start(*command, **options))

    def record(self, container_id: str) -> ContainerRecord:
        return self.embedded.core.state.container(container_id)

    def monitor(self, container_id: str) -> MonitorFile:
        found = self.backend.store.read_monitor(container_id)
        assert found is not None
        return found

    async def status(self, container_id: str) -> v1.ContainerStatus:
        found = (await self.runtime.container_status(container_id)).status
        assert found is not None
        return found

    async def ended(self, container_id: str) -> v1.ContainerStatus:
        with anyio.fail_after(PATIENCE):
            await self.record(container_id).exited.wait()
        return await self.status(container_id)

    async def logged(self, container_id: str, text: str) -> None:
        """Wait until the log has the text."""
        path = anyio.Path(self.record(container_id).log_path)
        with anyio.fail_after(PATIENCE):
            while text not in await path.read_text():
                await anyio.sleep(0.01)

    def log(self, container_id: str, stream: str = "stdout") -> list[str]:
        """The lines that the container wrote to one of its streams."""
        lines = Path(self.record(container_id).log_path).read_text().splitlines()
        records = [line.split(" ", 3) for line in lines]
        return [record[3] for record in records if record[1] == stream]


@asynccontextmanager
async def lab(root: Path, *, isolate: bool = True) -> AsyncIterator[Lab]:
    """A lab of its own; nothing of it is left."""
    async with reopened(root, isolate=isolate) as found:
        await found.embedded.images.pull_image(v1.ImageSpec(image=IMAGE))
        config = sandbox_config(logs=root / "logs", hostname="lab-host")
        found.sandbox = await found.runtime.run_pod_sandbox(config)
        try:
            yield found
        finally:
            with anyio.move_on_after(PATIENCE, shield=True):
                await clean_up(found)


@asynccontextmanager
async def reopened(root: Path, *, isolate: bool = True) -> AsyncIterator[Lab]:
    """A server on what an earlier one left."""
    backend = ProcessBackend(root / "state", isolate=isolate)
    async with open_embedded(backend) as embedded:
        found = Lab(embedded, backend, root)
        found.sandbox = next(iter(embedded.core.state.sandboxes), "")
        yield found


async def clean_up(found: Lab) -> None:
    monitors = [
        record
        for container_id in found.embedded.core.state.containers
        if (record := found.backend.store.read_monitor(container_id))
    ]
    for sandbox_id in tuple(found.embedded.core.state.sandboxes):
        await found.runtime.remove_pod_sandbox(sandbox_id)
    for record in monitors:
        while procs.start_time(record.monitor_pid) == record.monitor_start:
            await anyio.sleep(0.01)


def a_day() -> str:
    """Seconds for ``sleep`` that nothing else on this machine sleeps; see `processes_with`."""
    return f"86400.{secrets.randbelow(10**15):015d}"


def processes_with(argument: str) -> list[int]:
    """Processes that have the argument on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if os.fsencode(argument) in command:
            found.append(int(entry.name))
    return found


async def gone(argument: str) -> None:
    """Wait until no process has the argument on its command line."""
    with anyio.fail_after(PATIENCE):
        while processes_with(argument):
            await anyio.sleep(0.01)


def shell(line: str) -> Sequence[str]:
    """A command that runs a line of shell."""
    return ("sh", "-c", line)
