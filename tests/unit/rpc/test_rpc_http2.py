"""Our side of HTTP/2 against h2's, and against frames that no library would send."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent import rpc
from nodeagent.rpc import http2
from nodeagent.rpc.headers import HeaderReader, encode_headers
from nodeagent.rpc.http2_frames import frame
from nodeagent.rpc.link import Link

pytestmark = pytest.mark.anyio

METHOD = "/test.Service/Call"
ANSWER = [(":status", "200"), ("content-type", "application/grpc")]
OK = [("grpc-status", "0")]


class Raw(bytes):
    @classmethod
    def parse(cls, data: bytes) -> Raw:
        return cls(data)


def message(payload: bytes) -> bytes:
    return len(payload).to_bytes(5, "big") + payload


@pytest.fixture
def path() -> Iterator[str]:
    with TemporaryDirectory(prefix="rpc") as directory:
        yield str(Path(directory, "s.sock"))


class Peer:
    """A server made of h2; ``answer`` is called for each request that has come whole."""

    def __init__(self, answer: Callable[[Peer, int, bytes], None]) -> None:
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        self.h2 = h2.connection.H2Connection(config)
        self.answer = answer
        self.bodies: dict[int, bytearray] = {}
        self.headers: dict[int, dict[str, str]] = {}
        self.resets: list[int] = []
        self.events: list[Any] = []
        self.acknowledge = True
        self.waiting: list[tuple[int, bytes]] = []
        self.writer: asyncio.StreamWriter

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.h2.initiate_connection()
        self.flush()
        while data := await reader.read(65536):
            for event in self.h2.receive_data(data):
                self._take(event)
            self._send_more()
            self.flush()
        writer.close()

    def _take(self, event: Any) -> None:
        self.events.append(event)
        if isinstance(event, h2.events.RequestReceived):
            self.bodies[event.stream_id] = bytearray()
            self.headers[event.stream_id] = {str(n): str(v) for n, v in event.headers}
        elif isinstance(event, h2.events.DataReceived):
            self.bodies[event.stream_id] += event.data
            if self.acknowledge:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            self.answer(self, event.stream_id, bytes(self.bodies[event.stream_id]))
        elif isinstance(event, h2.events.StreamReset):
            self.resets.append(event.stream_id)

    def send(self, stream: int, data: bytes) -> None:
        """Send data as the client's windows allow."""
        self.waiting.append((stream, data))
        self._send_more()

    def _send_more(self) -> None:
        waiting, self.waiting = self.waiting, []
        for stream, data in waiting:
            rest = data
            while rest and (room := self.room(stream)) > 0:
                self.h2.send_data(stream, rest[:room])
                rest = rest[room:]
            if rest:
                self.waiting.append((stream, rest))
            else:
                self.h2.send_headers(stream, OK, end_stream=True)

    def room(self, stream: int) -> int:
        return min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)

    def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())


@asynccontextmanager
async def peer(path: str, answer: Callable[[Peer, int, bytes], None]) -> AsyncIterator[Peer]:
    made = Peer(answer)
    async with await asyncio.start_unix_server(made.serve, path) as server:
        yield made
        if hasattr(made, "writer"):
            made.writer.close()
        server.close()


async def call(channel: rpc.RpcChannel, payload: bytes = b"", timeout: float = 100) -> bytes:
    return await channel.unary_bytes(METHOD, Raw(payload), timeout=timeout)


def echo(server: Peer, stream: int, body: bytes) -> None:
    server.h2.send_headers(stream, ANSWER)
    server.send(stream, body)


async def test_messages_of_any_size_go_both_ways(path: str) -> None:
    dice = random.Random(1)
    async with peer(path, echo), rpc.RpcChannel(path) as channel:
        for size in (0, 1, 100, 16_379, 16_380, 65_530, 65_531, 70_000, 1_000_000, 9_000_000):
            payload = dice.randbytes(size)
            assert await call(channel, payload) == payload


