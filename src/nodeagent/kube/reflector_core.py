"""What a reflector does next: list, page on, watch, wait. Pure (docs/behaviour/api-source.md).

The core knows no clock and no connection. It is told what came of the last step and how long
that took, and says which step comes next and how long to wait before it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

from nodeagent.kube.errors import ApiError, KubeError, UndecodableError, UnreachableError

PAGE_SIZE: Final = 500
FIRST_DELAY: Final = 0.8
"""Seconds of the first back-off; each further one is twice as long."""
LONGEST_DELAY: Final = 30.0
RESET_AFTER: Final = 120.0
"""Seconds without a failure after which the back-off begins anew."""
LONGEST_RETRY_AFTER: Final = 120.0
"""Seconds: what a server asks for beyond that is not believed."""
STEADY_WATCH: Final = 10.0
"""A watch that was open for so long, in seconds, and then breaks is no reason to wait longer: what
lies between cuts connections from time to time."""
SHORT_WATCH: Final = 1.0
"""A watch that ends sooner than this, in seconds, is a failure."""


class Step(enum.Enum):
    """What to ask the server."""

    WATCH_LIST = enum.auto()
    """A watch that begins with all there is."""
    LIST = enum.auto()
    """All there is, or one page of it."""
    WATCH = enum.auto()
    """What changes from a version on."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The next step.

    Attributes:
        step: what to do.
        version: ``resourceVersion`` of the request; "" asks for the newest state there is.
        limit: of a list; 0 for none.
        token: the page that a list goes on with; "" for the first.
        delay: seconds to wait before, without jitter.
    """

    step: Step
    version: str = ""
    limit: int = 0
    token: str = ""
    delay: float = 0.0


class Failure(enum.Enum):
    """What went wrong, as far as it decides what comes next."""

    EXPIRED = "expired"
    """The version, or the page, is too old."""
    AHEAD = "ahead"
    """The server does not know this version yet."""
    BUSY = "busy"
    """429."""
    REFUSED = "refused"
    """The server does not serve such a request."""
    LOST = "lost"
    """No answer, or the connection broke."""
    SILENT = "silent"
    """The connection is open, and nothing comes."""
    OTHER = "other"
    """Anything else."""


_NOT_SERVED: Final = (400, 404, 405, 406, 415, 422)


def failure_of(error: KubeError) -> Failure:
    """How a failed request counts."""
    match error:
        case ApiError() if error.gone:
            return Failure.EXPIRED
        case ApiError() if error.status == 504 and "Too large resource version" in error.message:
            return Failure.AHEAD
        case ApiError() if error.too_many_requests:
            return Failure.BUSY
        case ApiError() if error.status in _NOT_SERVED:
            return Failure.REFUSED
        case UnreachableError():
            return Failure.LOST
        case UndecodableError() | _:
            return Failure.OTHER


@dataclass(slots=True)
class BackOff:
    """Seconds between tries: each twice the last, up to a limit, anew after a quiet time."""

    next_delay: float = FIRST_DELAY
    failed_at: float | None = None

    def failed(self, now: float) -> float:
        """The delay after a failure at loop time ``now``."""
        if self.failed_at is not None and now - self.failed_at >= RESET_AFTER:
            self.next_delay = FIRST_DELAY
        delay = self.next_delay
        self.next_delay = min(2 * delay, LONGEST_DELAY)
        # The quiet time begins when the wait is over.
        self.failed_at = now + delay
        return delay


class ReflectorCore:
    """Decides. Every method that reports an outcome changes :attr:`plan` to what comes next.

    Args:
        version: last version that is known from before, "" for none. The first list then shows
            nothing older.
        watch_list: whether to try a WatchList at all.
    """

    def __init__(self, version: str = "", *, watch_list: bool = True) -> None:
        self.version = version
        self._wanted = self._watch_list = watch_list
        self._backoff = BackOff()
        self._progress = False
        self.plan = self._from_start()

    def _from_start(self, delay: float = 0.0) -> Plan:
        if self._watch_list:
            return Plan(Step.WATCH_LIST, self.version, delay=delay)
        return self._list(delay)

    def _list(self, delay: float = 0.0) -> Plan:
        if self.version:
            return Plan(Step.LIST, self.version, delay=delay)
        return Plan(Step.LIST, "0", PAGE_SIZE, delay=delay)

    # What came of a step.

    def page(self, token: str) -> None:
        """A page of the list came, and there are more."""
        self.plan = Plan(Step.LIST, "", PAGE_SIZE, token)

    def listed(self, version: str) -> None:
        """All there is has come, of this version."""
        self.version = version
        self._progress = True
        self.plan = Plan(Step.WATCH, version)

    def moved(self, version: str) -> None:
        """The watch has come to this version, by an event or by a bookmark; "" if not told."""
        self.version = version or self.version
        self._progress = True

    def ended(self, seconds: float, now: float) -> None:
        """The server ended the stream, as it may.

        Args:
            seconds: how long it was open.
            now: loop time.
        """
        progress, self._progress = self._progress, False
        if self.plan.step is Step.WATCH_LIST:
            # It ended before all had been told. Once without; the next time it is tried again.
            self.plan = self._list(self._backoff.failed(now))
        elif seconds >= SHORT_WATCH:
            self.plan = Plan(Step.WATCH, self.version)
        elif progress:
            self.plan = Plan(Step.WATCH, self.version, delay=self._backoff.failed(now))
        else:
            self.plan = self._from_start(self._backoff.failed(now))

    def failed(
        self,
        failure: Failure,
        now: float,
        *,
        open_for: float | None = None,
        retry_after: float = 0.0,
    ) -> None:
        """The step has failed.

        Args:
            failure: how.
            now: loop time.
            open_for: how long the stream was open, in seconds; None if it was not opened.
            retry_after: the server wants to be asked again after so many seconds.
        """
        good = open_for is not None and (self._progress or open_for >= SHORT_WATCH)
        self._progress = False
        if failure is Failure.LOST:
            # It may be another server, or another version of it, that answers next.
            self._watch_list = self._wanted
        match self.plan.step:
            case Step.WATCH:
                steady = open_for is not None and open_for >= STEADY_WATCH
                self.plan = self._after_watch(failure, now, good=good, steady=steady)
            case Step.WATCH_LIST:
                self.plan = self._after_watch_list(failure, now)
            case Step.LIST:
                self.plan = self._after_list(failure, now)
        delay = max(self.plan.delay, min(retry_after, LONGEST_RETRY_AFTER))
        self.plan = replace(self.plan, delay=delay)

    def _after_watch(self, failure: Failure, now: float, *, good: bool, steady: bool) -> Plan:
        match failure:
            case Failure.SILENT if good:
                # Nothing says that the server is in trouble: it is asked at once.
                return Plan(Step.WATCH, self.version)
            case Failure.LOST if steady:
                return Plan(Step.WATCH, self.version, delay=FIRST_DELAY)
            case Failure.LOST if good:
                return Plan(Step.WATCH, self.version, delay=self._backoff.failed(now))
            case Failure.BUSY:
                return Plan(Step.WATCH, self.version, delay=self._backoff.failed(now))
            case _:
                return self._from_start(self._backoff.failed(now))

    def _after_watch_list(self, failure: Failure, now: float) -> Plan:
        match failure:
            case Failure.EXPIRED | Failure.AHEAD if self.version:
                self.version = ""
                return self._from_start()
            case Failure.REFUSED:
                self._watch_list = False
                return self._list()
            case Failure.SILENT | Failure.OTHER:
                # Once without; the next time from the start it is tried again.
                return self._list()
            case _:
                return self._from_start(self._backoff.failed(now))

    def _after_list(self, failure: Failure, now: float) -> Plan:
        if failure in (Failure.EXPIRED, Failure.AHEAD) and (self.plan.version or self.plan.token):
            self.version = ""
            # A list that grew too old while it was paged is asked for in one piece.
            return Plan(Step.LIST, "", 0 if self.plan.token else PAGE_SIZE)
        return self._from_start(self._backoff.failed(now))
