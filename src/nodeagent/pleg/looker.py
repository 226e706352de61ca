"""Looks at single pods: inspects those that changed, and those that someone asked about."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

import anyio
from anyio.abc import TaskGroup

from nodeagent.cri.inspection import AT_ONCE
from nodeagent.journal import Journal
from nodeagent.limiter import PatientLimiter
from nodeagent.log import Log
from nodeagent.model import ContainerRuntimeStatus, PodRuntimeStatus, PodUID, RuntimePod
from nodeagent.pleg.books import Books
from nodeagent.pleg.cache import PodCache
from nodeagent.pleg.calls import Lister, SupersededError, ask_runtime
from nodeagent.pleg.errors import InspectionError
from nodeagent.pleg.events import announced_ids, as_known
from nodeagent.pleg.health import Trouble
from nodeagent.pleg.metrics import PlegMetrics
from nodeagent.pleg.settings import PlegSettings
from nodeagent.pleg.speaker import Speaker
from nodeagent.pleg.tracked import TrackedPod, View, is_alive
from nodeagent.pleg.unknown import steady

log: Final = Log("pleg")

Found: TypeAlias = Callable[[PodUID, frozenset[str], float], None]
"""Is told of the ids whose change a relist was the first to see, and when it was not there yet."""


class PodLooker:
    """At most one task per pod, a bounded number of them at work (docs/behaviour/pleg.md).

    Args:
        lister: the runtime.
        cache: where inspections go.
        books: the tracked pods.
        speaker: tells the sync loop.
        metrics: durations and drops.
        journal: looks that failed.
        settings: durations and bounds.
        wanted: whether a source wants a pod, or a worker works on it.
    """

    def __init__(
        self,
        lister: Lister,
        cache: PodCache,
        books: Books,
        speaker: Speaker,
        metrics: PlegMetrics,
        journal: Journal,
        settings: PlegSettings,
        wanted: Callable[[PodUID], bool],
    ) -> None:
        self._wanted = wanted
        self._lister = lister
        self._cache = cache
        self._books = books
        self._speaker = speaker
        self._metrics = metrics
        self._journal = journal
        self._settings = settings
        self._slots = PatientLimiter(settings.concurrency, settings.patience)
        # Pods that hung or failed before retry in a lane of their own, off everyone's way.
        self._second_tries = PatientLimiter(settings.concurrency, settings.patience)
        self._asked: set[TrackedPod] = set()
        self._later: dict[PodUID, set[float]] = {}
        self._busy = 0
        self._idle = anyio.Event()
        self.tasks: TaskGroup | None = None
        """Where looks run; None while PLEG does not run."""
        self.on_found: Found | None = None
        self.leave_to_relist: Callable[[], None] = _nothing
        """Is called when a pod could not be looked at, so that a relist does it."""
        self.last_audit = -math.inf
        """Start of the relist before the one whose finds are being offered."""

    async def settled(self) -> None:
        """Wait until no pod is being looked at."""
        while self._busy:
            await self._idle.wait()

    def reconfigure(self, settings: PlegSettings) -> None:
        """Look within these bounds from now on."""
        self._settings = settings
        self._slots.resize(settings.concurrency)
        self._second_tries.resize(settings.concurrency)

    def offer(self, pod: TrackedPod, view: View) -> None:
        """Act on what a relist found of one pod, now or when its task comes to it."""
        if view.at <= pod.seen_at:
            return  # a look at this pod alone has begun later and been faster
        self._books.name(pod, view.pod)
        self._compare(pod, view)
        self._books.note(pod, view)
        if not pod.busy and self._settle_without_calls(pod, view):
            return
        pod.waiting = view
        self._hold_if_behind(pod)
        if not pod.busy:
            self._begin(pod)
        elif pod.outdated_by(view, anyio.current_time(), self._settings.patience):
            pod.give_up()

    def _compare(self, pod: TrackedPod, view: View) -> None:
        if self.on_found is None or view.at <= pod.newest_at:
            return
        if changed := announced_ids(pod.newest, view.pod):
            self.on_found(pod.uid, changed, max(pod.newest_at, self.last_audit))

    def ask_within(self, uid: PodUID, seconds: float) -> None:
        """Look at a pod in so many seconds at the latest, if it is still in the books then."""
        latest = anyio.current_time() + seconds
        if not any(due <= latest for due in self._later.get(uid, ())):
            self.ask_later(uid, seconds)

    def ask_later(self, uid: PodUID, after: float) -> None:
        """Look at a pod in ``after`` seconds, if it is still in the books then."""
        due = anyio.current_time() + after
        if self.tasks is None or due in self._later.get(uid, ()):
            return
        self._later.setdefault(uid, set()).add(due)
        self.tasks.start_soon(self._ask_at, uid, due)

    async def _ask_at(self, uid: PodUID, due: float) -> None:
        try:
            await anyio.sleep_until(due)
        finally:
            self._later[uid].discard(due)
            if not self._later[uid]:
                del self._later[uid]
        if (pod := self._books.find(uid)) is not None:
            self.ask(pod)

    def ask(self, pod: TrackedPod, delay: float | None = None, *, acted: bool = True) -> None:
        """Look at a pod, or leave it to the next relist when too many were asked for.

        Args:
            pod: whom to look at.
            delay: seconds to wait for further requests, by default that of the settings.
            acted: whether somebody has just changed the pod, or waits for a look later than
                now. Loop time goes by milliseconds, so such a look waits for the next one.
        """
        self._books.unsettle(pod)
        if self.tasks is None:
            return  # the first relist comes at once
        if pod not in self._asked and len(self._asked) >= self._settings.max_requests:
            self._metrics.dropped_requests.inc()
            self.leave_to_relist()
            return
        now = anyio.current_time()
        due = now + (self._settings.request_delay if delay is None else delay)
        if pod.asked_at is None or due < pod.due:
            pod.due = due
            if pod.hurry is not None:
                pod.hurry.set()
        self._asked.add(pod)
        pod.acted |= acted
        pod.asked_at = now
        if not pod.busy:
            self._begin(pod)

    def _begin(self, pod: TrackedPod) -> None:
        assert self.tasks is not None, "a look at a pod needs a running PLEG"
        pod.busy = True
        self._busy += 1
        self._books.unsettle(pod)
        self.tasks.start_soon(self._attend, pod)

    async def _attend(self, pod: TrackedPod) -> None:
        """Look at one pod until nothing is waiting or asked for."""
        try:
            while pod.waiting is not None or pod.asked_at is not None:
                if pod.asked_at is not None and pod.waiting is None:
                    await self._until_due(pod)
                lane = self._slots if pod.trouble is None else self._second_tries
                async with lane.slot():
                    await self._look(pod)
        except Exception as error:  # noqa: BLE001 - a fault about one pod must not stop the rest
            log.fault("look_failed", error, uid=pod.uid, pod=pod.name)
            self._journal.record("pleg", "LookFailed", pod.uid, repr(error))
            pod.reinspect = True
        finally:
            pod.busy = False
            self._answered(pod)
            self._busy -= 1
            self._idle.set()
            self._idle = anyio.Event()

    @staticmethod
    async def _until_due(pod: TrackedPod) -> None:
        """Collect requests until the look is due, which a request may make earlier."""
        while (left := pod.due - anyio.current_time()) > 0:
            pod.hurry = anyio.Event()
            with anyio.move_on_after(left):
                await pod.hurry.wait()
        pod.hurry = None

    def _answered(self, pod: TrackedPod) -> None:
        pod.asked_at, pod.acted = None, False
        self._asked.discard(pod)

    async def _look(self, pod: TrackedPod) -> None:
        asked_at = pod.asked_at
        if asked_at is not None:
            begun = pod.seen_at if pod.waiting is None else max(pod.seen_at, pod.waiting.at)
            after = asked_at if pod.acted else max(begun, pod.newest_at)
            self._answered(pod)
            if pod.waiting is None or pod.waiting.at <= asked_at:
                await self._fetch(pod, after)
        view, pod.waiting = pod.waiting, None
        if view is None or view.at <= pod.seen_at:
            return
        if not self._settle_without_calls(pod, view):
            await self._inspect(pod, view)

    def show_end(
        self, pod: TrackedPod, before: RuntimePod, ended: ContainerRuntimeStatus, at: float
    ) -> bool:
        """Take in that a container has ended, of which its own status tells all.

        Args:
            pod: whose.
            before: the pod as a look has shown it, with the container running.
            ended: its details.
            at: when they were asked for.

        Returns:
            False when something else may have happened to the pod, so that only a look will do.
        """
        known = self._cache.get(pod.uid)
        current = (
            pod.newest is before
            and pod.newest_at < at
            and self._books.is_settled(pod)
            and not pod.needs_inspection(View(before, at, audit=False))
        )
        if not current or known.by_id(ended.id) is None:
            return False
        containers = (
            replace(c, state=ended.state) if c.id == ended.id else c for c in before.containers
        )
        after = replace(before, containers=tuple(containers))
        view = View(after, at, audit=False)
        details = (ended if c.id == ended.id else c for c in known.containers)
        status = replace(known, containers=tuple(details))
        self._books.note(pod, view)
        pod.inspected = as_known(after, status)
        self._cache.set(pod.uid, status, at)
        self._finish(pod, view)
        return True

    def _settle_without_calls(self, pod: TrackedPod, view: View) -> bool:
        """Act on a view if no inspection is needed for that."""
        if not pod.needs_inspection(view):
            self._take(pod, view)
        elif self._nobody_asks(pod, view):
            self._shelve(pod, view)
        else:
            return False
        return True

    def _nobody_asks(self, pod: TrackedPod, view: View) -> bool:
        """Whether the details of a pod can wait: it is dead, and nobody wants it."""
        dead = not is_alive(view.pod) and not is_alive(pod.inspected)
        return dead and not self._wanted(pod.uid) and not self._cache.waits(pod.uid)

    async def _fetch(self, pod: TrackedPod, after: float) -> None:
        """List this pod alone, later than ``after``; what is found waits for :meth:`_look`."""
        if anyio.current_time() <= after:
            await anyio.sleep(self._settings.request_delay)
        pod.fetching_at = at = anyio.current_time()
        timeout = self._settings.inspect_timeout
        try:
            found = await ask_runtime(
                pod, timeout, lambda watch: self._lister.get_pod(pod.uid, watch)
            )
        except SupersededError:
            return
        except InspectionError as error:
            # No harm done: the next relist looks at this pod too.
            log.debug("look_failed", uid=pod.uid, pod=pod.name, error=str(error))
            self._journal.record("pleg", "LookFailed", pod.uid, error.cause, rpc=error.rpc)
            self.leave_to_relist()
            return
        finally:
            pod.fetching_at = None
        self._books.name(pod, found)
        view = View(found, at, audit=False)
        self._books.note(pod, view)
        if pod.waiting is None or pod.waiting.at < at:
            pod.waiting = view

    async def _inspect(self, pod: TrackedPod, view: View) -> None:
        target = view.pod
        assert target is not None, "what is not there cannot be inspected"
        pod.looking = target
        began = anyio.current_time()
        timeout = self._settings.inspect_timeout
        known = self._cache.get(pod.uid)
        # With many pods to look at, those are enough to be made side by side.
        at_once = 1 if self._busy > self._settings.concurrency else AT_ONCE
        try:
            found = await ask_runtime(
                pod, timeout, lambda watch: self._lister.inspect(target, watch, known, at_once)
            )
            status = self._steady(pod, found, known)
        except SupersededError:
            return
        except InspectionError as error:
            pod.reinspect = True
            self._books.degrade(pod, Trouble(error.rpc, began, error.cause))
            self._cache.set_error(pod.uid, error, anyio.current_time())
            return
        finally:
            pod.looking = None
            self._metrics.pod_relist_duration.observe(anyio.current_time() - began)
        pod.owes_sync |= pod.reinspect
        pod.reinspect = False
        pod.inspected = as_known(target, status)
        self._cache.set(pod.uid, keep_ips(status, self._cache.get(pod.uid)), view.at)
        self._finish(pod, view)

    def _steady(
        self, pod: TrackedPod, found: PodRuntimeStatus, known: PodRuntimeStatus
    ) -> PodRuntimeStatus:
        """Do not believe at once that a state is unknown; look again when it is time to."""
        now = anyio.current_time()
        judged = steady(found, known, pod.unknown_since, now, self._settings.unknown_patience)
        pod.unknown_since, pod.doubted_until = dict(judged.since), judged.until
        if judged.doubt:
            cause = f"container {judged.doubt} is in a state that the runtime does not know"
            raise InspectionError(pod.uid, "ContainerStatus", cause)
        pod.owes_sync |= judged.believed
        if judged.until < math.inf:
            self.ask_later(pod.uid, judged.until - now)
        return judged.status

    def _take(self, pod: TrackedPod, view: View) -> None:
        """Act on a view that needs no inspection."""
        pod.inspected = view.pod
        if view.pod is None:
            pod.reinspect = False
            pod.warned.clear()
            pod.unknown_since, pod.doubted_until = {}, math.inf
            self._cache.delete(pod.uid, view.at)
        else:
            self._cache.set_observed(pod.uid, view.at)
        self._finish(pod, view)

    def _shelve(self, pod: TrackedPod, view: View) -> None:
        """Say what happened to a pod, and leave its details until somebody asks for them."""
        pod.reinspect = False
        self._finish(pod, view)
        # Whoever asks must not take the old record, or none, for the present state.
        self._cache.put_off(pod.uid)

    def _finish(self, pod: TrackedPod, view: View) -> None:
        pod.seen_at = view.at
        self._hold_if_behind(pod)
        self._books.recover(pod)
        self._speaker.say(pod, view)
        # A pod with a task stays unsettled, so the next relist visits it even if its list is the
        # same objects as one that began before this look.
        self._books.settle(pod)

    def _hold_if_behind(self, pod: TrackedPod) -> None:
        if pod.waiting is not None and pod.differs(pod.waiting):
            self._cache.hold(pod.uid)


def _nothing() -> None:
    return


def keep_ips(status: PodRuntimeStatus, known: PodRuntimeStatus) -> PodRuntimeStatus:
    """A pod whose sandboxes have all ended keeps the addresses that it had."""
    if status.ips or status.has_ready_sandbox or not known.ips:
        return status
    return replace(status, ips=known.ips)
