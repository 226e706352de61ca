"""When pods became active: the time that is shown, and the loop time that deadlines count from."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nodeagent.api import Pod, PodStatus
from nodeagent.api.times import format_time, parse_time
from nodeagent.clock import Clock
from nodeagent.model import PodUID


@dataclass(frozen=True, slots=True)
class _Start:
    since: float
    shown: datetime


class StartTimes:
    """Start times by pod; a section of the agent's checkpoint, so that they outlive the agent.

    Args:
        clock: wall clock, for the age of a start time that a source brings along.
        loop_time: monotonic seconds.
    """

    def __init__(self, clock: Clock, loop_time: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._loop_time = loop_time
        self._starts: dict[PodUID, _Start] = {}

    def note(self, pod: Pod, status: PodStatus, shown: datetime | None = None) -> None:
        """A status of the pod is stored; its first start time counts.

        Args:
            pod: the pod, with the start time that its source brings along.
            status: the status.
            shown: the start time that the API's copy of a static pod brings along.
        """
        uid, brought = PodUID(pod.metadata.uid), pod.status.start_time or shown
        if uid in self._starts or status.start_time is None:
            return
        # Only a start time that a source brings has an age; our own is that of this moment.
        before = 0.0
        if brought is not None and brought == status.start_time:
            before = max((self._clock.now() - brought).total_seconds(), 0.0)
        self._starts[uid] = _Start(self._loop_time() - before, status.start_time)

    def shown(self, uid: PodUID) -> datetime | None:
        """The start time; None for a pod that has not started."""
        start = self._starts.get(uid)
        return None if start is None else start.shown

    def active_for(self, uid: PodUID) -> float | None:
        """Seconds since the pod became active; None for one that has not.

        Wall time counts only once, for what went before this node knew of the pod: a clock
        that jumps later neither ends a pod nor spares it.
        """
        start = self._starts.get(uid)
        return None if start is None else self._loop_time() - start.since

    def forget_pod(self, uid: PodUID) -> None:
        """Drop what is known of a pod that is gone."""
        self._starts.pop(uid, None)

    def remembered(self) -> Collection[PodUID]:
        """The pods of which something is known."""
        return self._starts.keys()

    def snapshot(self) -> dict[str, Any]:
        """What should survive a restart of the agent, JSON-able."""
        return {
            uid: {"since": start.since, "shown": format_time(start.shown)}
            for uid, start in self._starts.items()
        }

    def restore(self, saved: Mapping[str, Any], shift: float) -> None:
        """Take over what :meth:`snapshot` gave; ``shift`` turns its times into today's."""
        for uid, start in saved.items():
            since, shown = float(start["since"]) + shift, parse_time(start["shown"])
            self._starts[PodUID(uid)] = _Start(since, shown)
