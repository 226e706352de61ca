"""Whether an event feed tells of all that happens: pure bookkeeping, times are loop times.

docs/behaviour/pleg.md, "Event feeds". The audit is the relist: it finds everything, also what
a feed should have announced and did not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from nodeagent.model import PodUID

_WINDOW: Final = 60.0
_TOLERATED: Final = 2
"""Changes that a feed which speaks may miss in a minute."""
_TIDY: Final = 10.0
"""Seconds between two looks for what is too old to be remembered."""


@dataclass(slots=True)
class FeedTrust:
    """What one feed has announced, what it has missed, and whether it is still believed.

    Attributes:
        grace: seconds that an announcement may lag behind, or be ahead of, what a look finds.
        opened_at: since when the stream is open; None while it is not.
        heard_at: when it last spoke.
        distrusted_at: since when it is not believed; None while it is.
    """

    grace: float
    opened_at: float | None = None
    heard_at: float = -math.inf
    distrusted_at: float | None = None
    _announced: dict[str, float] = field(default_factory=dict)
    _unannounced: dict[PodUID, tuple[float, float]] = field(default_factory=dict)
    _misses: list[tuple[PodUID, float]] = field(default_factory=list)
    _tidy_at: float = -math.inf

    def opened(self, now: float) -> None:
        """A new stream: what happened before it is not held against it."""
        self.opened_at = now
        self._unannounced.clear()

    def closed(self) -> None:
        """The stream is gone."""
        self.opened_at = None
        self._unannounced.clear()

    def announced(self, uid: str, ids: Iterable[str], now: float) -> bool:
        """It spoke of a pod, or of things whose pod is not known; True when it is believed anew."""
        self.heard_at = now
        for key in (uid, *ids):
            if key:
                self._announced[key] = now
        if uid:
            self._unannounced.pop(PodUID(uid), None)
            # Late is not never: a runtime that has too much to do is not to be asked more often.
            self._misses = [(missed, at) for missed, at in self._misses if missed != uid]
        if self.distrusted_at is None or self._lossy(now):
            return False
        self.distrusted_at = None
        return True

    def found(self, uid: PodUID, ids: Iterable[str], since: float, now: float) -> None:
        """The audit has found a change of a pod that happened after ``since``."""
        if self.opened_at is None or since < self.opened_at:
            return
        # An event may also be a little ahead of the lists.
        earliest = since - self.grace
        if any(self._announced.get(key, -math.inf) >= earliest for key in (uid, *ids)):
            return
        self._unannounced.setdefault(uid, (now, since))

    def judge(self, now: float) -> tuple[tuple[PodUID, ...], bool]:
        """The pods of which a change was missed, and whether the feed has just lost its credit."""
        missed = []
        lost = False
        for uid, (found_at, since) in list(self._unannounced.items()):
            if now - found_at < self.grace:
                continue
            del self._unannounced[uid]
            missed.append(uid)
            self._misses.append((uid, now))
            lost |= self.heard_at < since
        self._forget(now)
        lost |= bool(missed) and self._lossy(now)
        if not lost or self.distrusted_at is not None:
            return tuple(missed), False
        self.distrusted_at = now
        return tuple(missed), True

    @property
    def misses(self) -> int:
        """Changes that were missed in the last minute."""
        return len(self._misses)

    def _lossy(self, now: float) -> bool:
        return sum(now - at < _WINDOW for _, at in self._misses) > _TOLERATED

    def _forget(self, now: float) -> None:
        self._misses = [(uid, at) for uid, at in self._misses if now - at < _WINDOW]
        horizon = now - _WINDOW
        if len(self._announced) > 64 and now >= self._tidy_at:
            self._tidy_at = now + _TIDY
            self._announced = {key: at for key, at in self._announced.items() if at > horizon}
