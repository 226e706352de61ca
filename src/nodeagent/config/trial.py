"""Which configuration is in force, which one is on trial, and which one is known to be good. Pure.

Configurations go by their digests here. Each function takes a state and what has happened, and
gives the state after it and what has to be done; times are loop times. What it is for:
docs/reload-and-rollback.md.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

PATIENCE: Final = 10.0
"""Seconds that a node may be unwell without a break before a change is taken back."""


class Do(enum.Enum):
    """What has to be done."""

    NOTHING = "nothing"
    APPLY = "apply"
    """The configuration that is active now has to be put in force."""
    REMEMBER = "remember"
    """The one that is active is the last known good one now: keep it."""
    ROLL_BACK = "roll back"
    """The last known good one is active again, and has to be put in force."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What an active configuration has to stand.

    Attributes:
        until: when it is known to be good if the node is well.
        sound: the node was well before the change, so that the change may be what is wrong.
        unwell_since: since when it is not without a break; None while it is well.
    """

    until: float
    sound: bool
    unwell_since: float | None = None


@dataclass(frozen=True, slots=True)
class ConfigState:
    """Where a node stands with its configuration.

    Attributes:
        assigned: what the files say; "" while they cannot be used.
        active: what is in force.
        last_known_good: what was found good last; "" for nothing.
        error: why what the files say is not in force; "" when it is.
        refused: what was rolled back, and is not tried again until somebody asks; "" for nothing.
        trial: of the active one; None when it has none to stand.
    """

    assigned: str
    active: str
    last_known_good: str = ""
    error: str = ""
    refused: str = ""
    trial: Trial | None = None


def started(
    files: str, active: str, last_good: str, error: str, refused: str, until: float
) -> ConfigState:
    """The state of an agent that starts.

    Args:
        files: what the files say; "" when they cannot be used.
        active: what the agent starts with.
        last_good: what an earlier agent found good; "" for nothing.
        error: why ``active`` is not what the files say.
        refused: what an earlier agent rolled back.
        until: when a trial that begins now ends.
    """
    trial = None if active == last_good else Trial(until, sound=False)
    return ConfigState(files, active, last_good, error, refused, trial)


def good_change(
    state: ConfigState, digest: str, *, well: bool, until: float, asked: bool = False
) -> tuple[ConfigState, Do]:
    """The files say something that can be used.

    Args:
        state: the state before.
        digest: what they say.
        well: whether the node is well now.
        until: when a trial that begins now ends.
        asked: somebody asks for it: also what was rolled back is tried again.
    """
    if digest == state.active:
        return replace(state, assigned=digest, error=""), Do.NOTHING
    if digest == state.refused and not asked:
        return replace(state, assigned=digest), Do.NOTHING
    sound = well if state.trial is None else well or state.trial.sound
    known = digest == state.last_known_good
    trial = None if known else Trial(until, sound)
    return ConfigState(digest, digest, state.last_known_good, trial=trial), Do.APPLY


def bad_change(state: ConfigState, error: str) -> ConfigState:
    """The files say something that cannot be used: what is in force stays."""
    return replace(state, assigned="", error=error)


def looked(state: ConfigState, now: float, trouble: str) -> tuple[ConfigState, Do]:
    """Somebody has looked at how the node is.

    Args:
        state: the state before.
        now: loop time.
        trouble: what is wrong with it; "" when it is well.
    """
    trial = state.trial
    if trial is None:
        return state, Do.NOTHING
    if not trouble:
        if now < trial.until and state.last_known_good:
            return replace(state, trial=replace(trial, unwell_since=None)), Do.NOTHING
        # The first one that works at all is the best that is known.
        return replace(state, last_known_good=state.active, trial=None), Do.REMEMBER
    since = now if trial.unwell_since is None else trial.unwell_since
    waiting = replace(state, trial=replace(trial, unwell_since=since))
    if not (trial.sound and state.last_known_good) or now - since < PATIENCE:
        return waiting, Do.NOTHING
    back = ConfigState(
        assigned=state.assigned,
        active=state.last_known_good,
        last_known_good=state.last_known_good,
        error=f"rolled back to the last known good configuration: {trouble}",
        refused=state.active,
    )
    return back, Do.ROLL_BACK
