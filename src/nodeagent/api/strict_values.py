"""Checks of single values: what fits a string, a boolean, an integer, a time, a quantity."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from msgspec import inspect

from nodeagent.api.nodes import Invalid, Mapping, Node, Scalar, Sequence
from nodeagent.api.problems import Findings, Path, shown
from nodeagent.api.times import parse_time

DecHook: TypeAlias = Callable[[type[Any], Any], Any]

_INTEGER_TEXT: Final = re.compile(r"-?(?:0|[1-9][0-9]*)\Z")
_MAX_INTEGER_TEXT: Final = 40
_PORT: Final = {inspect.IntType, inspect.StrType}
OMIT: Final[Any] = object()
"""A value that stands for "not given"."""


class Checker(Protocol):
    """Holds nodes against one type."""

    def check(self, node: Node, path: Path, found: Findings) -> Any:
        """The plain value for msgspec; after an error, anything."""

    def zero(self) -> Any:
        """What null means in a list or map: the type's zero value, or OMIT if it has none."""


def describe(node: Node) -> str:
    """What was found, for messages: ``the string "http"``, ``a list``."""
    if isinstance(node, Mapping):
        return "an object"
    if isinstance(node, Sequence):
        return "a list"
    if isinstance(node, Invalid):
        return "an unreadable value"
    value = node.value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"the boolean {_boolean(node)}"
    if isinstance(value, str):
        return f"the string {shown(value)}"
    return f"the number {node.source[:60]}"


def described(node: Node, found: Findings) -> str:
    """The same; of what may be secret only what kind of value it is."""
    if not found.secret or not isinstance(node, Scalar) or node.value is None:
        return describe(node)
    if isinstance(node.value, bool):
        return "a boolean"
    return "a string" if isinstance(node.value, str) else "a number"


def _boolean(node: Scalar) -> str:
    value = "true" if node.value else "false"
    return value if node.source == value else f"{value} (written {node.source})"


def value_checker(info: inspect.Type, dec_hook: DecHook, *, wide: bool) -> Checker | None:
    """The checker of a type that holds a single value; None for any other type.

    Args:
        info: The type as msgspec describes it.
        dec_hook: Builds custom types from text.
        wide: Whether integers have 64 bits; otherwise 32.
    """
    match info:
        case inspect.StrType():
            return _StringChecker()
        case inspect.BytesType():
            return _BytesChecker()
        case inspect.BoolType():
            return _BoolChecker()
        case inspect.IntType():
            bits = 64 if wide else 32
            low = -(1 << bits - 1) if info.ge is None else info.ge
            high = (1 << bits - 1) - 1 if info.le is None else info.le
            return _IntegerChecker(low, high)
        case inspect.FloatType():
            return _NumberChecker()
        case inspect.DateTimeType():
            return _TimeChecker()
        case inspect.CustomType(cls=custom):
            return _CustomChecker(custom, dec_hook)
        case inspect.UnionType(types=members) if {type(member) for member in members} == _PORT:
            return _IntOrStringChecker()
    return None


def mismatch(expected: str, node: Node, path: Path, found: Findings) -> None:
    """Report a value of the wrong type."""
    if isinstance(node, Invalid):
        found.error(path, node.message, node.line)
    else:
        found.error(path, f"expected {expected}, got {described(node, found)}", node.line)


class _StringChecker:
    def zero(self) -> Any:
        return ""

    def check(self, node: Node, path: Path, found: Findings) -> Any:
        if isinstance(node, Scalar):
            value = node.value
            if isinstance(value, str):
                return value
            if isinstance(value, bool):
                message = "expected a string, got a boolean; put it in quotes"
                if not found.secret:
                    message = (
                        f"expected a string, got the boolean {_boolean(node)}; "
                        f"put it in quotes: {shown(node.source)}"
                    )
                found.error(path, message, node.line)
                return ""
            if node.number is not None:
                # The number is not repeated: where text belongs it may be a password.
                found.error(path, "expected a string, got a number; put it in quotes", node.line)
                return ""
        mismatch("a string", node, path, found)
        return ""


