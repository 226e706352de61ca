"""What is known of a generated message class: each is studied once, for :mod:`.wire` to go by."""

from __future__ import annotations

import dataclasses
import re
import sys
from dataclasses import dataclass, field
from typing import Any, Final

import betterproto2

# Kinds of fields. Those from STRING on are a length and so many bytes, the others one number.
UNSIGNED32: Final = 0
UNSIGNED64: Final = 1
SIGNED32: Final = 2
SIGNED64: Final = 3
BOOL: Final = 4
ENUM: Final = 5
STRING: Final = 6
BYTES: Final = 7
MESSAGE: Final = 8
STRINGS: Final = 9
MESSAGES: Final = 10
TEXTS: Final = 11  # a map of strings
NUMBERS: Final = 12  # packed

SINGLE: Final = {
    betterproto2.TYPE_UINT32: UNSIGNED32,
    betterproto2.TYPE_UINT64: UNSIGNED64,
    betterproto2.TYPE_INT32: SIGNED32,
    betterproto2.TYPE_INT64: SIGNED64,
    betterproto2.TYPE_BOOL: BOOL,
    betterproto2.TYPE_ENUM: ENUM,
    betterproto2.TYPE_STRING: STRING,
    betterproto2.TYPE_BYTES: BYTES,
    betterproto2.TYPE_MESSAGE: MESSAGE,
}
_REPEATED: Final = {
    betterproto2.TYPE_STRING: STRINGS,
    betterproto2.TYPE_MESSAGE: MESSAGES,
    betterproto2.TYPE_UINT32: NUMBERS,
    betterproto2.TYPE_UINT64: NUMBERS,
    betterproto2.TYPE_INT32: NUMBERS,
    betterproto2.TYPE_INT64: NUMBERS,
    betterproto2.TYPE_ENUM: NUMBERS,
}
_ANNOTATION: Final = re.compile(r"(?:list\[)?([A-Za-z_][\w.]*)\]?(?: \| None)?")


class Unusual(Exception):  # noqa: N818 - no error: the slow way is taken
    """The bytes or the class are not for the quick way."""


@dataclass(frozen=True, slots=True)
class Field:
    """What is known of one field: ``tag`` is its key on the wire, ``inner`` its items' kind."""

    name: str
    kind: int
    inner: int
    tag: int
    key: bytes
    presence: bool
    sub: Any


@dataclass(slots=True)
class Plan:
    """What is known of a message class.

    Attributes:
        cls: the class.
        defaults: values that need not be made anew for each message.
        fresh: names and types of those that do.
        by_tag: the fields by their key on the wire.
        numbers: of all fields.
        fields: the fields in the order of encoding.
    """

    cls: type[Any]
    defaults: dict[str, Any] = field(default_factory=dict)
    fresh: list[tuple[str, type[Any]]] = field(default_factory=list)
    by_tag: dict[int, Field] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)
    fields: list[Field] = field(default_factory=list)


_PLANS: Final[dict[type[Any], Plan | None]] = {}


def plan_of(cls: type[Any]) -> Plan | None:
    """What is known of a class; None when its messages are left to betterproto2."""
    try:
        return _PLANS[cls]
    except KeyError:
        pass
    plan: Plan | None = None
    if issubclass(cls, betterproto2.Message) and _goes_by_its_fields(cls):
        try:
            plan = _study(cls)
        except Unusual:
            plan = None
    _PLANS[cls] = plan
    return plan


def _goes_by_its_fields(cls: type[Any]) -> bool:
    """Whether the class has no ideas of its own about its bytes."""
    usual: Any = betterproto2.Message
    own_parse = cls.parse.__func__ is not usual.parse.__func__
    return cls.__bytes__ is usual.__bytes__ and not own_parse


def _study(cls: type[Any]) -> Plan:
    plan = Plan(cls)
    for name, default in vars(cls()).items():
        if isinstance(default, list | dict):
            plan.fresh.append((name, type(default)))
        else:
            plan.defaults[name] = default
    for each in dataclasses.fields(cls):
        name, meta = each.name, each.metadata["betterproto"]
        kind, sub = _kind(meta), None
        wire = 2 if kind >= STRING else 0
        tag = meta.number << 3 | wire
        presence = meta.optional or bool(meta.group) or kind == MESSAGE
        if meta.proto_type in (betterproto2.TYPE_MESSAGE, betterproto2.TYPE_ENUM):
            sub = _class_named(cls, name, each.type)
        if meta.proto_type == betterproto2.TYPE_ENUM:
            sub = _members(sub)
        inner = SINGLE.get(meta.proto_type, kind)
        one = Field(name, kind, inner, tag, betterproto2.encode_varint(tag), presence, sub)
        plan.by_tag[tag] = one
        plan.numbers.add(meta.number)
        plan.fields.append(one)
    return plan


def _class_named(cls: type[Any], name: str, annotation: Any) -> Any:
    """The class of a field's values, by the annotation as the generated code writes it.

    betterproto2 would evaluate the annotations of the whole class for each field.
    """
    match = _ANNOTATION.fullmatch(annotation) if isinstance(annotation, str) else None
    found: Any = sys.modules[cls.__module__]
    for part in match[1].split(".") if match else ():
        found = getattr(found, part, None)
    return found if isinstance(found, type) else cls._betterproto.cls_by_field[name]


def _kind(meta: Any) -> int:
    """The kind of a field. Raises Unusual."""
    if meta.unwrap is not None:
        raise Unusual
    if meta.map_meta is not None:
        key, value = meta.map_meta
        if (key.proto_type, value.proto_type) == (betterproto2.TYPE_STRING,) * 2:
            return TEXTS
        raise Unusual
    kind = (_REPEATED if meta.repeated else SINGLE).get(meta.proto_type)
    if kind is None:
        raise Unusual
    return kind


def _members(enum: Any) -> Any:
    """Numbers to members; numbers without one are left to the enum itself."""
    known: dict[int, Any] = {int(member): member for member in enum}

    def member(number: int) -> Any:
        found = known.get(number)
        return enum(number) if found is None else found

    return member
