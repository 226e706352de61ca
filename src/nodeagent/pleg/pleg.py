"""The pod lifecycle event generator: looks at the runtime, keeps the cache, tells the loop.

docs/behaviour/pleg.md. A look at all pods (a relist) is two list calls and a comparison; it
waits for nothing else. Pods that changed are inspected side by side in tasks of their own, so
one that hangs holds up nobody. A hint that one pod changed starts a look at that pod at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, Protocol

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from prometheus_client import CollectorRegistry

from nodeagent.aio import setting
from nodeagent.channels import Channel
from nodeagent.clock import Clock, SystemClock
from nodeagent.cri.events import Effect, RuntimeHint
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import PodLifecycleEvent, PodUID, RuntimePod, SandboxRuntimeStatus
from nodeagent.pleg.books import Books
from nodeagent.pleg.cache import PodCache
from nodeagent.pleg.calls import ListCalls, Lister, cause_of
from nodeagent.pleg.ends import EndProber
from nodeagent.pleg.health import PlegHealth, Trouble, judge
from nodeagent.pleg.looker import PodLooker
from nodeagent.pleg.metrics import PlegMetrics
from nodeagent.pleg.pace import Pace, PaceMode
from nodeagent.pleg.settings import PlegSettings
from nodeagent.pleg.speaker import Speaker
from nodeagent.pleg.tracked import TrackedPod, View, all_ids, is_alive

log: Final = Log("pleg")

_LATER: Final = 0.25
"""Seconds to collect in what nobody waits for: garbage that goes one by one, and containers that
were created and will be started in a moment."""
_BEGUN_DELAY: Final = 0.02
"""Seconds to wait for our own call to return, when what it does was announced meanwhile."""
_LEAST_REST: Final = 0.05
_LISTING_TIME: Final = 0.5
"""Seconds that a relist may take and the one before still counts as fresh."""
_END_PAUSES: Final = {Effect.ENDING: 0.002, Effect.ENDED: 0.015}
"""Seconds until it is asked whether what has ended shows it; a look may have seen it by then."""


class Auditor(Protocol):
    """Who compares what relists find with what was announced."""

    def found(self, uid: PodUID, ids: Iterable[str], since: float) -> None:
        """A relist was the first to see a change, which was not there yet at ``since``."""

    def audited(self) -> None:
        """A relist is over."""

    def runtime_returned(self) -> None:
        """Listing works again."""

    def describe(self) -> str:
        """One clause for people: who tells of changes."""


class Pleg:
    """The relist task and what it knows.

    Args:
        lister: the runtime.
        cache: where inspections go; one PLEG writes to it.
        channel: to the sync loop.
        registry: for the metrics; by default one of its own.
        journal: flight recorder.
        settings: durations and bounds.
        clock: wall clock, for one metric.
        wanted: whether a source wants a pod, or a worker works on it. Such pods are looked at
            first, and dead ones that nobody wants only when somebody asks.
        at_work: whether somebody is changing a pod right now, who asks for a look at it as soon
            as something has started in it.
    """

    def __init__(
        self,
        lister: Lister,
        cache: PodCache,
        channel: Channel[PodLifecycleEvent],
        *,
        registry: CollectorRegistry | None = None,
        journal: Journal | None = None,
        settings: PlegSettings | None = None,
        clock: Clock | None = None,
        wanted: Callable[[PodUID], bool] = lambda _uid: True,
        at_work: Callable[[PodUID], bool] = lambda _uid: False,
    ) -> None:
        self._lister = lister
        self._at_work = at_work
        self._cache = cache
        self._settings = settings or PlegSettings()
        self._journal = journal or Journal()
        self._clock = clock or SystemClock()
        self._wanted = wanted
        self._metrics = PlegMetrics(registry or CollectorRegistry())
        self._books = Books(self._journal, self._settings.patience)
        speaker = Speaker(channel, self._metrics, self._journal, self._settings.hint_sync_period)
        self._looker = PodLooker(
            lister,
            cache,
            self._books,
            speaker,
            self._metrics,
            self._journal,
            self._settings,
            wanted,
        )
        self._looker.leave_to_relist = self._relist_within_a_period
        self._ends = EndProber(
            lister, self._books, self._looker.show_end, self._look_now, self._settings
        )
        self._listing: Mapping[PodUID, RuntimePod] = {}
        self._calls: ListCalls | None = None
        self._list_trouble: Trouble | None = None
        self._last_start: float | None = None
        self._pace = Pace(self._settings)
        self._wanted_at = math.inf
        self._stirred = anyio.Event()
        self._auditor: Auditor | None = None
        self.last_relist: float | None = None
        """Loop time at which the last good look at all pods began; None before the first."""
        cache.on_wait = self._on_wait

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Relist until cancelled, at first at once."""
        async with anyio.create_task_group() as tasks:
            self._looker.tasks = tasks
            try:
                task_status.started()
                while True:
                    await self.relist()
                    await self._rest()
            finally:
                self._looker.tasks = None

    async def _rest(self) -> None:
        """Wait until the next relist is due, which may become earlier meanwhile."""
        began = anyio.current_time()
        while True:
            now = anyio.current_time()
            period = self._pace.period(now)
            due = min(began + period, max(self._wanted_at, began + min(_LEAST_REST, period)))
            self._stirred = anyio.Event()
            with setting(self._stirred, due, began) as at:
                if now >= at:
                    return
                await self._stirred.wait()

    def request_relist(self, uid: PodUID, reason: str) -> None:
        """Have one pod looked at at once, because it has just changed; never blocks.

        Args:
            uid: the pod; the runtime need not know it.
            reason: what happened, for the journal.
        """
        pod = self._books.track(uid)
        self._note_request(pod, reason)
        pod.hinted_at = anyio.current_time()
        self._stir()
        self._looker.ask(pod)

    def sandbox_made(self, uid: PodUID, sandbox: SandboxRuntimeStatus) -> None:
        """Show a sandbox that was just made; it takes no look to know of it.

        The look at what starts in it, or the next relist, finds it as well.
        """
        known = self._cache.get(uid)
        others = tuple(other for other in known.sandboxes if other.id != sandbox.id)
        self._cache.show(replace(known, sandboxes=(sandbox, *others), ips=sandbox.ips))
        pod = self._books.track(uid)
        self._books.unsettle(pod)
        pod.hinted_at = anyio.current_time()
        self._stir()

    def hear(self, uid: PodUID, hint: RuntimeHint) -> None:
        """Have one pod looked at because the runtime says that something happened to it."""
        pod = self._books.track(uid)
        if hint.effect in (Effect.ANY, Effect.CREATED) and self._at_work(uid):
            self._books.unsettle(pod)
            return
        self._note_request(pod, hint.what)
        if hint.container_id not in all_ids(pod.newest):
            # It may come and go before anyone sees it.
            pod.hinted_at = anyio.current_time()
        if hint.effect in (Effect.GONE, Effect.CREATED):
            self._looker.ask_within(uid, _LATER)
            return
        pause = _END_PAUSES.get(hint.effect)
        if pause is not None and self._looker.tasks is not None:
            self._ends.expect(self._looker.tasks, uid, hint.container_id, pause)
        if hint.effect is Effect.ENDED:
            self._look_now(pod)  # we have done nothing that would be told of in a moment
        elif hint.effect is not Effect.ENDING:
            self._looker.ask(pod, _BEGUN_DELAY)

    def request_all(self, reason: str, after: float = 0.0) -> None:
        """Have all pods looked at in ``after`` seconds, or when a relist is due before."""
        due = anyio.current_time() + after
        if due < self._wanted_at:
            self._journal.record("pleg", "RelistRequested", why=reason)
            self._wanted_at = due
            self._stirred.set()

    def owner(self, id_: str) -> PodUID | None:
        """The pod of a container or sandbox that was seen; None when it was not."""
        return self._books.owner(id_)

    def set_pace(self, mode: PaceMode) -> None:
        """Say who else tells of changes, which decides how often all pods are looked at."""
        self._pace.mode = mode
        self._stirred.set()

    def reconfigure(self, settings: PlegSettings) -> None:
        """Look as these settings say from now on; never blocks."""
        self._settings = settings
        self._looker.reconfigure(settings)
        self._pace.settings = settings
        self._stirred.set()

    def audit_with(self, auditor: Auditor) -> None:
        """Have what relists find compared with what was announced."""
        self._auditor = auditor
        self._looker.on_found = auditor.found

    def _note_request(self, pod: TrackedPod, reason: str) -> None:
        if pod.asked_at is None:  # else it is merged with the request that waits
            self._journal.record("pleg", "LookRequested", pod.uid, reason)

    def _relist_within_a_period(self) -> None:
        if self._pace.period(anyio.current_time()) > self._settings.period:
            self.request_all("a look could not be taken", self._settings.period)

    def _look_now(self, pod: TrackedPod) -> None:
        self._looker.ask(pod, delay=0.0, acted=False)

    def _stir(self) -> None:
        self._pace.stir(anyio.current_time())
        self._stirred.set()

    def healthy(self, now: float | None = None) -> PlegHealth:
        """The verdict at loop time ``now``, by default the present."""
        now = anyio.current_time() if now is None else now
        listing = self._list_trouble or (self._calls.trouble if self._calls else None)
        degraded = self._books.degraded(now)
        settings = self._settings
        # A relist that comes rarely, because events tell of changes, is not late.
        threshold = max(settings.threshold, 2 * settings.evented_period)
        verdict = judge(now, self.last_relist, listing, degraded, threshold, settings.patience)
        return replace(verdict, events=self._auditor.describe()) if self._auditor else verdict

    async def list_pods(self) -> Mapping[PodUID, RuntimePod]:
        """All pods: as looks have shown them when nothing has happened since, else listed anew.

        Raises:
            Exception: whatever the runtime raises.
        """
        at, now = self.last_relist, anyio.current_time()
        if at is None or self._list_trouble is not None or self._books.unsettled:
            return await self._lister.list_pods()
        if now - at > self._pace.period(now) + _LISTING_TIME:
            return await self._lister.list_pods()
        return self._books.present()

    @property
    def tracked(self) -> int:
        """How many pods are in the books."""
        return len(self._books)

    async def settled(self) -> None:
        """Wait until no pod is being looked at."""
        await self._looker.settled()

    async def relist(self) -> None:
        """Look at all pods once, while :meth:`run` runs.

        Starts inspections and does not wait for them. A failure is noted, not raised.
        """
        started = anyio.current_time()
        if self._last_start is not None:
            self._metrics.relist_interval.observe(started - self._last_start)
        self._last_start = started
        self._wanted_at = math.inf
        self._books.degrade_overdue(started)
        self._metrics.degraded_pods.set(len(self._books.degraded(started)))
        pods = await self._list(started)
        if pods is not None:
            self._compare(pods, started)
            self._cache.update_time(started)
            self.last_relist = self._looker.last_audit = started
            self._metrics.last_seen.set(self._clock.time_ns() / 1e9)
            if self._auditor is not None:
                self._auditor.audited()
        self._metrics.relist_duration.observe(anyio.current_time() - started)

    async def _list(self, started: float) -> Mapping[PodUID, RuntimePod] | None:
        self._calls = calls = ListCalls(started)
        try:
            with anyio.fail_after(self._settings.list_timeout):
                pods = await self._lister.list_pods(calls.watch)
        except Exception as error:  # noqa: BLE001 - the ring goes on whatever a runtime does
            self._listing_failed(calls.trouble, cause_of(error))
            return None
        finally:
            self._calls = None
        self._listing_recovered()
        return pods

    def _listing_failed(self, call: Trouble, cause: str) -> None:
        before = self._list_trouble
        since = call.since if before is None else before.since
        self._list_trouble = Trouble(call.rpc, since, cause)
        if before is None:
            log.warning("relist_failed", rpc=call.rpc, error=cause)
        if before is None or before.error != cause:
            self._journal.record("pleg", "RelistFailed", why=cause, rpc=call.rpc)

    def _listing_recovered(self) -> None:
        if self._list_trouble is None:
            return
        down = anyio.current_time() - self._list_trouble.since
        self._list_trouble = None
        log.info("relist_recovered", after=down)
        self._journal.record("pleg", "RelistRecovered", duration=down)
        if self._auditor is not None:
            self._auditor.runtime_returned()

    def _compare(self, pods: Mapping[PodUID, RuntimePod], started: float) -> None:
        if pods is self._listing:
            changed = self._books.unsettled
        else:
            self._metrics.count_pods(pods.values())
            self._stir()
            changed = self._books.changed(pods)
        self._listing = pods
        if len(changed) > 1:
            # After a restart among thousands of dead containers, what matters comes first.
            wanted = self._wanted
            changed.sort(key=lambda uid: (not wanted(uid), not is_alive(pods.get(uid)), uid))
        for uid in changed:
            self._looker.offer(self._books.track(uid), View(pods.get(uid), started, audit=True))

    def _on_wait(self, uid: PodUID) -> None:
        self._looker.ask(self._books.track(uid))
