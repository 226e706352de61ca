"""When each pod is due to be looked at again: one heap, no timer per pod."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

from nodeagent.model import PodUID

_SLACK: Final = 64


class WorkQueue:
    """Due times by pod UID; setting one replaces the one before.

    All times are loop time. The sync tick pops what is due, so an idle pod costs one heap
    entry and no timer.
    """

    def __init__(self) -> None:
        self._due: dict[PodUID, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, PodUID]] = []
        self._seq = 0

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, uid: object) -> bool:
        return uid in self._due

    def set(self, uid: PodUID, due: float) -> None:
        """Make the pod due at ``due``, and at no other time."""
        self._seq += 1
        self._due[uid] = (due, self._seq)
        heapq.heappush(self._heap, (due, self._seq, uid))
        if len(self._heap) > 2 * len(self._due) + _SLACK:
            self._rebuild()

    def bring_forward(self, latest: Callable[[], float]) -> None:
        """Let no pod be due later than ``latest`` says, which is asked for each of them."""
        for uid, (due, _) in list(self._due.items()):
            if due > (bound := latest()):
                self.set(uid, bound)

    def discard(self, uid: PodUID) -> None:
        """The pod is not due any more."""
        self._due.pop(uid, None)

    def due_at(self, uid: PodUID) -> float | None:
        """When the pod is due; None when it is not waiting."""
        entry = self._due.get(uid)
        return None if entry is None else entry[0]

    @property
    def next_due(self) -> float | None:
        """The earliest due time; None when nothing waits."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> list[PodUID]:
        """Take out every pod that is due at ``now``, the longest due first."""
        due: list[PodUID] = []
        while True:
            self._drop_stale()
            if not self._heap or self._heap[0][0] > now:
                return due
            _, _, uid = heapq.heappop(self._heap)
            del self._due[uid]
            due.append(uid)

    def _drop_stale(self) -> None:
        while self._heap and not self._is_live(self._heap[0]):
            heapq.heappop(self._heap)

    def _is_live(self, entry: tuple[float, int, PodUID]) -> bool:
        due, seq, uid = entry
        return self._due.get(uid) == (due, seq)

    def _rebuild(self) -> None:
        # A pod that is synced every few milliseconds must not make the heap grow.
        self._heap = [(due, seq, uid) for uid, (due, seq) in self._due.items()]
        heapq.heapify(self._heap)
