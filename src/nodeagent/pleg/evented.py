"""Follows an event feed, and checks by what the relist finds whether it can be trusted.

docs/behaviour/pleg.md, "Event feeds". An event is a hint to look. What no event announced and
a relist found all the same was missed; a feed that misses things is not relied on until it
speaks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from nodeagent.clock import Clock
from nodeagent.cri.events import ContainerEventFeed, Effect, RuntimeHint
from nodeagent.duration import format_duration
from nodeagent.journal import Journal
from nodeagent.log import Log
from nodeagent.model import PodUID
from nodeagent.pleg.event_metrics import EventMetrics
from nodeagent.pleg.pace import PaceMode
from nodeagent.pleg.settings import PlegSettings
from nodeagent.pleg.trust import FeedTrust
from nodeagent.rpc import Unimplemented

log: Final = Log("pleg.events")

_PROOF: Final = 1.0
"""Seconds after which a stream that is quiet counts as one."""
_UNKNOWN_ENDED: Final = 0.05
_UNKNOWN_BEGUN: Final = 0.5
_SWITCH: Final = 30.0
"""Seconds that a feed which is not believed has to speak before the next one is tried."""


class Looker(Protocol):
    """What is told that something may have happened; :class:`nodeagent.pleg.Pleg` is one."""

    def hear(self, uid: PodUID, hint: RuntimeHint) -> None:
        """Look at one pod."""
        ...

    def request_all(self, reason: str, after: float = 0.0) -> None:
        """Look at all pods."""
        ...

    def owner(self, id_: str) -> PodUID | None:
        """The pod of a container or sandbox."""
        ...

    def set_pace(self, mode: PaceMode) -> None:
        """Look at all pods more or less often."""
        ...


class EventWatch:
    """Tells PLEG what a feed hears. Implements :class:`FeedListener` and :class:`Auditor`.

    Args:
        feeds: in order of preference; those that the runtime does not have are passed over.
        looker: what is told.
        metrics: counts events, connections and misses.
        journal: gets one record for each change of the feed and each miss.
        settings: durations.
        clock: wall time, for the delay of events.
    """

    def __init__(
        self,
        feeds: Sequence[ContainerEventFeed],
        looker: Looker,
        *,
        metrics: EventMetrics,
        journal: Journal,
        settings: PlegSettings,
        clock: Clock,
    ) -> None:
        self._feeds = tuple(feeds)
        self._looker = looker
        self._metrics = metrics
        self._journal = journal
        self._settings = settings
        self._clock = clock
        self._trust = FeedTrust(settings.event_grace)
        self._trusts: dict[str, FeedTrust] = {}
        self._feed: ContainerEventFeed | None = None
        self._scope: anyio.CancelScope | None = None
        self._proven = False
        self._followed_since = 0.0
        self._cause = ""
        self._recorded = ""

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Follow the best feed until cancelled."""
        task_status.started()
        self._set_pace()
        feeds: list[ContainerEventFeed] = []
        while True:
            feeds = feeds or list(self._feeds)
            while feeds:
                feed = feeds.pop(0)
                if await self._follow(feed):
                    feeds.append(feed)
            self._trust.distrusted_at = None  # there is nobody left to be distrusted
            self._set_pace()
            log.info("no_runtime_events", remedy="the relist finds every change")
            self._journal.record("pleg", "FeedsMissing", why="the runtime has no event feed")
            await anyio.sleep(self._settings.feed_retry)  # a newer runtime may have one

    async def _follow(self, feed: ContainerEventFeed) -> bool:
        """Listen until the feed is not believed any more; False when there is no such feed."""
        self._feed, self._cause = feed, ""
        self._followed_since = anyio.current_time()
        distrusted_at = self._trust.distrusted_at
        self._trust = self._trusts.setdefault(feed.name, FeedTrust(self._settings.event_grace))
        # A feed that follows on one which is not believed has to speak first.
        self._trust.distrusted_at = distrusted_at
        try:
            with anyio.CancelScope() as self._scope:
                await feed.run(self)
        except Unimplemented as error:
            log.debug("feed_missing", feed=feed.name, cause=error.message)
        except Exception as error:  # noqa: BLE001 - the relist finds every change without it
            log.fault("feed_failed", error, feed=feed.name)
            self._journal.record("pleg", "FeedFailed", why=repr(error), feed=feed.name)
        else:
            return True
        finally:
            self._feed = self._scope = None
            self._trust.closed()
            self._proven = False
            self._set_pace()
        return False

    # -- what the feed says ----------------------------------------------------------------

    def feed_opened(self) -> None:
        """See :class:`FeedListener`."""
        self._trust.opened(anyio.current_time())
        self._proven, self._cause = False, ""

    def feed_interrupted(self, cause: str) -> None:
        """See :class:`FeedListener`."""
        self._trust.closed()
        self._proven, self._cause = False, cause
        self._metrics.connection_errors += 1
        if cause != self._recorded:
            self._journal.record("pleg", "FeedInterrupted", why=cause, feed=self._name)
        self._recorded = cause
        self._set_pace()

    def feed_hint(self, hint: RuntimeHint) -> None:
        """See :class:`FeedListener`."""
        self._prove()
        now = anyio.current_time()
        self._metrics.events.labels(self._name).inc()
        if hint.at > 0:
            late = (self._clock.time_ns() - hint.at) / 1e9
            self._metrics.latency.observe(max(late, 0.0))
        looker = self._looker
        ids = (hint.container_id, hint.sandbox_id)
        uid = PodUID(hint.pod_uid) or looker.owner(ids[0]) or looker.owner(ids[1])
        if self._trust.announced(uid or "", ids, now):
            log.info("events_recovered", feed=self._name)
            self._journal.record("pleg", "FeedRecovered", feed=self._name)
            self._set_pace()
        if uid:
            looker.hear(uid, hint)
        else:
            # What begins is not listed before it has begun; what ends was.
            begun = hint.effect is Effect.ANY
            looker.request_all(hint.what, _UNKNOWN_BEGUN if begun else _UNKNOWN_ENDED)

    # -- what the audit says ---------------------------------------------------------------

    def found(self, uid: PodUID, ids: Iterable[str], since: float) -> None:
        """A relist found what has happened to a pod after ``since``, before any other look."""
        self._trust.found(uid, ids, since, anyio.current_time())

    def audited(self) -> None:
        """A relist is over."""
        now = anyio.current_time()
        trust = self._trust
        if trust.opened_at is None:
            return
        if now - trust.opened_at >= _PROOF:
            self._prove()
        missed, lost = trust.judge(now)
        for uid in missed:
            self._metrics.missed.inc()
            self._journal.record("pleg", "EventMissed", uid, "found by a relist", feed=self._name)
        if lost:
            log.warning("events_missing", feed=self._name, missed=trust.misses)
            why = f"{trust.misses} changes were not announced"
            self._journal.record("pleg", "FeedDistrusted", why=why, feed=self._name)
            self._set_pace()
        tried = lost or now - self._followed_since >= _SWITCH
        if tried and trust.distrusted_at is not None and self._scope is not None:
            self._scope.cancel()

    def runtime_returned(self) -> None:
        """Listing works again."""
        if self._feed is not None:
            self._feed.try_now()

    def describe(self) -> str:
        """One clause for people: who tells of changes."""
        trust = self._trust
        if self._feed is None:
            return "no events, the relist finds every change"
        if trust.distrusted_at is not None:
            age = format_duration(round(anyio.current_time() - trust.distrusted_at, 3))
            return f"events from {self._name} have been missing for {age}, quick relists instead"
        if self._cause:
            return f"events from {self._name} are interrupted: {self._cause}"
        return f"events from {self._name}"

    # -- how -------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return "" if self._feed is None else self._feed.name

    def _prove(self) -> None:
        """The stream is one: note it, and look at all that happened before it."""
        if self._proven:
            return
        self._proven, self._recorded = True, ""
        self._metrics.connections += 1
        log.info("events_followed", feed=self._name)
        self._journal.record("pleg", "FeedOpened", feed=self._name)
        self._set_pace()
        self._looker.request_all("event stream opened")

    def _set_pace(self) -> None:
        if self._trust.distrusted_at is not None:
            mode = PaceMode.DISTRUST
        else:
            mode = PaceMode.EVENTS if self._proven else PaceMode.ADAPTIVE
        self._metrics.trusted.set(mode is PaceMode.EVENTS)
        self._looker.set_pace(mode)
