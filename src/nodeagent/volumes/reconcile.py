"""What is to be done next about one volume of one pod. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

FIRST_BACK_OFF: Final = 0.5
LONGEST_BACK_OFF: Final = 122.0


class Held(enum.StrEnum):
    """What of a volume is there."""

    NOTHING = "nothing"
    UNCERTAIN = "uncertain"
    """Something was begun, or an earlier agent left it: it must be undone even if it was
    never ready."""
    MOUNTED = "mounted"


class Step(enum.StrEnum):
    """What can be done about it."""

    SET_UP = "set up"
    REFRESH = "refresh"
    TEAR_DOWN = "tear down"


@dataclass(frozen=True, slots=True)
class VolumeState:
    """Where a volume is.

    Attributes:
        wanted: whether its pod is to have it.
        held: what of it is there.
        stale: whether its content may be behind.
        busy: what is being done about it right now.
        failures: how often that failed since it last succeeded.
        retry_at: loop time before which nothing is tried again.
    """

    wanted: bool = True
    held: Held = Held.NOTHING
    stale: bool = False
    busy: Step | None = None
    failures: int = 0
    retry_at: float = 0.0


def back_off(failures: int) -> float:
    """Seconds to wait after so many failures in a row."""
    if failures <= 0:
        return 0.0
    return float(min(FIRST_BACK_OFF * 2 ** min(failures - 1, 16), LONGEST_BACK_OFF))


def needed_step(state: VolumeState) -> Step | None:
    """What would bring the volume to where it should be; None when it is there."""
    if not state.wanted:
        return None if state.held is Held.NOTHING else Step.TEAR_DOWN
    if state.held is not Held.MOUNTED:
        return Step.SET_UP
    return Step.REFRESH if state.stale else None


def next_step(state: VolumeState, now: float) -> Step | None:
    """What to begin now; None while something is being done, or is waited for."""
    if state.busy is not None or now < state.retry_at:
        return None
    return needed_step(state)


def wish(state: VolumeState, *, wanted: bool, stale: bool = False) -> VolumeState:
    """Want the volume, or do not any more. A change of mind is acted upon at once."""
    if wanted != state.wanted:
        state = replace(state, failures=0, retry_at=0.0)
    return replace(state, wanted=wanted, stale=wanted and (state.stale or stale))


def at_once(state: VolumeState) -> VolumeState:
    """Wait no longer before the next try."""
    return replace(state, failures=0, retry_at=0.0)


def began(state: VolumeState, step: Step) -> VolumeState:
    """A step is under way: until it has succeeded nothing is certain."""
    held = state.held if step is Step.REFRESH else Held.UNCERTAIN
    # What changes from now on may not be seen by this step.
    return replace(state, busy=step, held=held, stale=False)


def ended(state: VolumeState, *, ok: bool, now: float) -> VolumeState:
    """The step that was under way has ended."""
    step = state.busy
    if not ok:
        if step is not None and (step is Step.TEAR_DOWN) is state.wanted:
            # What has to be done now is something else.
            return replace(state, busy=None, failures=0, retry_at=0.0)
        failures = state.failures + 1
        return replace(
            state,
            busy=None,
            failures=failures,
            retry_at=now + back_off(failures),
            stale=state.stale or step is Step.REFRESH,
        )
    held = Held.NOTHING if step is Step.TEAR_DOWN else Held.MOUNTED
    return replace(state, busy=None, failures=0, retry_at=0.0, held=held)
