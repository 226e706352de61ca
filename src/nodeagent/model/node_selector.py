"""Whether a node is one that a selector takes. Pure.

Rows and their tests: docs/behaviour/admission.md, "Affinity".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from nodeagent.api import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from nodeagent.api.node import Node

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_INT64: Final = 2**63
_NAME_FIELD: Final = "metadata.name"


def selects(selector: NodeSelector, node: Node) -> bool:
    """Whether one of the terms takes the node."""
    return any(_term_matches(term, node) for term in selector.node_selector_terms)


def _term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {_NAME_FIELD: node.metadata.name}
    return all(_label_matches(r, node.metadata.labels) for r in term.match_expressions) and all(
        _field_matches(r, fields) for r in term.match_fields
    )


def _label_matches(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    values = requirement.values
    match requirement.operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return bool(values) and (value is None or value not in values)
        case "Exists":
            return not values and value is not None
        case "DoesNotExist":
            return not values and value is None
        case "Gt" | "Lt":
            return _compared(requirement.operator, value, values)
    return False


def _compared(operator: str, value: str | None, values: tuple[str, ...]) -> bool:
    if len(values) != 1:
        return False
    own, bound = _integer(value), _integer(values[0])
    if own is None or bound is None:
        return False
    return own > bound if operator == "Gt" else own < bound


def _integer(text: str | None) -> int | None:
    if text is None or not _INTEGER.fullmatch(text):
        return None
    number = int(text) if len(text) < 64 else _INT64
    return number if -_INT64 <= number < _INT64 else None


def _field_matches(requirement: NodeSelectorRequirement, fields: Mapping[str, str]) -> bool:
    """Fields know only two operators, with one value; unknown fields are empty."""
    if len(requirement.values) != 1:
        return False
    same = fields.get(requirement.key, "") == requirement.values[0]
    match requirement.operator:
        case "In":
            return same
        case "NotIn":
            return not same
    return False
