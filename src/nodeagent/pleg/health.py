"""Whether PLEG sees what happens, and if not, who holds it up and since when.

docs/behaviour/pleg.md, "Health". Times are loop times; texts tell ages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodeagent.duration import format_duration
from nodeagent.model import PodUID


@dataclass(frozen=True, slots=True)
class Trouble:
    """A runtime call that fails or does not answer.

    Attributes:
        rpc: the call, ``ContainerStatus``.
        since: loop time at which the first call began that did not end well.
        error: what the runtime said; "" when it does not answer at all.
    """

    rpc: str
    since: float
    error: str = ""

    def describe(self, now: float) -> str:
        """One clause for people: which call, for how long, and why."""
        age = format_duration(round(now - self.since, 3))
        rpc = self.rpc or "the runtime"
        if self.error:
            return f"{rpc} has been failing for {age}: {self.error}"
        return f"{rpc} has not answered for {age}"


@dataclass(frozen=True, slots=True)
class DegradedPod:
    """A pod whose state is not known at present; ``name`` is ``namespace/name``."""

    uid: PodUID
    name: str
    trouble: Trouble

    def describe(self, now: float) -> str:
        """One clause for people: which pod, which call, for how long, and why."""
        return f"{self.name or self.uid}: {self.trouble.describe(now)}"


@dataclass(frozen=True, slots=True)
class PlegHealth:
    """The verdict.

    Attributes:
        ok: whether all pods are looked at often enough. Degraded pods do not change that.
        cause: one sentence; "" when there is nothing to say. When ``ok``, it names what may
            become worse: a listing that fails, or the pod that has been degraded for longest.
        pod: UID of the pod that ``cause`` names, "" for none.
        rpc: the runtime call that ``cause`` names, "" for none.
        since: loop time since when; None when ``rpc`` is "".
        degraded: the pods that could not be inspected, longest first.
        events: who tells of changes, "" when nobody was asked.
    """

    ok: bool
    cause: str = ""
    pod: str = ""
    rpc: str = ""
    since: float | None = None
    degraded: tuple[DegradedPod, ...] = ()
    events: str = ""


def judge(
    now: float,
    listed_at: float | None,
    listing: Trouble | None,
    degraded: Sequence[DegradedPod] = (),
    threshold: float = 180.0,
    patience: float = 5.0,
) -> PlegHealth:
    """Judge from what is known.

    Args:
        now: loop time.
        listed_at: start of the last look at all pods; None when there was none.
        listing: what keeps the next one, if anything.
        degraded: pods that could not be inspected.
        threshold: seconds that ``listed_at`` may lie back.
        patience: seconds after which a listing without an answer is worth telling.
    """
    pods = tuple(sorted(degraded, key=lambda pod: pod.trouble.since))
    cause = _listing_cause(now, listed_at, threshold)
    if cause is not None:
        if listing is None:
            return PlegHealth(ok=False, cause=cause, degraded=pods)
        cause = f"{cause} ({listing.describe(now)})"
        return PlegHealth(
            ok=False, cause=cause, rpc=listing.rpc, since=listing.since, degraded=pods
        )
    if listing is not None and (listing.error or now - listing.since > patience):
        cause = f"cannot list pods: {listing.describe(now)}"
        return PlegHealth(ok=True, cause=cause, rpc=listing.rpc, since=listing.since, degraded=pods)
    if not pods:
        return PlegHealth(ok=True)
    worst = pods[0]
    more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
    return PlegHealth(
        ok=True,
        cause=f"cannot inspect pod {worst.describe(now)}{more}",
        pod=worst.uid,
        rpc=worst.trouble.rpc,
        since=worst.trouble.since,
        degraded=pods,
    )


def _listing_cause(now: float, listed_at: float | None, threshold: float) -> str | None:
    if listed_at is None:
        return "pleg has yet to be successful"
    age = now - listed_at
    if age <= threshold:
        return None
    return (
        f"pleg was last seen active {format_duration(round(age, 3))} ago; "
        f"threshold is {format_duration(threshold)}"
    )
