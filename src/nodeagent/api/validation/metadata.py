"""Rules for object metadata and label selectors."""

from collections.abc import Iterator

from nodeagent.api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference
from nodeagent.api.validation.errors import FieldError, forbidden, invalid, required, unsupported
from nodeagent.api.validation.names import (
    check,
    check_annotations,
    check_if_set,
    check_labels,
    check_range,
    check_set,
    label_fault,
    label_value_fault,
    qualified_name_fault,
    subdomain_fault,
)

_SELECTOR_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def check_metadata(path: str, metadata: ObjectMeta) -> Iterator[FieldError]:
    """Judge the metadata of a namespaced object whose name is a DNS subdomain."""
    yield from check(f"{path}.name", metadata.name, subdomain_fault)
    yield from check(f"{path}.namespace", metadata.namespace, label_fault)
    yield from check_range(f"{path}.generation", metadata.generation, 0)
    yield from check_labels(f"{path}.labels", metadata.labels)
    yield from check_annotations(f"{path}.annotations", metadata.annotations)
    yield from _check_owners(f"{path}.ownerReferences", metadata.owner_references)
    for index, finalizer in enumerate(metadata.finalizers):
        yield from check(f"{path}.finalizers[{index}]", finalizer, qualified_name_fault)


def _check_owners(path: str, owners: tuple[OwnerReference, ...]) -> Iterator[FieldError]:
    controllers = 0
    for index, owner in enumerate(owners):
        here = f"{path}[{index}]"
        yield from check_set(f"{here}.apiVersion", owner.api_version)
        yield from check_set(f"{here}.kind", owner.kind)
        yield from check_set(f"{here}.name", owner.name)
        yield from check_set(f"{here}.uid", owner.uid)
        controllers += owner.controller is True
        if owner.controller and controllers > 1:
            yield invalid(f"{here}.controller", owner.name, "only one owner may be the controller")


def check_label_selector(path: str, selector: LabelSelector | None) -> Iterator[FieldError]:
    """Judge a label selector, if there is one."""
    if selector is None:
        return
    yield from check_labels(f"{path}.matchLabels", selector.match_labels)
    for index, requirement in enumerate(selector.match_expressions):
        yield from _check_requirement(f"{path}.matchExpressions[{index}]", requirement)


def _check_requirement(path: str, requirement: LabelSelectorRequirement) -> Iterator[FieldError]:
    yield from check(f"{path}.key", requirement.key, qualified_name_fault)
    yield from check_operator(path, requirement.operator, requirement.values)
    for index, value in enumerate(requirement.values):
        yield from check_if_set(f"{path}.values[{index}]", value, label_value_fault)


def check_operator(
    path: str,
    operator: str,
    values: tuple[str, ...],
    allowed: tuple[str, ...] = _SELECTOR_OPERATORS,
) -> Iterator[FieldError]:
    """Judge an operator and the number of its values."""
    if operator not in allowed:
        yield unsupported(f"{path}.operator", operator, allowed)
    elif operator in ("In", "NotIn") and not values:
        yield required(f"{path}.values", f"the operator {operator} needs values")
    elif operator in ("Exists", "DoesNotExist") and values:
        yield forbidden(f"{path}.values", f"the operator {operator} takes no values")