async def test_many_calls_at_once_keep_their_answers_apart(path: str) -> None:
    async with peer(path, echo) as server, rpc.RpcChannel(path) as channel:
        answers: dict[int, bytes] = {}

        async def one(number: int) -> None:
            answers[number] = await call(channel, b"%d " % number * 5000)

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(one, number)
        assert answers == {number: b"%d " % number * 5000 for number in range(100)}
        assert len(server.headers) == 100
        assert server.resets == []


async def test_a_request_waits_for_the_servers_window_and_can_be_given_up(path: str) -> None:
    async with peer(path, echo) as server, rpc.RpcChannel(path) as channel:
        server.acknowledge = False
        with pytest.raises(rpc.DeadlineExceeded):
            await call(channel, b"x" * 100_000, timeout=0.5)
        await anyio.sleep(0.1)
        assert server.resets == [1]
        assert len(server.bodies[1]) == 65_535
        (link,) = channel._links
        assert link.streams == 0
        assert link.calls == set()


async def test_windows_may_be_changed_while_a_request_is_sent(path: str) -> None:
    async with peer(path, echo) as server, rpc.RpcChannel(path) as channel:
        server.acknowledge = False
        answers: list[bytes] = []

        async def one() -> None:
            answers.append(await call(channel, b"y" * 150_000))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one)
            await anyio.sleep(1)
            code = h2.settings.SettingCodes.INITIAL_WINDOW_SIZE
            server.h2.update_settings({code: 200_000})
            server.h2.increment_flow_control_window(200_000)
            server.flush()
        assert answers == [b"y" * 150_000]


async def test_no_more_calls_are_sent_at_once_than_the_server_takes(path: str) -> None:
    asked: list[int] = []

    def note(server: Peer, stream: int, body: bytes) -> None:
        asked.append(stream)

    async with peer(path, note) as server, rpc.RpcChannel(path) as channel:

        async def one() -> None:
            await call(channel, b"z")

        with pytest.raises(rpc.DeadlineExceeded):
            await call(channel, timeout=0.5)
        server.h2.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 2})
        server.flush()
        await anyio.sleep(0.1)
        asked.clear()
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(one)
            for count in (2, 2, 1):
                await anyio.sleep(1)
                assert len(asked) == count
                streams, asked[:] = list(asked), []
                for stream in streams:
                    echo(server, stream, message(b"done"))
                server.flush()


async def test_a_reader_that_is_slow_holds_back_its_own_stream_only(path: str) -> None:
    def flood(server: Peer, stream: int, body: bytes) -> None:
        server.h2.send_headers(stream, ANSWER)
        server.send(stream, message(b"f" * 100_000) * 200 if body == message(b"flood") else body)

    async with peer(path, flood) as server, rpc.RpcChannel(path) as channel:
        async with channel.server_stream(METHOD, Raw(b"flood"), Raw) as replies:
            first = await anext(aiter(replies))
            assert first == b"f" * 100_000
            await anyio.sleep(5)
            held = sum(len(data) for _, data in server.waiting)
            assert held > 10_000_000  # of 20 MB, four are on the way
            assert await call(channel, b"other") == b"other"
            count = 1
            async for reply in replies:
                assert len(reply) == 100_000
                count += 1
            assert count == 200
        assert server.waiting == []


async def test_an_answer_before_the_request_is_sent_whole_ends_the_sending(path: str) -> None:
    class Early(Peer):
        def _take(self, event: Any) -> None:
            super()._take(event)
            if isinstance(event, h2.events.RequestReceived):
                refused = [*ANSWER, ("grpc-status", "8"), ("grpc-message", "too large")]
                self.h2.send_headers(event.stream_id, refused, end_stream=True)

    made = Early(lambda *_: None)
    made.acknowledge = False
    async with await asyncio.start_unix_server(made.serve, path), rpc.RpcChannel(path) as channel:
        with pytest.raises(rpc.ResourceExhausted, match="too large"):
            await call(channel, b"x" * 200_000)
        await anyio.sleep(0.1)
        assert made.resets == [1]
        made.writer.close()


