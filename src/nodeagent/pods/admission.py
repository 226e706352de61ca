"""Whether a new pod may run on this node: all rules in their order. Pure.

Rows and their tests: docs/behaviour/admission.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from nodeagent.api import Pod
from nodeagent.api.node import Node
from nodeagent.pods.admission_affinity import matches_node
from nodeagent.pods.admission_platform import (
    Support,
    missing_features,
    no_app_armor,
    wrong_groups,
    wrong_system,
)
from nodeagent.pods.admission_ports import ports_are_free
from nodeagent.pods.admission_preemption import (
    NoVictimsError,
    may_preempt,
    needs_of,
    victims,
)
from nodeagent.pods.admission_resources import Insufficient, RequestBook, insufficient
from nodeagent.pods.admission_taints import tolerates_node
from nodeagent.pods.rejection import UNEXPECTED, Rejection, predicate_failed

AFFINITY: Final = "NodeAffinity"

Check: TypeAlias = Callable[[Pod], Rejection | None]
"""A rule that needs to know nothing but the pod."""


@dataclass(frozen=True, slots=True)
class Held:
    """Nothing is decided yet; whoever holds the pod asks again. ``why`` is for people."""

    why: str


class Admission(Protocol):
    """Decides whether a new pod may run."""

    def __call__(self, pod: Pod, active: Sequence[Pod]) -> Rejection | Held | None:
        """None to let it run. ``active`` are the other pods that hold resources."""
        ...

    def forget(self, pod: Pod) -> None:
        """Nobody needs to know any more about a pod that was held."""
        ...


@dataclass(frozen=True, slots=True)
class AskForNode:
    """The pod asks for another node, as far as is known of this one: look at it anew."""

    rejection: Rejection


@dataclass(frozen=True, slots=True)
class Preempt:
    """The pod may run once these have ended; ``signal`` is the resource it is for."""

    victims: tuple[Pod, ...]
    signal: str


Verdict: TypeAlias = Rejection | AskForNode | Preempt | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is the same for all pods.

    Attributes:
        support: tells what the machine and its runtime can do.
        is_critical: whether the node cannot do without a pod.
        qos_class: a pod's class of service.
        first: rules that count before those about the node.
        last: rules that count after them.
    """

    support: Callable[[], Support]
    is_critical: Callable[[Pod], bool]
    qos_class: Callable[[Pod], str]
    first: tuple[Check, ...] = ()
    last: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One pod that wants to run.

    Attributes:
        pod: the pod.
        others: the other pods that hold resources.
        node: the node; None when nothing is known of it.
        runs_here: it runs on this node already; then only what can still harm it counts.
        node_is_fresh: the node has just been looked at.
        room_was_made: pods have been ended for it.
    """

    pod: Pod
    others: Sequence[Pod]
    node: Node | None
    runs_here: bool = False
    node_is_fresh: bool = False
    room_was_made: bool = False


def decide(case: Case, rules: Rules, book: RequestBook | None = None) -> Verdict:
    """What is to be done about a pod that wants to run; None lets it."""
    pod = case.pod
    for check in rules.first:
        if (rejection := check(pod)) is not None:
            return rejection
    if case.node is None:
        rejection = Rejection("InvalidNodeInfo", "Kubelet cannot get node info.")
        return rejection if case.node_is_fresh else AskForNode(rejection)
    support = rules.support()
    if (unfit := _platform(pod, case.node, support)) is not None:
        return unfit
    verdict = _placed(case, case.node, rules, book or RequestBook())
    if isinstance(verdict, Rejection | AskForNode):
        return verdict
    for check in (*_last(support), *rules.last):
        if (rejection := check(pod)) is not None:
            return rejection
    return verdict


def _platform(pod: Pod, node: Node, support: Support) -> Rejection | None:
    return wrong_system(pod) or wrong_groups(pod, node, support)


def _last(support: Support) -> tuple[Check, ...]:
    return (
        lambda pod: no_app_armor(pod, support),
        lambda pod: missing_features(pod, support),
    )


def _placed(case: Case, node: Node, rules: Rules, book: RequestBook) -> Verdict:
    """The rules that the scheduler has too. The first failure counts, but room can be made."""
    # What runs here has its place: neither a node that was edited nor one that reserves more
    # for itself since the agent last started is a reason to end it.
    settled = case.room_was_made or case.runs_here
    lacking = () if settled else insufficient(case.pod, case.others, node, book)
    failures = _predicates(case, node)
    if lacking and rules.is_critical(case.pod):
        return failures[0] if failures else _make_room(case, lacking, rules, book)
    if lacking:
        return lacking[0].rejection
    if [failure.reason for failure in failures] == [AFFINITY] and not case.node_is_fresh:
        return AskForNode(failures[0])
    return failures[0] if failures else None


def _predicates(case: Case, node: Node) -> list[Rejection]:
    pod = case.pod
    failures = []
    if not case.runs_here and not matches_node(pod, node):
        text = "node(s) didn't match Pod's node affinity/selector"
        failures.append(predicate_failed(AFFINITY, text))
    if pod.spec.node_name and pod.spec.node_name != node.metadata.name:
        text = "node(s) didn't match the requested node name"
        failures.append(predicate_failed("NodeName", text))
    if not ports_are_free(pod, case.others):
        text = "node(s) didn't have free ports for the requested pod ports"
        failures.append(predicate_failed("NodePorts", text))
    if not case.runs_here and not tolerates_node(pod, node):
        text = "node(s) had taints that the pod didn't tolerate"
        failures.append(predicate_failed("TaintToleration", text))
    return failures


def _make_room(
    case: Case, lacking: tuple[Insufficient, ...], rules: Rules, book: RequestBook
) -> Verdict:
    pod = case.pod
    critical = rules.is_critical(pod)
    lower = [p for p in case.others if may_preempt(pod, critical, p, rules.is_critical(p))]
    try:
        chosen = victims(needs_of(lacking), lower, rules.qos_class, book)
    except NoVictimsError as error:
        return Rejection(
            UNEXPECTED,
            "Unexpected error while attempting to recover from admission failure: "
            f"preemption: error finding a set of pods to preempt: {error}",
        )
    return Preempt(chosen, lacking[0].resource)
