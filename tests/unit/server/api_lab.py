"""The kubelet's API on loopback, with a runtime that the test speaks for."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import h11
from anyio.abc import ByteStream, SocketStream
from prometheus_client import CollectorRegistry
from tests.unit.kube.authority import Authority, Pair
from tests.unit.stats.stats_lab import collecting

from nodeagent.api import Pod
from nodeagent.clock import SystemClock
from nodeagent.config import AgentConfig
from nodeagent.cri import RuntimeService
from nodeagent.journal import Journal
from nodeagent.model import (
    ContainerID,
    ContainerRuntimeStatus,
    ContainerState,
    PodRuntimeStatus,
    PodUID,
    RuntimePod,
    SandboxID,
    SandboxState,
)
from nodeagent.model.runtime import SandboxRuntimeStatus
from nodeagent.proto.runtime import v1
from nodeagent.server import HealthChecks, checks, health_app, read_only_app
from nodeagent.server.http_metrics import HttpMetrics
from nodeagent.server.kubelet.api import KubeletApi, Route
from nodeagent.server.kubelet.checkpoint_handler import CheckpointHandler
from nodeagent.server.kubelet.gate import Gate, Rights, Tokens, has_ended
from nodeagent.server.kubelet.handlers import DebugHandlers
from nodeagent.server.kubelet.identity import User
from nodeagent.server.kubelet.listener import ApiListener
from nodeagent.server.kubelet.log_watch import LogWatch
from nodeagent.server.kubelet.node_handlers import NodeHandlers
from nodeagent.server.kubelet.pages import Pages
from nodeagent.server.kubelet.profiles import Profiles
from nodeagent.server.kubelet.serving import ServingFiles, server_context
from nodeagent.server.kubelet.stream_limits import StreamLimits
from nodeagent.server.stats_app import stats_app

Talk = Callable[[SocketStream, bytes], Awaitable[None]]
"""What a streaming server does with a connection, given the head of the request."""

TOKENS = {
    "admin": User("admin", groups=("system:masters",)),
    "reader": User("reader"),
    "other": User("other"),
}
READER = ("pods", "metrics", "healthz", "stats")


class Directory:
    """Knows the tokens of this lab."""

    async def user(self, token: str, _peer: str) -> User | None:
        return TOKENS.get(token)


class Roles:
    """The admin may do everything, the reader read some of it, others nothing."""

    async def allowed(self, user: User, verb: str, subresource: str) -> bool:
        if user.name == "admin":
            return True
        return user.name == "reader" and verb == "get" and subresource in READER


@dataclass
class ScriptedRuntime:
    """What the API needs of a container runtime.

    Attributes:
        url: of the streaming server.
        error: raised by the next calls.
        requests: for streams, as they came.
        answer: to a command.
    """

    url: str = ""
    error: Exception | None = None
    requests: list[Any] = field(default_factory=list)
    answer: v1.ExecSyncResponse = field(default_factory=v1.ExecSyncResponse)

    async def _asked(self, request: Any) -> str:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        return self.url

    async def exec(self, request: v1.ExecRequest) -> str:
        return await self._asked(request)

    async def attach(self, request: v1.AttachRequest) -> str:
        return await self._asked(request)

    async def port_forward(self, request: v1.PortForwardRequest) -> str:
        return await self._asked(request)

    async def exec_sync(
        self, container_id: str, cmd: Sequence[str], timeout: int = 0
    ) -> v1.ExecSyncResponse:
        await self._asked((container_id, list(cmd)))
        return self.answer

    async def checkpoint(self, pod: Pod, container: str, timeout: int) -> Path:
        await self._asked((pod.metadata.name, container, timeout))
        return Path("/root/checkpoints/checkpoint-web.tar")

    async def container_status(self, container_id: str) -> v1.ContainerStatusResponse:
        await self._asked(container_id)
        return v1.ContainerStatusResponse(status=v1.ContainerStatus(id=container_id))


@dataclass
class PodTable:
    """Pods and what the runtime has of them."""

    pods: list[Pod] = field(default_factory=list)
    records: dict[str, PodRuntimeStatus] = field(default_factory=dict)

    def find(self, namespace: str, name: str) -> Pod | None:
        wanted = (namespace, name)
        found = (p for p in self.pods if (p.metadata.namespace, p.metadata.name) == wanted)
        return next(found, None)

    def all(self) -> list[Pod]:
        return self.pods

    def at_runtime(self, uid: PodUID) -> PodRuntimeStatus:
        return self.records.get(uid, PodRuntimeStatus(uid))

    def translate(self, uid: PodUID) -> PodUID:
        return PodUID("uid-web") if uid == "mirror-of-web" else uid

    def set_container(
        self, pod: Pod, name: str, container_id: str, log: Path | str = "", *, runs: bool = True
    ) -> None:
        """Let the runtime have a container of a pod."""
        uid = PodUID(pod.metadata.uid)
        state = ContainerState.RUNNING if runs else ContainerState.EXITED
        self.records[uid] = PodRuntimeStatus(
            uid,
            sandboxes=(SandboxRuntimeStatus(SandboxID("sandbox-1"), 0, SandboxState.READY),),
            containers=(
                ContainerRuntimeStatus(ContainerID(container_id), name, state, log_path=str(log)),
            ),
        )


@dataclass
class Reply:
    """An answer.

    Attributes:
        status: of HTTP.
        headers: by name in lower case.
        body: all of it.
    """

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Lab:
    """The API, and how to ask it."""

    port: int
    authority: Authority
    table: PodTable
    runtime: ScriptedRuntime
    watch: LogWatch
    listener: ApiListener
    files: ServingFiles
    directory: Path
    registry: CollectorRegistry

    def trust(self, client: Pair | None = None) -> ssl.SSLContext:
        """The client's TLS settings; ``client`` is its certificate."""
        context = ssl.create_default_context(cadata=self.authority.certificate.decode())
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if client is not None:
            context.load_cert_chain(*client.write(self.directory, "client"))
        return context

    @asynccontextmanager
    async def connected(self, client: Pair | None = None) -> AsyncIterator[ByteStream]:
        """A connection."""
        stream = await anyio.connect_tcp(
            "127.0.0.1",
            self.port,
            ssl_context=self.trust(client),
            tls_hostname="127.0.0.1",
            tls_standard_compatible=False,
        )
        async with stream:
            yield stream

    async def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        token: str = "admin",
        headers: Mapping[str, str] | None = None,
        client: Pair | None = None,
    ) -> Reply:
        """Make one request."""
        async with self.connected(client) as stream:
            await stream.send(head(method, path, token, headers))
            return await reply(stream, method)


