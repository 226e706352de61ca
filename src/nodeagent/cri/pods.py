"""Pods as the runtime shows them: two lists put together, and the details of one pod.

Everything is taken from the labels and annotations that we put on sandboxes and containers;
what carries no pod UID label is not ours and is passed over (docs/behaviour/pleg.md,
"What a look sees").
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from nodeagent.cri.termination import final_message
from nodeagent.model import (
    ContainerID,
    ContainerRuntimeStatus,
    ContainerState,
    PodRuntimeStatus,
    PodUID,
    RuntimeContainer,
    RuntimePod,
    RuntimeSandbox,
    SandboxID,
    SandboxRuntimeStatus,
    SandboxState,
)
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Internal, NotFound

POD_UID_LABEL: Final = "io.kubernetes.pod.uid"
POD_NAME_LABEL: Final = "io.kubernetes.pod.name"
POD_NAMESPACE_LABEL: Final = "io.kubernetes.pod.namespace"
CONTAINER_NAME_LABEL: Final = "io.kubernetes.container.name"
HASH_ANNOTATION: Final = "io.kubernetes.container.hash"
RESTART_COUNT_ANNOTATION: Final = "io.kubernetes.container.restartCount"

OnCall: TypeAlias = Callable[[str], None]
"""Is told the name of each runtime call just before it is made."""

_CONTAINER_STATES: Final[Mapping[int, ContainerState]] = MappingProxyType(
    {
        v1.ContainerState.CONTAINER_CREATED.value: ContainerState.CREATED,
        v1.ContainerState.CONTAINER_RUNNING.value: ContainerState.RUNNING,
        v1.ContainerState.CONTAINER_EXITED.value: ContainerState.EXITED,
        v1.ContainerState.CONTAINER_UNKNOWN.value: ContainerState.UNKNOWN,
    }
)


class PodRuntime(Protocol):
    """What looking at pods needs of :class:`nodeagent.cri.RuntimeService`."""

    async def list_pod_sandbox(
        self, where: v1.PodSandboxFilter | None = None
    ) -> Sequence[v1.PodSandbox]:
        """List the sandboxes that match, all of them by default."""
        ...

    async def list_containers(
        self, where: v1.ContainerFilter | None = None
    ) -> Sequence[v1.Container]:
        """List the containers that match, all of them by default."""
        ...

    async def pod_sandbox_status(self, pod_sandbox_id: str) -> v1.PodSandboxStatusResponse:
        """Describe one sandbox. Raises NotFound."""
        ...

    async def container_status(self, container_id: str) -> v1.ContainerStatusResponse:
        """Describe one container. Raises NotFound."""
        ...


@dataclass(frozen=True, slots=True)
class _Part:
    """One list item, kept so that its id stays its own, and what it says. No UID: not ours."""

    item: v1.PodSandbox | v1.Container
    uid: PodUID | None
    name: str
    namespace: str
    value: RuntimeSandbox | RuntimeContainer


def _silent(_rpc: str) -> None:
    return


class PodLister:
    """Looks at the pods of one runtime; remembers its last look at all of them.

    Args:
        runtime: lists are best interned, so that an unchanged item is the same object.
    """

    def __init__(self, runtime: PodRuntime) -> None:
        self._runtime = runtime
        self._parts: dict[int, _Part] = {}
        self._pods: Mapping[PodUID, RuntimePod] = MappingProxyType({})

    async def list_pods(self, on_call: OnCall = _silent) -> Mapping[PodUID, RuntimePod]:
        """Look at all pods.

        Returns:
            The same mapping as last time when nothing changed, whatever the order of the
            runtime's answers; else a new one, with the same object for each unchanged pod.

        Raises:
            RpcError: a list call failed.
        """
        on_call("ListPodSandbox")
        sandboxes = await self._runtime.list_pod_sandbox()
        on_call("ListContainers")
        containers = await self._runtime.list_containers()
        ids = {id(item) for item in sandboxes}
        ids.update(id(item) for item in containers)
        if ids != self._parts.keys():
            self._learn(sandboxes, containers)
        return self._pods

    async def get_pod(self, uid: PodUID, on_call: OnCall = _silent) -> RuntimePod | None:
        """Look at one pod; None when the runtime has nothing of it.

        Raises:
            RpcError: a list call failed.
        """
        labels: dict[str, str] = {POD_UID_LABEL: uid}
        on_call("ListPodSandbox")
        sandboxes = await self._runtime.list_pod_sandbox(v1.PodSandboxFilter(label_selector=labels))
        on_call("ListContainers")
        containers = await self._runtime.list_containers(v1.ContainerFilter(label_selector=labels))
        parts = [part for part in self._convert(sandboxes, containers).values() if part.uid == uid]
        pod = _assemble(uid, parts)
        known = self._pods.get(uid)
        return known if pod == known else pod

    async def inspect(self, pod: RuntimePod, on_call: OnCall = _silent) -> PodRuntimeStatus:
        """Ask for the details of everything that the pod has; what is gone is left out.

        Raises:
            RpcError: a status call failed otherwise than by NotFound.
        """
        sandboxes = []
        for sandbox in pod.sandboxes:
            on_call("PodSandboxStatus")
            try:
                response = await self._runtime.pod_sandbox_status(sandbox.id)
            except NotFound:
                continue
            if response.status is None:
                msg = f"sandbox {sandbox.id}: an answer without a status"
                raise Internal(msg, "PodSandboxStatus")
            sandboxes.append(sandbox_status(response.status, sandbox))
        containers = []
        for container in pod.containers:
            on_call("ContainerStatus")
            try:
                answer = await self._runtime.container_status(container.id)
            except NotFound:
                continue
            if answer.status is None:
                msg = f"container {container.id}: an answer without a status"
                raise Internal(msg, "ContainerStatus")
            words = await final_message(answer.status)
            containers.append(container_status(answer.status, container, words))
        newest = sandboxes[0] if sandboxes else None
        return PodRuntimeStatus(
            uid=pod.uid,
            name=pod.name,
            namespace=pod.namespace,
            ips=newest.ips if newest and newest.state is SandboxState.READY else (),
            sandboxes=tuple(sandboxes),
            containers=tuple(containers),
        )

    def _learn(
        self, sandboxes: Iterable[v1.PodSandbox], containers: Iterable[v1.Container]
    ) -> None:
        before, after = self._parts, self._convert(sandboxes, containers)
        touched = {part.uid for key, part in after.items() if key not in before}
        touched |= {part.uid for key, part in before.items() if key not in after}
        touched.discard(None)
        members: dict[PodUID, list[_Part]] = {uid: [] for uid in touched if uid is not None}
        for part in after.values():
            if part.uid in members:
                members[part.uid].append(part)
        self._parts = after
        pods = dict(self._pods)
        for uid, parts in members.items():
            pod = _assemble(uid, parts)
            if pod is None:
                pods.pop(uid, None)
            elif pod != pods.get(uid):
                pods[uid] = pod
        # Equal pods were not replaced above, so this compares by identity and is quick.
        if pods != self._pods:
            self._pods = MappingProxyType(pods)

    def _convert(
        self, sandboxes: Iterable[v1.PodSandbox], containers: Iterable[v1.Container]
    ) -> dict[int, _Part]:
        known = self._parts
        parts = {id(item): known.get(id(item)) or _sandbox_part(item) for item in sandboxes}
        parts.update((id(c), known.get(id(c)) or _container_part(c)) for c in containers)
        return parts


def _assemble(uid: PodUID, parts: Sequence[_Part]) -> RuntimePod | None:
    """Put the sandboxes and containers of one pod together, newest first."""
    if not parts:
        return None
    sandboxes = [part.value for part in parts if isinstance(part.value, RuntimeSandbox)]
    containers = [part.value for part in parts if isinstance(part.value, RuntimeContainer)]
    named = max(parts, key=lambda part: (isinstance(part.value, RuntimeSandbox), part.value.id))
    return RuntimePod(
        uid=uid,
        name=named.name,
        namespace=named.namespace,
        sandboxes=tuple(sorted(sandboxes, key=newest_first)),
        containers=tuple(sorted(containers, key=newest_first)),
    )


def newest_first(item: RuntimeSandbox | RuntimeContainer) -> tuple[int, int, str]:
    """Sort key: attempts decide, then creation times, of which some runtimes give none."""
    return -item.attempt, -item.created_at, item.id


def _sandbox_part(item: v1.PodSandbox) -> _Part:
    return _Part(item, *_owner(item.labels), runtime_sandbox(item))


def _container_part(item: v1.Container) -> _Part:
    return _Part(item, *_owner(item.labels), runtime_container(item))


def _owner(labels: Mapping[str, str]) -> tuple[PodUID | None, str, str]:
    uid = labels.get(POD_UID_LABEL)
    name, namespace = labels.get(POD_NAME_LABEL, ""), labels.get(POD_NAMESPACE_LABEL, "")
    return PodUID(uid) if uid else None, name, namespace


def runtime_sandbox(item: v1.PodSandbox) -> RuntimeSandbox:
    """A sandbox from a list."""
    return RuntimeSandbox(
        id=SandboxID(item.id),
        attempt=item.metadata.attempt if item.metadata else 0,
        state=_sandbox_state(item.state),
        created_at=item.created_at,
    )


def runtime_container(item: v1.Container) -> RuntimeContainer:
    """A container from a list."""
    return RuntimeContainer(
        id=ContainerID(item.id),
        name=item.labels.get(CONTAINER_NAME_LABEL) or (item.metadata.name if item.metadata else ""),
        attempt=item.metadata.attempt if item.metadata else 0,
        state=_container_state(item.state),
        sandbox_id=SandboxID(item.pod_sandbox_id),
        created_at=item.created_at,
        image=item.image.image if item.image else "",
        image_ref=item.image_ref,
        hash=item.annotations.get(HASH_ANNOTATION, ""),
    )


def sandbox_status(status: v1.PodSandboxStatus, listed: RuntimeSandbox) -> SandboxRuntimeStatus:
    """The details of a sandbox; ``listed`` fills in what the runtime left out."""
    options = status.linux.namespaces.options if status.linux and status.linux.namespaces else None
    return SandboxRuntimeStatus(
        id=listed.id,
        attempt=status.metadata.attempt if status.metadata else listed.attempt,
        state=_sandbox_state(status.state),
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
    attempt = status.metadata.attempt if status.metadata else listed.attempt
    return ContainerRuntimeStatus(
        id=listed.id,
        name=listed.name,
        state=_container_state(status.state),
        sandbox_id=listed.sandbox_id,
        attempt=attempt,
        created_at=status.created_at,
        started_at=status.started_at,
        finished_at=status.finished_at,
        exit_code=status.exit_code,
        reason=status.reason,
        message=status.message if message is None else message,
        image=status.image.image if status.image else listed.image,
        image_id=status.image_id,
        image_ref=status.image_ref,
        hash=status.annotations.get(HASH_ANNOTATION, listed.hash),
        restart_count=_restart_count(status.annotations, attempt),
        log_path=status.log_path,
        annotations=status.annotations,
    )


def _container_state(state: v1.ContainerState) -> ContainerState:
    return _CONTAINER_STATES.get(int(state), ContainerState.UNKNOWN)


def _sandbox_state(state: v1.PodSandboxState) -> SandboxState:
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
