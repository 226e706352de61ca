"""A gRPC probe that is cut, at whatever stage, leaves no socket open."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvloop
from tests.unit.probes.servers import full_port, hang, raw_server, target
from tests.unit.probes.test_tcp_and_grpc_probes import Health, grpc_server

from nodeagent.api import GRPCAction
from nodeagent.model import ProbeResult
from nodeagent.probes.grpc_probe import GrpcProbe
from nodeagent.probes.outcome import Target

pytestmark = pytest.mark.anyio

_CUTS = 500
_AT_ONCE = 250
"""Probes that are under way together: each may take two descriptors of this process."""
_TURNS = 20
"""More turns of the loop than a probe takes that is answered."""


@pytest.fixture(params=[uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": request.param}


def sockets() -> set[str]:
    """The sockets that this process has open, by their inodes."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(str(entry.readlink()))
    return {name for name in found if name.startswith("socket:")}


@asynccontextmanager
async def leaving_nothing() -> AsyncIterator[None]:
    """Fail when sockets stay open, or when a callback complains."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    before = sockets()
    yield
    with anyio.move_on_after(30):
        while sockets() - before:  # the servers' ends take some turns more
            await anyio.sleep(0)
    assert sockets() - before == set()
    assert complaints == []


@asynccontextmanager
async def silent() -> AsyncIterator[int]:
    """A port where connections open and nothing is ever said."""
    async with raw_server(hang) as port:
        yield port


@asynccontextmanager
async def never_open() -> AsyncIterator[int]:
    """A port where connections do not open."""
    with full_port() as port:
        yield port


def answering() -> Any:
    """A port where SERVING is said."""
    return grpc_server(Health())


def asked(port: int, seconds: int) -> Target:
    return target(grpc=GRPCAction(port=port), timeout_seconds=seconds)


def batches() -> Iterator[int]:
    return iter(range(_CUTS // _AT_ONCE))


@pytest.mark.parametrize("place", [never_open, silent], ids=["connecting", "asking"])
async def test_a_probe_that_is_late_closes_its_socket_at_its_deadline(
    place: Callable[[], Any],
) -> None:
    seen: Counter[ProbeResult] = Counter()

    async def ask(port: int) -> None:
        outcome = await GrpcProbe()(asked(port, 1))
        seen[outcome.result] += 1
        assert outcome.text.startswith("timeout: ")

    async with place() as port, leaving_nothing():
        for _ in batches():
            async with anyio.create_task_group() as tasks:
                for _ in range(_AT_ONCE):
                    tasks.start_soon(ask, port)
    assert seen == {ProbeResult.FAILURE: _CUTS}


@pytest.mark.parametrize("place", [never_open, silent, answering])
async def test_a_probe_that_is_cancelled_at_any_turn_closes_its_socket(
    place: Callable[[], Any],
) -> None:
    """Of 500, as many are cut at each turn: while connecting, sending, waiting, and closing."""
    async with place() as port, leaving_nothing():
        for cut in range(_CUTS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(GrpcProbe(), asked(port, 3600))
                for _ in range(cut % _TURNS):
                    await asyncio.sleep(0)
                tasks.cancel_scope.cancel()
