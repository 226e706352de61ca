"""One HTTP/2 connection, seen from the server: grpclib's, with an eye on it."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Final, cast

import anyio
from grpclib.config import Configuration
from grpclib.protocol import AbstractHandler, H2Protocol, Stream
from h2.config import H2Configuration
from hpack import Decoder

from nodeagent.log import Log
from nodeagent.rpc.corked import Corked
from nodeagent.rpc.errors import Internal
from nodeagent.rpc.link import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from h2.connection import H2Connection
    from hpack import HeaderTuple

log = Log("rpc.server")

# One stream that nobody reads may hold its own window back, never the whole connection.
_STREAM_WINDOW: Final = 4 * 2**20
_CONNECTION_WINDOW: Final = 2**30
_MOST_KNOWN: Final = 64
_KNOWN_SIZE: Final = 1024


@functools.cache
def link_settings() -> Configuration:
    """Window sizes. Checking them costs more than a small call."""
    return Configuration(
        http2_connection_window_size=_CONNECTION_WINDOW, http2_stream_window_size=_STREAM_WINDOW
    ).__for_server__()


def h2_settings() -> H2Configuration:
    """Settings of the HTTP/2 state machine: no validation of what gRPC peers send anyway."""
    return H2Configuration(
        client_side=False,
        header_encoding="ascii",
        validate_inbound_headers=False,
        validate_outbound_headers=False,
        normalize_inbound_headers=False,
        normalize_outbound_headers=False,
    )


class BlockReader(Decoder):
    """Decodes header blocks, those that it has seen before at once.

    A block says the same again as long as the dynamic table is empty. It stays empty with clients
    that send the same headers as the same bytes, as ours do.
    """

    def __init__(self, like: Decoder) -> None:
        super().__init__(max_header_list_size=like.max_header_list_size)
        self.max_allowed_table_size = like.max_allowed_table_size
        self._known: dict[bytes, list[HeaderTuple]] = {}

    def decode(self, data: bytes, raw: bool = False) -> Iterable[HeaderTuple]:
        """The headers of a block, to be read only."""
        fixed = raw and not self.header_table.dynamic_entries and len(data) < _KNOWN_SIZE
        if fixed and (known := self._known.get(data)) is not None:
            return known
        size = self.header_table.maxsize
        headers = list(super().decode(data, raw))
        fixed = fixed and not self.header_table.dynamic_entries
        if fixed and size == self.header_table.maxsize and len(self._known) < _MOST_KNOWN:
            self._known[bytes(data)] = headers
        return headers


async def read_frame(stream: Stream) -> bytes | None:
    """Read one message from a stream; None at its end.

    Raises:
        Internal: the stream ends inside a message, or the message is compressed.
    """
    try:
        prefix = await stream.recv_data(PREFIX.size)
        if not prefix:
            return None
        compressed, length = PREFIX.unpack(prefix)
        if compressed:
            raise Internal("the message is compressed, which was not negotiated")
        payload = await stream.recv_data(length)
    except AssertionError as exc:  # grpclib's word for a stream that ends too early
        raise Internal("the stream ends inside a message") from exc
    if len(payload) != length:
        raise Internal("the stream ends inside a message")
    return payload


class Watched(H2Protocol):
    """A connection that can be waited for.

    Attributes:
        heard: how many times bytes have arrived.
        lost: set once the socket is closed.
    """

    def __init__(self, handler: AbstractHandler) -> None:
        super().__init__(handler, link_settings(), h2_settings())
        self._loop = asyncio.get_running_loop()
        self.heard = 0
        self.lost = anyio.Event()
        self.transport: Corked

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start HTTP/2 on a fresh socket."""
        self.transport = Corked(cast("asyncio.Transport", transport), self._loop)
        super().connection_made(self.transport)
        self.h2.decoder = BlockReader(self.h2.decoder)

    @property
    def h2(self) -> H2Connection:
        """The HTTP/2 state machine."""
        return self.connection._connection

    def data_received(self, data: bytes) -> None:
        """Take in bytes; whatever they break ends this connection and nothing else."""
        self.heard += 1
        try:
            super().data_received(data)
        except Exception as exc:  # noqa: BLE001 - garbage breaks h2 in many ways
            log.debug("connection_unreadable", error=repr(exc))
            self.processor.close(f"what arrived is not HTTP/2: {exc!r}")

    def connection_lost(self, exc: BaseException | None) -> None:
        """End everything that still waits on this connection."""
        super().connection_lost(exc)
        self.lost.set()

    def abort(self) -> None:
        """Close the socket now; what was not sent yet is dropped."""
        self.transport.abort()
