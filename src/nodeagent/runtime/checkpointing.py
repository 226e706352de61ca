"""Checkpoints of running containers (docs/behaviour/runtime.md, "Checkpoints")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import anyio
from anyio import to_thread

from nodeagent.clock import Clock
from nodeagent.journal import Journal
from nodeagent.proto.runtime import v1
from nodeagent.runtime import names


class CheckpointRuntime(Protocol):
    """The part of :class:`nodeagent.cri.RuntimeService` that checkpoints need."""

    async def list_containers(
        self, where: v1.ContainerFilter | None = None
    ) -> Sequence[v1.Container]:
        """List the containers that match."""
        ...

    async def checkpoint_container(
        self, container_id: str, location: str, timeout: int = 0
    ) -> None:
        """Write a checkpoint to a file."""
        ...


class NoSuchContainerError(LookupError):
    """The pod has no running container of that name."""


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Writes checkpoints of containers into the agent's directory.

    Args:
        runtime: finds containers and writes their checkpoints.
        directory: where the files lie (``checkpoints`` below the root directory).
        clock: wall time, for the names of files.
        journal: the flight recorder.
    """

    runtime: CheckpointRuntime
    directory: Path
    clock: Clock
    journal: Journal

    async def write(self, pod: names.PodNames, container: str, timeout: int = 0) -> Path:
        """Have the runtime write a checkpoint of a pod's running container; returns the file.

        Args:
            pod: the pod.
            container: the container's name.
            timeout: seconds that it may take, 0 for the ordinary deadline.

        Raises:
            NoSuchContainerError: it does not run.
            InvalidArgument: ``timeout`` is negative.
            Unimplemented: the runtime cannot do it.
            RpcError: the runtime failed.
            OSError: the directory cannot be made.
        """
        labels = {names.POD_UID: pod.uid, names.CONTAINER_NAME: container}
        running = v1.ContainerStateValue(state=v1.ContainerState.CONTAINER_RUNNING)
        where = v1.ContainerFilter(label_selector=labels, state=running)
        found = max(
            await self.runtime.list_containers(where),
            key=lambda each: each.metadata.attempt if each.metadata else 0,
            default=None,
        )
        if found is None:
            msg = f"container {container} of pod {pod} does not run"
            raise NoSuchContainerError(msg)
        await to_thread.run_sync(_make, self.directory)
        moment = f"{self.clock.now():%Y-%m-%dT%H:%M:%SZ}"
        name = f"checkpoint-{pod.name}_{pod.namespace}-{container}-{moment}.tar"
        path = self.directory / name
        began = anyio.current_time()
        await self.runtime.checkpoint_container(found.id, str(path), timeout)
        took = anyio.current_time() - began
        self.journal.record(
            "runtime",
            "CheckpointWritten",
            pod.uid,
            "",
            took,
            container=container,
            id=found.id,
            file=str(path),
        )
        return path


def _make(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
