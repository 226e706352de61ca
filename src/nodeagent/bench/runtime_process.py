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
from anyio.abc import TaskGroup

from nodeagent.bench.stream_end import Elsewhere, StreamEnd
from nodeagent.embedded import RuntimeServer, SimulatedBackend, serve_faulty
from nodeagent.embedded.records import RunState
from nodeagent.embedded.scenario import parse_scenario
from nodeagent.embedded.scenario_run import take_step
from nodeagent.proto.runtime import v1

VERSION: Final = "bench/version"
"""The annotation that tells one version of a pod of the bench from another."""
_IMAGE: Final = "example.com/bench:1"


class Commands:
    """What the bench may ask of the runtime, past CRI.

    Args:
        server: the runtime.
        backend: its backend.
        tasks: where what takes time runs.
    """

    def __init__(self, server: RuntimeServer, backend: SimulatedBackend, tasks: TaskGroup) -> None:
        self._server = server
        self._embedded = server.embedded
        self._backend = backend
        self._tasks = tasks
        self._stream_end: StreamEnd | None = None
        self._operations: dict[str, Callable[[Mapping[str, Any]], Awaitable[Any]]] = {
            "make": self._make,
            "remove": self._remove,
            "end": self._end,
            "calls": self._calls,
            "running": self._running,
            "step": self._step,
            "heal": self._heal,
            "streams": self._streams,
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

    async def _running(self, command: Mapping[str, Any]) -> list[list[str]]:
        """The truth, past all faults: pod UID, container, and annotation of each that runs."""
        del command
        state = self._embedded.core.state
        return [
            [one.pod_uid, one.name, *self._about(one.sandbox_id)]
            for one in state.containers.values()
            if one.state is RunState.RUNNING
        ]

    def _about(self, sandbox_id: str) -> tuple[str, str]:
        config = self._embedded.core.state.sandbox(sandbox_id).config
        name = config.labels.get("io.kubernetes.pod.name", "")
        return name, config.annotations.get(VERSION, "")

    async def _step(self, command: Mapping[str, Any]) -> None:
        """Begin one step of a scenario; does not wait until it is over."""
        timeline = json.dumps({"timeline": [{"at": "0s", **command["step"]}]})
        (step,) = parse_scenario(timeline.encode()).timeline
        self._tasks.start_soon(take_step, self._server, step)

    async def _heal(self, command: Mapping[str, Any]) -> None:
        """End all faults: nothing is held any more, and the server serves."""
        del command
        self._server.plan.clear()
        self._server.resume()
        await self._server.start()

    async def _streams(self, command: Mapping[str, Any]) -> int:
        """Have the next streams send ``size`` bytes in a ``direction``; the port of their end."""
        if self._stream_end is None:
            self._stream_end = StreamEnd()
            url = f"http://127.0.0.1:{self._stream_end.port}/"
            self._embedded.core.streams = Elsewhere(url)
        self._stream_end.direction = command["direction"]
        self._stream_end.size = command["size"]
        return self._stream_end.port


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
    async with (
        serve_faulty(Path(settings["socket"]), backend) as server,
        anyio.create_task_group() as tasks,
    ):
        commands = Commands(server, backend, tasks)
        _say({"serving": settings["socket"]})
        async for line in anyio.wrap_file(sys.stdin):
            _say({"answer": await commands.perform(json.loads(line))})
        tasks.cancel_scope.cancel()


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
