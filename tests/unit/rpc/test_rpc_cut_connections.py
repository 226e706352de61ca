"""Connections that are given up while they are being made, on the loop that the agent runs on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
import uvloop

from nodeagent.proto.grpc.health.v1 import HealthCheckRequest, HealthCheckResponse
from nodeagent.rpc import RpcChannel, RpcError, call_once
from nodeagent.rpc.corked import Corked

pytestmark = pytest.mark.anyio

_METHOD = "/grpc.health.v1.Health/Check"
_TURNS = range(1, 10)
"""More turns of the loop than a connection takes to be made and to send its first bytes."""


@pytest.fixture(params=[uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": request.param}


@pytest.fixture
def complaints() -> list[dict[str, Any]]:
    """What the loop was told that nobody caught."""
    return []


@asynccontextmanager
async def listening(noted: list[dict[str, Any]]) -> AsyncIterator[None]:
    """Note the complaints, and see that no descriptor is left."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: noted.append(context))
    await anyio.sleep(0)
    before = sockets()
    yield
    with anyio.move_on_after(30):
        while sockets() - before:
            await anyio.sleep(0)
    assert sockets() - before == set()


def sockets() -> set[str]:
    """The sockets that this process has open, by their inodes."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(str(entry.readlink()))
    return {name for name in found if name.startswith("socket:")}


async def cut_after(turns: int, work: Callable[[], Awaitable[object]]) -> None:
    """Cancel work that has had so many turns of the loop."""

    async def quietly() -> None:
        with suppress(RpcError):
            await work()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(quietly)
        for _ in range(turns):
            await asyncio.sleep(0)
        tasks.cancel_scope.cancel()
    await asyncio.sleep(0)


async def ask_over(made: socket.socket) -> None:
    await call_once(
        made,
        _METHOD,
        HealthCheckRequest(),
        HealthCheckResponse,
        authority="test",
        user_agent="test",
        limit=1000,
    )


async def test_a_call_of_its_own_is_cut_at_any_turn(complaints: list[dict[str, Any]]) -> None:
    async with listening(complaints):
        for turns in _TURNS:
            for _ in range(20):
                ours, theirs = socket.socketpair()
                ours.setblocking(False)
                with theirs:
                    await cut_after(turns, lambda made=ours: ask_over(made))  # type: ignore[misc]
                assert ours.fileno() == -1
    assert complaints == []


async def test_a_connection_of_a_channel_is_cut_at_any_turn(
    complaints: list[dict[str, Any]], tmp_path: Path
) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(500)
        async with listening(complaints):
            for turns in _TURNS:
                for _ in range(20):
                    async with RpcChannel(path) as channel:
                        ask = channel.unary(
                            _METHOD, HealthCheckRequest(), HealthCheckResponse, timeout=None
                        )
                        await cut_after(turns, lambda made=ask: made)  # type: ignore[misc]
    assert complaints == []


@pytest.mark.parametrize(
    "use",
    [Corked.close, Corked.abort, lambda corked: corked.write(b"late")],
    ids=["close", "abort", "write"],
)
async def test_a_transport_that_the_loop_took_away_takes_what_is_written(
    complaints: list[dict[str, Any]], use: Callable[[Corked], None]
) -> None:
    """A loop closes a transport, without a word to it, when its maker is cancelled."""
    made: list[Corked] = []

    class Early(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            # uvloop's are no subclasses.
            made.append(Corked(cast("asyncio.Transport", transport), asyncio.get_running_loop()))
            made[0].write(b"held")
            task.cancel()

    async with listening(complaints):
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        with theirs:
            task = asyncio.create_task(loop.create_connection(Early, sock=ours))
            await asyncio.wait([task])
            assert task.cancelled()
            use(made[0])
            for _ in range(3):
                await asyncio.sleep(0)
            assert made[0].is_closing()
    assert complaints == []
