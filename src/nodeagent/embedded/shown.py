"""Answers that say something else about sandboxes and containers than what is so. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from nodeagent.proto.runtime import v1

if TYPE_CHECKING:
    from nodeagent.embedded.faults import Call

CONTAINER_STATES: Final[Mapping[str, v1.ContainerState]] = {
    state.name.removeprefix("CONTAINER_"): state for state in v1.ContainerState
}
"""``CREATED``, ``RUNNING``, ``EXITED``, ``UNKNOWN``."""

SHOWN_BY: Final = frozenset(
    {
        "ListContainers",
        "StreamContainers",
        "ListPodSandbox",
        "StreamPodSandboxes",
        "ContainerStatus",
        "PodSandboxStatus",
    }
)
"""Methods whose answers show sandboxes and containers."""

_NAME: Final = "io.kubernetes.pod.name"
_NAMESPACE: Final = "io.kubernetes.pod.namespace"
_UID: Final = "io.kubernetes.pod.uid"


@dataclass(frozen=True, slots=True)
class Show:
    """Show containers and sandboxes other than they are, in lists, status answers and events.

    Attributes:
        state: the state of containers: ``UNKNOWN``, ``CREATED``, ``RUNNING`` or ``EXITED``;
            empty for the true one.
        only: change only containers that truly are in this state; empty for all.
        flip: show the truth and ``state`` in turn, for so many seconds each; 0 for no truth.
        created_at, started_at, finished_at: wall times in nanoseconds, 0 for the zero value of
            the CRI, 1 for a moment of 1970; None for the true ones.
        hidden: leave them out of lists.
    """

    state: str = ""
    only: str = ""
    flip: float = 0.0
    created_at: int | None = None
    started_at: int | None = None
    finished_at: int | None = None
    hidden: bool = False

    def __post_init__(self) -> None:
        for name, value in (("state", self.state), ("only", self.only)):
            if value and value not in CONTAINER_STATES:
                msg = f"{name}: must be one of {', '.join(CONTAINER_STATES)}, is {value!r}"
                raise ValueError(msg)
        if self.flip < 0:
            msg = f"flip: must not be negative, is {self.flip:g}"
            raise ValueError(msg)

    def is_true(self, elapsed: float) -> bool:
        """Whether the true state is shown, ``elapsed`` seconds after the rule began."""
        return self.flip > 0 and int(elapsed / self.flip) % 2 == 0


@dataclass(frozen=True, slots=True)
class Subject:
    """What an item of an answer is about."""

    uid: str
    namespace: str
    pod: str
    container: str


Wanted = Callable[[Subject], bool]


def shown(show: Show, elapsed: float, call: Call, answer: Any, wanted: Wanted) -> Any:
    """The answer to show, the same object when nothing in it is changed.

    Args:
        show: what to change.
        elapsed: seconds since the rule began.
        call: what was asked.
        answer: the true answer.
        wanted: whether to change what an item is about.
    """
    match answer:
        case v1.ContainerStatusResponse(status=v1.ContainerStatus() as status):
            changed = _container(show, elapsed, status, wanted, call)
            return answer if changed is status else replace(answer, status=changed)
        case v1.PodSandboxStatusResponse(status=v1.PodSandboxStatus() as status):
            sandbox = _sandbox(show, status, wanted)
            return answer if sandbox is status else replace(answer, status=sandbox)
        case str() | bytes():
            return answer
        case Sequence():
            return _listed(show, elapsed, answer, wanted)
        case _:
            return answer


def shown_event(
    show: Show, elapsed: float, event: v1.ContainerEventResponse, wanted: Wanted
) -> v1.ContainerEventResponse:
    """The event to deliver."""
    sandbox = event.pod_sandbox_status
    return replace(
        event,
        pod_sandbox_status=_sandbox(show, sandbox, wanted) if sandbox else None,
        containers_statuses=[
            _container(show, elapsed, status, wanted) for status in event.containers_statuses
        ],
    )


def _listed(show: Show, elapsed: float, items: Sequence[Any], wanted: Wanted) -> Sequence[Any]:
    if show.hidden:
        return [item for item in items if not _wanted_item(item, wanted)]
    changed = [
        _container(show, elapsed, item, wanted)
        if isinstance(item, v1.Container)
        else _sandbox(show, item, wanted)
        if isinstance(item, v1.PodSandbox)
        else item
        for item in items
    ]
    return items if all(a is b for a, b in zip(items, changed, strict=True)) else changed


def _container(
    show: Show,
    elapsed: float,
    item: Any,
    wanted: Wanted,
    call: Call | None = None,
) -> Any:
    if not wanted(_about(item.labels, item.metadata.name if item.metadata else "", call)):
        return item
    if show.only and item.state is not CONTAINER_STATES[show.only]:
        return item
    changes: dict[str, Any] = _times(show, item)
    if show.state and not show.is_true(elapsed):
        changes["state"] = CONTAINER_STATES[show.state]
    return replace(item, **changes) if changes else item


def _sandbox(show: Show, item: Any, wanted: Wanted) -> Any:
    pod = item.metadata or v1.PodSandboxMetadata()
    if show.created_at is None or not wanted(Subject(pod.uid, pod.namespace, pod.name, "")):
        return item
    return replace(item, created_at=show.created_at)


def _times(show: Show, item: object) -> dict[str, Any]:
    asked = {
        "created_at": show.created_at,
        "started_at": show.started_at,
        "finished_at": show.finished_at,
    }
    return {name: at for name, at in asked.items() if at is not None and hasattr(item, name)}


def _wanted_item(item: Any, wanted: Wanted) -> bool:
    if isinstance(item, v1.Container):
        return wanted(_about(item.labels, item.metadata.name if item.metadata else ""))
    if isinstance(item, v1.PodSandbox):
        pod = item.metadata or v1.PodSandboxMetadata()
        return wanted(Subject(pod.uid, pod.namespace, pod.name, ""))
    return False


def _about(labels: Mapping[str, str], container: str, call: Call | None = None) -> Subject:
    uid, namespace, pod = (labels.get(key, "") for key in (_UID, _NAMESPACE, _NAME))
    if call is not None:
        uid, namespace, pod = call.pod_uid, call.namespace, call.pod_name
    return Subject(uid, namespace, pod, container)
