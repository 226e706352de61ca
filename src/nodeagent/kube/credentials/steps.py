"""What a node's client certificate needs next. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from nodeagent.kube.validity import Validity

_FIRST_DELAY: Final = 2.0
_LONGEST_DELAY: Final = 32.0
_REFUSED_DELAY: Final = 60.0
_LONGEST_REFUSED_DELAY: Final = 600.0


class Step(Enum):
    """What to do."""

    WAIT = "wait"
    BOOTSTRAP = "bootstrap"
    ROTATE = "rotate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What there is.

    Attributes:
        now: wall time.
        access: there are credentials.
        passing: there are none, but what is wrong may go away by itself.
        validity: of the client certificate that would be rotated; None for none.
        deadline: when it is to be rotated; None for never.
        can_bootstrap: there is a bootstrap kubeconfig.
    """

    now: datetime
    access: bool
    passing: bool
    validity: Validity | None
    deadline: datetime | None
    can_bootstrap: bool


def next_step(situation: Situation) -> Step:
    """What to do now."""
    ended = situation.validity is not None and situation.validity.ends <= situation.now
    without = not situation.access and not situation.passing
    if situation.can_bootstrap and (without or ended):
        return Step.BOOTSTRAP
    if situation.deadline is not None and situation.now >= situation.deadline:
        return Step.ROTATE
    return Step.WAIT


def rotation_deadline(validity: Validity, share: float | None = None) -> datetime:
    """When to ask for a new certificate: after 70 to 90 % of its life.

    Args:
        validity: of the certificate.
        share: of its life; drawn when it is None.
    """
    part = random.uniform(0.7, 0.9) if share is None else share
    return validity.begins + max(validity.ends - validity.begins, timedelta()) * part


def new_deadline(validity: Validity, now: datetime) -> datetime:
    """The same for a certificate that has just been given: its life counts from now on.

    Signers often let it begin earlier, so that a short one would be due at once, and the next
    one, too.
    """
    return rotation_deadline(Validity(max(validity.begins, now), validity.ends))


def retry_delay(failures: int, *, refused: bool) -> float:
    """Seconds until the next try after ``failures`` in a row, before jitter."""
    first, longest = _FIRST_DELAY, _LONGEST_DELAY
    if refused:
        first, longest = _REFUSED_DELAY, _LONGEST_REFUSED_DELAY
    return float(min(first * 2 ** min(max(failures, 1) - 1, 16), longest))
