"""SPDY/3.1: docs/behaviour/server.md, "Streams"."""

from __future__ import annotations

import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.streaming import spdy
from nodeagent.streaming.spdy_headers import (
    DICTIONARY,
    MOST_PLAIN,
    HeaderError,
    HeaderReader,
    HeaderWriter,
)

NAMES = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=20)
VALUES = st.text(st.characters(min_codepoint=1, max_codepoint=255), max_size=60)
HEADERS = st.dictionaries(NAMES, VALUES, max_size=8)


def test_the_dictionary_is_the_one_of_the_draft() -> None:
    # Compressors name it by this sum: the first bytes of every first block.
    assert (len(DICTIONARY), zlib.adler32(DICTIONARY)) == (1423, 0xE3C6A7C2)


@given(st.lists(HEADERS, max_size=6))
def test_headers_come_out_as_they_went_in(blocks: list[dict[str, str]]) -> None:
    writer, reader = HeaderWriter(), HeaderReader()
    for headers in blocks:
        assert reader.read(writer.write(headers)) == headers


@given(st.binary(max_size=200))
def test_a_bad_header_block_is_refused(block: bytes) -> None:
    with suppress(HeaderError):
        HeaderReader().read(block)


@given(st.binary(max_size=200))
def test_a_block_that_lies_about_its_sizes_is_refused(plain: bytes) -> None:
    zipped = zlib.compressobj(zdict=DICTIONARY)
    block = zipped.compress(plain) + zipped.flush(zlib.Z_SYNC_FLUSH)
    with suppress(HeaderError):
        HeaderReader().read(block)


def test_a_block_that_swells_is_refused() -> None:
    zipped = zlib.compressobj(zdict=DICTIONARY)
    block = zipped.compress(b"\0" * (MOST_PLAIN + 1)) + zipped.flush(zlib.Z_SYNC_FLUSH)
    assert len(block) < 1000
    with pytest.raises(HeaderError, match="larger than"):
        HeaderReader().read(block)


class Pair:
    """A client and a server."""

    def __init__(self) -> None:
        self.client = spdy.SpdyConnection(client=True)
        self.server = spdy.SpdyConnection(client=False)

    def to_server(self) -> list[spdy.Event]:
        return self.server.receive(self.client.take())

    def to_client(self) -> list[spdy.Event]:
        return self.client.receive(self.server.take())

    def stream(self) -> int:
        stream = self.client.open({"streamtype": "stdin"})
        self.to_server()
        self.server.reply(stream)
        self.to_client()
        return stream


@given(
    st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=100_000)), max_size=8),
    st.lists(st.integers(1, 70_000), min_size=1, max_size=8),
)
def test_bytes_arrive_whole_and_in_order_however_they_are_cut(
    said: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    client, server = spdy.SpdyConnection(client=True), spdy.SpdyConnection(client=False)
    streams = [client.open({"streamtype": str(number)}) for number in range(3)]
    for number, data in said:
        client.send(streams[number], data)
    for stream in streams:
        client.send(stream, b"", fin=True)
    wire, at, events = client.take(), 0, list[spdy.Event]()
    while at < len(wire):
        size = cuts[at % len(cuts)]
        events += server.receive(wire[at : at + size])
        at += size
    for number, stream in enumerate(streams):
        got = [one for one in events if isinstance(one, spdy.Data) and one.stream == stream]
        assert b"".join(one.data for one in got) == b"".join(d for n, d in said if n == number)
        assert [one.fin for one in got] == [False] * (len(got) - 1) + [True]


@given(st.binary(max_size=300))
def test_nonsense_is_no_traceback(data: bytes) -> None:
    server = spdy.SpdyConnection(client=False)
    with suppress(spdy.SpdyError):
        server.receive(data)


def test_a_stream_is_taken_and_both_halves_end_on_their_own() -> None:
    pair = Pair()
    stream = pair.client.open({"StreamType": "stdin"})
    assert pair.to_server() == [spdy.Opened(stream, {"streamtype": "stdin"}, fin=False)]
    pair.server.reply(stream, {"a": "b"})
    assert pair.to_client() == [spdy.Replied(stream, {"a": "b"}, fin=False)]
    pair.client.send(stream, b"last", fin=True)
    assert pair.to_server() == [spdy.Data(stream, b"last", fin=True)]
    pair.client.send(stream, b"after the end")
    assert pair.client.take() == b""
    pair.server.send(stream, b"answer", fin=True)
    assert pair.to_client() == [spdy.Data(stream, b"answer", fin=True)]
    pair.server.reset(stream)
    assert pair.server.take() == b"", "it is over"


def test_a_stream_may_be_reset() -> None:
    pair = Pair()
    stream = pair.stream()
    pair.client.send(stream, b"on its way")
    pair.server.reset(stream)
    assert pair.to_server() == [], "what was on its way is dropped"
    assert pair.to_client() == [spdy.Reset(stream, spdy.CANCEL)]


def test_pings_are_answered_and_answers_are_not() -> None:
    pair = Pair()
    ping = b"\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x01"
    assert pair.server.receive(ping) == []
    assert pair.server.take() == ping
    assert pair.client.receive(ping) == []
    assert pair.client.take() == b""


def test_settings_windows_and_unknown_frames_change_nothing() -> None:
    pair = Pair()
    frames = b"".join(bytes([0x80, 3, 0, kind, 0, 0, 0, 8]) + b"\0" * 8 for kind in (4, 9, 77))
    assert pair.server.receive(frames) == []
    pair.stream()


def test_a_goodbye_is_told() -> None:
    pair = Pair()
    pair.server.go_away()
    assert pair.to_client() == [spdy.GoneAway()]


def test_too_many_streams_are_refused_one_by_one() -> None:
    pair = Pair()
    for _ in range(spdy.MOST_STREAMS + 1):
        last = pair.client.open({})
    assert len(pair.to_server()) == spdy.MOST_STREAMS
    assert pair.to_client() == [spdy.Reset(last, spdy.REFUSED)]


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"\x80\x02\x00\x06\x00\x00\x00\x04\0\0\0\1", "version 2"),
        (b"\x80\x03\x00\x01\x00\xff\xff\xff", "control frame"),
        (b"\x80\x03\x00\x06\x00\x00\x00\x02\0\0", "ends too early"),
    ],
)
def test_what_breaks_the_protocol_is_named(frame: bytes, why: str) -> None:
    with pytest.raises(spdy.SpdyError, match=why):
        spdy.SpdyConnection(client=False).receive(frame)


def test_a_stream_with_the_number_of_the_other_side_is_refused() -> None:
    other = spdy.SpdyConnection(client=True)
    other.open({})
    with pytest.raises(spdy.SpdyError, match="must not open"):
        spdy.SpdyConnection(client=True).receive(other.take())


def test_what_comes_after_the_end_resets_the_stream() -> None:
    pair = Pair()
    stream = pair.stream()
    pair.client.send(stream, b"", fin=True)
    pair.to_server()
    after = bytes([0, 0, 0, stream, 0, 0, 0, 1]) + b"x"
    assert pair.server.receive(after) == [spdy.Reset(stream, spdy.PROTOCOL_ERROR)]