async def test_a_reset_after_the_answer_takes_nothing_away(path: str) -> None:
    def answer(server: Peer, stream: int, body: bytes) -> None:
        server.h2.send_headers(stream, ANSWER)
        server.h2.send_data(stream, message(b"all"))
        server.h2.send_headers(stream, OK, end_stream=True)
        server.flush()
        server.writer.write(frame(3, 0, stream, b"\x00\x00\x00\x00"))

    async with peer(path, answer), rpc.RpcChannel(path) as channel:
        assert await call(channel) == b"all"
        assert await call(channel) == b"all"


async def test_a_call_that_the_server_resets_is_unavailable(path: str) -> None:
    def reset(server: Peer, stream: int, body: bytes) -> None:
        server.h2.reset_stream(stream, h2.errors.ErrorCodes.INTERNAL_ERROR)

    async with peer(path, reset), rpc.RpcChannel(path) as channel:
        with pytest.raises(rpc.Unavailable, match="the server reset the call"):
            await call(channel)


async def test_headers_in_pieces_padded_and_with_priority_are_read(path: str) -> None:
    def odd(server: Peer, stream: int, body: bytes) -> None:
        encoder = hpack.Encoder()
        block = encoder.encode([*ANSWER, ("x-long", "v" * 50_000)])
        first, middle, last = block[:10], block[10:20_000], block[20_000:]
        padded = b"\x03" + b"\x00\x00\x00\x00\x10" + first + b"\x00" * 3
        write = server.writer.write
        write(frame(1, 0x8 | 0x20, stream, padded))
        write(frame(9, 0, stream, middle) + frame(9, 0x4, stream, last))
        write(frame(1, 0x4, stream, encoder.encode([(":status", "103")])))  # not for us
        write(frame(0x77, 0xFF, 0, b"an extension") + frame(2, 0, stream, b"\x00" * 5))
        write(frame(0, 0x8, stream, b"\x05" + message(b"he")[:6] + b"\x00" * 5))
        write(frame(0, 0, stream, message(b"he")[6:]))
        write(frame(1, 0x5, stream, encoder.encode([("grpc-status", "0"), ("x", "1"), ("x", "2")])))

    async with peer(path, odd), rpc.RpcChannel(path) as channel:
        assert await call(channel) == b"he"
        assert await call(channel) == b"he"


BROKEN = {
    "text": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "no settings first": frame(0, 0, 1, b"x"),
    "endless frame": frame(4, 0, 0) + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
    "promise": frame(4, 0, 0) + frame(5, 4, 1, b"\x00\x00\x00\x02"),
    "data for nobody": frame(4, 0, 0) + frame(0, 0, 99, b"x"),
    "data on an even stream": frame(4, 0, 0) + frame(0, 0, 2, b"x"),
    "half a header block": frame(4, 0, 0) + frame(1, 0, 1, b"\x88") + frame(0, 0, 1, b"x"),
    "more of no block": frame(4, 0, 0) + frame(9, 4, 1, b"\x88"),
    "a broken block": frame(4, 0, 0) + frame(1, 4, 1, b"\xff\xff\xff\xff\xff\xff"),
    "all padding": frame(4, 0, 0) + frame(0, 8, 1, b"\x09x"),
    "a huge window": frame(4, 0, 0) + frame(8, 0, 0, b"\x7f\xff\xff\xff") * 2,
    "a short reset": frame(4, 0, 0) + frame(3, 0, 1, b"\x00"),
    "headers without measure": frame(4, 0, 0)
    + frame(1, 0, 1, b"x")
    + frame(9, 0, 1, b"x" * 2**20) * 2,
}


