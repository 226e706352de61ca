"""What pod workers are told, and how two things told merge into one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from nodeagent.api import Pod
from nodeagent.model import FullName, PodUID, RuntimePod, UpdateType, full_name
from nodeagent.pods.manager import pod_full_name, pod_uid
from nodeagent.pods.protocols import StatusFn
from nodeagent.pods.status import is_static

Completion: TypeAlias = Callable[[], None]
"""Called once, when a killed pod no longer runs. Must not block."""

_STRENGTH: Final = {
    UpdateType.SYNC: 0,
    UpdateType.UPDATE: 1,
    UpdateType.CREATE: 2,
    UpdateType.KILL: 3,
}


@dataclass(frozen=True, slots=True)
class KillOptions:
    """How to kill a pod.

    Attributes:
        completed: called when the pod's containers have ended.
        evict: the node wants to be rid of the pod; its content may go at once.
        grace: seconds its containers get instead of what the pod says, if shorter.
        status_fn: changes the pod's status while it terminates; the last one counts.
    """

    completed: Completion | None = None
    evict: bool = False
    grace: int | None = None
    status_fn: StatusFn | None = None


@dataclass(frozen=True, slots=True)
class UpdatePodOptions:
    """One message to the worker of one pod.

    Attributes:
        update_type: why.
        pod: the pod as its source describes it.
        mirror: its mirror pod, when there is one.
        running: what the runtime runs under that UID, for a pod no source describes. Only
            a kill may come without ``pod``.
        kill: details of a kill.
        started_at: loop time at which the cause was noticed; None means now.
    """

    update_type: UpdateType
    pod: Pod | None = None
    mirror: Pod | None = None
    running: RuntimePod | None = None
    kill: KillOptions | None = None
    started_at: float | None = None

    def __post_init__(self) -> None:
        if self.pod is None and self.running is None:
            msg = "an update needs a pod, or the runtime's view of one"
            raise ValueError(msg)

    @property
    def uid(self) -> PodUID:
        """The UID of the pod that this is about."""
        if self.pod is not None:
            return pod_uid(self.pod)
        assert self.running is not None
        return self.running.uid

    @property
    def full_name(self) -> FullName:
        """The full name of the pod that this is about."""
        if self.pod is not None:
            return pod_full_name(self.pod)
        assert self.running is not None
        return full_name(self.running.name, self.running.namespace)

    @property
    def static(self) -> bool | None:
        """Whether the pod is static; None when only the runtime knows it."""
        return None if self.pod is None else is_static(self.pod)


@dataclass(frozen=True, slots=True)
class Work:
    """What lies in a worker's mailbox: the merge of all updates not yet taken."""

    update_type: UpdateType
    started_at: float
    pod: Pod | None = None
    mirror: Pod | None = None
    running: RuntimePod | None = None


def merge_work(pending: Work | None, new: Work) -> Work:
    """Put ``new`` into a mailbox that holds ``pending``; nothing anyone waits for is lost.

    The newest pod and mirror count, the oldest start time, and the strongest type: a kill
    beats a create beats an update beats a sync.
    """
    if pending is None:
        return new
    pod = new.pod if new.pod is not None else pending.pod
    stronger = max(pending, new, key=lambda w: _STRENGTH[w.update_type])
    return Work(
        update_type=stronger.update_type,
        started_at=min(pending.started_at, new.started_at),
        pod=pod,
        mirror=new.mirror if new.pod is not None else pending.mirror,
        running=None if pod is not None else new.running or pending.running,
    )


def remember_work(active: Work | None, taken: Work) -> Work:
    """What to replay later, once ``taken`` is in progress: it, with the last known mirror."""
    if active is None:
        return taken
    return Work(
        update_type=taken.update_type,
        started_at=taken.started_at,
        pod=taken.pod if taken.pod is not None else active.pod,
        mirror=taken.mirror if taken.mirror is not None else active.mirror,
        running=taken.running,
    )
