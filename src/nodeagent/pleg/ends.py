"""Ends that were announced before the runtime shows them.

containerd tells of an exit as soon as the process is gone, and says so of the container only
when it has cleaned up and written that down, some tens of milliseconds later. Until then the
one container is asked about, ever less often: one call instead of a look at the whole pod.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import anyio
from anyio.abc import TaskGroup

from nodeagent.cri.inspection import EndSeen
from nodeagent.limiter import PatientLimiter
from nodeagent.log import Log
from nodeagent.model import ContainerRuntimeStatus, PodUID, RuntimePod
from nodeagent.pleg.books import Books
from nodeagent.pleg.calls import Lister, cause_of
from nodeagent.pleg.settings import PlegSettings
from nodeagent.pleg.tracked import TrackedPod, living_ids

log: Final = Log("pleg")

_SLOWER: Final = 1.2
_LONGEST_PAUSE: Final = 0.3
_AT_ONCE: Final = 4


ShowEnd: TypeAlias = Callable[[TrackedPod, RuntimePod, ContainerRuntimeStatus, float], bool]


@dataclass(slots=True)
class _Expected:
    pause: float
    again: anyio.Event = field(default_factory=anyio.Event)


class EndProber:
    """Asks about single containers and sandboxes until they are seen to have ended.

    Args:
        lister: the runtime.
        books: what looks have shown.
        show: takes what is known of a container that has ended: its pod, what the look showed
            that it was in, its details, and since when; says whether that was enough.
        look: is called for the pod of what has ended, if not.
        settings: durations.
    """

    def __init__(
        self,
        lister: Lister,
        books: Books,
        show: ShowEnd,
        look: Callable[[TrackedPod], None],
        settings: PlegSettings,
    ) -> None:
        self._lister = lister
        self._books = books
        self._show = show
        self._look = look
        self._timeout = settings.patience
        self._slots = PatientLimiter(_AT_ONCE, settings.patience)
        self._expected: dict[str, _Expected] = {}

    def expect(self, tasks: TaskGroup, uid: PodUID, id_: str, pause: float = 0.002) -> None:
        """Ask about ``id_`` after ``pause`` seconds and on, until it has ended, or for 2 s.

        Once more from the start when it is asked about already.
        """
        expected = self._expected.get(id_)
        if expected is not None:
            expected.pause = pause
            expected.again.set()
            return
        self._expected[id_] = _Expected(pause)
        tasks.start_soon(self._probe, uid, id_)

    async def _probe(self, uid: PodUID, id_: str) -> None:
        expected = self._expected[id_]
        try:
            while expected.pause < _LONGEST_PAUSE:
                with anyio.move_on_after(expected.pause):
                    await expected.again.wait()
                    expected.again = anyio.Event()
                    continue
                expected.pause *= _SLOWER
                pod = self._books.find(uid)
                newest = None if pod is None else pod.newest
                if pod is None or newest is None or id_ not in living_ids(newest):
                    return
                at = anyio.current_time()
                if (end := await self._end_of(newest, id_)) is not None:
                    shown = end.details is not None and self._show(pod, newest, end.details, at)
                    if not shown:
                        self._look(pod)
                    return
        except Exception as error:  # noqa: BLE001 - the next relist finds it in any case
            log.debug("probe_failed", uid=uid, id=id_, error=cause_of(error))
        finally:
            del self._expected[id_]

    async def _end_of(self, pod: RuntimePod, id_: str) -> EndSeen | None:
        async with self._slots.slot():
            with anyio.fail_after(self._timeout):
                return await self._lister.end_of(pod, id_)