@pytest.mark.parametrize("name", BROKEN)
async def test_what_is_not_http2_ends_the_connection_and_its_calls(path: str, name: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(BROKEN[name])
        with suppress(OSError):
            await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(answer, path), rpc.RpcChannel(path) as channel:
        with pytest.raises(rpc.Unavailable, match="what arrived is not HTTP/2"):
            await call(channel)
        assert not any(link.usable or link.streams or link.calls for link in channel._links)


class Silent(asyncio.Transport):
    """A socket that takes everything."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    abort = close


async def connected() -> tuple[Link, Silent]:
    link, transport = Link(), Silent()
    link.connection_made(transport)
    await asyncio.sleep(0)
    return link, transport


@settings(max_examples=200)
@given(st.binary(max_size=400), st.integers(0, 3))
async def test_any_bytes_end_at_worst_the_connection(data: bytes, cuts: int) -> None:
    link, _ = await connected()
    link.data_received(frame(4, 0, 0))
    dice = random.Random(data)
    rest = data
    for _ in range(cuts):
        at = dice.randrange(len(rest) + 1)
        link.data_received(rest[:at])
        rest = rest[at:]
    link.data_received(rest)
    link.connection_lost(None)
    assert link.closed


async def test_a_ping_is_answered_and_settings_are_acknowledged() -> None:
    link, transport = await connected()
    transport.written = b""
    link.data_received(frame(4, 0, 0) + frame(6, 0, 0, b"12345678") + frame(6, 1, 0, b"87654321"))
    await asyncio.sleep(0)
    assert transport.written == frame(4, 1, 0) + frame(6, 1, 0, b"12345678")


async def test_after_the_last_stream_number_new_calls_go_elsewhere() -> None:
    link, _ = await connected()
    link.data_received(frame(4, 0, 0))
    link._next_stream = 2**31 - 1

    class Nobody:
        number = 0

        def terminate(self, reason: str) -> None:
            del reason

    assert link.usable
    await link.open(Nobody(), b"", b"")  # type: ignore[arg-type]
    assert not link.usable


async def test_the_window_of_the_connection_opens_again_for_streams_that_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http2, "CONNECTION_WINDOW", 2**17)
    link, transport = await connected()
    link.data_received(frame(4, 0, 0))
    link._next_stream = 101
    await asyncio.sleep(0)
    transport.written = b""
    for stream in range(1, 101, 2):
        link.data_received(frame(0, 0, stream, b"x" * 16_384))
    await asyncio.sleep(0)
    given_back = 0
    for at in range(0, len(transport.written), 13):
        assert transport.written[at + 3] == 8
        given_back += int.from_bytes(transport.written[at + 9 : at + 13], "big")
    assert given_back + link.unreturned == 50 * 16_384
    assert link.unreturned <= 2**16


# -- header blocks

texts = st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=300)
names = st.sampled_from([":path", ":authority", "te", "user-agent", "x-a", "content-type"])
pairs = st.lists(
    st.one_of(
        st.tuples(names, texts),
        st.sampled_from([(":method", "POST"), (":method", "GET"), (":scheme", "http")]),
    ),
    max_size=12,
)


@given(pairs)
def test_headers_that_we_write_are_read_by_others(headers: list[tuple[str, str]]) -> None:
    block = encode_headers(tuple(headers))
    decoder = hpack.Decoder()
    assert [(str(n), str(v)) for n, v in decoder.decode(block)] == headers
    assert decoder.header_table.dynamic_entries == type(decoder.header_table.dynamic_entries)()
    assert encode_headers(tuple(headers)) is block


def test_headers_that_are_not_ascii_are_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        encode_headers((("x", "\xe9"),))


@given(st.lists(pairs, max_size=12))
def test_headers_that_others_write_are_read_whatever_came_before(
    blocks: list[list[tuple[str, str]]],
) -> None:
    encoder, reader = hpack.Encoder(), HeaderReader()
    for headers in [*blocks, *blocks]:
        assert reader.read(encoder.encode(headers)) == dict(headers)
