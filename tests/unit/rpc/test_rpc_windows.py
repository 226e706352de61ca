"""Flow control: calls that are given up half-way hold nothing back from those that follow."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from grpclib.const import Cardinality, Handler
from h2.connection import H2Connection
from tests.unit.cri.fake_runtime import FakeRuntime

from nodeagent import rpc
from nodeagent.cri.caller import Raw
from nodeagent.proto.runtime import v1
from nodeagent.rpc import RpcChannel, http2

pytestmark = pytest.mark.anyio

CALLS, AT_ONCE = 20_000, 50
METHOD = "/runtime.v1.RuntimeService/ContainerStatus"
ANSWER = Raw(b"x" * 4096)


@pytest.fixture
def path() -> Iterator[str]:
    with TemporaryDirectory(prefix="rpc") as directory:
        yield str(Path(directory, "s.sock"))


class Statuses:
    """Answers ContainerStatus, with as little work as possible."""

    def __init__(self) -> None:
        self.calls = 0

    async def _answer(self, call: Any) -> None:
        self.calls += 1
        await call.recv_message()
        await call.send_message(ANSWER)

    def __mapping__(self) -> Mapping[str, Handler]:
        return {METHOD: Handler(self._answer, Cardinality.UNARY_UNARY, Raw, Raw)}


async def give_up(channel: RpcChannel, turns: int) -> None:
    """Ask for a status, and leave after so many turns of the loop."""
    with anyio.CancelScope() as scope:

        async def leave() -> None:
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leave)
            await channel.unary_bytes(METHOD, Raw(b"c1"), timeout=10)


@pytest.mark.timeout(300)
async def test_20000_calls_given_up_half_way_leave_the_windows_open(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The answers are eighty times as many bytes: the connection stalls if one in eighty is lost.
    monkeypatch.setattr(http2, "CONNECTION_WINDOW", 2**20)
    service = Statuses()
    dice = random.Random(7)
    async with rpc.serve_unix([service], path), RpcChannel(path) as channel:
        for _ in range(CALLS // AT_ONCE):
            async with anyio.create_task_group() as tasks:
                for _ in range(AT_ONCE):
                    tasks.start_soon(give_up, channel, dice.randrange(14))
        assert await channel.unary_bytes(METHOD, Raw(b"c1"), timeout=10) == ANSWER
        (connection,) = channel._links  # none of it was worth a new connection
        assert connection.calls == set()
        assert connection.streams == 0
        assert connection.unreturned <= 2**19
    assert CALLS / 3 < service.calls <= CALLS + 1


async def test_a_connection_on_which_no_answer_moves_is_replaced(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers get through where flow control lets nothing else: they are no progress."""
    runtime = FakeRuntime()
    async with rpc.serve_unix([runtime], path), RpcChannel(path) as channel:
        first = await channel._current_link()
        # What a leak comes to in the end: the server believes that there is no room left.
        with monkeypatch.context() as patched:
            patched.setattr(H2Connection, "local_flow_control_window", lambda *_: 0)
            await _version_is_late(channel)
        reply = await _version(channel)
        assert reply.runtime_name == "fake"
        assert not first.usable
        assert (await channel._current_link()) is not first


async def _version(channel: RpcChannel) -> v1.VersionResponse:
    method = "/runtime.v1.RuntimeService/Version"
    return await channel.unary(method, v1.VersionRequest(), v1.VersionResponse, timeout=5)


async def _version_is_late(channel: RpcChannel) -> None:
    with pytest.raises(rpc.DeadlineExceeded):
        await _version(channel)
