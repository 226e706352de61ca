"""What measurements run on: a simulated runtime in a process of its own, or a real one."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.bench import watching
from nodeagent.bench.children import simulated_runtime
from nodeagent.bench.figures import BenchError
from nodeagent.bench.manifests import SIMULATED_IMAGE
from nodeagent.cri import CRIClient
from nodeagent.proto.runtime import v1
from nodeagent.rpc import RpcError

_CHECK_TIMEOUT: Final = 5.0


@dataclass(frozen=True, slots=True)
class Place:
    """A container runtime that the caller provides.

    Attributes:
        endpoint: ``unix:///path`` of its socket. It must hold no pods but the bench's.
        image: an image that is there; its shell is ``sh``.
    """

    endpoint: str
    image: str


@dataclass(frozen=True, slots=True)
class Bed:
    """A runtime with no pods of the bench in it; made by :func:`open_bed`.

    Attributes:
        name: ``simulated``, or what the runtime calls itself.
        endpoint: its socket.
        image: the image for the pods.
        cri: a client of the bench's own.
        end: ends a running container behind everyone's back.
    """

    name: str
    endpoint: str
    image: str
    cri: CRIClient
    end: Callable[[str], Awaitable[None]]

    @property
    def socket(self) -> str:
        """The path of the socket."""
        return self.endpoint.removeprefix("unix://")


@asynccontextmanager
async def open_bed(
    base: Path, place: Place | None = None, latency: Mapping[str, float] | None = None
) -> AsyncIterator[Bed]:
    """A simulated runtime, or the one at ``place``; it is left without pods of the bench.

    Args:
        base: an existing directory for the simulated runtime.
        place: a real runtime; None for a simulated one.
        latency: seconds that calls of the simulated one take, by CRI method.

    Raises:
        BenchError: the runtime cannot be used.
    """
    if place is None:
        async with simulated_runtime(base, latency) as child, CRIClient(child.endpoint) as cri:
            await cri.pull_image(v1.ImageSpec(image=SIMULATED_IMAGE))
            yield Bed("simulated", child.endpoint, SIMULATED_IMAGE, cri, child.end)
        return
    async with CRIClient(place.endpoint) as cri:
        try:
            version = await cri.check(_CHECK_TIMEOUT)
        except RpcError as error:
            raise BenchError(str(error)) from error
        await watching.refuse_foreign_pods(cri)
        await watching.remove_pods(cri)

        async def end(container: str) -> None:
            os.kill(await _pid(cri, container), signal.SIGKILL)

        try:
            yield Bed(version.runtime_name, place.endpoint, place.image, cri, end)
        finally:
            await watching.remove_pods(cri)


async def _pid(cri: CRIClient, container: str) -> int:
    """The first process of a container, as containerd and CRI-O tell it."""
    answer = await cri.container_status(container, verbose=True)
    try:
        pid: int = json.loads(answer.info["info"])["pid"]
    except (KeyError, ValueError) as error:
        msg = f"container {container}: the runtime does not tell its process"
        raise BenchError(msg) from error
    if pid <= 1:
        msg = f"container {container} has no process"
        raise BenchError(msg)
    return pid
