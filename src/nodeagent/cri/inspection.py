"""The details of one pod: a few status calls side by side, and none that is not needed.

docs/behaviour/pleg.md, "Inspection".
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from nodeagent.aio import side_by_side
from nodeagent.api import ContainerUser, LinuxContainerUser
from nodeagent.cri import verify
from nodeagent.cri.termination import final_message
from nodeagent.model import (
    ContainerRuntimeStatus,
    ContainerState,
    PodRuntimeStatus,
    RuntimeContainer,
    RuntimePod,
    RuntimeSandbox,
    SandboxRuntimeStatus,
    SandboxState,
)
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Internal, NotFound

HASH_ANNOTATION: Final = "io.kubernetes.container.hash"
RESTART_COUNT_ANNOTATION: Final = "io.kubernetes.container.restartCount"

CallWatch: TypeAlias = Callable[[str], AbstractContextManager[object]]
"""Is entered with the name of each runtime call for as long as that call takes."""

DEAD_ASKED: Final = 2
"""Exited instances of a container whose details somebody may want to see: the newest ones."""
AT_ONCE: Final = 4
"""Status calls about one pod that are made side by side."""

_CONTAINER_STATES: Final[Mapping[int, ContainerState]] = MappingProxyType(
    {
        v1.ContainerState.CONTAINER_CREATED.value: ContainerState.CREATED,
        v1.ContainerState.CONTAINER_RUNNING.value: ContainerState.RUNNING,
        v1.ContainerState.CONTAINER_EXITED.value: ContainerState.EXITED,
        v1.ContainerState.CONTAINER_UNKNOWN.value: ContainerState.UNKNOWN,
    }
)
_ORDER: Final = (ContainerState.CREATED, ContainerState.RUNNING, ContainerState.EXITED)


_StatusCall: TypeAlias = Callable[
    [], Awaitable[SandboxRuntimeStatus | ContainerRuntimeStatus | None]
]


def unwatched(_rpc: str) -> AbstractContextManager[object]:
    """A watch that does not look."""
    return nullcontext()


class StatusRuntime(Protocol):
    """What looking at details needs of :class:`nodeagent.cri.RuntimeService`."""

    async def pod_sandbox_status(self, pod_sandbox_id: str) -> v1.PodSandboxStatusResponse:
        """Describe one sandbox. Raises NotFound."""
        ...

    async def container_status(self, container_id: str) -> v1.ContainerStatusResponse:
        """Describe one container. Raises NotFound."""
        ...


@dataclass(frozen=True, slots=True)
class EndSeen:
    """Something has ended; ``details`` are those of an exited container, if they are known."""

    details: ContainerRuntimeStatus | None = None


class Inspector:
    """Asks one runtime for details.

    Args:
        runtime: where they are asked for.
    """

    def __init__(self, runtime: StatusRuntime) -> None:
        self._runtime = runtime
        self._supplies = False
        """Whether answers about sandboxes have told of their containers as well."""

    async def inspect(
        self,
        pod: RuntimePod,
        watch: CallWatch = unwatched,
        known: PodRuntimeStatus | None = None,
        at_once: int = AT_ONCE,
    ) -> PodRuntimeStatus:
        """Ask for the details of everything that the pod has; what is gone is left out.

        Args:
            pod: what the lists say.
            watch: is told of each call.
            known: an earlier answer; what has ended by then has not changed since.
            at_once: calls that are made side by side.

        Raises:
            RpcError: a status call failed otherwise than by NotFound.
        """
        known = known or PodRuntimeStatus(pod.uid)
        told: dict[str, v1.ContainerStatus] = {}
        asked = _worth_asking(pod, known)
        calls: list[_StatusCall] = [
            partial(self._sandbox, s, watch, known, told) for s in pod.sandboxes
        ]
        more: list[_StatusCall] = [partial(self._container, c, watch, told) for c in asked]
        if self._supplies:
            answers = await side_by_side(calls, at_once)
            answers += await side_by_side(more, at_once)
        else:
            answers = await side_by_side([*calls, *more], at_once)
        sandboxes = tuple(a for a in answers if isinstance(a, SandboxRuntimeStatus))
        details = {a.id: a for a in answers if isinstance(a, ContainerRuntimeStatus)}
        gone = {c.id for c in asked} - details.keys()
        newest = sandboxes[0] if sandboxes else None
        return PodRuntimeStatus(
            uid=pod.uid,
            name=pod.name,
            namespace=pod.namespace,
            ips=newest.ips if newest and newest.state is SandboxState.READY else (),
            sandboxes=sandboxes,
            containers=tuple(
                details.get(c.id) or known.by_id(c.id) or listed_only(c)
                for c in pod.containers
                if c.id not in gone
            ),
        )

    async def end_of(
        self, pod: RuntimePod, id_: str, watch: CallWatch = unwatched
    ) -> EndSeen | None:
        """Whether a container or sandbox of a pod does not run any more, by one call.

        Returns:
            None while it runs.

        Raises:
            RpcError: the call failed otherwise than by NotFound.
        """
        listed = next((c for c in pod.containers if c.id == id_), None)
        try:
            if listed is None:
                with watch("PodSandboxStatus"):
                    response = await self._runtime.pod_sandbox_status(id_)
                status = response.status
                if status is None or sandbox_state(status.state) is SandboxState.READY:
                    return None
                return EndSeen()
            with watch("ContainerStatus"):
                answer = await self._runtime.container_status(id_)
        except NotFound:
            return EndSeen()
        seen = answer.status
        if seen is None or container_state(seen.state) is ContainerState.RUNNING:
            return None
        if container_state(seen.state) is not ContainerState.EXITED or not seen.finished_at:
            return EndSeen()
        return EndSeen(container_status(seen, listed, await final_message(seen)))

    async def _sandbox(
        self,
        sandbox: RuntimeSandbox,
        watch: CallWatch,
        known: PodRuntimeStatus,
        told: dict[str, v1.ContainerStatus],
    ) -> SandboxRuntimeStatus | None:
        for before in known.sandboxes:
            same = (before.id, before.state, before.attempt)
            if same == (sandbox.id, sandbox.state, sandbox.attempt) and self._is_settled(before):
                return before
        try:
            with watch("PodSandboxStatus"):
                response = await self._runtime.pod_sandbox_status(sandbox.id)
        except NotFound:
            return None
        if response.status is None:
            msg = f"sandbox {sandbox.id}: an answer without a status"
            raise Internal(msg, "PodSandboxStatus")
        if response.containers_statuses:
            self._supplies = True
            told.update((status.id, status) for status in response.containers_statuses)
        return sandbox_status(response.status, sandbox)

    def _is_settled(self, sandbox: SandboxRuntimeStatus) -> bool:
        """Whether nothing of a sandbox changes any more as long as its state stays the same."""
        return sandbox.state is SandboxState.NOT_READY or (bool(sandbox.ips) and not self._supplies)

    async def _container(
        self, container: RuntimeContainer, watch: CallWatch, told: Mapping[str, v1.ContainerStatus]
    ) -> ContainerRuntimeStatus | None:
        status = told.get(container.id)
        if status is None or not _is_fresh(status, container):
            try:
                with watch("ContainerStatus"):
                    answer = await self._runtime.container_status(container.id)
            except NotFound:
                return None
            status = answer.status
        if status is None:
            msg = f"container {container.id}: an answer without a status"
            raise Internal(msg, "ContainerStatus")
        words = await final_message(status)
        return container_status(status, container, words)


def _worth_asking(pod: RuntimePod, known: PodRuntimeStatus) -> list[RuntimeContainer]:
    """The containers whose details can have changed, and that somebody may want to see."""
    asked = []
    dead: Counter[str] = Counter()
    for container in pod.containers:  # newest first
        if container.state is ContainerState.EXITED:
            dead[container.name] += 1
            before = known.by_id(container.id)
            settled = before is not None and before.finished_at and _agree(before, container)
            if dead[container.name] > DEAD_ASKED or settled:
                continue
        asked.append(container)
    return asked


def _agree(before: ContainerRuntimeStatus, listed: RuntimeContainer) -> bool:
    """Whether an earlier answer is of what the list shows: a runtime may answer oddly once."""
    return (before.state, before.name, before.attempt, before.sandbox_id) == (
        listed.state, listed.name, listed.attempt, listed.sandbox_id,
    )  # fmt: skip


def _is_fresh(status: v1.ContainerStatus, listed: RuntimeContainer) -> bool:
    """Whether what came along with a sandbox is whole, and not older than the list."""
    try:
        verify.container(v1.ContainerStatusResponse(status=status), listed.id)
    except Internal:
        return False
    state = container_state(status.state)
    if state not in _ORDER or listed.state not in _ORDER:
        return False
    return _ORDER.index(state) >= _ORDER.index(listed.state)


def listed_only(listed: RuntimeContainer) -> ContainerRuntimeStatus:
    """What a list alone says of a container."""
    return ContainerRuntimeStatus(
        id=listed.id,
        name=listed.name,
        state=listed.state,
        sandbox_id=listed.sandbox_id,
        attempt=listed.attempt,
        created_at=listed.created_at,
        image=listed.image,
        image_ref=listed.image_ref,
        hash=listed.hash,
        restart_count=listed.attempt,
    )


def sandbox_status(status: v1.PodSandboxStatus, listed: RuntimeSandbox) -> SandboxRuntimeStatus:
    """The details of a sandbox; ``listed`` fills in what the runtime left out."""
    # Messages are compared with None: whether one is empty takes far longer to find out.
    namespaces = status.linux.namespaces if status.linux is not None else None
    options = namespaces.options if namespaces is not None else None
    return SandboxRuntimeStatus(
        id=listed.id,
        attempt=status.metadata.attempt if status.metadata is not None else listed.attempt,
        state=sandbox_state(status.state),
        created_at=status.created_at,
        ips=_ips(status.network),
        has_network_status=status.network is not None,
        host_network=options is not None and options.network == v1.NamespaceMode.NODE,
        runtime_handler=status.runtime_handler,
    )


def container_status(
    status: v1.ContainerStatus, listed: RuntimeContainer, message: str | None = None
) -> ContainerRuntimeStatus:
    """The details of a container.

    Args:
        status: what the runtime says.
        listed: fills in what the runtime left out.
        message: in place of the runtime's message.
    """
    attempt = status.metadata.attempt if status.metadata is not None else listed.attempt
    return ContainerRuntimeStatus(
        id=listed.id,
        name=listed.name,
        state=container_state(status.state),
        sandbox_id=listed.sandbox_id,
        attempt=attempt,
        created_at=status.created_at,
        started_at=status.started_at,
        finished_at=status.finished_at,
        exit_code=status.exit_code,
        reason=status.reason,
        message=status.message if message is None else message,
        image=(status.image.image if status.image is not None else "") or listed.image,
        image_id=status.image_id,
        image_ref=status.image_ref,
        hash=status.annotations.get(HASH_ANNOTATION, listed.hash),
        restart_count=_restart_count(status.annotations, attempt),
        log_path=status.log_path,
        annotations=status.annotations,
        user=_user(status.user),
        recursive_read_only=tuple(m.container_path for m in status.mounts if m.recursive_read_only),
    )


def _user(user: v1.ContainerUser | None) -> ContainerUser | None:
    who = user.linux if user is not None else None
    if who is None:
        return None
    groups = tuple(who.supplemental_groups)
    return ContainerUser(
        linux=LinuxContainerUser(uid=who.uid, gid=who.gid, supplemental_groups=groups)
    )


def container_state(state: v1.ContainerState) -> ContainerState:
    """The state; one that nobody knows is UNKNOWN."""
    return _CONTAINER_STATES.get(int(state), ContainerState.UNKNOWN)


def sandbox_state(state: v1.PodSandboxState) -> SandboxState:
    """The state; one that nobody knows is not ready."""
    # A sandbox that is anything but ready cannot hold running containers.
    ready = int(state) == v1.PodSandboxState.SANDBOX_READY.value
    return SandboxState.READY if ready else SandboxState.NOT_READY


def _restart_count(annotations: Mapping[str, str], attempt: int) -> int:
    text = annotations.get(RESTART_COUNT_ANNOTATION, "")
    # Longer numbers are nobody's restart count.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else attempt


def _ips(network: v1.PodSandboxNetworkStatus | None) -> tuple[str, ...]:
    if network is None:
        return ()
    given = (network.ip, *(further.ip for further in network.additional_ips))
    return tuple(ip for ip in given if _is_ip(ip))


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
