"""The strict walk: a document held against a type, every problem found at once.

msgspec builds objects fast but stops at the first error, drops unknown fields and knows no lines.
So a document first goes through checkers compiled from the type's own description. What passes is
handed to msgspec as plain values that it cannot refuse. The rules (what fits an integer, what null
means) are those of Kubernetes' JSON decoder; they stand in docs/behaviour/decoding.md, "Types".
"""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from nodeagent.api.nodes import Invalid, Mapping, Node, Scalar, Sequence, to_plain
from nodeagent.api.problems import Findings, MapKey, Path
from nodeagent.api.strict_values import (
    OMIT,
    Checker,
    DecHook,
    mismatch,
    value_checker,
)

INT64_FIELDS: Final = frozenset(
    {
        "activeDeadlineSeconds",
        "deletionGracePeriodSeconds",
        "expirationSeconds",
        "fsGroup",
        "generation",
        "gid",
        "idsPerPod",
        "maxOpenFiles",
        "observedGeneration",
        "remainingItemCount",
        "runAsGroup",
        "runAsUser",
        "seconds",
        "supplementalGroups",
        "terminationGracePeriodSeconds",
        "tolerationSeconds",
        "uid",
    }
)
"""The integer fields that are 64 bits wide in Kubernetes' API; all others have 32."""


def check_object(
    node: Node, wanted: type[msgspec.Struct], found: Findings, dec_hook: DecHook
) -> Any:
    """Hold a tree against a Struct type and collect all problems.

    Args:
        node: The document or a part of it.
        wanted: A msgspec Struct type.
        found: Receives errors and warnings with paths from ``node``.
        dec_hook: Builds custom types (quantities) from text; raises ValueError for bad text.

    Returns:
        Plain values for ``build``; meaningless if there was an error.
    """
    return _checker(wanted, dec_hook).check(node, None, found)


def build(plain: Any, wanted: type[Any], dec_hook: DecHook) -> Any:
    """Build the object from what ``check_object`` returned without errors."""

    def hook(custom: type[Any], value: Any) -> Any:
        return value if isinstance(value, custom) else dec_hook(custom, value)

    return msgspec.convert(plain, wanted, dec_hook=hook)


@lru_cache(maxsize=64)
def _checker(wanted: type[msgspec.Struct], dec_hook: DecHook) -> Checker:
    return _Compiler(dec_hook).compile(inspect.type_info(wanted), wide=False)


def report_remarks(node: Mapping, path: Path, found: Findings, *, fields: bool) -> None:
    """Pass on what was noticed about keys while the document was read."""
    for remark in node.remarks:
        step = remark.key if fields else MapKey(remark.key)
        note = found.error if remark.fatal else found.warning
        note((path, step), remark.message, remark.line)


class _Compiler:
    """Turns msgspec's description of a type into checkers, one per Struct type."""

    def __init__(self, dec_hook: DecHook) -> None:
        self._dec_hook = dec_hook
        self._structs: dict[type[Any], _StructChecker] = {}

    def compile(self, info: inspect.Type, *, wide: bool) -> Checker:
        match info:
            case inspect.StructType():
                return self._struct(info)
            case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
                return _ListChecker(self.compile(item, wide=wide))
            case inspect.DictType(value_type=value):
                return _DictChecker(self.compile(value, wide=wide))
            case inspect.Metadata(type=inner):
                return self.compile(inner, wide=wide)
            case inspect.AnyType() | inspect.RawType():
                return _AnyChecker()
            case inspect.UnionType(types=types):
                members = tuple(each for each in types if not isinstance(each, inspect.NoneType))
                if len(members) == 1:
                    return self.compile(members[0], wide=wide)
                info = inspect.UnionType(members)
        checker = value_checker(info, self._dec_hook, wide=wide)
        if checker is None:
            message = f"no strict check for {info}"
            raise TypeError(message)
        return checker

    def _struct(self, info: inspect.StructType) -> _StructChecker:
        known = self._structs.get(info.cls)
        if known is not None:
            return known
        checker = self._structs[info.cls] = _StructChecker()  # before its fields: types may recurse
        for field in info.fields:
            wide = field.encode_name in INT64_FIELDS
            checker.fields[field.encode_name] = self.compile(field.type, wide=wide)
            if field.required:
                checker.required.append(field.encode_name)
        return checker


class _StructChecker:
    def __init__(self) -> None:
        self.fields: dict[str, Checker] = {}
        self.required: list[str] = []

    def zero(self) -> Any:
        return {}

    def check(self, node: Node, path: Path, found: Findings) -> Any:
        if not isinstance(node, Mapping):
            mismatch("an object", node, path, found)
            return {}
        if node.remarks:
            report_remarks(node, path, found, fields=True)
        result: dict[str, Any] = {}
        for key, child in node.values.items():
            checker = self.fields.get(key)
            if checker is None:
                self._unknown(key, node, path, found)
            elif not (isinstance(child, Scalar) and child.value is None):  # null: not given
                result[key] = checker.check(child, (path, key), found)
        for name in self.required:
            if name not in result:
                found.error((path, name), "required", node.line)
        return result

    def _unknown(self, key: str, node: Mapping, path: Path, found: Findings) -> None:
        message = "unknown field"
        if not found.warnings_full and (near := suggest(key, list(self.fields))):
            message = f"unknown field, did you mean {near}?"
        found.warning((path, key), message, node.key_lines[key])


def suggest(word: str, known: list[str]) -> str | None:
    """The known word that was probably meant, or None."""
    folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower()[:64], folded, n=1, cutoff=0.75)
    return folded[near[0]] if near else None


class _DictChecker:
    def __init__(self, value: Checker) -> None:
        self._value = value

    def zero(self) -> Any:
        return {}

    def check(self, node: Node, path: Path, found: Findings) -> Any:
        if not isinstance(node, Mapping):
            mismatch("an object", node, path, found)
            return {}
        if node.remarks:
            report_remarks(node, path, found, fields=False)
        result: dict[str, Any] = {}
        for key, child in node.values.items():
            step = (path, MapKey(key))
            if isinstance(child, Scalar) and child.value is None:
                value = self._value.zero()
                if value is OMIT:
                    found.warning(step, "null, left out", node.key_lines[key])
                    continue
            else:
                value = self._value.check(child, step, found)
            result[key] = value
        return result


class _ListChecker:
    def __init__(self, item: Checker) -> None:
        self._item = item

    def zero(self) -> Any:
        return []

    def check(self, node: Node, path: Path, found: Findings) -> Any:
        if not isinstance(node, Sequence):
            mismatch("a list", node, path, found)
            return []
        result = []
        for index, child in enumerate(node.items):
            if isinstance(child, Scalar) and child.value is None:
                value = self._item.zero()
                if value is OMIT:
                    found.error((path, index), "expected a value, got null", child.line)
            else:
                value = self._item.check(child, (path, index), found)
            result.append(value)
        return result


class _AnyChecker:
    def zero(self) -> Any:
        return None

    def check(self, node: Node, path: Path, found: Findings) -> Any:
        self._report(node, path, found)
        return to_plain(node)

    def _report(self, node: Node, path: Path, found: Findings) -> None:
        if isinstance(node, Mapping):
            report_remarks(node, path, found, fields=False)
            for key, child in node.values.items():
                self._report(child, (path, MapKey(key)), found)
        elif isinstance(node, Sequence):
            for index, child in enumerate(node.items):
                self._report(child, (path, index), found)
        elif isinstance(node, Invalid):
            found.error(path, node.message, node.line)
