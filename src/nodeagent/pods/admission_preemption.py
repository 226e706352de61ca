"""Which pods have to go so that a critical one can run. Pure.

Rows and their tests: docs/behaviour/admission.md, "Preemption".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from nodeagent.api import Pod, PodCondition, PodStatus
from nodeagent.pods.admission_resources import CPU, MEMORY, PODS, Insufficient, RequestBook
from nodeagent.pods.conditions import DISRUPTION_TARGET, TRUE

CRITICAL_PRIORITY: Final = 2_000_000_000
PREEMPTING: Final = "Preempting"
PREEMPTED: Final = "Preempted in order to admit critical pod"
_DISRUPTED: Final = "Pod was preempted by Kubelet to accommodate a critical pod."
_CLASSES: Final = ("BestEffort", "Burstable", "Guaranteed")

Needs: TypeAlias = Mapping[str, int]
"""What still has to become free, by resource."""


class NoVictimsError(Exception):
    """There are no pods whose end would make enough room; the text says for what."""


def needs_of(lacking: Iterable[Insufficient]) -> Needs:
    """What has to become free."""
    return {each.resource: each.missing for each in lacking}


def may_preempt(pod: Pod, critical: bool, other: Pod, other_critical: bool) -> bool:
    """Whether a pod goes before another."""
    if critical and not other_critical:
        return True
    own, theirs = pod.spec.priority, other.spec.priority
    return own is not None and theirs is not None and own > theirs


def victims(
    needs: Needs,
    candidates: Sequence[Pod],
    qos_class: Callable[[Pod], str],
    book: RequestBook | None = None,
) -> tuple[Pod, ...]:
    """Choose pods that together hold what is needed: of each class as few as possible.

    Guaranteed pods go only for what all others together do not hold, and so on down the classes.

    Args:
        needs: what has to become free.
        candidates: the pods that may be chosen.
        qos_class: their class of service.
        book: remembers sums.

    Raises:
        NoVictimsError: all of them together do not hold enough.
    """
    choice = _Choice(book or RequestBook())
    left = choice.without(needs, candidates)
    if left:
        raise NoVictimsError(_said(left))
    best_effort, burstable, guaranteed = (
        [pod for pod in candidates if qos_class(pod) == name] for name in _CLASSES
    )
    of_guaranteed = choice.of(guaranteed, choice.without(needs, [*best_effort, *burstable]))
    of_burstable = choice.of(burstable, choice.without(needs, [*best_effort, *of_guaranteed]))
    of_best_effort = choice.of(best_effort, choice.without(needs, [*of_burstable, *of_guaranteed]))
    return (*of_best_effort, *of_burstable, *of_guaranteed)


class _Choice:
    def __init__(self, book: RequestBook) -> None:
        self._book = book

    def _held(self, pod: Pod, name: str) -> int:
        return 1 if name == PODS else self._book.of(pod).get(name, 0)

    def without(self, needs: Needs, pods: Iterable[Pod]) -> Needs:
        """What is still needed when these pods are gone."""
        left = dict(needs)
        for pod in pods:
            for name in left:
                left[name] -= self._held(pod, name)
        return {name: amount for name, amount in left.items() if amount > 0}

    def of(self, pods: Iterable[Pod], needs: Needs) -> list[Pod]:
        """One after the other the pod that comes nearest to what is still needed."""
        left, chosen = list(pods), []
        while needs:
            if not left:
                raise NoVictimsError(_said(needs))
            nearest = min(left, key=lambda pod: self._rank(pod, needs))
            left.remove(nearest)
            chosen.append(nearest)
            needs = self.without(needs, [nearest])
        return chosen

    def _rank(self, pod: Pod, needs: Needs) -> tuple[float, int, int]:
        """How far it is from enough, each resource counting the same; the smaller pod first."""
        distance = sum(
            ((amount - self._held(pod, name)) / amount) ** 2
            for name, amount in needs.items()
            if amount > self._held(pod, name)
        )
        return distance, self._held(pod, MEMORY), self._held(pod, CPU)


def _said(needs: Needs) -> str:
    parts = "".join(f"(res: {name}, q: {amount}), " for name, amount in needs.items())
    return f"no set of running pods found to reclaim resources: [{parts}]"


def preempted(status: PodStatus) -> PodStatus:
    """The status of a pod that has to go."""
    target = PodCondition(
        type=DISRUPTION_TARGET,
        status=TRUE,
        reason="TerminationByKubelet",
        message=_DISRUPTED,
        observed_generation=status.observed_generation,
    )
    others = tuple(c for c in status.conditions if c.type != DISRUPTION_TARGET)
    return replace(
        status,
        phase="Failed",
        reason=PREEMPTING,
        message=PREEMPTED,
        conditions=(*others, target),
    )