def head(method: str, path: str, token: str, headers: Mapping[str, str] | None = None) -> bytes:
    """The head of a request."""
    fields = {"Host": "node", **({"Authorization": f"Bearer {token}"} if token else {})}
    fields |= {"Connection": "close", **(headers or {})}
    lines = (f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode()


async def reply(stream: ByteStream, method: str = "GET") -> Reply:
    """The whole answer to a request."""
    http = h11.Connection(h11.CLIENT)
    http.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
    http.send(h11.EndOfMessage())
    found: h11.Response | None = None
    body = b""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            try:
                http.receive_data(await stream.receive())
            except anyio.EndOfStream:
                http.receive_data(b"")
        elif isinstance(event, h11.Response):
            found = event
        elif isinstance(event, h11.Data):
            body += event.data
        else:
            assert found is not None
            named = {name.decode(): value.decode() for name, value in found.headers}
            return Reply(found.status_code, named, body)


@asynccontextmanager
async def api_lab(
    tmp_path: Path,
    *,
    tokens: Tokens | None = None,
    rights: Rights | None = None,
    anonymous: bool = False,
    debugging: bool = True,
    logs: bool = True,
    journal: Sequence[str] = (),
    extra: Sequence[Route] = (),
    limits: StreamLimits | None = None,
    **options: Any,
) -> AsyncIterator[Lab]:
    """Serve the API on a port of loopback."""
    authority = Authority()
    certificate, key = authority.server().write(tmp_path, "served")
    client_ca = tmp_path / "ca.crt"
    client_ca.write_bytes(authority.certificate)
    (tmp_path / "var-log").mkdir()
    table, runtime, watch, clock = PodTable(), ScriptedRuntime(), LogWatch(), SystemClock()

    async def running() -> list[RuntimePod]:
        return []

    debug = DebugHandlers(
        pods=table,
        runtime=cast(RuntimeService, runtime),
        watch=watch,
        clock=clock,
        limits=lambda: limits or StreamLimits(),
    )
    node = NodeHandlers(
        list_pods=running,
        configuration=lambda: {"kubeletconfig": {"port": 10250}},
        log_dir=tmp_path / "var-log",
        logs=logs,
        queries=bool(journal),
        journal=journal,
    )
    sound, registry = HealthChecks([checks.ping()]), CollectorRegistry()
    health = health_app(sound, registry, Journal(16))
    gate = Gate(
        tokens or Directory(),
        rights or Roles(),
        anonymous=anonymous,
        expired=partial(has_ended, clock),
    )
    files = ServingFiles(certificate, key, client_ca)
    make = partial(server_context, options=AgentConfig(**options))
    async with collecting(tmp_path) as bench, anyio.create_task_group() as tasks:
        await tasks.start(watch.run)
        pages = Pages(
            clock=clock,
            started=clock.now(),
            paths=lambda: api.paths,
            flags=lambda: {"port": "10250"},
            debug_flags=logs,
        )
        checkpoints = CheckpointHandler(table, runtime.checkpoint)
        parts = (debug, node, checkpoints, pages, Profiles(on=logs))
        figures = stats_app(bench.collector, registry, sound)
        api = KubeletApi(
            gate,
            (health, read_only_app(table.all), figures),
            [route for part in parts for route in part.routes()] + [*extra],
            debugging=debugging,
            metrics=HttpMetrics(registry),
        )
        async with ApiListener(api, files, make, address="127.0.0.1", port=0) as listener:
            lab = Lab(
                listener.port, authority, table, runtime, watch, listener, files, tmp_path, registry
            )
            yield lab
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def streaming_server(talk: Talk) -> AsyncIterator[str]:
    """A runtime's streaming server; its URL."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)

    async def serve(stream: SocketStream) -> None:
        async with stream:
            got = b""
            while b"\r\n\r\n" not in got:
                got += await stream.receive()
            await talk(stream, got)

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        yield f"http://127.0.0.1:{port}/exec/token"
        tasks.cancel_scope.cancel()


async def until(found: Callable[[], bool]) -> None:
    """Wait until something holds."""
    with anyio.fail_after(30):
        while not found():
            await anyio.sleep(0.02)
