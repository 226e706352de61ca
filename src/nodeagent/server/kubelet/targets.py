"""Which container, log or sandbox a request is about. No I/O.

docs/behaviour/server.md, "Container logs" and "Streams".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from nodeagent.api import Pod
from nodeagent.api.status import ContainerStatus, PodStatus
from nodeagent.model import (
    ContainerRuntimeStatus,
    ContainerState,
    PodRuntimeStatus,
    PodUID,
    SandboxState,
)
from nodeagent.model.runtime import SandboxRuntimeStatus

_PULL_FAILED = "ErrImagePull"
_PULL_WAITS = "ImagePullBackOff"


class Pods(Protocol):
    """The pods of the node, as the server needs to know them."""

    def find(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name with its present status; a static pod for its mirror's name."""
        ...

    def all(self) -> list[Pod]:
        """All pods, with their present status."""
        ...

    def at_runtime(self, uid: PodUID) -> PodRuntimeStatus:
        """What the runtime has of a pod, as it was last looked at."""
        ...

    def translate(self, uid: PodUID) -> PodUID:
        """The UID of the static pod for its mirror's; others as they are."""
        ...


class NoLogError(Exception):
    """There is no such log; says why, as the kubelet does."""


def has_container(pod: Pod, name: str) -> bool:
    """Whether the pod's spec has a container of that name, of any kind."""
    spec = pod.spec
    kinds = (spec.containers, spec.init_containers, spec.ephemeral_containers)
    return any(container.name == name for kind in kinds for container in kind)


def log_container(pod: Pod, name: str, *, previous: bool) -> str:
    """The id of the container whose log is wanted, without the runtime's name before it.

    Raises:
        NoLogError: there is none.
    """
    where = f'container "{name}" in pod "{pod.metadata.name}"'
    status = next((s for s in _statuses(pod.status) if s.name == name), None)
    if status is None:
        msg = f"{where} is not available"
        raise NoLogError(msg)
    last = status.last_state.terminated
    if previous:
        if last is None or not last.container_id:
            msg = f"previous terminated {where} not found"
            raise NoLogError(msg)
        return _bare(last.container_id)
    if status.state.running is not None:
        return _bare(status.container_id)
    ended = status.state.terminated
    for found in (ended, last):
        if found is not None and found.container_id:
            return _bare(found.container_id)
    if ended is not None or last is not None:
        msg = f"{where} is terminated"
        raise NoLogError(msg)
    msg = f"{where} is waiting to start{_why(status)}"
    raise NoLogError(msg)


def _why(status: ContainerStatus) -> str:
    waiting = status.state.waiting
    if waiting is None:
        return " - no logs yet"
    if waiting.reason == _PULL_FAILED:
        return ": image can't be pulled"
    if waiting.reason == _PULL_WAITS:
        return ": trying and failing to pull image"
    return f": {waiting.reason}"


def _statuses(status: PodStatus) -> Iterator[ContainerStatus]:
    yield from status.container_statuses
    yield from status.init_container_statuses
    yield from status.ephemeral_container_statuses


def _bare(container_id: str) -> str:
    return container_id.rpartition("://")[2]


def running_container(record: PodRuntimeStatus, name: str) -> ContainerRuntimeStatus | None:
    """The newest running container of that name."""
    wanted = (ContainerState.RUNNING,)
    return next((c for c in record.containers if c.name == name and c.state in wanted), None)


def ready_sandbox(record: PodRuntimeStatus) -> SandboxRuntimeStatus | None:
    """The sandbox that is in use."""
    return next((s for s in record.sandboxes if s.state is SandboxState.READY), None)
