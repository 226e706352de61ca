"""What `/pods` says, reduced to what the tests look at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container status.

    Attributes:
        id: the runtime's id, without the ``containerd://`` in front; empty when there is none.
        state: ``running``, ``waiting``, ``terminated``, or empty.
        reason: of the state.
        message: of the state.
        last_exit_code: of the previous run, None when there was none.
        exit_code: of this run, None while it has not ended.
        started: when this run began, in whole seconds; empty while it has not.
        finished: when it ended.
        last_reason: how the previous run ended.
    """

    id: str
    state: str
    reason: str
    message: str
    ready: bool
    restarts: int
    image: str
    last_exit_code: int | None
    exit_code: int | None = None
    started: str = ""
    finished: str = ""
    last_reason: str = ""


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod with its status; ``why`` is every reason and message in it, joined."""

    name: str
    uid: str
    phase: str
    pod_ip: str
    containers: Mapping[str, ContainerView]
    conditions: Mapping[str, str]
    why: str = field(repr=False)
    inits: Mapping[str, ContainerView] = field(default_factory=dict)

    @property
    def running(self) -> bool:
        """Whether the pod and all its containers run and are ready."""
        views = self.containers.values()
        up = all(view.state == "running" and view.ready for view in views)
        return self.phase == "Running" and bool(views) and up

    def container(self, name: str = "main") -> ContainerView:
        """The status of one container; empty while there is none."""
        return self.containers.get(name, _NO_CONTAINER)

    def init(self, name: str) -> ContainerView:
        """The status of one init container; empty while there is none."""
        return self.inits.get(name, _NO_CONTAINER)


_NO_CONTAINER = ContainerView(
    "", "", "", "", ready=False, restarts=0, image="", last_exit_code=None
)


def pod_view(pod: Mapping[str, Any]) -> PodView:
    """The view of one item of a PodList."""
    status = pod.get("status", {})
    statuses = status.get("containerStatuses") or []
    inits = status.get("initContainerStatuses") or []
    conditions = status.get("conditions") or []
    texts = [status, *conditions, *(_state(item)[1] for item in (*inits, *statuses))]
    return PodView(
        name=pod["metadata"]["name"],
        uid=pod["metadata"].get("uid", ""),
        phase=status.get("phase", ""),
        pod_ip=status.get("podIP", ""),
        containers={item["name"]: _container_view(item) for item in statuses},
        conditions={item["type"]: item["status"] for item in conditions},
        inits={item["name"]: _container_view(item) for item in inits},
        why="\n".join(f"{text.get('reason', '')}: {text.get('message', '')}" for text in texts),
    )


def _container_view(item: Mapping[str, Any]) -> ContainerView:
    state, detail = _state(item)
    last = (item.get("lastState") or {}).get("terminated")
    return ContainerView(
        id=item.get("containerID", "").rpartition("//")[2],
        state=state,
        reason=detail.get("reason", ""),
        message=detail.get("message", ""),
        ready=item.get("ready", False),
        restarts=item.get("restartCount", 0),
        image=item.get("image", ""),
        last_exit_code=None if last is None else last.get("exitCode", 0),
        exit_code=detail.get("exitCode", 0) if state == "terminated" else None,
        started=detail.get("startedAt") or "",
        finished=detail.get("finishedAt") or "",
        last_reason=(last or {}).get("reason", ""),
    )


def _state(item: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    state = item.get("state") or {}
    return next(((name, detail or {}) for name, detail in state.items()), ("", {}))
