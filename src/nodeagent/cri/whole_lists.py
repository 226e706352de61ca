"""Lists of everything on large nodes, where one answer may be more than the runtime sends.

docs/behaviour/pleg.md, "Large nodes". containerd refuses to send messages of more than 16 MiB,
which some ten thousand dead containers come to. Such a list is fetched as a stream where the
runtime has that, else state by state, and dead ones at worst pod by pod.
"""

from __future__ import annotations

import enum
import math
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import anyio

from nodeagent.cri import methods
from nodeagent.cri.methods import Method
from nodeagent.log import Log
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Message, ResourceExhausted, RpcError, Unimplemented

if TYPE_CHECKING:
    from nodeagent.cri.caller import Caller
    from nodeagent.cri.interned import InternTable

log = Log("cri.lists")

UID_LABEL: Final = "io.kubernetes.pod.uid"
_TOO_LARGE: Final = "larger than max"
_PROBE_PERIOD: Final = 600.0
"""Seconds until the plain list is tried again after it was too large."""
_CHECKED: Final = 50
"""Items that are missing from parts and are asked for by id before they count as gone."""
_REFRESHED: Final = 50
"""Pods with nothing but dead containers whose list is fetched anew with each whole list."""


class Way(enum.Enum):
    """How a whole list is fetched; each when the one before does not do."""

    PLAIN = "one list"
    STREAM = "a stream"
    BY_STATE = "lists by state"
    BY_POD = "lists by state and pod"


_WAYS: Final = tuple(Way)


class Listed(Message, Protocol):
    """What the items of both lists have."""

    id: str
    labels: dict[str, str]


Item = TypeVar("Item", bound=Listed)


@dataclass(frozen=True, slots=True)
class ListKind(Generic[Item]):
    """What differs between sandboxes and containers.

    Attributes:
        name: for logs.
        plain: the call for one list.
        stream: the call for a stream.
        request: the request of the plain call, given a filter or None.
        stream_request: the request of the stream.
        living: a filter for each state but the last, in the order of life: what goes on to the
            next state between two lists is found twice rather than not at all.
        dead: the filter of what has ended; the one of which there may be too many.
        dead_of: the same for one pod.
        by_id: a filter for one item.
    """

    name: str
    plain: Method
    stream: Method
    request: Callable[[Any], Message]
    stream_request: Callable[[], Message]
    living: Sequence[Any]
    dead: Any
    dead_of: Callable[[str], Any]
    by_id: Callable[[str], Any]


def _sandboxes_in(state: v1.PodSandboxState, uid: str = "") -> v1.PodSandboxFilter:
    labels: dict[str, str] = {UID_LABEL: uid} if uid else {}
    value = v1.PodSandboxStateValue(state=state)
    return v1.PodSandboxFilter(state=value, label_selector=labels)


def _containers_in(state: v1.ContainerState, uid: str = "") -> v1.ContainerFilter:
    labels: dict[str, str] = {UID_LABEL: uid} if uid else {}
    value = v1.ContainerStateValue(state=state)
    return v1.ContainerFilter(state=value, label_selector=labels)


SANDBOXES: Final[ListKind[v1.PodSandbox]] = ListKind(
    name="sandboxes",
    plain=methods.LIST_POD_SANDBOX,
    stream=methods.STREAM_POD_SANDBOXES,
    request=lambda where: v1.ListPodSandboxRequest(filter=where),
    stream_request=v1.StreamPodSandboxesRequest,
    living=(_sandboxes_in(v1.PodSandboxState.SANDBOX_READY),),
    dead=_sandboxes_in(v1.PodSandboxState.SANDBOX_NOTREADY),
    dead_of=lambda uid: _sandboxes_in(v1.PodSandboxState.SANDBOX_NOTREADY, uid),
    by_id=lambda id_: v1.PodSandboxFilter(id=id_),
)
CONTAINERS: Final[ListKind[v1.Container]] = ListKind(
    name="containers",
    plain=methods.LIST_CONTAINERS,
    stream=methods.STREAM_CONTAINERS,
    request=lambda where: v1.ListContainersRequest(filter=where),
    stream_request=v1.StreamContainersRequest,
    living=(
        _containers_in(v1.ContainerState.CONTAINER_CREATED),
        _containers_in(v1.ContainerState.CONTAINER_RUNNING),
        _containers_in(v1.ContainerState.CONTAINER_UNKNOWN),
    ),
    dead=_containers_in(v1.ContainerState.CONTAINER_EXITED),
    dead_of=lambda uid: _containers_in(v1.ContainerState.CONTAINER_EXITED, uid),
    by_id=lambda id_: v1.ContainerFilter(id=id_),
)


