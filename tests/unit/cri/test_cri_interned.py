"""Interned lists against plain decoding (docs/behaviour/pleg.md, "Relist")."""

from __future__ import annotations

import dataclasses
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.cri import InternTable
from nodeagent.cri.interned import cut
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Internal

text = st.text(max_size=20)
containers = st.builds(
    v1.Container,
    id=text,
    pod_sandbox_id=text,
    metadata=st.none() | st.builds(v1.ContainerMetadata, name=text, attempt=st.integers(0, 9)),
    image=st.none() | st.builds(v1.ImageSpec, image=text),
    state=st.sampled_from(list(v1.ContainerState)),
    created_at=st.integers(-(2**63), 2**63 - 1),
    labels=st.dictionaries(text, text, max_size=4),
    annotations=st.dictionaries(text, text.map(lambda t: t * 20), max_size=3),
)
lists = st.lists(containers, max_size=8)


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def attempt(table: InternTable[v1.Container], data: bytes) -> tuple[v1.Container, ...] | Internal:
    try:
        return table.decode(data)
    except Internal as exc:
        return exc


def encode(items: list[v1.Container]) -> bytes:
    return bytes(v1.ListContainersResponse(containers=items))


@given(st.lists(lists, min_size=1, max_size=4))
def test_every_list_decodes_as_it_does_without_the_table(history: list[list[v1.Container]]) -> None:
    table = InternTable(v1.Container)
    for items in history:
        data = encode(items)
        assert list(table.decode(data)) == v1.ListContainersResponse.parse(data).containers


def shuffled(item: v1.Container, random: Random) -> v1.Container:
    """The same container as a Go program would write it the next time."""
    labels, annotations = list(item.labels.items()), list(item.annotations.items())
    random.shuffle(labels)
    random.shuffle(annotations)
    return dataclasses.replace(item, labels=dict(labels), annotations=dict(annotations))


@given(st.lists(containers, max_size=8, unique_by=bytes), st.randoms())
def test_unchanged_items_are_the_same_objects_in_any_order_of_their_labels(
    items: list[v1.Container], random: Random
) -> None:
    table = InternTable(v1.Container)
    before = table.decode(encode(items))
    for _ in range(3):
        again = table.decode(encode([shuffled(item, random) for item in items]))
        assert [id(item) for item in again] == [id(item) for item in before]


@given(containers, containers)
def test_only_the_order_of_map_entries_does_not_count(
    one: v1.Container, other: v1.Container
) -> None:
    table = InternTable(v1.Container)
    (first,) = table.decode(encode([one]))
    (second,) = table.decode(encode([other]))
    assert second == v1.Container.parse(bytes(other))
    assert (first is second) == (first == second)


def test_a_label_and_an_annotation_that_trade_places_are_a_change() -> None:
    table = InternTable(v1.Container)
    (first,) = table.decode(encode([v1.Container(id="c", labels={"a": "b"})]))
    (second,) = table.decode(encode([v1.Container(id="c", annotations={"a": "b"})]))
    assert (first.labels, second.annotations) == ({"a": "b"}, {"a": "b"})
    assert second.labels == {}


@given(lists, st.randoms())
def test_unchanged_items_are_the_same_objects_in_any_order(
    items: list[v1.Container],
    random: Random,
) -> None:
    table = InternTable(v1.Container)
    before = {bytes(item): item for item in table.decode(encode(items))}
    shuffled = list(items)
    random.shuffle(shuffled)
    after = table.decode(encode(shuffled))
    assert all(before[bytes(item)] is item for item in after)


@given(lists, containers)
def test_one_changed_item_is_the_only_new_object(
    items: list[v1.Container], changed: v1.Container
) -> None:
    table = InternTable(v1.Container)
    before = table.decode(encode(items))
    after = table.decode(encode([*items, changed]))
    assert all(one is other for one, other in zip(before, after, strict=False))
    assert after[-1] == changed


@given(lists, lists)
def test_the_table_keeps_just_the_last_list(
    first: list[v1.Container], second: list[v1.Container]
) -> None:
    table = InternTable(v1.Container)
    table.decode(encode(first))
    table.decode(encode(second))
    assert len(table) == len({bytes(item) for item in second})


@given(lists.filter(bool))
def test_a_partial_list_shares_objects_and_is_not_remembered(items: list[v1.Container]) -> None:
    table = InternTable(v1.Container)
    whole = table.decode(encode(items))
    assert table.decode(encode(items[:1]), remember=False)[0] == whole[0]
    assert len(table) == len({bytes(item) for item in items})


extras = st.one_of(
    st.builds(lambda n, v: varint(n << 3) + varint(v), st.integers(2, 5000), st.integers(0, 2**64)),
    st.builds(lambda n: varint(n << 3 | 1) + bytes(8), st.integers(1, 5000)),
    st.builds(lambda n: varint(n << 3 | 5) + bytes(4), st.integers(1, 5000)),
    st.builds(
        lambda n, d: varint(n << 3 | 2) + varint(len(d)) + d,
        st.integers(2, 5000),
        st.binary(max_size=300),
    ),
    st.builds(
        lambda n, v: varint(n << 3 | 3) + b"\x08" + varint(v) + b"\x13\x14" + varint(n << 3 | 4),
        st.integers(2, 5000),
        st.integers(0, 2**64),
    ),
)


@given(st.lists(extras, max_size=4), lists)
def test_fields_we_do_not_know_are_passed_over(
    unknown: list[bytes], items: list[v1.Container]
) -> None:
    pieces = [encode([item]) for item in items]
    mixed = b"".join(
        part for pair in zip(unknown, pieces, strict=False) for part in pair
    ) + b"".join([*unknown[len(pieces) :], *pieces[len(unknown) :]])
    assert list(InternTable(v1.Container).decode(mixed)) == items


@given(lists.filter(bool), st.data())
def test_a_list_cut_short_is_refused_or_ends_between_items(
    items: list[v1.Container], data: st.DataObject
) -> None:
    whole = encode(items)
    short = whole[: data.draw(st.integers(0, len(whole) - 1))]
    table = InternTable(v1.Container)
    before = table.decode(whole)
    got = attempt(table, short)
    if isinstance(got, Internal):
        assert "damaged" in got.message
        assert table.decode(whole)[0] is before[0]
    else:
        assert encode(list(got)) == short


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_raise_one_kind_of_error(data: bytes) -> None:
    got = attempt(InternTable(v1.Container), data)
    assert isinstance(got, tuple) or "list" in got.message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x0a", "ends inside item 0, after 1 bytes"),
        (b"\x0a\x05abc", "ends inside item 0, after 5 bytes"),
        (b"\x0a\x00\x11\x00", "ends inside item 1, after 4 bytes"),
        (b"\xff" * 12, "a number at byte 10 has no end"),
        (b"\x0f", "kind 7 of field 1"),
        (b"\x0c", "kind 4 of field 1"),
        (b"\x13\x1c", "group 3 ends at byte 2 unopened"),
        (b"\x0a\x03\x0a\x01\xff", "item 0 of the list is not a Container"),
    ],
)
def test_damage_is_named(data: bytes, message: str) -> None:
    with pytest.raises(Internal, match=message):
        InternTable(v1.Container).decode(data)


def test_the_field_is_found_under_any_number() -> None:
    data = varint(300 << 3 | 2) + varint(200) + b"x" * 200
    assert cut(data, 300) == [b"x" * 200]
