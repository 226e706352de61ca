"""Looks at what pods take, and ends those that take too much.

docs/behaviour/eviction.md. Whether a pod takes too much is decided by
:mod:`nodeagent.eviction.local_storage`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskGroup, TaskStatus
from msgspec.structs import replace

from nodeagent.aio import sleep_in_step
from nodeagent.api import Pod, PodStatus
from nodeagent.eviction.local_storage import (
    Eviction,
    PodUse,
    limits_containers,
    limits_volumes,
    too_much,
)
from nodeagent.eviction.metrics import EvictionMetrics
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import PodUID, SyncError

log = Log("eviction")

PERIOD: Final = 10.0
"""Seconds between two looks."""
EVICTED: Final = "Evicted"
_GRACE: Final = 1


class EndPod(Protocol):
    """Ends a pod."""

    async def __call__(
        self,
        pod: Pod,
        *,
        evict: bool = False,
        grace: int | None = None,
        status_fn: Callable[[PodStatus], PodStatus] | None = None,
    ) -> None:
        """Return when the pod has ended.

        Raises:
            SyncError: it has not ended in time.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionSides:
    """What the manager stands on.

    Attributes:
        pods: those that run, may run, or are ending.
        is_critical: whether the node cannot do without a pod.
        use_of: what a pod takes; the flag says whether its containers count, too.
        end: ends a pod.
        record: emits events about pods: type, reason, message.
    """

    pods: Callable[[], Sequence[Pod]]
    is_critical: Callable[[Pod], bool]
    use_of: Callable[[PodUID, bool], Awaitable[PodUse]]
    end: EndPod
    record: Callable[[Pod, str, str, str], None]


class EvictionManager:
    """Ends pods that take too much.

    A pod without limits costs nothing, and one whose disk does not answer holds up no other one.

    Args:
        sides: what it stands on.
        journal: the flight recorder.
        metrics: where evictions are counted.
        period: seconds between two looks.
    """

    def __init__(
        self,
        sides: EvictionSides,
        journal: Journal,
        metrics: EvictionMetrics,
        period: float = PERIOD,
    ) -> None:
        self._sides = sides
        self._journal = journal
        self._metrics = metrics
        self._period = period
        self._looking: set[PodUID] = set()

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Look at all pods now and then, until cancelled."""
        async with anyio.create_task_group() as tasks:
            task_status.started()
            while True:
                await sleep_in_step(self._period)
                self._look(tasks)

    def _look(self, tasks: TaskGroup) -> None:
        for pod in self._sides.pods():
            uid = PodUID(pod.metadata.uid)
            limited = limits_volumes(pod) or limits_containers(pod)
            if not limited or uid in self._looking or self._sides.is_critical(pod):
                continue
            self._looking.add(uid)
            tasks.start_soon(self._look_at, uid, pod, name="eviction")

    async def _look_at(self, uid: PodUID, pod: Pod) -> None:
        try:
            use = await self._sides.use_of(uid, limits_containers(pod))
            if (verdict := too_much(pod, use)) is not None:
                await self._evict(pod, verdict)
        except Exception as error:  # noqa: BLE001 - one pod must not keep the others from theirs
            log.fault("eviction_broke", error, uid=uid)
        finally:
            self._looking.discard(uid)

    async def _evict(self, pod: Pod, verdict: Eviction) -> None:
        uid, text = pod.metadata.uid, verdict.message
        self._metrics.evicted(verdict.signal)
        self._sides.record(pod, "Warning", EVICTED, text)
        self._journal.record("eviction", EVICTED, uid, text, signal=verdict.signal.value)
        try:
            await self._sides.end(
                pod, evict=True, grace=_GRACE, status_fn=partial(evicted, message=text)
            )
        except SyncError as error:
            # Its worker goes on.
            log.warning("not_evicted_in_time", uid=uid, cause=str(error))


def evicted(status: PodStatus, message: str) -> PodStatus:
    """The status of a pod that has to go. Pure."""
    return replace(status, phase="Failed", reason=EVICTED, message=message)
