"""The simulated runtime in a process of its own: ``python -m nodeagent.bench.runtime_process``.

Its one argument is JSON: ``socket``, and ``latency`` in seconds by CRI method. It writes one
line when it serves, then answers each line of its input (a JSON object with ``op``) by one line,
and ends with its input, so it never outlives the bench.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import anyio

from nodeagent.embedded import Embedded, SimulatedBackend, serve_embedded
from nodeagent.proto.runtime import v1

_IMAGE: Final = "example.com/bench:1"


class Commands:
    """What the bench may ask of the runtime, past CRI.

    Args:
        embedded: the runtime.
        backend: its backend.
    """

    def __init__(self, embedded: Embedded, backend: SimulatedBackend) -> None:
        self._embedded = embedded
        self._backend = backend
        self._operations: dict[str, Callable[[Mapping[str, Any]], Awaitable[Any]]] = {
            "make": self._make,
            "remove": self._remove,
            "end": self._end,
            "calls": self._calls,
        }

    async def perform(self, command: Mapping[str, Any]) -> Any:
        """Do what one line asks; the answer is JSON-able."""
        return await self._operations[str(command["op"])](command)

    async def _make(self, command: Mapping[str, Any]) -> None:
        """Make running pods ``first`` to ``first + count - 1`` at once, whatever the latencies."""
        core = self._embedded.core
        core.images.pull(_IMAGE)
        for number in range(command["first"], command["first"] + command["count"]):
            sandbox = await core.run_sandbox(sandbox_config(number), "")
            for index in range(command["containers"]):
                config = container_config(number, index)
                await core.start(await core.create(sandbox, config))

    async def _remove(self, command: Mapping[str, Any]) -> None:
        """Remove pods ``first`` to ``first + count - 1``."""
        core = self._embedded.core
        wanted = {uid(n) for n in range(command["first"], command["first"] + command["count"])}
        for sandbox in tuple(core.state.sandboxes.values()):
            if sandbox.pod_uid in wanted:
                await core.remove_sandbox(sandbox.id)

    async def _end(self, command: Mapping[str, Any]) -> None:
        """End a running container now, with ``code``."""
        self._backend.end(self._embedded.core.state.container(command["id"]), command["code"])

    async def _calls(self, command: Mapping[str, Any]) -> dict[str, int]:
        """How often each method was called."""
        del command
        return dict(self._embedded.core.calls)


def uid(number: int) -> str:
    """The UID of a pod that was made past the agent."""
    return f"00000000-0000-4000-8000-{number:012d}"


def _labels(number: int) -> dict[str, str]:
    return {
        "io.kubernetes.pod.name": f"made-{number:04d}-node1",
        "io.kubernetes.pod.namespace": "bench",
        "io.kubernetes.pod.uid": uid(number),
    }


def sandbox_config(number: int) -> v1.PodSandboxConfig:
    """A sandbox that nobody asked the agent for."""
    labels = _labels(number)
    return v1.PodSandboxConfig(
        metadata=v1.PodSandboxMetadata(
            name=labels["io.kubernetes.pod.name"], namespace="bench", uid=uid(number)
        ),
        labels=labels,
    )


def container_config(number: int, index: int) -> v1.ContainerConfig:
    """One of its containers."""
    return v1.ContainerConfig(
        metadata=v1.ContainerMetadata(name=f"container-{index}"),
        image=v1.ImageSpec(image=_IMAGE),
        labels={**_labels(number), "io.kubernetes.container.name": f"container-{index}"},
        annotations={
            "io.kubernetes.container.hash": "5d41402a",
            "io.kubernetes.container.restartCount": "0",
        },
    )


async def serve(settings: Mapping[str, Any]) -> None:
    """Serve until the input ends."""
    backend = SimulatedBackend(latency=settings.get("latency") or {})
    async with serve_embedded(Path(settings["socket"]), backend) as embedded:
        commands = Commands(embedded, backend)
        _say({"serving": settings["socket"]})
        async for line in anyio.wrap_file(sys.stdin):
            _say({"answer": await commands.perform(json.loads(line))})


def _say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run with the settings of the command line."""
    import uvloop

    settings = json.loads(sys.argv[1])
    anyio.run(serve, settings, backend_options={"loop_factory": uvloop.new_event_loop})


if __name__ == "__main__":
    main()
