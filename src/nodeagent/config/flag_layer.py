"""Flags that set fields of the file, as the layer that lies over the file and its drop-ins.

docs/configuration.md, "Precedence". A list or map of flags takes the place of the whole value; a
flag that is given again adds to it. Feature gates are the exception: they go over those of the file
one by one.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from nodeagent.api import nodes
from nodeagent.config.errors import ConfigError
from nodeagent.config.feature_gates import parse_gates
from nodeagent.config.kubelet_flags import field_of_flag
from nodeagent.config.kubelet_model import KubeletConfiguration
from nodeagent.config.layers import Layered, merge
from nodeagent.config.node_options import parse_pairs

Given: TypeAlias = "Iterable[tuple[str, str]]"
"""Names of flags without dashes, and their values as text, in the order of the command line."""

_GATES: Final = "featureGates"
_TRUE: Final = frozenset({"1", "t", "true"})
_FALSE: Final = frozenset({"0", "f", "false"})


@cache
def kinds() -> Mapping[str, str]:
    """What each field holds: ``bool``, ``int``, ``float``, ``map``, ``list``, ``text``, ..."""
    found = dict(_kinds(KubeletConfiguration, ""))
    found |= {"logging.vmodule": "vmodule", "reservedMemory": "memory", _GATES: "gates"}
    found |= dict.fromkeys(("evictionHard", "evictionSoft"), "thresholds")
    return types.MappingProxyType(found)


def _kinds(struct: type[msgspec.Struct], above: str) -> Iterable[tuple[str, str]]:
    hints = typing.get_type_hints(struct)
    for each in msgspec.structs.fields(struct):
        path, hint = above + each.encode_name, hints[each.name]
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            yield from _kinds(hint, path + ".")
        else:
            yield path, _kind(hint)


def _kind(hint: Any) -> str:
    options = [hint]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        options = list(typing.get_args(hint))
    if str in options:
        return "text"
    for kind in (bool, int, float):
        if kind in options:
            return kind.__name__
    origins = [typing.get_origin(option) for option in options]
    return "map" if dict in origins else "list" if tuple in origins else "text"


def is_boolean(flag: str) -> bool:
    """Whether a flag of a field may stand without a value."""
    return kinds()[field_of_flag()[flag]] == "bool"


def put_over(layers: Layered, given: Given) -> Layered:
    """Put flags over what files say.

    Raises:
        ConfigError: a flag's value cannot be read; names the flag.
    """
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    for flag, text in given:
        path = field_of_flag()[flag]
        value = _read(flag, kinds()[path], text)
        before = values.get(path)
        if isinstance(value, list) and isinstance(before, list):
            value = [*before, *value]
        elif isinstance(value, dict) and isinstance(before, dict):
            value = {**before, **value}
        values[path], names[path] = value, flag
    for path, value in values.items():
        file = Path(f"--{names[path]}")
        if path != _GATES:
            layers = merge(layers, nested(path, None), file)
        layers = merge(layers, nested(path, value), file)
    return layers


def nested(path: str, value: Any) -> nodes.Mapping:
    """One field as a document would hold it, without lines."""
    for name in reversed(path.split(".")):
        value = {name: value}
    root = as_node(value)
    assert isinstance(root, nodes.Mapping)
    return root


def as_node(value: Any) -> nodes.Node:
    """Plain values as a document would hold them, without lines."""
    if isinstance(value, Mapping):
        mapping = nodes.Mapping(0)
        for key, item in value.items():
            mapping.values[key] = as_node(item)
            mapping.key_lines[key] = 0
        return mapping
    if isinstance(value, list | tuple):
        sequence = nodes.Sequence(0)
        sequence.items.extend(as_node(item) for item in value)
        return sequence
    number = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = str(value)
    return nodes.Scalar(value, 0, str(value), number)


def _read(flag: str, kind: str, text: str) -> Any:
    try:
        return _READ[kind](text)
    except ValueError as error:
        raise ConfigError(flag, text, str(error)) from error


def _bool(text: str) -> bool:
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    msg = "must be true or false"
    raise ValueError(msg)


def _int(text: str) -> int:
    try:
        return int(text, 10)
    except ValueError as error:
        msg = "must be a whole number"
        raise ValueError(msg) from error


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        msg = "must be a number"
        raise ValueError(msg) from error


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _vmodule(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for pattern, level in parse_pairs(text).items():
        found.append({"filePattern": pattern, "verbosity": _int(level)})
    return found


def _memory(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        node, colon, limits = part.partition(":")
        if not colon:
            msg = f"{part!r} is not written node:memory=amount"
            raise ValueError(msg)
        found.append({"numaNode": _int(node), "limits": parse_pairs(limits)})
    return found


_READ: Final[Mapping[str, Callable[[str], Any]]] = {
    "bool": _bool,
    "int": _int,
    "float": _float,
    "text": str,
    "list": _list,
    "map": parse_pairs,
    "thresholds": partial(parse_pairs, sign="<"),
    "vmodule": _vmodule,
    "memory": _memory,
    "gates": parse_gates,
}
