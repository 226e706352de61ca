"""Pods as the runtime shows them: two lists put together, and the details of one pod.

Everything is taken from the labels and annotations that we put on sandboxes and containers;
what carries no pod UID label is not ours and is passed over (docs/behaviour/pleg.md,
"What a look sees").
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

import anyio

from nodeagent.aio import side_by_side
from nodeagent.cri.inspection import (
    AT_ONCE,
    HASH_ANNOTATION,
    CallWatch,
    EndSeen,
    Inspector,
    StatusRuntime,
    container_state,
    sandbox_state,
    unwatched,
)
from nodeagent.model import (
    ContainerID,
    PodRuntimeStatus,
    PodUID,
    RuntimeContainer,
    RuntimePod,
    RuntimeSandbox,
    SandboxID,
)
from nodeagent.proto.runtime import v1
from nodeagent.rpc import RpcError

POD_UID_LABEL: Final = "io.kubernetes.pod.uid"
POD_NAME_LABEL: Final = "io.kubernetes.pod.name"
POD_NAMESPACE_LABEL: Final = "io.kubernetes.pod.namespace"
CONTAINER_NAME_LABEL: Final = "io.kubernetes.container.name"


class PodRuntime(StatusRuntime, Protocol):
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


@dataclass(frozen=True, slots=True)
class _Part:
    """One list item, kept so that its id stays its own, and what it says. No UID: not ours."""

    item: v1.PodSandbox | v1.Container
    uid: PodUID | None
    name: str
    namespace: str
    value: RuntimeSandbox | RuntimeContainer


_FEW: Final = 1
"""Pods that are looked at one by one."""
_NOT_LARGE: Final = 400
"""Sandboxes and containers that are listed together with those that were asked for."""
_PATIENCE: Final = 2.0
"""Seconds after which a pod is looked at alone all the same."""


class _Together:
    """One look at all pods for everyone who has asked before it began.

    Args:
        look: looks at all pods.
    """

    def __init__(self, look: Callable[[], Awaitable[Mapping[PodUID, RuntimePod]]]) -> None:
        self._look = look
        self._next: _Look | None = None
        self._looking = anyio.Lock()

    async def look(self) -> Mapping[PodUID, RuntimePod] | None:
        """What a look finds that begins from now on; None when whoever took it was cancelled.

        Raises:
            RpcError: a list call failed.
        """
        look = self._next
        if look is not None:
            await look.over.wait()
            if look.error is not None:
                raise type(look.error)(look.error.message, look.error.method)
            return look.found
        look = self._next = _Look()
        try:
            async with self._looking:
                self._next = None
                look.found = await self._look()
        except RpcError as error:
            look.error = error
            raise
        finally:
            if self._next is look:
                self._next = None
            look.over.set()
        return look.found


@dataclass(slots=True)
class _Look:
    over: anyio.Event = field(default_factory=anyio.Event)
    found: Mapping[PodUID, RuntimePod] | None = None
    error: RpcError | None = None


class PodLister:
    """Looks at the pods of one runtime; remembers its last look at all of them.

    Args:
        runtime: lists are best interned, so that an unchanged item is the same object.
    """

    def __init__(self, runtime: PodRuntime) -> None:
        self._runtime = runtime
        self._inspector = Inspector(runtime)
        self._parts: dict[int, _Part] = {}
        self._pods: Mapping[PodUID, RuntimePod] = MappingProxyType({})
        self._alone = 0
        self._together = _Together(self.list_pods)

    async def list_pods(self, watch: CallWatch = unwatched) -> Mapping[PodUID, RuntimePod]:
        """Look at all pods.

        Returns:
            The same mapping as last time when nothing changed, whatever the order of the
            runtime's answers; else a new one, with the same object for each unchanged pod.

        Raises:
            RpcError: a list call failed.
        """
        sandboxes, containers = await self._lists(watch)
        ids = {id(item) for item in sandboxes}
        ids.update(id(item) for item in containers)
        if ids != self._parts.keys():
            self._learn(sandboxes, containers)
        return self._pods

    async def get_pod(self, uid: PodUID, watch: CallWatch = unwatched) -> RuntimePod | None:
        """Look at one pod; None when the runtime has nothing of it.

        While several pods are looked at, those who come look at all pods together: two lists
        of a node that is not large cost less than two of each.

        Raises:
            RpcError: a list call failed.
        """
        if self._alone >= _FEW and len(self._parts) <= _NOT_LARGE:
            together: Mapping[PodUID, RuntimePod] | None = None
            with watch("ListContainers"), anyio.move_on_after(_PATIENCE):
                together = await self._together.look()
            if together is not None:
                return together.get(uid)
        self._alone += 1
        try:
            return await self._get_alone(uid, watch)
        finally:
            self._alone -= 1

    async def _get_alone(self, uid: PodUID, watch: CallWatch) -> RuntimePod | None:
        sandboxes, containers = await self._lists(watch, {POD_UID_LABEL: uid})
        parts = [part for part in self._convert(sandboxes, containers).values() if part.uid == uid]
        pod = _assemble(uid, parts)
        known = self._pods.get(uid)
        return known if pod == known else pod

    async def _lists(
        self, watch: CallWatch, labels: dict[str, str] | None = None
    ) -> tuple[Sequence[v1.PodSandbox], Sequence[v1.Container]]:
        """Both lists, asked for in one go: of all, or of those with these labels."""
        sandboxes: Sequence[v1.PodSandbox] = ()
        containers: Sequence[v1.Container] = ()

        async def list_sandboxes() -> None:
            nonlocal sandboxes
            with watch("ListPodSandbox"):
                where = v1.PodSandboxFilter(label_selector=labels) if labels else None
                sandboxes = await self._runtime.list_pod_sandbox(where)

        async def list_containers() -> None:
            nonlocal containers
            with watch("ListContainers"):
                where = v1.ContainerFilter(label_selector=labels) if labels else None
                containers = await self._runtime.list_containers(where)

        await side_by_side([list_sandboxes, list_containers])
        return sandboxes, containers

    async def inspect(
        self,
        pod: RuntimePod,
        watch: CallWatch = unwatched,
        known: PodRuntimeStatus | None = None,
        at_once: int = AT_ONCE,
    ) -> PodRuntimeStatus:
        """See :meth:`nodeagent.cri.inspection.Inspector.inspect`."""
        return await self._inspector.inspect(pod, watch, known, at_once)

    async def end_of(
        self, pod: RuntimePod, id_: str, watch: CallWatch = unwatched
    ) -> EndSeen | None:
        """See :meth:`nodeagent.cri.inspection.Inspector.end_of`."""
        return await self._inspector.end_of(pod, id_, watch)

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
        attempt=item.metadata.attempt if item.metadata is not None else 0,
        state=sandbox_state(item.state),
        created_at=item.created_at,
    )


def runtime_container(item: v1.Container) -> RuntimeContainer:
    """A container from a list."""
    return RuntimeContainer(
        id=ContainerID(item.id),
        name=item.labels.get(CONTAINER_NAME_LABEL)
        or (item.metadata.name if item.metadata is not None else ""),
        attempt=item.metadata.attempt if item.metadata is not None else 0,
        state=container_state(item.state),
        sandbox_id=SandboxID(item.pod_sandbox_id),
        created_at=item.created_at,
        image=item.image.image if item.image is not None else "",
        image_ref=item.image_ref,
        hash=item.annotations.get(HASH_ANNOTATION, ""),
    )
