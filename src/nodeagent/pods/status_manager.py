"""Where the newest status of every pod lives.

Statuses carry a version that rises with every change, so that a writer (an API client) sends
each change at least once and in order. Without a writer the store serves ``/pods``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from nodeagent.api import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    PodStatus,
)
from nodeagent.clock import Clock
from nodeagent.log import Log
from nodeagent.model import PodUID
from nodeagent.model.restart import is_sidecar, may_restart_all, restartable
from nodeagent.pods.conditions import OWNED, find, readiness_conditions
from nodeagent.pods.container_statuses import (
    VANISHED_EXIT_CODE,
    VANISHED_REASON,
    VANISHED_TERMINATED,
    by_name,
    own_id,
)
from nodeagent.pods.manager import mirrors
from nodeagent.pods.phase import FAILED, TERMINAL
from nodeagent.pods.start_times import StartTimes
from nodeagent.pods.status import is_static

log = Log("status")

_MESSAGE_BUDGET: Final = 12288


@dataclass(frozen=True, slots=True)
class VersionedStatus:
    """A stored status.

    Attributes:
        status: the status.
        version: rises by one with every change.
        pod: the pod as it was then.
        finished: nothing of the pod runs any more, and all that it held is released.
    """

    status: PodStatus
    version: int
    pod: Pod
    finished: bool = False


class StatusManager:
    """Stores statuses; decides nothing but what a change is.

    Args:
        clock: wall clock, for transition and start times.
        changed: called with the pod's UID after every change.
        loop_time: monotonic seconds, for how long pods have been active.
        mirror_of: the API's copy of a static pod: it remembers since when things are as they are.
    """

    def __init__(
        self,
        clock: Clock,
        changed: Callable[[PodUID], None] | None = None,
        *,
        loop_time: Callable[[], float] = time.monotonic,
        mirror_of: Callable[[Pod], Pod | None] = lambda _pod: None,
    ) -> None:
        self._clock = clock
        self._mirror_of = mirror_of
        self.starts = StartTimes(clock, loop_time)
        """When pods became active."""
        self._changed = changed
        self._stored: dict[PodUID, VersionedStatus] = {}
        self.refused = 0
        """Status updates refused because a container would have come back to life."""

    def get(self, uid: PodUID) -> PodStatus | None:
        """The stored status."""
        stored = self._stored.get(uid)
        return stored.status if stored else None

    def versioned(self, uid: PodUID) -> VersionedStatus | None:
        """The stored status with its version."""
        return self._stored.get(uid)

    def __iter__(self) -> Iterator[PodUID]:
        return iter(tuple(self._stored))

    def set(self, pod: Pod, status: PodStatus) -> bool:
        """Store a status; False when nothing changed or the change was refused."""
        uid = PodUID(pod.metadata.uid)
        old = self.get(uid) or pod.status
        if back := _back_to_life(pod, old, status):
            self.refused += 1
            log.warning("status_refused", pod=_label(pod), container=back, cause="it had ended")
            return False
        before = self.get(uid) or self._shown(pod)
        return self._store(pod, normalise(pod, self._dated(pod, before, status)))

    def _shown(self, pod: Pod) -> PodStatus:
        """What the API shows of a pod that has no status here yet."""
        mirror = self._mirror_of(pod) if is_static(pod) else None
        if mirror is None or not mirrors(mirror, pod):
            return pod.status
        return mirror.status

    def set_container_readiness(self, uid: PodUID, container_id: str, *, ready: bool) -> None:
        """A readiness probe changed its mind; ``container_id`` is the runtime's own.

        A container that the status does not show (any more) is none of its business.
        """
        self._set_on_container(uid, container_id, ready=ready)

    def set_container_startup(self, uid: PodUID, container_id: str, *, started: bool) -> None:
        """A startup probe changed its mind; ``container_id`` is the runtime's own."""
        self._set_on_container(uid, container_id, started=started)

    def _set_on_container(self, uid: PodUID, container_id: str, **fields: bool) -> None:
        stored = self._stored.get(uid)
        if stored is None:
            return
        old, pod = stored.status, stored.pod

        def changed(group: tuple[ContainerStatus, ...]) -> tuple[ContainerStatus, ...]:
            return tuple(replace(s, **fields) if own_id(s) == container_id else s for s in group)

        new = replace(
            old,
            container_statuses=changed(old.container_statuses),
            init_container_statuses=changed(old.init_container_statuses),
        )
        known = by_name((*new.container_statuses, *new.init_container_statuses))
        fresh = {c.type: c for c in readiness_conditions(pod, new.phase, known)}
        conditions = tuple(fresh.get(c.type, c) for c in new.conditions)
        self._store(pod, self._dated(pod, old, replace(new, conditions=conditions)))

    def terminate_pod(self, pod: Pod) -> None:
        """Nothing of the pod runs any more: close every container that still looks alive."""
        uid = PodUID(pod.metadata.uid)
        status = self.get(uid) or pod.status
        regular = status.container_statuses
        if _initialised(pod, status):
            # What has not begun by now has failed; before that it never was its turn.
            regular = tuple(_closed(s) for s in regular)
        init = _close_init(status)
        phase = status.phase
        if not is_static(pod) and phase not in TERMINAL:
            phase = FAILED
        closed = replace(
            status, container_statuses=regular, init_container_statuses=init, phase=phase
        )
        self._store(pod, normalise(pod, self._dated(pod, status, closed)), finished=True)

    def remove_orphans(self, known: Iterable[PodUID]) -> None:
        """Forget statuses of pods that are not in ``known``."""
        keep = frozenset(known)
        for uid in [u for u in self._stored if u not in keep]:
            del self._stored[uid]
            self.starts.forget_pod(uid)

    def active_for(self, uid: PodUID) -> float | None:
        """Seconds since the pod became active, None for one without a status."""
        return self.starts.active_for(uid)

    def _store(self, pod: Pod, status: PodStatus, *, finished: bool = False) -> bool:
        uid = PodUID(pod.metadata.uid)
        stored = self._stored.get(uid)
        self.starts.note(pod, status, None if stored else self._shown(pod).start_time)
        finished = finished or (stored is not None and stored.finished)
        if stored is not None and stored.status == status and stored.finished == finished:
            return False
        version = stored.version + 1 if stored else 1
        self._stored[uid] = VersionedStatus(status, version, pod, finished)
        self.nudge(uid)
        return True

    def adopt(self, uid: PodUID, shown: PodStatus) -> None:
        """Take over since when things are as they are from what an earlier agent told."""
        if (stored := self._stored.get(uid)) is None:
            return
        status = stored.status
        conditions = []
        for condition in status.conditions:
            before = find(shown.conditions, condition.type)
            if before is not None and condition.type in OWNED and before.status == condition.status:
                stamp = before.last_transition_time or condition.last_transition_time
                conditions.append(replace(condition, last_transition_time=stamp))
            else:
                conditions.append(condition)
        start = shown.start_time or status.start_time
        self._store(stored.pod, replace(status, conditions=tuple(conditions), start_time=start))

    def nudge(self, uid: PodUID) -> None:
        """Something is new that decides what of a pod's status may be sent, or when."""
        if self._changed is not None:
            self._changed(uid)

    def _dated(self, pod: Pod, old: PodStatus, new: PodStatus) -> PodStatus:
        now = self._clock.now().replace(microsecond=0)
        conditions = []
        for condition in new.conditions:
            if condition.type not in OWNED and condition.last_transition_time is not None:
                # Whoever owns it says since when.
                conditions.append(condition)
                continue
            before = find(old.conditions, condition.type)
            moved = before is None or before.status != condition.status
            stamp = now if moved or before is None else before.last_transition_time or now
            conditions.append(replace(condition, last_transition_time=stamp))
        known = self.starts.shown(PodUID(pod.metadata.uid))
        start = old.start_time or new.start_time or known or now
        seen = max(pod.metadata.generation, old.observed_generation, new.observed_generation)
        return replace(
            new, conditions=tuple(conditions), start_time=start, observed_generation=seen
        )


