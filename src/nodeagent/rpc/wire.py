"""Generated messages to bytes and back, several times faster than their own methods do it.

betterproto2 reads byte by byte and asks a field's description again for every value. Here each
message class is studied once; a value then costs one look into a table. What comes out is the
same, bit for bit and value for value. Whatever is not plain (wrapper types, groups,
floating-point numbers, damaged bytes) is left to betterproto2 itself, errors included. Only a
field of another kind than its message says, which it would take as it comes, is an error here.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

import betterproto2

if TYPE_CHECKING:
    from collections.abc import Callable


class Message(Protocol):
    """What generated messages can do, as far as calls need it."""

    def __bytes__(self) -> bytes:
        """Encode."""
        ...

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Decode."""
        ...


M = TypeVar("M", bound=Message)

# Kinds of fields. Those from _STRING on are a length and so many bytes, the others one number.
_UNSIGNED32: Final = 0
_UNSIGNED64: Final = 1
_SIGNED32: Final = 2
_SIGNED64: Final = 3
_BOOL: Final = 4
_ENUM: Final = 5
_STRING: Final = 6
_BYTES: Final = 7
_MESSAGE: Final = 8
_STRINGS: Final = 9
_MESSAGES: Final = 10
_TEXTS: Final = 11  # a map of strings
_NUMBERS: Final = 12  # packed

_SINGLE: Final = {
    betterproto2.TYPE_UINT32: _UNSIGNED32,
    betterproto2.TYPE_UINT64: _UNSIGNED64,
    betterproto2.TYPE_INT32: _SIGNED32,
    betterproto2.TYPE_INT64: _SIGNED64,
    betterproto2.TYPE_BOOL: _BOOL,
    betterproto2.TYPE_ENUM: _ENUM,
    betterproto2.TYPE_STRING: _STRING,
    betterproto2.TYPE_BYTES: _BYTES,
    betterproto2.TYPE_MESSAGE: _MESSAGE,
}
_PYTHON: Final[dict[str, type]] = {
    **dict.fromkeys(_SINGLE, int),
    betterproto2.TYPE_STRING: str,
    betterproto2.TYPE_BYTES: bytes,
    betterproto2.TYPE_MESSAGE: betterproto2.Message,
    **dict.fromkeys((betterproto2.TYPE_FLOAT, betterproto2.TYPE_DOUBLE), float),
    **dict.fromkeys((betterproto2.TYPE_SINT32, betterproto2.TYPE_SINT64), int),
    **dict.fromkeys((betterproto2.TYPE_FIXED32, betterproto2.TYPE_FIXED64), int),
    **dict.fromkeys((betterproto2.TYPE_SFIXED32, betterproto2.TYPE_SFIXED64), int),
}
_REPEATED: Final = {
    betterproto2.TYPE_STRING: _STRINGS,
    betterproto2.TYPE_MESSAGE: _MESSAGES,
    betterproto2.TYPE_UINT32: _NUMBERS,
    betterproto2.TYPE_UINT64: _NUMBERS,
    betterproto2.TYPE_INT32: _NUMBERS,
    betterproto2.TYPE_INT64: _NUMBERS,
    betterproto2.TYPE_ENUM: _NUMBERS,
}
_ANNOTATION: Final = re.compile(r"(?:list\[)?([A-Za-z_][\w.]*)\]?(?: \| None)?")
_KEY: Final = 1 << 3 | 2
_VALUE: Final = 2 << 3 | 2
_2_63: Final = 1 << 63
_2_64: Final = 1 << 64
_SMALL: Final = [bytes([number]) for number in range(128)]


class MisfitError(ValueError):
    """A field is of another kind than its message says: a number in place of text, say."""


class _Unusual(Exception):  # noqa: N818 - no error: the slow way is taken
    """The bytes or the class are not for the quick way."""


@dataclass(frozen=True, slots=True)
class _Field:
    """What is known of one field: ``tag`` is its key on the wire, ``inner`` its items' kind."""

    name: str
    kind: int
    inner: int
    tag: int
    key: bytes
    presence: bool
    sub: Any


@dataclass(slots=True)
class _Plan:
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
    by_tag: dict[int, _Field] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)
    fields: list[_Field] = field(default_factory=list)


_PLANS: Final[dict[type[Any], _Plan | None]] = {}


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    plan = _plan_of(type(message))
    if plan is not None:
        try:
            return _encode(plan, message)
        except _Unusual:
            pass
    return bytes(message)


