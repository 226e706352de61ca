"""Damages protobuf messages as bytes, so that what comes out is what a wire could bring."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Final, TypeVar

from nodeagent.cri.interned import InternTable
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Internal, Message, encode, parse
from nodeagent.rpc.wire import misfit

M = TypeVar("M", bound=Message)

_NUMBERS: Final = (0, 1, 2, 3, 77, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1)
_TEXTS: Final = (
    b"", b"x", b"../../etc", b"a" * 300, "é\0\n".encode(), b"main", b"Pod", b"default", b"{", b"-1",
    b"2024-01-01", b"io.kubernetes.pod.uid", b"18446744073709551616", b"\xff\xfe",
)  # fmt: skip
_DEPTH: Final = 4

Field = tuple[int, int | bytes]
"""A tag, and a number or bytes."""


def read_fields(data: bytes) -> list[Field]:
    """The fields of a message.

    Raises:
        ValueError: it is none.
    """
    fields: list[Field] = []
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        match tag & 7:
            case 0:
                value, position = _varint(data, position)
                fields.append((tag, value))
            case 2:
                length, position = _varint(data, position)
                if position + length > len(data):
                    raise ValueError("it ends inside a field")
                fields.append((tag, data[position : position + length]))
                position += length
            case 1 | 5 as kind:
                length = 8 if kind == 1 else 4
                fields.append((tag, data[position : position + length]))
                position += length
            case _:
                raise ValueError("an unknown kind of field")
        if tag >> 3 == 0:
            raise ValueError("field 0")
    return fields


def write_fields(fields: list[Field]) -> bytes:
    """The bytes of these fields."""
    parts = []
    for tag, value in fields:
        parts.append(_number(tag))
        if isinstance(value, int):
            parts.append(_number(value))
        else:
            parts += [_number(len(value)) if tag & 7 == 2 else b"", value]
    return b"".join(parts)


def damaged(rng: Random, data: bytes, depth: int = 0) -> bytes:
    """A message with one thing in it, or in a message in it, that is not as it was."""
    try:
        fields = read_fields(data)
    except ValueError:
        return rng.choice(_TEXTS)
    if not fields:
        return data
    index = rng.randrange(len(fields))
    tag, value = fields[index]
    match rng.randrange(6):
        case 0:
            del fields[index]
        case 1:
            fields.append(fields[index])
        case 2:
            fields = []
        case _ if isinstance(value, int):
            fields[index] = (tag, rng.choice(_NUMBERS))
        case 3 if tag & 7 == 2:
            fields[index] = (tag, rng.choice(_TEXTS))
        case _ if depth < _DEPTH and tag & 7 == 2:
            fields[index] = (tag, damaged(rng, value, depth + 1))
    return write_fields(fields)


def odd(rng: Random, message: M, times: int = 1) -> M:
    """A damaged message, as the client would read it.

    Raises:
        Internal: it cannot be read any more.
    """
    data = encode(message)
    for _ in range(times):
        data = damaged(rng, data)
    try:
        return parse(type(message), data)
    except Exception as error:
        msg = f"the reply is not a {type(message).__name__}: {error!r}"
        raise Internal(msg) from error


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("a number without end")


def _number(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def fuzz_wire(rng: Random) -> None:
    """The quick reader and writer of messages agree with betterproto2 on whatever bytes come.

    Raises:
        AssertionError: they do not.
    """
    kind = rng.choice(_KINDS)
    message = _example(rng, kind)
    data = bytes(message)
    assert encode(message) == data
    for _ in range(rng.randrange(4)):
        data = damaged(rng, data)
    if rng.random() < 0.1:
        data = rng.randbytes(rng.randrange(40))
    slow, quick = _read(kind, data, kind.parse), _read(kind, data, partial(parse, kind))
    if slow is None or misfit(slow):
        assert quick is None
    else:
        assert quick == slow, f"{kind.__name__} reads {data.hex()} as {quick!r}, not {slow!r}"
    table = InternTable(v1.Container)
    for _ in range(2):
        with suppress(Internal):
            table.decode(data)


def _read(kind: type[Any], data: bytes, by: Callable[[bytes], Any]) -> Any:
    with suppress(Exception):
        return by(data)
    return None


_KINDS: Final[tuple[type[Any], ...]] = (
    v1.ListContainersResponse, v1.ListPodSandboxResponse, v1.ContainerStatusResponse,
    v1.PodSandboxStatusResponse, v1.StatusResponse, v1.ImageStatusResponse,
    v1.ContainerEventResponse, v1.RunPodSandboxRequest, v1.CreateContainerRequest,
)  # fmt: skip


def _example(rng: Random, kind: type[Any], depth: int = 0) -> Any:
    """A message of that kind with some of its fields set."""
    message = kind()
    for name, field in kind.__dataclass_fields__.items():
        meta = field.metadata.get("betterproto")
        if meta is None or rng.random() < 0.4:
            continue
        with suppress(TypeError, ValueError, KeyError, AttributeError):
            setattr(message, name, _value(rng, kind, name, meta, depth))
    return message


def _value(rng: Random, kind: type[Any], name: str, meta: Any, depth: int) -> Any:
    if meta.map_meta is not None:
        return {rng.choice(["a", "b", ""]): "x" for _ in range(rng.randrange(3))}
    one = _single(rng, kind, name, meta, depth)
    return [one for _ in range(rng.randrange(3))] if meta.repeated else one


def _single(rng: Random, kind: type[Any], name: str, meta: Any, depth: int) -> Any:
    match meta.proto_type:
        case "string":
            return rng.choice(["", "x", "é", "a" * 200])
        case "bool":
            return rng.random() < 0.5
        case "bytes":
            return rng.randbytes(rng.randrange(5))
        case "message" if depth < 3:
            return _example(rng, kind._betterproto.cls_by_field[name], depth + 1)
        case "message" | "enum":
            raise KeyError(name)
        case kind_of_number if kind_of_number.startswith("u"):
            return rng.choice([0, 1, 2**31])
        case _:
            return rng.choice([0, 1, -1, 2**30])
