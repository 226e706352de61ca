"""How often all pods are looked at: decided by what else tells of changes. No I/O, no clock."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from nodeagent.pleg.settings import PlegSettings


class PaceMode(enum.Enum):
    """Who tells PLEG that something has changed (docs/behaviour/pleg.md, "Event feeds")."""

    STEADY = "steady"
    """Nobody is asked: one relist a period."""
    EVENTS = "events"
    """A feed that can be trusted: the relist is the audit."""
    ADAPTIVE = "adaptive"
    """Nobody: the relist is quick while something is going on."""
    DISTRUST = "distrust"
    """A feed that misses things: the relist is quick until it has recovered."""


@dataclass(slots=True)
class Pace:
    """The time from the end of one relist to the start of the next.

    Attributes:
        settings: the periods.
        mode: see :class:`PaceMode`.
        active_until: loop time until which something is taken to be going on.
    """

    settings: PlegSettings
    mode: PaceMode = PaceMode.STEADY
    active_until: float = -math.inf

    def stir(self, now: float) -> None:
        """Note that something has changed, or that we have changed something."""
        self.active_until = now + self.settings.active_for

    def period(self, now: float) -> float:
        """Seconds to rest, as of ``now``."""
        settings = self.settings
        match self.mode:
            case PaceMode.STEADY:
                return settings.period
            case PaceMode.EVENTS:
                return settings.evented_period
            case PaceMode.ADAPTIVE:
                quick = now < self.active_until
                return min(settings.fast_period, settings.period) if quick else settings.period
            case PaceMode.DISTRUST:
                return min(settings.fast_period, settings.period)