def parse(cls: type[M], data: bytes) -> M:
    """A message from its bytes.

    Raises:
        MisfitError: a field is of another kind than the message says.
        Exception: of many kinds, whatever betterproto2 makes of bytes that are no such message.
    """
    plan = _plan_of(cls)
    if plan is not None:
        try:
            message: M = _decode(plan, data, 0, len(data))
        except (_Unusual, IndexError):
            pass
        else:
            return message
    found = cls.parse(data)
    if isinstance(found, betterproto2.Message) and (name := misfit(found)):
        msg = f"field {name} is of another kind"
        raise MisfitError(msg)
    return found


def misfit(message: Any) -> str:
    """The first field of a generated message whose value is not of its kind, or ""."""
    fields: dict[str, Any] = message._betterproto.meta_by_field_name
    for name, meta in fields.items():
        value = getattr(message, name)
        if meta.unwrap is not None or (value is None and not meta.repeated):
            continue
        if meta.map_meta is not None:
            wanted = [_PYTHON[part.proto_type] for part in meta.map_meta]
            fits = all(
                isinstance(k, wanted[0]) and isinstance(v, wanted[1]) for k, v in value.items()
            )
            inner = list(value.values())
        else:
            inner = list(value) if meta.repeated else [value]
            fits = all(isinstance(one, _PYTHON[meta.proto_type]) for one in inner)
        if not fits:
            return name
        for one in inner:
            if isinstance(one, betterproto2.Message) and (deeper := misfit(one)):
                return f"{name}.{deeper}"
    return ""


# -- study


def _plan_of(cls: type[Any]) -> _Plan | None:
    try:
        return _PLANS[cls]
    except KeyError:
        pass
    plan: _Plan | None = None
    if issubclass(cls, betterproto2.Message) and _goes_by_its_fields(cls):
        try:
            plan = _study(cls)
        except _Unusual:
            plan = None
    _PLANS[cls] = plan
    return plan


def _goes_by_its_fields(cls: type[Any]) -> bool:
    """Whether the class has no ideas of its own about its bytes."""
    usual: Any = betterproto2.Message
    own_parse = cls.parse.__func__ is not usual.parse.__func__
    return cls.__bytes__ is usual.__bytes__ and not own_parse


def _study(cls: type[Any]) -> _Plan:
    plan = _Plan(cls)
    for name, default in vars(cls()).items():
        if isinstance(default, list | dict):
            plan.fresh.append((name, type(default)))
        else:
            plan.defaults[name] = default
    for each in dataclasses.fields(cls):
        name, meta = each.name, each.metadata["betterproto"]
        kind, sub = _kind(meta), None
        wire = 2 if kind >= _STRING else 0
        tag = meta.number << 3 | wire
        presence = meta.optional or bool(meta.group) or kind == _MESSAGE
        if meta.proto_type in (betterproto2.TYPE_MESSAGE, betterproto2.TYPE_ENUM):
            sub = _class_named(cls, name, each.type)
        if meta.proto_type == betterproto2.TYPE_ENUM:
            sub = _members(sub)
        inner = _SINGLE.get(meta.proto_type, kind)
        one = _Field(name, kind, inner, tag, betterproto2.encode_varint(tag), presence, sub)
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
    """The kind of a field. Raises _Unusual."""
    if meta.unwrap is not None:
        raise _Unusual
    if meta.map_meta is not None:
        key, value = meta.map_meta
        if (key.proto_type, value.proto_type) == (betterproto2.TYPE_STRING,) * 2:
            return _TEXTS
        raise _Unusual
    kind = (_REPEATED if meta.repeated else _SINGLE).get(meta.proto_type)
    if kind is None:
        raise _Unusual
    return kind


def _members(enum: Any) -> Any:
    """Numbers to members; numbers without one are left to the enum itself."""
    known: dict[int, Any] = {int(member): member for member in enum}

    def member(number: int) -> Any:
        found = known.get(number)
        return enum(number) if found is None else found

    return member


# -- decode


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise _Unusual


def _decode(plan: _Plan, data: bytes, position: int, end: int) -> Any:
    message = object.__new__(plan.cls)
    values: dict[str, Any] = message.__dict__
    values.update(plan.defaults)
    for name, make in plan.fresh:
        values[name] = make()
    by_tag = plan.by_tag
    while position < end:
        start = position
        tag = data[position]
        position += 1
        if tag >= 0x80:
            tag, position = _varint(data, start)
        known = by_tag.get(tag)
        if known is None:
            position = _skip(data, tag, position)
            if position > end or tag >> 3 in plan.numbers:
                raise _Unusual
            values["_unknown_fields"] += data[start:position]
            continue
        number = data[position]
        position += 1
        if number >= 0x80:
            number, position = _varint(data, position - 1)
        if known.kind >= _STRING:
            stop = position + number
            if stop > end:
                raise _Unusual
            _take_bytes(values, known, data, position, stop)
            position = stop
        else:
            values[known.name] = _number(known, number)
    if position != end:
        raise _Unusual
    return message


