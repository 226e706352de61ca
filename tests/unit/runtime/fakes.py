"""A container runtime that lives in dictionaries, and builders of pods and statuses."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from nodeagent.api import Container, ObjectMeta, Pod, PodSpec
from nodeagent.cri.pods import PodLister
from nodeagent.model import PodRuntimeStatus, PodUID
from nodeagent.proto.runtime import v1
from nodeagent.rpc import (
    AlreadyExists,
    DeadlineExceeded,
    FailedPrecondition,
    NotFound,
    RpcError,
    Unknown,
)
from nodeagent.runtime.events import EventType
from nodeagent.runtime.settings import RuntimeSettings

IMAGE = "example.test/web:v1"
UID = PodUID("uid-1")

RUNNING = v1.ContainerState.CONTAINER_RUNNING
CREATED = v1.ContainerState.CONTAINER_CREATED
EXITED = v1.ContainerState.CONTAINER_EXITED
READY = v1.PodSandboxState.SANDBOX_READY
NOT_READY = v1.PodSandboxState.SANDBOX_NOTREADY


def make_container(name: str = "web", image: str = IMAGE, **fields: Any) -> Container:
    settings: dict[str, Any] = {"image_pull_policy": "IfNotPresent", **fields}
    return Container(name=name, image=image, **settings)


def make_pod(*containers: Container, uid: str = UID, name: str = "web", **spec: Any) -> Pod:
    settings: dict[str, Any] = {
        "restart_policy": "Always",
        "termination_grace_period_seconds": 30,
        "dns_policy": "ClusterFirst",
        **spec,
    }
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=uid),
        spec=PodSpec(containers=containers or (make_container(),), **settings),
    )


def make_settings(root: Path) -> RuntimeSettings:
    return RuntimeSettings(
        root_dir=root / "agent", pod_logs_dir=root / "logs", resolv_conf=None, concurrency=4
    )


@dataclass(frozen=True)
class Event:
    kind: EventType
    reason: str
    message: str
    field_path: str


@dataclass
class EventLog:
    events: list[Event] = field(default_factory=list)
    node: list[tuple[EventType, str, str]] = field(default_factory=list)

    def node_event(self, kind: EventType, reason: str, message: str) -> None:
        self.node.append((kind, reason, message))

    def event(
        self, pod: Pod, kind: EventType, reason: str, message: str, field_path: str = ""
    ) -> None:
        assert pod.metadata.uid
        self.events.append(Event(kind, reason, message, field_path))

    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.events]

    def last(self, reason: str) -> Event:
        return next(event for event in reversed(self.events) if event.reason == reason)


@dataclass
class Sandbox:
    id: str
    config: v1.PodSandboxConfig
    state: v1.PodSandboxState = READY
    ip: str = "10.0.0.7"
    handler: str = ""


@dataclass
class Made:
    """A container of the fake runtime."""

    id: str
    sandbox: str
    config: v1.ContainerConfig
    state: v1.ContainerState = CREATED
    exit_code: int = 0
    stop_timeout: int | None = None

    @property
    def name(self) -> str:
        return _meta(self.config).name


def _meta(config: v1.ContainerConfig) -> v1.ContainerMetadata:
    assert config.metadata is not None
    return config.metadata


@dataclass
class _Pending:
    """Something that the runtime will have done in a while."""

    due: float
    name: object
    happen: Callable[[], None]


class FakeRuntime:
    """Holds sandboxes and containers, enforces the interface's rules, takes orders from tests."""

    def __init__(self) -> None:
        self.sandboxes: dict[str, Sandbox] = {}
        self.containers: dict[str, Made] = {}
        self.images: dict[str, v1.Image] = {}
        self.calls: Counter[str] = Counter()
        self.order: list[str] = []
        self.pulled: list[str] = []
        self.checkpoints: list[tuple[str, str, int]] = []
        self.credentials: list[v1.AuthConfig | None] = []
        self.pull_seconds = 0.0
        self.most_pulls = self._pulls = 0
        self.stop_seconds: dict[str, float] = {}
        self._failures: dict[str, list[RpcError]] = {}
        self._late: dict[str, list[RpcError]] = {}
        self._slow: dict[str, list[float]] = {}
        self._pending: list[_Pending] = []
        self._hangs: set[str] = set()
        self._ids = itertools.count(1)
        self._quiet = False
        self.ip = "10.0.0.7"
        self.starts: Counter[str] = Counter()
        self.execs: list[tuple[str, tuple[str, ...], int]] = []
        self.exec_result = v1.ExecSyncResponse()
        self.exec_seconds: dict[str, float] = {}

    def fail(self, method: str, error: RpcError, times: int = 1) -> None:
        """Let the next calls of a method fail before they have an effect."""
        self._failures.setdefault(method, []).extend([error] * times)

    def fail_late(self, method: str, error: RpcError) -> None:
        """Let the next call of a method have its effect and fail all the same."""
        self._late.setdefault(method, []).append(error)

    def slow(self, method: str, seconds: float) -> None:
        """Let the next call of a method go unanswered and have its effect later.

        Until then the runtime says that the name is reserved.
        """
        self._slow.setdefault(method, []).append(seconds)

    def hang(self, method: str) -> None:
        """Let all calls of a method wait for ever."""
        self._hangs.add(method)

    def unhang(self) -> None:
        """Let calls that come from now on go through."""
        self._hangs.clear()

    def heal(self) -> None:
        """Forget all faults that were ordered."""
        self._hangs.clear()
        self._failures.clear()
        self._late.clear()
        self._slow.clear()

    def copy_sandbox(self, source: str, sid: str, attempt: int) -> Sandbox:
        """Make another ready sandbox of the same pod."""
        config = v1.PodSandboxConfig.parse(bytes(self.sandboxes[source].config))
        assert config.metadata is not None
        config.metadata.attempt = attempt
        self.sandboxes[sid] = Sandbox(sid, config)
        return self.sandboxes[sid]

    def copy_container(self, source: str, cid: str, sandbox: str, attempt: int) -> None:
        """Make another running instance of the same container."""
        config = v1.ContainerConfig.parse(bytes(self.containers[source].config))
        assert config.metadata is not None
        config.metadata.attempt = attempt
        self.containers[cid] = Made(cid, sandbox, config, RUNNING)

    def add_image(self, name: str = IMAGE, **fields: Any) -> v1.Image:
        image = v1.Image(id=f"sha256:{name}", repo_tags=[name], size=1000, **fields)
        self.images[name] = self.images[image.id] = image
        return image

    def exit(self, name: str, code: int = 0) -> None:
        """Let the newest running container of that name end."""
        made = self.newest(name)
        assert made.state is RUNNING
        made.state, made.exit_code = EXITED, code

    def newest(self, name: str) -> Made:
        made = [c for c in self.containers.values() if _meta(c.config).name == name]
        return max(made, key=lambda c: _meta(c.config).attempt)

    def attempts(self, name: str) -> list[int]:
        made = [_meta(c.config) for c in self.containers.values()]
        return sorted(m.attempt for m in made if m.name == name)

    async def status(self, uid: PodUID = UID) -> PodRuntimeStatus:
        """The pod as a fresh look at the runtime shows it, whatever faults are ordered."""
        self._quiet = True
        try:
            lister = PodLister(self)
            pod = await lister.get_pod(uid)
            return PodRuntimeStatus(uid) if pod is None else await lister.inspect(pod)
        finally:
            self._quiet = False

    async def _enter(self, method: str) -> None:
        due = [p for p in self._pending if p.due <= anyio.current_time()]
        self._pending = [p for p in self._pending if p not in due]
        for pending in due:
            pending.happen()
        if self._quiet:
            return
        self.calls[method] += 1
        self.order.append(method)
        await anyio.lowlevel.checkpoint()
        if method in self._hangs:
            await anyio.sleep_forever()
        if failures := self._failures.get(method):
            raise failures.pop(0)

    def _happen(self, method: str, name: object, happen: Callable[[], None]) -> None:
        """Let a call have its effect, now or later."""
        if any(p.name == name for p in self._pending):
            raise Unknown("the name is reserved for another")
        if slow := self._slow.get(method):
            due = anyio.current_time() + slow.pop(0)
            self._pending.append(_Pending(due, name, happen))
            raise DeadlineExceeded("no answer")
        happen()

    def _leave(self, method: str) -> None:
        if late := self._late.get(method):
            raise late.pop(0)

    async def run_pod_sandbox(self, config: v1.PodSandboxConfig, runtime_handler: str = "") -> str:
        await self._enter("run_pod_sandbox")
        assert config.metadata is not None
        for other in self.sandboxes.values():
            assert other.config.metadata is not None
            if other.config.metadata == config.metadata:
                raise AlreadyExists("the name is taken")
        sandbox = Sandbox(f"s{next(self._ids)}", config, ip=self.ip, handler=runtime_handler)

        def happen() -> None:
            self.sandboxes[sandbox.id] = sandbox

        self._happen("run_pod_sandbox", config.metadata, happen)
        self._leave("run_pod_sandbox")
        return sandbox.id

    async def stop_pod_sandbox(self, pod_sandbox_id: str) -> None:
        await self._enter("stop_pod_sandbox")
        if pod_sandbox_id not in self.sandboxes:
            raise NotFound("no such sandbox")
        self.sandboxes[pod_sandbox_id].state = NOT_READY
        for made in self.containers.values():
            if made.sandbox == pod_sandbox_id and made.state is RUNNING:
                made.state, made.exit_code = EXITED, 137

    async def remove_pod_sandbox(self, pod_sandbox_id: str) -> None:
        await self._enter("remove_pod_sandbox")
        self.sandboxes.pop(pod_sandbox_id, None)
        for cid in [c.id for c in self.containers.values() if c.sandbox == pod_sandbox_id]:
            del self.containers[cid]

    async def pod_sandbox_status(self, pod_sandbox_id: str) -> v1.PodSandboxStatusResponse:
        await self._enter("pod_sandbox_status")
        sandbox = self.sandboxes.get(pod_sandbox_id)
        if sandbox is None:
            raise NotFound("no such sandbox")
        linux = sandbox.config.linux
        assert linux is not None
        assert linux.security_context is not None
        options = linux.security_context.namespace_options
        assert options is not None
        on_host = options.network == v1.NamespaceMode.NODE
        return v1.PodSandboxStatusResponse(
            status=v1.PodSandboxStatus(
                id=sandbox.id,
                metadata=sandbox.config.metadata,
                state=sandbox.state,
                created_at=1,
                network=v1.PodSandboxNetworkStatus(ip="" if on_host else sandbox.ip),
                linux=v1.LinuxPodSandboxStatus(namespaces=v1.Namespace(options=options)),
                labels=sandbox.config.labels,
            )
        )

    async def list_pod_sandbox(
        self, where: v1.PodSandboxFilter | None = None
    ) -> Sequence[v1.PodSandbox]:
        await self._enter("list_pod_sandbox")
        wanted = where.label_selector if where is not None else {}
        return [
            v1.PodSandbox(
                id=s.id,
                metadata=s.config.metadata,
                state=s.state,
                created_at=1,
                labels=s.config.labels,
            )
            for s in self.sandboxes.values()
            if wanted.items() <= s.config.labels.items()
        ]

    async def create_container(
        self,
        pod_sandbox_id: str,
        config: v1.ContainerConfig,
        sandbox_config: v1.PodSandboxConfig,
    ) -> str:
        await self._enter("create_container")
        if pod_sandbox_id not in self.sandboxes:
            raise NotFound("no such sandbox")
        for other in self.containers.values():
            if (_meta(other.config), other.config.labels) == (_meta(config), config.labels):
                raise AlreadyExists("the name is taken")
        made = Made(f"c{next(self._ids)}", pod_sandbox_id, config)

        def happen() -> None:
            self.containers[made.id] = made

        self._happen("create_container", (_meta(config), config.labels), happen)
        self._leave("create_container")
        return made.id

    async def start_container(self, container_id: str) -> None:
        await self._enter("start_container")
        made = self.containers[container_id]
        if made.state is not CREATED:
            raise FailedPrecondition("it is not in the created state")
        made.state = RUNNING
        self.starts[made.name] += 1
        self._leave("start_container")

    async def stop_container(self, container_id: str, timeout: int) -> None:
        await self._enter("stop_container")
        made = self.containers.get(container_id)
        if made is None:
            raise NotFound("no such container")
        made.stop_timeout = timeout
        await anyio.sleep(self.stop_seconds.get(_meta(made.config).name, 0))
        made.state, made.exit_code = EXITED, 137

    async def exec_sync(
        self, container_id: str, cmd: Sequence[str], timeout: int = 0
    ) -> v1.ExecSyncResponse:
        await self._enter("exec_sync")
        made = self.containers[container_id]
        self.execs.append((made.name, tuple(cmd), timeout))
        await anyio.sleep(self.exec_seconds.get(made.name, 0))
        if made.state is not RUNNING:
            raise Unknown("the container does not run")
        self._leave("exec_sync")
        return self.exec_result

    async def remove_container(self, container_id: str) -> None:
        await self._enter("remove_container")
        self.containers.pop(container_id, None)

    async def checkpoint_container(
        self, container_id: str, location: str, timeout: int = 0
    ) -> None:
        await self._enter("checkpoint_container")
        assert self.containers[container_id].state is RUNNING
        self.checkpoints.append((container_id, location, timeout))

    async def list_containers(
        self, where: v1.ContainerFilter | None = None
    ) -> Sequence[v1.Container]:
        await self._enter("list_containers")
        wanted = where.label_selector if where is not None else {}
        return [
            v1.Container(
                id=c.id,
                pod_sandbox_id=c.sandbox,
                metadata=c.config.metadata,
                image=c.config.image,
                image_ref="ref",
                state=c.state,
                created_at=1,
                labels=c.config.labels,
                annotations=c.config.annotations,
            )
            for c in self.containers.values()
            if wanted.items() <= c.config.labels.items()
            and (where is None or where.state is None or where.state.state is c.state)
        ]

    async def container_status(self, container_id: str) -> v1.ContainerStatusResponse:
        await self._enter("container_status")
        made = self.containers.get(container_id)
        if made is None:
            raise NotFound("no such container")
        return v1.ContainerStatusResponse(
            status=v1.ContainerStatus(
                id=made.id,
                metadata=made.config.metadata,
                state=made.state,
                created_at=1,
                exit_code=made.exit_code,
                image=made.config.image,
                image_ref="ref",
                labels=made.config.labels,
                annotations=made.config.annotations,
            )
        )

    async def image_status(self, image: v1.ImageSpec) -> v1.ImageStatusResponse:
        await self._enter("image_status")
        return v1.ImageStatusResponse(image=self.images.get(image.image))

    async def pull_image(
        self,
        image: v1.ImageSpec,
        auth: v1.AuthConfig | None = None,
        sandbox_config: v1.PodSandboxConfig | None = None,
    ) -> str:
        self.pulled.append(image.image)
        self.credentials.append(auth)
        self._pulls += 1
        self.most_pulls = max(self.most_pulls, self._pulls)
        try:
            await self._enter("pull_image")
            await anyio.sleep(self.pull_seconds)
        finally:
            self._pulls -= 1
        return self.add_image(image.image).id
