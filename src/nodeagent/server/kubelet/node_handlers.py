"""What the kubelet's API tells of the node itself: its logs, what runs, how it is configured.

docs/behaviour/server.md, "Paths" and "Files of the node".
"""

from __future__ import annotations

import asyncio
import html
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CoroutineType
from typing import Any, Final
from urllib.parse import quote

import msgspec
from anyio import to_thread

from nodeagent.model import ContainerState, RuntimePod
from nodeagent.server.app import Response
from nodeagent.server.kubelet.api import Answer, Route
from nodeagent.server.kubelet.exchange import Exchange
from nodeagent.server.kubelet.node_files import open_below
from nodeagent.server.kubelet.node_log_query import answer_query

_JSON: Final = "application/json"
_DEEPEST: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHandlers:
    """What the node tells of itself.

    Attributes:
        list_pods: asks the runtime for its pods.
        configuration: gives what ``/configz`` shows.
        log_dir: whose files are shown.
        logs: whether they are.
        queries: whether logs of services are shown to those who ask for them by name.
        journal: the command that shows the system's journal.
        profiling: whether the agent's tasks are shown.
    """

    list_pods: Callable[[], Awaitable[Sequence[RuntimePod]]]
    configuration: Callable[[], Mapping[str, Any]]
    log_dir: Path = Path("/var/log")
    logs: bool = True
    queries: bool = False
    journal: Sequence[str] = ("journalctl",)
    profiling: bool = True

    def routes(self) -> list[Route]:
        """What is answered here."""
        logs_off = "" if self.logs else "logs"
        profiling_off = "" if self.profiling else "profiling"
        return [
            Route("runningpods", ("GET",), self.running_pods),
            Route("configz", ("GET",), self.configz),
            Route("logs", ("GET",), self.node_logs, steps=None, off=logs_off),
            Route("debug/tasks", ("GET",), self.tasks, off=profiling_off),
        ]

    async def running_pods(self, _exchange: Exchange, _steps: Sequence[str]) -> Answer:
        """A PodList of what runs."""
        items = [_running(pod) for pod in await self.list_pods()]
        shown = [item for item in items if item["spec"]["containers"]]
        body = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": shown}
        return _json(body)

    async def configz(self, _exchange: Exchange, _steps: Sequence[str]) -> Answer:
        """The configuration in force."""
        return _json(self.configuration())

    async def tasks(self, _exchange: Exchange, _steps: Sequence[str]) -> Answer:
        """Each task, and where it waits: the innermost place last."""
        return _json({"tasks": [_task(task) for task in asyncio.all_tasks()]})

    async def node_logs(self, exchange: Exchange, steps: Sequence[str]) -> Answer:
        """A file below the log directory, what is in a directory of it, or logs of services."""
        if self.queries and not any(steps) and exchange.request.has("query"):
            return await answer_query(exchange, self.log_dir, self.journal)
        try:
            found = await to_thread.run_sync(open_below, self.log_dir, steps)
        except FileNotFoundError:
            return Response(404, b"404 page not found\n")
        except PermissionError:
            return Response(403, b"403 Forbidden\n")
        if isinstance(found, list):
            path = exchange.request.path
            if not path.endswith("/"):
                return Response(301, headers={"Location": quote(path.rpartition("/")[2]) + "/"})
            return Response(200, _listing(found), "text/html; charset=utf-8")
        await exchange.write_file(found)
        return await exchange.end()


def _listing(names: Sequence[str]) -> bytes:
    lines = (f'<a href="{quote(name)}">{html.escape(name)}</a>\n' for name in names)
    return f"<pre>\n{''.join(lines)}</pre>\n".encode(errors="replace")


def _running(pod: RuntimePod) -> dict[str, Any]:
    metadata = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    containers = [
        {"name": container.name, "image": container.image, "resources": {}}
        for container in pod.containers
        if container.state is ContainerState.RUNNING
    ]
    return {"metadata": metadata, "spec": {"containers": containers}, "status": {}}


def _task(task: asyncio.Task[Any]) -> dict[str, Any]:
    return {"name": task.get_name(), "waits": list(_places(task.get_coro()))}


def _places(awaited: object) -> Iterator[str]:
    """Where a coroutine is, and the one that it waits for, and so on."""
    for _ in range(_DEEPEST):
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        code = getattr(awaited, "cr_code", None) or getattr(awaited, "gi_code", None)
        if frame is not None and code is not None:
            yield f"{code.co_qualname} ({_short(code.co_filename)}:{frame.f_lineno})"
        if isinstance(awaited, CoroutineType):
            awaited = awaited.cr_await
        elif inspect.isgenerator(awaited):
            awaited = awaited.gi_yieldfrom
        else:
            return


def _short(file: str) -> str:
    return "/".join(Path(file).parts[-2:])


def _json(body: object) -> Response:
    return Response(200, msgspec.json.encode(body), _JSON)
