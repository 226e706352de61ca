"""Rules for affinity, tolerations, spreading and node selection.

A static pod is bound to its node already, but a pod that Kubernetes would refuse is refused
here as well.
"""

from collections.abc import Iterator
from typing import Final

from nodeagent.api.scheduling import (
    Affinity,
    NodeAffinity,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    Toleration,
    TopologySpreadConstraint,
)
from nodeagent.api.validation.errors import FieldError, duplicate, invalid, required
from nodeagent.api.validation.metadata import check_label_selector, check_operator
from nodeagent.api.validation.names import (
    check,
    check_if_set,
    check_one_of,
    check_one_of_if_set,
    check_range,
    label_fault,
    label_value_fault,
    qualified_name_fault,
    subdomain_fault,
)

_NODE_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def check_affinity(path: str, affinity: Affinity | None) -> Iterator[FieldError]:
    """Judge all affinity rules, if there are any."""
    if affinity is None:
        return
    if affinity.node_affinity is not None:
        yield from _check_node_affinity(f"{path}.nodeAffinity", affinity.node_affinity)
    if affinity.pod_affinity is not None:
        yield from _check_pod_affinity(f"{path}.podAffinity", affinity.pod_affinity)
    if affinity.pod_anti_affinity is not None:
        yield from _check_pod_affinity(f"{path}.podAntiAffinity", affinity.pod_anti_affinity)


def _check_node_affinity(path: str, affinity: NodeAffinity) -> Iterator[FieldError]:
    needed = affinity.required_during_scheduling_ignored_during_execution
    if needed is not None:
        here = f"{path}.{_REQUIRED}.nodeSelectorTerms"
        if not needed.node_selector_terms:
            yield required(here, "at least one term")
        for index, term in enumerate(needed.node_selector_terms):
            yield from _check_node_term(f"{here}[{index}]", term)
    wishes = affinity.preferred_during_scheduling_ignored_during_execution
    for index, wish in enumerate(wishes):
        here = f"{path}.{_PREFERRED}[{index}]"
        yield from check_range(f"{here}.weight", wish.weight, 1, 100)
        yield from _check_node_term(f"{here}.preference", wish.preference)


def _check_node_term(path: str, term: NodeSelectorTerm) -> Iterator[FieldError]:
    for index, requirement in enumerate(term.match_expressions):
        here = f"{path}.matchExpressions[{index}]"
        yield from check(f"{here}.key", requirement.key, qualified_name_fault)
        yield from _check_node_requirement(here, requirement)
    for index, requirement in enumerate(term.match_fields):
        here = f"{path}.matchFields[{index}]"
        yield from check_one_of(f"{here}.key", requirement.key, ("metadata.name",))
        yield from check_one_of(f"{here}.operator", requirement.operator, ("In", "NotIn"))
        if len(requirement.values) != 1:
            yield required(f"{here}.values", "exactly one value")
        for position, value in enumerate(requirement.values):
            yield from check(f"{here}.values[{position}]", value, subdomain_fault)


def _check_node_requirement(
    path: str, requirement: NodeSelectorRequirement
) -> Iterator[FieldError]:
    yield from check_operator(path, requirement.operator, requirement.values, _NODE_OPERATORS)
    if requirement.operator in ("Gt", "Lt") and len(requirement.values) != 1:
        yield required(f"{path}.values", "exactly one number")


def _check_pod_affinity(path: str, affinity: PodAffinity | PodAntiAffinity) -> Iterator[FieldError]:
    needed = affinity.required_during_scheduling_ignored_during_execution
    for index, term in enumerate(needed):
        yield from _check_pod_term(f"{path}.{_REQUIRED}[{index}]", term)
    wishes = affinity.preferred_during_scheduling_ignored_during_execution
    for index, wish in enumerate(wishes):
        here = f"{path}.{_PREFERRED}[{index}]"
        yield from check_range(f"{here}.weight", wish.weight, 1, 100)
        yield from _check_pod_term(f"{here}.podAffinityTerm", wish.pod_affinity_term)


