"""What PLEG remembers of one pod, and the decisions it makes from that. No I/O, no clock."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

import anyio

from nodeagent.model import PodLifecycleEvent, PodUID, RuntimePod, SandboxState
from nodeagent.model.runtime import ContainerState
from nodeagent.pleg.events import POD_SYNC, WAKING, compute_events, told_otherwise
from nodeagent.pleg.health import DegradedPod, Trouble


@dataclass(frozen=True, slots=True)
class View:
    """What one look found of a pod.

    Attributes:
        pod: None when the pod was not there.
        at: loop time at which the look began.
        audit: it was a look at all pods, not at this one alone.
    """

    pod: RuntimePod | None
    at: float
    audit: bool


@dataclass(slots=True, eq=False)
class TrackedPod:
    """One pod in PLEG's books (docs/behaviour/pleg.md, "Relist").

    Attributes:
        said: the state whose events have all been sent.
        inspected: the state that the cache holds.
        seen_at: start of the newest look that was acted on.
        newest: what the newest look found, acted on or not.
        newest_at: start of that look.
        unsent: the channel was full before all was said.
        half_said: events on the way from ``said`` to the present that were sent already.
        reinspect: the last inspection failed.
        owes_sync: a POD_SYNC is to be sent.
        hinted_at: when someone said that the pod changed; None once events explained it.
        asked_at: when a look at this pod was last asked for; None when none is due.
        acted: that look must begin later than it was asked for, not just then.
        due: when that look may begin; until then further requests are merged with it.
        hurry: set when that has become earlier; None while nobody waits for it.
        waiting: the newest view that is not acted on yet.
        busy: a task attends to the pod.
        looking: the state being inspected.
        fetching_at: start of the look at this pod that is under way.
        call: the runtime call that is under way.
        scope: what to cancel to give that call up.
        superseded: the call was given up because something newer is known.
        trouble: what keeps the pod from being known.
        warned: containers whose UNKNOWN state was logged.
        unknown_since: from when on containers, by id, have been UNKNOWN.
        doubted_until: when an UNKNOWN state that is not believed is to be looked at again.
    """

    uid: PodUID
    name: str = ""
    said: RuntimePod | None = None
    inspected: RuntimePod | None = None
    seen_at: float = -math.inf
    newest: RuntimePod | None = None
    newest_at: float = -math.inf
    unsent: bool = False
    half_said: frozenset[PodLifecycleEvent] = frozenset()
    reinspect: bool = False
    owes_sync: bool = False
    hinted_at: float | None = None
    asked_at: float | None = None
    acted: bool = False
    due: float = 0.0
    hurry: anyio.Event | None = None
    waiting: View | None = None
    busy: bool = False
    looking: RuntimePod | None = None
    fetching_at: float | None = None
    call: Trouble | None = None
    scope: anyio.CancelScope | None = None
    superseded: bool = False
    trouble: Trouble | None = None
    warned: set[str] = field(default_factory=set)
    unknown_since: dict[str, float] = field(default_factory=dict)
    doubted_until: float = math.inf

    @property
    def known(self) -> bool:
        """Whether the pod is, or was until all was said about it, in the runtime."""
        return self.said is not None or self.inspected is not None

    @property
    def settled(self) -> bool:
        """Whether nothing is left to do, say or find out."""
        return (
            not self.busy
            and not self.unsent
            and not self.reinspect
            and not self.owes_sync
            and self.hinted_at is None
            and self.trouble is None
        )

    def needs_inspection(self, view: View) -> bool:
        """Whether the cache does not hold the state that ``view`` shows."""
        if view.pod is None:
            return False
        again = self.reinspect or view.at >= self.doubted_until
        return (
            again
            or bool(compute_events(self.inspected, view.pod))
            or told_otherwise(self.inspected, view.pod)
        )

    def differs(self, view: View) -> bool:
        """Whether the cache is behind ``view``, a vanished pod included."""
        return self.needs_inspection(view) or (view.pod is None and self.inspected is not None)

    def outdated_by(self, view: View, now: float, patience: float) -> bool:
        """Whether the call under way has become pointless now that ``view`` is known."""
        if self.fetching_at is not None:
            return view.at > self.fetching_at
        if self.looking is None:
            return False
        if view.pod is None:
            return True
        return self.overdue(now, patience) and bool(compute_events(self.looking, view.pod))

    def give_up(self) -> None:
        """Cancel the call under way: it is pointless now."""
        self.superseded = True
        if self.scope is not None:
            self.scope.cancel()

    def overdue(self, now: float, patience: float) -> bool:
        """Whether the call under way has kept us waiting for too long."""
        return self.call is not None and now - self.call.since > patience

    def degraded(self, now: float, patience: float) -> DegradedPod | None:
        """The pod as health shows it; None when there is nothing to show."""
        trouble = self.trouble
        if trouble is None and self.overdue(now, patience):
            trouble = self.call
        return None if trouble is None else DegradedPod(self.uid, self.name, trouble)

    def explain(self, events: Collection[PodLifecycleEvent], view: View) -> bool:
        """Settle a hint; True when a look at all pods shows nothing that explains it."""
        if self.hinted_at is None or view.at <= self.hinted_at or not (events or view.audit):
            return False
        self.hinted_at = None
        return not events

    def unsaid(self, events: Collection[PodLifecycleEvent]) -> list[PodLifecycleEvent]:
        """Which events are left to be sent, given all that lead from ``said`` to the present."""
        current = frozenset(events)
        if self.half_said - current:
            # It was said, then taken back (RUNNING, UNKNOWN, RUNNING): have the pod looked at.
            self.owes_sync = True
        self.half_said &= current
        left = [event for event in events if event not in self.half_said]
        if self.owes_sync and not any(event.type in WAKING for event in left):
            left.append(PodLifecycleEvent(self.uid, POD_SYNC))
        return left

    def sent(self, event: PodLifecycleEvent) -> None:
        """Note that one of the events of :meth:`unsaid` is in the channel."""
        self.half_said |= {event}
        if event.type in WAKING:
            self.owes_sync = False

    def all_sent(self, state: RuntimePod | None) -> None:
        """Note that nothing is left to be said up to ``state``."""
        self.said = state
        self.half_said = frozenset()
        self.unsent = False


def living_ids(pod: RuntimePod | None) -> set[str]:
    """Ids of the containers and sandboxes of a pod that run, or may."""
    if pod is None:
        return set()
    ids: set[str] = {s.id for s in pod.sandboxes if s.state is SandboxState.READY}
    ids.update(c.id for c in pod.containers if c.state is not ContainerState.EXITED)
    return ids


def all_ids(pod: RuntimePod | None) -> set[str]:
    """Ids of all containers and sandboxes of a pod."""
    if pod is None:
        return set()
    ids: set[str] = {s.id for s in pod.sandboxes}
    ids.update(c.id for c in pod.containers)
    return ids


def is_alive(pod: RuntimePod | None) -> bool:
    """Whether anything of the pod may be running; such pods are looked at first."""
    if pod is None:
        return False
    return any(s.state is SandboxState.READY for s in pod.sandboxes) or any(
        c.state is not ContainerState.EXITED for c in pod.containers
    )