def normalise(pod: Pod, status: PodStatus) -> PodStatus:
    """Cut long termination messages so that the status stays small."""
    spec = pod.spec
    count = len(spec.containers) + len(spec.init_containers) + len(spec.ephemeral_containers)
    limit = _MESSAGE_BUDGET // max(count, 1)
    return replace(
        status,
        container_statuses=tuple(_cut(s, limit) for s in status.container_statuses),
        init_container_statuses=tuple(_cut(s, limit) for s in status.init_container_statuses),
        ephemeral_container_statuses=tuple(
            _cut(s, limit) for s in status.ephemeral_container_statuses
        ),
    )


def _cut(status: ContainerStatus, limit: int) -> ContainerStatus:
    return replace(
        status,
        state=_cut_state(status.state, limit),
        last_state=_cut_state(status.last_state, limit),
    )


def _cut_state(state: ContainerState, limit: int) -> ContainerState:
    end = state.terminated
    if end is None or len(end.message.encode()) <= limit:
        return state
    short = end.message.encode()[:limit].decode(errors="ignore")
    return replace(state, terminated=replace(end, message=short))


def _back_to_life(pod: Pod, old: PodStatus, new: PodStatus) -> str:
    """Name of a container that had ended for good and would come back, "" for none."""
    if may_restart_all(pod):
        return ""
    before = {**by_name(old.init_container_statuses), **by_name(old.container_statuses)}
    after = {**by_name(new.init_container_statuses), **by_name(new.container_statuses)}
    # In a new sandbox init containers run again, whatever their own policy says.
    inits = pod.spec.init_containers if _stays_over(pod) else ()
    for container in (*inits, *pod.spec.containers):
        then, now = before.get(container.name), after.get(container.name)
        if then is None or now is None or is_sidecar(container):
            continue
        ended = then.state.terminated
        if ended is None or now.state.terminated is not None:
            continue
        if not restartable(pod, container, ended.exit_code):
            return container.name
    return ""