def _check_pod_term(path: str, term: PodAffinityTerm) -> Iterator[FieldError]:
    yield from check(f"{path}.topologyKey", term.topology_key, qualified_name_fault)
    yield from check_label_selector(f"{path}.labelSelector", term.label_selector)
    yield from check_label_selector(f"{path}.namespaceSelector", term.namespace_selector)
    for index, namespace in enumerate(term.namespaces):
        yield from check(f"{path}.namespaces[{index}]", namespace, label_fault)
    keys = {
        "matchLabelKeys": term.match_label_keys,
        "mismatchLabelKeys": term.mismatch_label_keys,
    }
    for name, labels in keys.items():
        yield from _check_label_keys(f"{path}.{name}", labels, term.label_selector is not None)


def _check_label_keys(
    path: str,
    keys: tuple[str, ...],
    has_selector: bool,
) -> Iterator[FieldError]:
    for index, key in enumerate(keys):
        yield from check(f"{path}[{index}]", key, qualified_name_fault)
    if keys and not has_selector:
        yield invalid(path, keys[0], "needs a labelSelector")


def check_tolerations(path: str, tolerations: tuple[Toleration, ...]) -> Iterator[FieldError]:
    """Judge what the pod puts up with."""
    for index, toleration in enumerate(tolerations):
        yield from _check_toleration(f"{path}[{index}]", toleration)


def _check_toleration(path: str, toleration: Toleration) -> Iterator[FieldError]:
    yield from check_if_set(f"{path}.key", toleration.key, qualified_name_fault)
    here = f"{path}.operator"
    yield from check_one_of_if_set(here, toleration.operator or None, ("Exists", "Equal"))
    if not toleration.key and toleration.operator != "Exists":
        yield invalid(here, toleration.operator, "must be Exists when key is empty")
    if toleration.operator == "Exists":
        if toleration.value:
            yield invalid(
                f"{path}.value", toleration.value, "must be empty when operator is Exists"
            )
    else:
        yield from check_if_set(f"{path}.value", toleration.value, label_value_fault)
    effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
    yield from check_one_of_if_set(f"{path}.effect", toleration.effect or None, effects)
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        detail = "must be NoExecute when tolerationSeconds is set"
        yield invalid(f"{path}.effect", toleration.effect, detail)


def check_spreading(
    path: str, constraints: tuple[TopologySpreadConstraint, ...]
) -> Iterator[FieldError]:
    """Judge how the pod wants to be spread."""
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(constraints):
        here = f"{path}[{index}]"
        yield from _check_constraint(here, constraint)
        pair = (constraint.topology_key, constraint.when_unsatisfiable)
        if pair in seen:
            yield duplicate(here, "{" + ", ".join(pair) + "}")
        seen.add(pair)


def _check_constraint(path: str, constraint: TopologySpreadConstraint) -> Iterator[FieldError]:
    yield from check_range(f"{path}.maxSkew", constraint.max_skew, 1)
    yield from check(f"{path}.topologyKey", constraint.topology_key, qualified_name_fault)
    yield from check_one_of(
        f"{path}.whenUnsatisfiable",
        constraint.when_unsatisfiable,
        ("DoNotSchedule", "ScheduleAnyway"),
    )
    if constraint.min_domains is not None:
        yield from check_range(f"{path}.minDomains", constraint.min_domains, 1)
        if constraint.when_unsatisfiable != "DoNotSchedule":
            detail = "needs whenUnsatisfiable to be DoNotSchedule"
            yield invalid(f"{path}.minDomains", constraint.min_domains, detail)
    policies = ("Ignore", "Honor")
    yield from check_one_of_if_set(
        f"{path}.nodeAffinityPolicy", constraint.node_affinity_policy, policies
    )
    yield from check_one_of_if_set(
        f"{path}.nodeTaintsPolicy", constraint.node_taints_policy, policies
    )
    yield from check_label_selector(f"{path}.labelSelector", constraint.label_selector)
    yield from _check_label_keys(
        f"{path}.matchLabelKeys", constraint.match_label_keys, constraint.label_selector is not None
    )
