"""What is known of each pod, and since when: where workers wait for fresh knowledge.

docs/behaviour/pleg.md, "Cache". All times are loop times at which a look *began*; knowledge
is newer than a moment only if its look began after that moment.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from nodeagent.model import PodRuntimeStatus, PodUID
from nodeagent.pleg.errors import InspectionError


@dataclass(slots=True)
class _Entry:
    """``modified`` is the look that gave ``status``, ``observed`` the last that confirmed it."""

    status: PodRuntimeStatus
    modified: float
    observed: float
    error: InspectionError | None = None


@dataclass(slots=True, eq=False)
class _Waiter:
    time: float
    woken: anyio.Event


class PodCache:
    """The status of every pod that the runtime knows, for one event loop.

    PLEG writes, pod workers read. A pod that is *held* is exempt from the global time: PLEG
    has seen that it changed, or could not inspect it, and its record must not pass as fresh.
    """

    def __init__(self) -> None:
        self._entries: dict[PodUID, _Entry] = {}
        self._held: set[PodUID] = set()
        self._gone: set[PodUID] = set()
        self._waiters: dict[PodUID, list[_Waiter]] = {}
        self.time = -math.inf
        """Start of the newest look at all pods."""
        self.on_wait: Callable[[PodUID], None] | None = None
        """Called when someone starts to wait for a pod; PLEG then looks at it at once."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def waiting(self) -> int:
        """How many are waiting now."""
        return sum(len(waiters) for waiters in self._waiters.values())

    def waits(self, uid: PodUID) -> bool:
        """Whether somebody waits for a look at a pod now."""
        return uid in self._waiters

    def get(self, uid: PodUID) -> PodRuntimeStatus:
        """The last good status of a pod; an empty one when there is none. Never blocks."""
        entry = self._entries.get(uid)
        return PodRuntimeStatus(uid) if entry is None else entry.status

    def error(self, uid: PodUID) -> InspectionError | None:
        """What the last inspection of a pod failed with; None when it did not fail."""
        entry = self._entries.get(uid)
        return None if entry is None else entry.error

    async def get_newer_than(self, uid: PodUID, time: float) -> PodRuntimeStatus:
        """The status of a pod as a look found it that began after ``time`` (loop time).

        Returns at once when there is one, else waits for one; the status is empty when the
        pod is not there. Only the caller's scope bounds the wait.

        Raises:
            InspectionError: the pod could not be inspected since.
        """
        while not self._is_newer(uid, time):
            waiter = _Waiter(time, anyio.Event())
            self._waiters.setdefault(uid, []).append(waiter)
            if self.on_wait is not None:
                self.on_wait(uid)
            try:
                await waiter.woken.wait()
            finally:
                self._forget(uid, waiter)
        entry = self._entries.get(uid)
        if entry is None:
            return PodRuntimeStatus(uid)
        if entry.error is not None:
            raise entry.error.again()
        return entry.status

    def hold(self, uid: PodUID) -> None:
        """Exempt a pod from the global time until a look at it ends well."""
        self._held.add(uid)

    def put_off(self, uid: PodUID) -> None:
        """Note that a pod has changed and is not looked at until somebody waits for it.

        Also whoever has never seen it must then wait: neither the old record nor an old error
        is how it is.
        """
        self._held.add(uid)
        if entry := self._entries.get(uid):
            entry.observed, entry.error = -math.inf, None

    def set(self, uid: PodUID, status: PodRuntimeStatus, time: float) -> None:
        """Store what a look that began at ``time`` found, unless something newer is known."""
        self._held.discard(uid)
        entry = self._entries.get(uid)
        if entry is None or time >= entry.modified:
            self._entries[uid] = _Entry(status, time, time)
            self._gone.discard(uid)
        self._wake(uid)

    def show(self, status: PodRuntimeStatus) -> None:
        """Show what is known of a pod without a look at it; its record is no newer for that."""
        uid = status.uid
        self._gone.discard(uid)
        if entry := self._entries.get(uid):
            entry.status = status
        else:
            self._entries[uid] = _Entry(status, -math.inf, -math.inf)

    def set_error(self, uid: PodUID, error: InspectionError, time: float) -> None:
        """Note that a pod could not be inspected at ``time``; its last good status stays."""
        entry = self._entries.get(uid)
        if entry is None:
            entry = self._entries[uid] = _Entry(PodRuntimeStatus(uid), -math.inf, time)
        entry.error = error
        entry.observed = max(entry.observed, time)
        self._gone.discard(uid)
        self._held.add(uid)
        self._wake(uid)

    def set_observed(self, uid: PodUID, time: float) -> None:
        """Note that a look at ``time`` found the pod unchanged."""
        self._held.discard(uid)
        if entry := self._entries.get(uid):
            entry.observed = max(entry.observed, time)
        self._wake(uid)

    def delete(self, uid: PodUID, time: float) -> None:
        """Note that a look at ``time`` did not find the pod."""
        self._held.discard(uid)
        if time > self.time:
            # Nothing else says yet that the pod was looked for; the next global look will.
            self._entries[uid] = _Entry(PodRuntimeStatus(uid), time, time)
            self._gone.add(uid)
        else:
            self._entries.pop(uid, None)
            self._gone.discard(uid)
        self._wake(uid)

    def update_time(self, time: float) -> None:
        """Note a look at all pods at ``time``: whatever is not held is as of then."""
        self.time = max(self.time, time)
        for uid in [uid for uid in self._gone if self._entries[uid].observed <= self.time]:
            del self._entries[uid]
            self._gone.remove(uid)
        for uid in self._waiters:
            self._wake(uid)

    def _is_newer(self, uid: PodUID, time: float) -> bool:
        if self.time > time and uid not in self._held:
            return True
        entry = self._entries.get(uid)
        return entry is not None and entry.observed > time

    def _wake(self, uid: PodUID) -> None:
        for waiter in self._waiters.get(uid, ()):
            if self._is_newer(uid, waiter.time):
                waiter.woken.set()

    def _forget(self, uid: PodUID, waiter: _Waiter) -> None:
        waiters = self._waiters[uid]
        waiters.remove(waiter)
        if not waiters:
            del self._waiters[uid]