def _stays_over(pod: Pod) -> bool:
    """Whether nothing of the pod could ever have another sandbox."""
    policies = {c.restart_policy or pod.spec.restart_policy for c in pod.spec.containers}
    return policies == {"Never"}


def _closed(status: ContainerStatus) -> ContainerStatus:
    if status.state.terminated is not None:
        return status
    end = ContainerStateTerminated(
        exit_code=VANISHED_EXIT_CODE,
        reason=VANISHED_REASON,
        message=VANISHED_TERMINATED,
        container_id=status.container_id,
    )
    return replace(status, state=ContainerState(terminated=end), ready=False, started=False)


def _begun(status: ContainerStatus) -> bool:
    return status.state.waiting is None or status.last_state.terminated is not None


def _close_init(status: PodStatus) -> tuple[ContainerStatus, ...]:
    """Init containers up to the last one that had begun; at least the first."""
    statuses = status.init_container_statuses
    last = max((i for i, s in enumerate(statuses) if _begun(s)), default=0)
    return tuple(_closed(s) if i <= last else s for i, s in enumerate(statuses))


def _initialised(pod: Pod, status: PodStatus) -> bool:
    """Whether it ever was the turn of the regular containers."""
    if not pod.spec.init_containers or any(_begun(s) for s in status.container_statuses):
        return True
    last = pod.spec.init_containers[-1]
    found = by_name(status.init_container_statuses).get(last.name)
    if found is None:
        return False
    if is_sidecar(last):
        return bool(found.started)
    ends = (found.state.terminated, found.last_state.terminated)
    return any(end is not None and end.exit_code == 0 for end in ends)


def _label(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
