"""Pods that cannot be stopped: how often it was tried, and for how long. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nodeagent.pods.worker_outcomes import Call, CallKind

_STOPS = frozenset({CallKind.TERMINATING, CallKind.TERMINATING_RUNTIME})


@dataclass(frozen=True, slots=True)
class StopFailure:
    """A pod that is to stop and does not.

    Attributes:
        pod: ``namespace/name``.
        cause: what the last try ended in.
        since: loop time at which the first try failed.
        tries: how many have failed, one after the other.
    """

    pod: str
    cause: str
    since: float
    tries: int = 1


def next_failure(
    before: StopFailure | None, pod: str, call: Call, error: Exception | None, now: float
) -> StopFailure | None:
    """What is known after one more call; None when there is nothing to complain about.

    Args:
        before: what was known.
        pod: ``namespace/name``.
        call: the call that has ended.
        error: what it raised; a call that was cancelled raises nothing, and changes nothing.
        now: loop time.
    """
    if call.kind not in _STOPS:
        return None
    if error is None:
        return before
    cause = str(error) or repr(error)
    if before is None:
        return StopFailure(pod, cause, now)
    return replace(before, cause=cause, tries=before.tries + 1)