class WholeList(Generic[Item]):
    """The list of all sandboxes, or of all containers.

    Args:
        kind: which of the two.
        caller: makes the calls.
        table: decodes the lists.
        pods: further pods of which there may be something, for lists by pod.

    Attributes:
        way: how the last list was fetched.
    """

    def __init__(
        self,
        kind: ListKind[Item],
        caller: Caller,
        table: InternTable[Item],
        pods: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self.way = Way.PLAIN
        self._kind = kind
        self._caller = caller
        self._table = table
        self._pods = pods
        self._probe_at = math.inf
        self._last: tuple[Item, ...] = ()
        self._dead: dict[str, bytes] = {}

    @property
    def uids(self) -> set[str]:
        """The pods of the last list."""
        return {uid for item in self._last if (uid := item.labels.get(UID_LABEL))}

    def refresh(self, uid: str) -> None:
        """Fetch what is dead of a pod anew with the next list, if it is fetched pod by pod."""
        self._dead.pop(uid, None)

    async def fetch(self) -> tuple[Item, ...]:
        """Everything there is, in no order.

        Raises:
            RpcError: the runtime did not answer, or has no way to tell so much.
        """
        way = self.way
        if anyio.current_time() >= self._probe_at:
            way, self._probe_at = Way.PLAIN, math.inf
        while True:
            try:
                items = await self._by(way)
            except RpcError as error:
                if way is _WAYS[-1] or not _does_not_do(way, error):
                    raise
                self._note(way, error)
                way = _WAYS[_WAYS.index(way) + 1]
                continue
            if way is not Way.PLAIN and self._probe_at == math.inf:
                self._probe_at = anyio.current_time() + _PROBE_PERIOD
            if way is not self.way:
                log.info("list_fetched", what=self._kind.name, by=way.value, items=len(items))
            self.way = way
            return items

    def _note(self, way: Way, error: RpcError) -> None:
        if way is self.way:
            log.warning(
                "list_too_large", what=self._kind.name, by=way.value, cause=error.message,
                remedy="remove dead containers, or let the garbage collection do it",
            )  # fmt: skip

    async def _by(self, way: Way) -> tuple[Item, ...]:
        kind, table = self._kind, self._table
        if way is Way.PLAIN:
            items = await self._caller.fetch(kind.plain, kind.request(None), table.decode)
        elif way is Way.STREAM:
            items = await self._caller.collect(kind.stream, kind.stream_request(), table.decode)
        else:
            parts = [part async for part in self._parts(way)]
            items = table.decode(b"".join(parts))
            found = {item.id: item for item in items}  # of a change meanwhile the later counts
            items = tuple((await self._with_missing(found)).values())
        if way is not Way.BY_POD:
            self._dead.clear()
        self._last = items
        return items

    async def _parts(self, way: Way) -> AsyncIterator[bytes]:
        kind = self._kind
        for where in kind.living:
            yield await self._part(where)
        if way is Way.BY_STATE:
            yield await self._part(kind.dead)
            return
        # What is dead changes only by removal, so not each pod is asked about each time.
        uids = sorted({*self.uids, *self._pods()})
        known = {uid: self._dead[uid] for uid in self._dead if uid in uids}
        for uid in [*(uid for uid in uids if uid not in known), *list(known)[:_REFRESHED]]:
            known.pop(uid, None)  # it goes to the end of the queue
            known[uid] = await self._part(kind.dead_of(uid))
        self._dead = known
        for part in known.values():
            yield part

    async def _part(self, where: Any) -> bytes:
        return await self._caller.fetch(self._kind.plain, self._kind.request(where), bytes)

    async def _with_missing(self, found: dict[str, Item]) -> dict[str, Item]:
        """Lists that are fetched in parts may miss what moves between states: ask for it."""
        missing = [item for item in self._last if item.id not in found]
        for before in missing[:_CHECKED]:
            data = await self._part(self._kind.by_id(before.id))
            items = self._table.decode(data, remember=False)
            found.update((item.id, item) for item in items if item.id == before.id)
            self.refresh(before.labels.get(UID_LABEL, ""))
        # Too many at once: they stay as they were until it is their turn.
        found.update((item.id, item) for item in missing[_CHECKED:])
        return found


def _does_not_do(way: Way, error: RpcError) -> bool:
    if way is Way.STREAM and isinstance(error, Unimplemented):
        return True
    return isinstance(error, ResourceExhausted) or _TOO_LARGE in error.message
