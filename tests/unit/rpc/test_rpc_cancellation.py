"""A call may be cancelled at any step, and nothing is left of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest

from nodeagent import rpc
from nodeagent.proto.grpc.health import v1 as health

pytestmark = pytest.mark.anyio

STEPS = range(40)
"""Turns of the loop; a call from connecting to its answer takes fewer."""


class Health(health.HealthBase):
    async def check(self, message: health.HealthCheckRequest) -> health.HealthCheckResponse:
        await anyio.lowlevel.checkpoint()
        return health.HealthCheckResponse()

    async def watch(
        self, message: health.HealthCheckRequest
    ) -> AsyncIterator[health.HealthCheckResponse]:
        for _ in range(5):
            yield health.HealthCheckResponse()


@pytest.fixture
def path() -> Iterator[str]:
    with TemporaryDirectory(prefix="rpc") as directory:
        yield str(Path(directory, "s.sock"))


async def check(channel: rpc.RpcChannel) -> None:
    await channel.unary(
        "/grpc.health.v1.Health/Check",
        health.HealthCheckRequest(),
        health.HealthCheckResponse,
        timeout=10,
    )


async def watch(channel: rpc.RpcChannel) -> None:
    async with channel.server_stream(
        "/grpc.health.v1.Health/Watch", health.HealthCheckRequest(), health.HealthCheckResponse
    ) as replies:
        async for _ in replies:
            await anyio.lowlevel.checkpoint()


def cancel_in(turns: int, scope: anyio.CancelScope) -> None:
    if turns == 0:
        scope.cancel()
    else:
        asyncio.get_running_loop().call_soon(cancel_in, turns - 1, scope)


def nothing_is_left(channel: rpc.RpcChannel) -> bool:
    return not any(link.calls or link.streams for link in channel._links)


@pytest.mark.parametrize("call", [check, watch])
@pytest.mark.parametrize("connected", [False, True])
async def test_a_call_cancelled_at_any_step_leaves_nothing(
    path: str, call: Callable[[rpc.RpcChannel], Awaitable[None]], connected: bool
) -> None:
    task = asyncio.current_task()
    assert task is not None
    cancelled = 0
    async with rpc.serve_unix([Health()], path):
        for turns in STEPS:
            async with rpc.RpcChannel(path) as channel:
                if connected:
                    await check(channel)
                with anyio.CancelScope() as scope:
                    cancel_in(turns, scope)
                    await call(channel)
                cancelled += scope.cancelled_caught
                assert task.cancelling() == 0
                assert nothing_is_left(channel)
                await check(channel)
    assert 0 < cancelled < len(STEPS)


async def test_a_server_may_be_stopped_at_any_step(path: str) -> None:
    failed = 0
    for turns in STEPS:
        async with rpc.RpcChannel(path) as channel:
            try:
                async with anyio.create_task_group() as tasks:
                    with anyio.CancelScope() as scope:
                        async with rpc.serve_unix([Health()], path):
                            await check(channel)
                            cancel_in(turns, scope)
                            tasks.start_soon(check, channel)
                            tasks.start_soon(watch, channel)
                            await anyio.sleep_forever()
            except* rpc.Unavailable as group:
                failed += len(group.exceptions)
            assert nothing_is_left(channel)
        assert not Path(path).exists()
    assert 0 < failed < 2 * len(STEPS)
