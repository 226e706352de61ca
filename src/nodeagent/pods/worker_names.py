"""Which static pod may run under a full name. Pure bookkeeping, no tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from nodeagent.model import FullName, PodUID


class StaticNames:
    """One static pod at a time runs under a full name; the others wait in order of arrival.

    An edited manifest is a new UID under an old name: the new pod must not start before the
    old one has ended (docs/behaviour/workers.md, "Static pods").
    """

    def __init__(self) -> None:
        self._holders: dict[FullName, PodUID] = {}
        self._waiting: dict[FullName, deque[PodUID]] = {}

    def enqueue(self, name: FullName, uid: PodUID) -> None:
        """Let the pod wait for its turn."""
        self._waiting.setdefault(name, deque()).append(uid)

    def request(self, name: FullName, uid: PodUID, passes: Callable[[PodUID], bool]) -> bool:
        """Whether the pod may start now; if so it holds the name until it is released.

        Args:
            name: the full name.
            uid: who asks.
            passes: whether a waiting pod is gone or ending and is to be passed over.
        """
        holder = self._holders.get(name)
        if holder is not None:
            return holder == uid
        waiting = self._waiting.get(name, deque())
        while waiting and waiting[0] != uid and passes(waiting[0]):
            waiting.popleft()
        if waiting and waiting[0] != uid:
            return False
        if waiting:
            waiting.popleft()
        if not waiting:
            self._waiting.pop(name, None)
        self._holders[name] = uid
        return True

    def release(self, name: FullName, uid: PodUID) -> tuple[PodUID, ...]:
        """The pod has ended or is gone; returns who may ask again, in order of arrival."""
        waiting = self._waiting.get(name)
        if waiting is not None:
            while uid in waiting:
                waiting.remove(uid)
            if not waiting:
                del self._waiting[name]
        if self._holders.get(name) == uid:
            del self._holders[name]
        return tuple(self._waiting.get(name, ())) if name not in self._holders else ()

    def holder(self, name: FullName) -> PodUID | None:
        """Who runs under the name."""
        return self._holders.get(name)
