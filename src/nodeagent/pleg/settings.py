"""PLEG's durations and bounds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class PlegSettings:
    """Durations are seconds.

    Attributes:
        period: from the end of one relist to the start of the next.
        evented_period: the same while an event feed tells of all changes.
        fast_period: the same while something is going on of which no feed tells.
        active_for: how long something goes on after a change or an own action.
        threshold: how long ago the last good relist may be.
        concurrency: pods looked at side by side.
        patience: a call that takes longer makes its pod degraded and gives up its slot.
        inspect_timeout: a call about one pod is given up after that.
        list_timeout: a relist's list calls are given up after that.
        request_delay: from a request to the look, so that a burst of them is one look.
        max_requests: pods waiting to be looked at on request; more wait for the relist.
        hint_sync_period: at most one POD_SYNC per pod in it for hints that nothing explained.
        event_grace: how far an event and what it is about may lie apart.
        unknown_patience: for how long it is not believed that a container's state is UNKNOWN.
        feed_retry: from the last feed's saying that it does not exist to asking again.
    """

    period: float = 1.0
    evented_period: float = 1.0
    fast_period: float = 0.2
    active_for: float = 5.0
    threshold: float = 180.0
    concurrency: int = 32
    patience: float = 5.0
    inspect_timeout: float = 30.0
    list_timeout: float = 120.0
    request_delay: float = 0.002
    max_requests: int = 200
    hint_sync_period: float = 60.0
    event_grace: float = 1.0
    unknown_patience: float = 30.0
    feed_retry: float = 600.0
