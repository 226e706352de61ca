"""The quick codec does what the generated messages do themselves, for every message there is."""

from __future__ import annotations

import inspect
from typing import Any

import betterproto2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.proto.runtime import v1
from nodeagent.rpc import wire
from nodeagent.rpc.wire_plan import plan_of

_DEEP = 3

NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    betterproto2.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    betterproto2.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    betterproto2.TYPE_UINT32: st.integers(0, 2**32 - 1),
    betterproto2.TYPE_UINT64: st.integers(0, 2**64 - 1),
    betterproto2.TYPE_BOOL: st.booleans(),
    betterproto2.TYPE_FLOAT: st.just(0.5),
    betterproto2.TYPE_DOUBLE: st.floats(allow_nan=False),
    betterproto2.TYPE_STRING: st.text(max_size=200),
    betterproto2.TYPE_BYTES: st.binary(max_size=200),
}


def messages_of(module: Any) -> list[type[betterproto2.Message]]:
    return [
        each
        for _, each in inspect.getmembers(module, inspect.isclass)
        if issubclass(each, betterproto2.Message)
    ]


CLASSES = messages_of(v1)


def values(kind: str, cls: Any, depth: int) -> st.SearchStrategy[Any]:
    if kind == betterproto2.TYPE_MESSAGE:
        return messages(cls, depth + 1)
    if kind == betterproto2.TYPE_ENUM:
        return st.one_of(st.sampled_from(list(cls)), st.integers(0, 40).map(cls))
    return NUMBERS[kind]


def field_values(cls: Any, name: str, meta: Any, depth: int) -> st.SearchStrategy[Any]:
    about = cls._betterproto
    if meta.map_meta is not None:
        key, value = meta.map_meta
        inner = about.cls_by_field.get(f"{name}.value")
        return st.dictionaries(
            values(key.proto_type, None, depth),
            values(value.proto_type, inner, depth),
            max_size=3,
        )
    one = values(meta.proto_type, about.cls_by_field.get(name), depth)
    if meta.repeated:
        return st.lists(one, max_size=3)
    if meta.proto_type == betterproto2.TYPE_MESSAGE or meta.optional:
        return st.none() | one
    return one


def messages(cls: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    fields = cls._betterproto.meta_by_field_name
    if depth >= _DEEP or not fields:
        return st.builds(cls)
    return st.fixed_dictionaries(
        {}, optional={n: field_values(cls, n, m, depth) for n, m in fields.items()}
    ).map(lambda given: cls(**given))


@given(st.data())
def test_bytes_and_messages_are_those_of_the_generated_code(data: st.DataObject) -> None:
    cls: Any = data.draw(st.sampled_from(CLASSES))
    message = data.draw(messages(cls))
    encoded = bytes(message)
    assert wire.encode(message) == encoded
    ours, theirs = wire.parse(cls, encoded), cls.parse(encoded)
    assert ours == theirs
    assert same(ours, theirs)


def same(ours: Any, theirs: Any) -> bool:
    """Equal down to the types of all values and to what was not understood."""
    if isinstance(theirs, betterproto2.Message):
        return (
            type(ours) is type(theirs)
            and vars(ours).keys() == vars(theirs).keys()
            and all(same(vars(ours)[name], value) for name, value in vars(theirs).items())
        )
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return type(ours) is type(theirs) and bool(ours == theirs)


def outcome(cls: Any, data: bytes, parse: Any) -> Any:
    try:
        return parse(cls, data)
    except Exception as error:  # noqa: BLE001 - of many kinds, all the same to callers
        return type(error)


@given(st.data(), st.sampled_from([v1.Container, v1.ContainerStatus, v1.PodSandboxStatus]))
def test_bytes_that_are_damaged_or_of_another_message_come_out_alike(
    data: st.DataObject, cls: Any
) -> None:
    whole = bytes(data.draw(messages(data.draw(st.sampled_from(CLASSES)))))
    cut = data.draw(st.integers(0, len(whole)))
    junk = data.draw(st.binary(max_size=12))
    damaged = whole[:cut] + junk + whole[cut + data.draw(st.integers(0, 3)) :]
    ours = outcome(cls, damaged, wire.parse)
    theirs = outcome(cls, damaged, lambda cls, data: cls.parse(data))
    if isinstance(theirs, betterproto2.Message) and wire.misfit(theirs):
        theirs = wire.MisfitError
    assert ours == theirs


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"\x08\x07", "id"),  # a number in place of text
        (b"\x12\x02\x08\x07", "metadata.name"),
        (b"\x1a\x02\x01\x02", "state"),  # several numbers in place of one
    ],
)
def test_a_field_of_another_kind_is_an_error(data: bytes, name: str) -> None:
    # betterproto2 would take it as it comes: an id that is a number.
    with pytest.raises(ValueError, match=f"field {name} is of another kind"):
        wire.parse(v1.ContainerStatus, data)


def test_fields_of_newer_runtimes_are_kept() -> None:
    known = v1.ContainerMetadata(name="web", attempt=3)
    # Number 99 as varint, 98 as text, 97 as 8 bytes, 96 as 4 bytes.
    newer = b"\x98\x06\x05" + b"\x92\x06\x02hi" + b"\x89\x06" + b"x" * 8 + b"\x85\x06" + b"y" * 4
    data = bytes(known) + newer
    read = wire.parse(v1.ContainerMetadata, data)
    assert (read.name, read.attempt) == ("web", 3)
    assert read._unknown_fields == newer
    assert wire.encode(read) == data


def test_a_message_with_bytes_of_its_own_is_asked_for_them() -> None:
    class Fixed(v1.VersionRequest):
        def __bytes__(self) -> bytes:
            return b"fixed"

    assert wire.encode(Fixed()) == b"fixed"


def test_what_is_no_generated_message_makes_its_own_bytes() -> None:
    class Raw(bytes):
        @classmethod
        def parse(cls, data: bytes) -> Raw:
            return cls(data)

    assert wire.parse(Raw, b"abc") == b"abc"
    assert wire.encode(Raw(b"abc")) == b"abc"


@pytest.mark.parametrize("cls", [v1.ContainerStatus, v1.PodSandboxStatus, v1.Container])
def test_the_messages_that_matter_go_the_quick_way(cls: Any) -> None:
    plan = plan_of(cls)
    assert plan is not None
    assert len(plan.fields) == len(cls._betterproto.meta_by_field_name)
