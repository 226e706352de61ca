"""Channels as messages of WebSockets: docs/behaviour/server.md, "Streams"."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.streaming.messages import MessageError, MessageReader, closing, message
from nodeagent.streaming.protocols import (
    BASE64,
    V1,
    V2,
    V4,
    V5,
    Channel,
    Outcome,
    Wanted,
    chosen,
    terminal_size,
)

PROTOCOLS = st.sampled_from([V5, V4, V1, *BASE64, ""])


@given(PROTOCOLS, st.integers(0, 4), st.binary(max_size=300), st.lists(st.integers(1, 9)))
def test_a_message_comes_out_as_it_went_in(
    protocol: str, channel: int, data: bytes, cuts: list[int]
) -> None:
    whole = message(protocol, channel, data)
    reader = MessageReader(protocol)
    got, at = b"", 0
    for cut in [*cuts, len(whole) + 1]:
        part = reader.read(whole[at : at + cut], at + cut > len(whole))
        if part is not None:
            assert (part.channel, part.end) == (channel, False)
            got += part.data
        at += cut
        if at > len(whole):
            break
    assert got == data
    again = reader.read(message(protocol, 1, b"next"), finished=True)
    assert again is not None
    assert (again.channel, again.data) == (1, b"next")


@given(PROTOCOLS, st.lists(st.tuples(st.binary(max_size=8), st.booleans()), max_size=8))
def test_nonsense_is_no_traceback(protocol: str, parts: list[tuple[bytes, bool]]) -> None:
    reader = MessageReader(protocol)
    with suppress(MessageError):
        for data, finished in parts:
            reader.read(data, finished)


def test_version_5_can_end_a_channel() -> None:
    reader = MessageReader(V5)
    assert reader.read(closing(0)[:1], finished=False) is None
    part = reader.read(closing(0)[1:], finished=True)
    assert part is not None
    assert (part.channel, part.data, part.end) == (0, b"", True)
    with pytest.raises(MessageError, match="names no channel"):
        MessageReader(V5).read(b"\xff", finished=True)
    part = MessageReader(V4).read(b"\xff\x00", finished=True)
    assert part is not None
    assert not part.end


def test_the_end_of_a_command_in_each_version() -> None:
    assert json.loads(Outcome().told(V4)) == {"metadata": {}, "status": "Success"}
    assert Outcome().told(V1) == b""
    failed = json.loads(Outcome(7).told(V5))
    assert failed["reason"] == "NonZeroExitCode"
    assert failed["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]
    assert Outcome(7).told(V2) == b"command terminated with non-zero exit code: 7\n"
    broken = json.loads(Outcome(error="no such file").told(V4))
    assert (broken["status"], broken["message"]) == ("Failure", "no such file")
    assert Outcome(error="no such file").told(V1) == b"no such file"


def test_which_channels_there_are() -> None:
    shell = Wanted(stdin=True, stdout=True, stderr=True, tty=True)
    assert shell.channels(V4) == (Channel.ERROR, Channel.STDIN, Channel.STDOUT, Channel.RESIZE)
    assert Channel.RESIZE not in shell.channels(V2)
    assert Wanted(stderr=True).channels(V1) == (Channel.ERROR, Channel.STDERR)


def test_which_protocol_is_chosen() -> None:
    assert chosen([V5, V4], (V4, V1)) == V4
    assert chosen([], (V4, "")) == ""
    assert chosen(["other"], (V4, "")) is None


@given(st.binary(max_size=60))
def test_a_bad_size_is_none(text: bytes) -> None:
    size = terminal_size(text)
    assert size is None or len(size) == 2


def test_sizes() -> None:
    assert terminal_size(b'{"Width":80,"Height":24}') == (80, 24)
    for bad in (b'{"Width":80}', b'{"Width":-1,"Height":2}', b'{"Width":1e9,"Height":2}', b"[]"):
        assert terminal_size(bad) is None
