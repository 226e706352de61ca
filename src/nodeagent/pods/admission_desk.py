"""Where pods wait whose admission takes more than a look at what is known.

The handlers of the sync loop may not wait. A pod that would be rejected only because of what the
Node object said the last time is held until the API server has been asked; a critical pod for
which others have to go is held until they have gone. Then it is decided anew.

Rows and their tests: docs/behaviour/admission.md, "Waiting".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.aio import jitter
from nodeagent.api import Pod
from nodeagent.api.node import Node
from nodeagent.journal import Journal
from nodeagent.kube import KubeError
from nodeagent.log import Log
from nodeagent.model import PodUID, SyncError
from nodeagent.pods.admission import AskForNode, Case, Held, Preempt, Rules, decide
from nodeagent.pods.admission_preemption import PREEMPTED, PREEMPTING, preempted
from nodeagent.pods.admission_resources import RequestBook
from nodeagent.pods.api_work import is_server_trouble
from nodeagent.pods.metrics import PodMetrics
from nodeagent.pods.protocols import EventRecorder, StatusFn
from nodeagent.pods.rejection import Rejection

log = Log("admission")

_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 30.0


class KillPod(Protocol):
    """Ends a pod."""

    async def __call__(
        self,
        pod: Pod,
        *,
        evict: bool = False,
        grace: int | None = None,
        status_fn: StatusFn | None = None,
    ) -> None:
        """Return when the pod has ended.

        Raises:
            SyncError: it has not ended in time.
        """
        ...


async def no_server() -> None:
    """There is nobody to ask."""
    return


class AdmissionDesk:
    """Decides about new pods, and holds those that cannot be decided about at once.

    Args:
        rules: what is the same for all pods.
        node: what is known of the node.
        ask: asks the API server for the Node, so that ``node`` knows it; raises KubeError.
        runs_here: whether a pod has run on this node before.
        kill: ends a pod.
        record: event recorder.
        journal: flight recorder.
        metrics: where preemptions are counted.

    Attributes:
        again: called when a pod that is held can be decided about; set by who hands pods in.
    """

    def __init__(
        self,
        rules: Rules,
        *,
        node: Callable[[], Node | None],
        runs_here: Callable[[Pod], bool],
        kill: KillPod,
        record: EventRecorder,
        journal: Journal,
        metrics: PodMetrics,
        ask: Callable[[], Awaitable[None]] = no_server,
    ) -> None:
        self.again: Callable[[PodUID], None] = _nobody
        self._rules = rules
        self._node = node
        self._ask = ask
        self._runs_here = runs_here
        self._kill = kill
        self._record = record
        self._journal = journal
        self._metrics = metrics
        self._book = RequestBook()
        # Held pods: those that wait for a look at the node, those for which others have to go.
        self._asking: dict[PodUID, None] = {}
        self._room: dict[PodUID, Preempt] = {}
        # What has been done for a held pod; it is not done twice.
        self._asked: set[PodUID] = set()
        self._made_room: set[PodUID] = set()
        self._to_ask = anyio.Event()
        self._to_end = anyio.Event()

    def __call__(self, pod: Pod, active: Sequence[Pod]) -> Rejection | Held | None:
        """Decide about a pod, or hold it; ``again`` is called in the latter case."""
        uid = PodUID(pod.metadata.uid)
        self._book.keep((pod, *active))
        case = Case(
            pod=pod,
            others=active,
            node=self._node(),
            runs_here=self._runs_here(pod),
            node_is_fresh=uid in self._asked,
            room_was_made=uid in self._made_room,
        )
        verdict = decide(case, self._rules, self._book)
        match verdict:
            case AskForNode(rejection):
                self._asking[uid] = None
                self._to_ask.set()
                return Held(f"asks the API server for the node before it says {rejection.reason}")
            case Preempt(chosen, signal):
                self._room[uid] = verdict
                self._to_end.set()
                names = ", ".join(f"{p.metadata.namespace}/{p.metadata.name}" for p in chosen)
                return Held(f"{signal} is needed, so these end first: {names}")
        self.forget(pod)
        return verdict

    def forget(self, pod: Pod) -> None:
        """Nobody needs to know any more about a pod that was held."""
        uid = PodUID(pod.metadata.uid)
        self._asking.pop(uid, None)
        self._room.pop(uid, None)
        self._asked.discard(uid)
        self._made_room.discard(uid)

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Work for the pods that are held, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._look_at_nodes)
            tasks.start_soon(self._make_rooms)
            task_status.started()

    def _decide_again(self, uid: PodUID) -> None:
        try:
            self.again(uid)
        except Exception as error:  # noqa: BLE001 - one pod must not keep the others from theirs
            log.fault("admission_broke", error, uid=uid)

    # -- the node --------------------------------------------------------------------------

    async def _look_at_nodes(self) -> None:
        while True:
            await self._to_ask.wait()
            self._to_ask = anyio.Event()
            await self._look_at_node()

    async def _look_at_node(self) -> None:
        """Ask the server, until it answers or nobody is left who needs to know."""
        wait = _FIRST_WAIT
        while waiting := tuple(self._asking):
            try:
                await self._ask()
            except KubeError as error:
                if is_server_trouble(error):
                    self._wait_for_server(error, len(waiting))
                    await anyio.sleep(jitter(wait))
                    wait = min(2 * wait, _LONGEST_WAIT)
                    continue
                log.warning("node_not_seen", cause=str(error))
            for uid in waiting:
                if uid in self._asking:
                    del self._asking[uid]
                    self._asked.add(uid)
                    self._decide_again(uid)

    def _wait_for_server(self, error: Exception, waiting: int) -> None:
        cause = str(error) or type(error).__name__
        self._journal.record("pods", "AdmissionWaits", why=cause, waiting=waiting)
        log.info("admission_waits", cause=cause, waiting=waiting)

    # -- room ------------------------------------------------------------------------------

    async def _make_rooms(self) -> None:
        """One after the other: two pods must not count on the same room."""
        while True:
            await self._to_end.wait()
            self._to_end = anyio.Event()
            while self._room:
                uid, wish = next(iter(self._room.items()))
                await self._make_room(wish)
                if uid in self._room:
                    del self._room[uid]
                    self._made_room.add(uid)
                    self._decide_again(uid)
                # What the others count on may be gone, or not be needed any more.
                for other in tuple(self._room):
                    del self._room[other]
                    self._decide_again(other)

    async def _make_room(self, wish: Preempt) -> None:
        async with anyio.create_task_group() as tasks:
            for victim in wish.victims:
                tasks.start_soon(self._end, victim, wish.signal)

    async def _end(self, victim: Pod, signal: str) -> None:
        self._record(victim, "Warning", PREEMPTING, PREEMPTED)
        self._journal.record("pods", PREEMPTING, victim.metadata.uid, PREEMPTED)
        try:
            await self._kill(victim, evict=True, status_fn=preempted)
        except SyncError as error:
            # Its worker goes on; the critical pod waits no longer.
            log.warning("not_preempted", pod=victim.metadata.name, cause=str(error))
            return
        except Exception as error:  # noqa: BLE001 - one pod must not keep the others from theirs
            log.fault("preemption_broke", error, uid=victim.metadata.uid)
            return
        self._metrics.preempted(signal)


def _nobody(_uid: PodUID) -> None:
    """Nobody hands pods in."""
