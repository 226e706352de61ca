"""Channels of a command over SPDY: docs/behaviour/server.md, "Streams"."""

from __future__ import annotations

import anyio
import pytest
from anyio.abc import ByteStream

from nodeagent.streaming import spdy
from nodeagent.streaming.channels import SpdyChannels
from nodeagent.streaming.protocols import V4, Channel

pytestmark = pytest.mark.anyio


class Stubborn(ByteStream):
    """Takes nothing that is sent, and says what it was made with."""

    def __init__(self, said: list[bytes]) -> None:
        self._said = said
        self.asked = anyio.Event()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if not self._said:
            raise anyio.EndOfStream
        return self._said.pop(0)

    async def send(self, item: bytes) -> None:
        self.asked.set()
        await anyio.sleep_forever()

    async def send_eof(self) -> None:
        return

    async def aclose(self) -> None:
        return


async def test_hs1_who_takes_no_input_is_heard_all_the_same() -> None:
    client = spdy.SpdyConnection(client=True)
    stream = client.open({"streamtype": "stdin"})
    opening = client.take()
    client.send(stream, b"tick")
    peer = Stubborn([opening, client.take()])
    channels = SpdyChannels(peer, V4)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(channels.close)
        await peer.asked.wait()
        with anyio.fail_after(30):
            said = await channels.receive()
        assert said is not None
        assert (said.channel, said.data) == (Channel.STDIN, b"tick")
        tasks.cancel_scope.cancel()
