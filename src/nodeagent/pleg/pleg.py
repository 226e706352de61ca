"""The pod lifecycle event generator: looks at the runtime, keeps the cache, tells the loop.

docs/behaviour/pleg.md. A look at all pods (a relist) is two list calls and a comparison; it
waits for nothing else. Pods that changed are inspected side by side in tasks of their own, so
one that hangs holds up nobody. A hint that one pod changed starts a look at that pod at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from prometheus_client import CollectorRegistry

from nodeagent.channels import Channel
from nodeagent.clock import Clock, SystemClock
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import PodLifecycleEvent, PodUID, RuntimePod
from nodeagent.pleg.books import Books
from nodeagent.pleg.cache import PodCache
from nodeagent.pleg.calls import Lister, cause_of
from nodeagent.pleg.health import PlegHealth, Trouble, judge
from nodeagent.pleg.looker import PodLooker
from nodeagent.pleg.metrics import PlegMetrics
from nodeagent.pleg.settings import PlegSettings
from nodeagent.pleg.speaker import Speaker
from nodeagent.pleg.tracked import View, is_alive

log: Final = Log("pleg")


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
        desired: the pods that sources want; they are looked at first.
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
        desired: Callable[[], Collection[PodUID]] = frozenset,
    ) -> None:
        self._lister = lister
        self._cache = cache
        self._settings = settings or PlegSettings()
        self._journal = journal or Journal()
        self._clock = clock or SystemClock()
        self._desired = desired
        self._metrics = PlegMetrics(registry or CollectorRegistry())
        self._books = Books(self._journal, self._settings.patience)
        speaker = Speaker(channel, self._metrics, self._journal, self._settings.hint_sync_period)
        self._looker = PodLooker(
            lister, cache, self._books, speaker, self._metrics, self._journal, self._settings
        )
        self._listing: Mapping[PodUID, RuntimePod] = {}
        self._list_call: Trouble | None = None
        self._list_trouble: Trouble | None = None
        self._last_start: float | None = None
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
                    await anyio.sleep(self._settings.period)
            finally:
                self._looker.tasks = None

    def request_relist(self, uid: PodUID, reason: str) -> None:
        """Have one pod looked at at once, because it has just changed; never blocks.

        Args:
            uid: the pod; the runtime need not know it.
            reason: what happened, for the journal.
        """
        pod = self._books.track(uid)
        if pod.asked_at is None:  # else it is merged with the request that waits
            self._journal.record("pleg", "LookRequested", uid, reason)
        pod.hinted_at = anyio.current_time()
        self._looker.ask(pod)

    def healthy(self, now: float | None = None) -> PlegHealth:
        """The verdict at loop time ``now``, by default the present."""
        now = anyio.current_time() if now is None else now
        listing = self._list_trouble or self._list_call
        degraded = self._books.degraded(now)
        settings = self._settings
        return judge(
            now, self.last_relist, listing, degraded, settings.threshold, settings.patience
        )

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
        self._books.degrade_overdue(started)
        self._metrics.degraded_pods.set(len(self._books.degraded(started)))
        pods = await self._list(started)
        if pods is not None:
            self._compare(pods, started)
            self._cache.update_time(started)
            self.last_relist = started
            self._metrics.last_seen.set(self._clock.time_ns() / 1e9)
        self._metrics.relist_duration.observe(anyio.current_time() - started)

    async def _list(self, started: float) -> Mapping[PodUID, RuntimePod] | None:
        def on_call(rpc: str) -> None:
            self._list_call = Trouble(rpc, anyio.current_time())

        self._list_call = Trouble("", started)
        try:
            with anyio.fail_after(self._settings.list_timeout):
                pods = await self._lister.list_pods(on_call)
        except Exception as error:  # noqa: BLE001 - the ring goes on whatever a runtime does
            self._listing_failed(self._list_call, cause_of(error))
            return None
        finally:
            self._list_call = None
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

    def _compare(self, pods: Mapping[PodUID, RuntimePod], started: float) -> None:
        if pods is self._listing:
            changed = self._books.unsettled
        else:
            self._metrics.count_pods(pods.values())
            changed = self._books.changed(pods)
        self._listing = pods
        if len(changed) > 1:
            # After a restart among thousands of dead containers, what matters comes first.
            desired = self._desired()
            changed.sort(key=lambda uid: (uid not in desired, not is_alive(pods.get(uid)), uid))
        for uid in changed:
            self._looker.offer(self._books.track(uid), View(pods.get(uid), started, audit=True))

    def _on_wait(self, uid: PodUID) -> None:
        self._looker.ask(self._books.track(uid))
