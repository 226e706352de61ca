"""The strict door for objects that people write: a tree to an API object, or all that is wrong.

Objects that machines wrote go through ``codec``, which is faster and forgiving.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from nodeagent.api.codec import dec_hook
from nodeagent.api.nodes import Node
from nodeagent.api.problems import FieldProblem, Findings
from nodeagent.api.strict import build, check_object

S = TypeVar("S", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Decoded(Generic[S]):
    """An object, or why there is none.

    Attributes:
        value: The object; None exactly when there are errors.
        errors: Everything that is wrong.
        warnings: What was ignored (unknown fields) or reads oddly.
    """

    value: S | None
    errors: tuple[FieldProblem, ...] = ()
    warnings: tuple[FieldProblem, ...] = ()


def decode_node(node: Node, wanted: type[S], *, secret: bool = False) -> Decoded[S]:
    """Build an API object from a document's tree.

    Args:
        node: The whole object; paths of problems start here.
        wanted: The API type.
        secret: Whether no value may be repeated in a message.
    """
    found = Findings(secret=secret)
    plain = check_object(node, wanted, found, dec_hook)
    if found.failed:
        return Decoded(None, found.errors, found.warnings)
    try:
        value: S = build(plain, wanted, dec_hook)
    except msgspec.ValidationError as error:
        # A rule of the type that the walk does not know; the reason is right, the path is in it.
        return Decoded(None, (FieldProblem("", str(error), node.line),), found.warnings)
    return Decoded(value, (), found.warnings)
