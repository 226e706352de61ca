"""Generated messages to bytes and back, several times faster than their own methods do it.

betterproto2 reads byte by byte and asks a field's description again for every value. Here each
message class is studied once; a value then costs one look into a table. What comes out is the
same, bit for bit and value for value. Whatever is not plain (wrapper types, groups,
floating-point numbers, damaged bytes) is left to betterproto2 itself, errors included. Only a
field of another kind than its message says, which it would take as it comes, is an error here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

import betterproto2

from nodeagent.rpc.wire_plan import (
    BOOL,
    ENUM,
    MESSAGE,
    MESSAGES,
    NUMBERS,
    SIGNED32,
    SINGLE,
    STRING,
    STRINGS,
    TEXTS,
    UNSIGNED64,
    Field,
    Plan,
    Unusual,
    plan_of,
)

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

_PYTHON: Final[dict[str, type]] = {
    **dict.fromkeys(SINGLE, int),
    betterproto2.TYPE_STRING: str,
    betterproto2.TYPE_BYTES: bytes,
    betterproto2.TYPE_MESSAGE: betterproto2.Message,
    **dict.fromkeys((betterproto2.TYPE_FLOAT, betterproto2.TYPE_DOUBLE), float),
    **dict.fromkeys((betterproto2.TYPE_SINT32, betterproto2.TYPE_SINT64), int),
    **dict.fromkeys((betterproto2.TYPE_FIXED32, betterproto2.TYPE_FIXED64), int),
    **dict.fromkeys((betterproto2.TYPE_SFIXED32, betterproto2.TYPE_SFIXED64), int),
}
_KEY: Final = 1 << 3 | 2
_VALUE: Final = 2 << 3 | 2
_2_63: Final = 1 << 63
_2_64: Final = 1 << 64
_SMALL: Final = [bytes([number]) for number in range(128)]


class MisfitError(ValueError):
    """A field is of another kind than its message says: a number in place of text, say."""


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    plan = plan_of(type(message))
    if plan is not None:
        try:
            return _encode(plan, message)
        except Unusual:
            pass
    return bytes(message)


def parse(cls: type[M], data: bytes) -> M:
    """A message from its bytes.

    Raises:
        MisfitError: a field is of another kind than the message says.
        Exception: of many kinds, whatever betterproto2 makes of bytes that are no such message.
    """
    plan = plan_of(cls)
    if plan is not None:
        try:
            message: M = _decode(plan, data, 0, len(data))
        except (Unusual, IndexError):
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
    raise Unusual


def _decode(plan: Plan, data: bytes, position: int, end: int) -> Any:
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
                raise Unusual
            values["_unknown_fields"] += data[start:position]
            continue
        number = data[position]
        position += 1
        if number >= 0x80:
            number, position = _varint(data, position - 1)
        if known.kind >= STRING:
            stop = position + number
            if stop > end:
                raise Unusual
            _take_bytes(values, known, data, position, stop)
            position = stop
        else:
            values[known.name] = _number(known, number)
    if position != end:
        raise Unusual
    return message


def _number(known: Field, number: int) -> Any:
    kind = known.inner
    if kind == BOOL:
        return number > 0
    if kind <= SIGNED32 and kind != UNSIGNED64:
        number &= 0xFFFFFFFF
        return number - (1 << 32) if number >= 1 << 31 and kind == SIGNED32 else number
    number &= _2_64 - 1
    if kind == UNSIGNED64:
        return number
    if number >= _2_63:
        number -= _2_64
    return known.sub(number) if kind == ENUM else number


def _take_bytes(
    values: dict[str, Any], known: Field, data: bytes, position: int, stop: int
) -> None:
    kind = known.kind
    if kind == STRING:
        values[known.name] = data[position:stop].decode()
    elif kind == TEXTS:
        key, text = _entry(data, position, stop)
        values[known.name][key] = text
    elif kind == MESSAGE:
        values[known.name] = _inner(known, data, position, stop)
    elif kind == MESSAGES:
        values[known.name].append(_inner(known, data, position, stop))
    elif kind == STRINGS:
        values[known.name].append(data[position:stop].decode())
    elif kind == NUMBERS:
        items = values[known.name]
        while position < stop:
            number, position = _varint(data, position)
            items.append(_number(known, number))
        if position != stop:
            raise Unusual
    else:
        values[known.name] = data[position:stop]


def _inner(known: Field, data: bytes, position: int, stop: int) -> Any:
    plan = plan_of(known.sub)
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
            raise Unusual
        if tag == _KEY:
            key = data[position:end].decode()
        elif tag == _VALUE:
            value = data[position:end].decode()
        else:
            raise Unusual
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
    raise Unusual


# -- encode


def _encode(plan: Plan, message: Any) -> bytes:
    out: list[bytes] = []
    put: Callable[[bytes], None] = out.append
    values = message.__dict__
    for known in plan.fields:
        value = values[known.name]
        if value is None or not (known.presence or value):
            continue
        kind = known.kind
        if kind < STRING:
            put(known.key)
            put(_number_bytes(value))
            continue
        if kind == TEXTS:
            for key, text in value.items():
                _put_block(put, known.key, _entry_bytes(key, text))
        elif kind == STRINGS:
            for text in value:
                _put_block(put, known.key, text.encode())
        elif kind == MESSAGES:
            for inner in value:
                _put_block(put, known.key, encode(inner))
        elif kind == MESSAGE:
            _put_block(put, known.key, encode(value))
        elif kind == NUMBERS:
            _put_block(put, known.key, b"".join(map(_number_bytes, value)))
        else:
            _put_block(put, known.key, value.encode() if kind == STRING else value)
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
            raise Unusual
        number += _2_64
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