def _number(known: _Field, number: int) -> Any:
    kind = known.inner
    if kind == _BOOL:
        return number > 0
    if kind <= _SIGNED32 and kind != _UNSIGNED64:
        number &= 0xFFFFFFFF
        return number - (1 << 32) if number >= 1 << 31 and kind == _SIGNED32 else number
    number &= _2_64 - 1
    if kind == _UNSIGNED64:
        return number
    if number >= _2_63:
        number -= _2_64
    return known.sub(number) if kind == _ENUM else number


def _take_bytes(
    values: dict[str, Any], known: _Field, data: bytes, position: int, stop: int
) -> None:
    kind = known.kind
    if kind == _STRING:
        values[known.name] = data[position:stop].decode()
    elif kind == _TEXTS:
        key, text = _entry(data, position, stop)
        values[known.name][key] = text
    elif kind == _MESSAGE:
        values[known.name] = _inner(known, data, position, stop)
    elif kind == _MESSAGES:
        values[known.name].append(_inner(known, data, position, stop))
    elif kind == _STRINGS:
        values[known.name].append(data[position:stop].decode())
    elif kind == _NUMBERS:
        items = values[known.name]
        while position < stop:
            number, position = _varint(data, position)
            items.append(_number(known, number))
        if position != stop:
            raise _Unusual
    else:
        values[known.name] = data[position:stop]


def _inner(known: _Field, data: bytes, position: int, stop: int) -> Any:
    plan = _plan_of(known.sub)
    if plan is None:
        return parse(known.sub, data[position:stop])
    return _decode(plan, data, position, stop)


def _entry(data: bytes, position: int, stop: int) -> tuple[str, str]:
    """Key and value of one entry of a map of strings."""
    key = value = ""
    while position < stop:
        tag, length = data[position], data[position + 1]
        position += 2
        if length >= 0x80:
            length, position = _varint(data, position - 1)
        end = position + length
        if end > stop:
            raise _Unusual
        if tag == _KEY:
            key = data[position:end].decode()
        elif tag == _VALUE:
            value = data[position:end].decode()
        else:
            raise _Unusual
        position = end
    return key, value


def _skip(data: bytes, tag: int, position: int) -> int:
    """Where a field that is not known ends."""
    wire = tag & 7
    if wire == 0:
        return _varint(data, position)[1]
    if wire == 2:
        length, position = _varint(data, position)
        return position + length
    if wire == 1:
        return position + 8
    if wire == 5:
        return position + 4
    raise _Unusual


# -- encode


def _encode(plan: _Plan, message: Any) -> bytes:
    out: list[bytes] = []
    put: Callable[[bytes], None] = out.append
    values = message.__dict__
    for known in plan.fields:
        value = values[known.name]
        if value is None or not (known.presence or value):
            continue
        kind = known.kind
        if kind < _STRING:
            put(known.key)
            put(_number_bytes(value))
            continue
        if kind == _TEXTS:
            for key, text in value.items():
                _put_block(put, known.key, _entry_bytes(key, text))
        elif kind == _STRINGS:
            for text in value:
                _put_block(put, known.key, text.encode())
        elif kind == _MESSAGES:
            for inner in value:
                _put_block(put, known.key, encode(inner))
        elif kind == _MESSAGE:
            _put_block(put, known.key, encode(value))
        elif kind == _NUMBERS:
            _put_block(put, known.key, b"".join(map(_number_bytes, value)))
        else:
            _put_block(put, known.key, value.encode() if kind == _STRING else value)
    put(values["_unknown_fields"])
    return b"".join(out)


def _put_block(put: Callable[[bytes], None], key: bytes, block: bytes) -> None:
    put(key)
    put(_number_bytes(len(block)))
    put(block)


def _entry_bytes(key: str, text: str) -> bytes:
    """An entry of a map of strings; both parts are written, also when they are empty."""
    first, second = key.encode(), text.encode()
    return b"".join(
        (b"\x0a", _number_bytes(len(first)), first, b"\x12", _number_bytes(len(second)), second)
    )


def _number_bytes(number: int) -> bytes:
    if 0 <= number < 0x80:
        return _SMALL[number]
    if number < 0:
        if number < -_2_63:
            raise _Unusual
        number += _2_64
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