class _BytesChecker:
    """Bytes, written as base64 text."""

    def zero(self) -> Any:
        return b""

    def check(self, node: Node, path: Path, found: Findings) -> Any:
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            mismatch("base64 text", node, path, found)
            return b""
        try:
            # Line breaks are what base64(1) puts into long text.
            return base64.b64decode("".join(node.value.splitlines()), validate=True)
        except (binascii.Error, ValueError):
            found.error(path, "not base64 text", node.line)
            return b""


class _BoolChecker:
    def zero(self) -> Any:
        return False

    def check(self, node: Node, path: Path, found: Findings) -> Any:
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            return node.value
        if isinstance(node, Scalar) and node.value in ("true", "false"):
            message = f"expected true or false, got {described(node, found)}; remove the quotes"
            found.error(path, message, node.line)
        else:
            mismatch("true or false", node, path, found)
        return False


class _IntegerChecker:
    def __init__(self, low: int, high: int) -> None:
        self._low = low
        self._high = high

    def zero(self) -> Any:
        return 0

    def check(self, node: Node, path: Path, found: Findings) -> Any:
        value = integer(node)
        if value is None:
            message = f"expected an integer, got {described(node, found)}"
            if not isinstance(node, Scalar) or not isinstance(node.value, str):
                mismatch("an integer", node, path, found)
            elif _INTEGER_TEXT.match(node.value):
                found.error(path, f"{message}; remove the quotes", node.line)
            else:
                found.error(path, message, node.line)
            return 0
        if not self._low <= value <= self._high:
            assert isinstance(node, Scalar)
            message = f"{node.source[:60]} is out of range, {self._low} to {self._high}"
            found.error(path, message, node.line)
            return 0
        return value


def integer(node: Node) -> int | None:
    """The integer a number is for Kubernetes, or None.

    Kubernetes hands on a YAML number as the JSON text of its value, so ``1e3`` and ``80.0`` are
    the integers 1000 and 80 there; a JSON document's numbers keep their text, so there they are
    not.
    """
    if not isinstance(node, Scalar) or node.number is None:
        return None
    if not _INTEGER_TEXT.match(node.number):
        return None
    # Far beyond 64 bits the exact value does not matter; it is out of range either way.
    return int(node.number[:_MAX_INTEGER_TEXT])


class _IntOrStringChecker(_IntegerChecker):
    def __init__(self) -> None:
        super().__init__(-(1 << 31), (1 << 31) - 1)

    def check(self, node: Node, path: Path, found: Findings) -> Any:
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return node.value
        if integer(node) is None:
            mismatch("an integer or a string", node, path, found)
            return 0
        return super().check(node, path, found)


class _NumberChecker:
    def zero(self) -> Any:
        return 0.0

    def check(self, node: Node, path: Path, found: Findings) -> Any:
        if isinstance(node, Scalar) and node.number is not None:
            return node.value
        mismatch("a number", node, path, found)
        return 0.0


class _TimeChecker:
    """An RFC 3339 time with its zone, given as text."""

    def zero(self) -> Any:
        return OMIT

    def check(self, node: Node, path: Path, found: Findings) -> Any:
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            mismatch("a time such as 2006-01-02T15:04:05Z", node, path, found)
            return None
        try:
            return parse_time(node.value)
        except ValueError as error:
            found.error(path, str(error), node.line)
            return None


class _CustomChecker:
    """A type that msgspec leaves to the hook, built from text here already."""

    def __init__(self, custom: type[Any], dec_hook: DecHook) -> None:
        self._custom = custom
        self._dec_hook = dec_hook
        self._name = custom.__name__.lower()

    def zero(self) -> Any:
        return OMIT

    def check(self, node: Node, path: Path, found: Findings) -> Any:
        text = None
        if isinstance(node, Scalar):
            # A number counts as its JSON text, as if it had been in quotes.
            text = node.value if isinstance(node.value, str) else node.number
        if text is None:
            mismatch(f"a {self._name}", node, path, found)
            return None
        try:
            return self._dec_hook(self._custom, text)
        except ValueError as error:
            found.error(path, str(error), node.line)
            return None
