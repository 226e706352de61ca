"""Header blocks on the server's side: known ones are looked up, whatever the table says."""

from __future__ import annotations

from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.rpc.headers import encode_headers
from nodeagent.rpc.watched import BlockReader

ASKED = ((":method", "POST"), (":path", "/a/B"), ("te", "trailers"))
NAMES = st.sampled_from(["a", "b", "grpc-timeout", ":path"])
BLOCKS = st.lists(st.tuples(NAMES, st.text("xyz", max_size=3)), max_size=4)


def test_a_block_that_was_seen_before_is_looked_up() -> None:
    reader = BlockReader(Decoder())
    first = reader.decode(encode_headers(ASKED), raw=True)
    assert reader.decode(encode_headers(ASKED), raw=True) is first
    assert [(h[0].decode(), h[1].decode()) for h in first] == list(ASKED)


def test_only_so_many_blocks_are_kept() -> None:
    reader = BlockReader(Decoder())
    for number in range(100):
        reader.decode(encode_headers(((":path", f"/{number}"),)), raw=True)
    first, last = (encode_headers(((":path", path),)) for path in ("/0", "/99"))
    assert reader.decode(first, raw=True) is reader.decode(first, raw=True)
    assert reader.decode(last, raw=True) is not reader.decode(last, raw=True)


@given(st.lists(st.tuples(st.booleans(), BLOCKS), max_size=12))
def test_it_says_what_any_decoder_says(blocks: list[tuple[bool, list[tuple[str, str]]]]) -> None:
    reader, plain, encoder = BlockReader(Decoder()), Decoder(), Encoder()
    for indexed, headers in blocks:
        block = encoder.encode(headers) if indexed else encode_headers(tuple(headers))
        assert list(reader.decode(block, raw=True)) == list(plain.decode(block, raw=True))
