"""The simulated backend, through the real client on a real socket, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest

from nodeagent import rpc
from nodeagent.cri import CRIClient
from nodeagent.embedded import (
    Embedded,
    ExecResult,
    Script,
    SimulatedBackend,
    open_embedded,
    serve_embedded,
    serve_open,
)
from nodeagent.proto.runtime import v1
from nodeagent.testing.cri_configs import IMAGE, container_config, sandbox_config

pytestmark = pytest.mark.anyio

CREATED = v1.ContainerState.CONTAINER_CREATED
RUNNING = v1.ContainerState.CONTAINER_RUNNING
EXITED = v1.ContainerState.CONTAINER_EXITED


@asynccontextmanager
async def served(backend: SimulatedBackend) -> AsyncIterator[tuple[CRIClient, Embedded]]:
    with TemporaryDirectory(prefix="cri") as directory:
        path = Path(directory, "s.sock")
        async with (
            serve_embedded(path, backend) as embedded,
            CRIClient(f"unix://{path}") as client,
        ):
            await client.pull_image(v1.ImageSpec(image=IMAGE))
            yield client, embedded


async def start(
    client: CRIClient, config: v1.ContainerConfig, sandbox: v1.PodSandboxConfig | None = None
) -> str:
    sandbox = sandbox or sandbox_config()
    sandbox_id = await client.run_pod_sandbox(sandbox)
    container_id = await client.create_container(sandbox_id, config, sandbox)
    await client.start_container(container_id)
    return container_id


async def status(client: CRIClient, container_id: str) -> v1.ContainerStatus:
    found = (await client.container_status(container_id)).status
    assert found is not None
    return found


async def test_a_container_runs_for_ever_when_nothing_says_otherwise() -> None:
    async with served(SimulatedBackend()) as (client, _):
        container_id = await start(client, container_config(command=["/app/server"]))
        await anyio.sleep(86_400)
        assert (await status(client, container_id)).state is RUNNING


async def test_a_script_decides_when_and_how_each_attempt_ends() -> None:
    script = Script(exits=[(5.0, 1), (10.0, 0)])
    async with served(SimulatedBackend({"main": script})) as (client, _):
        sandbox = sandbox_config()
        sandbox_id = await client.run_pod_sandbox(sandbox)
        ends = []
        for attempt, length in ((0, 5.0), (1, 10.0)):
            config = container_config(attempt=attempt)
            container_id = await client.create_container(sandbox_id, config, sandbox)
            await client.start_container(container_id)
            await anyio.sleep(length - 0.5)
            assert (await status(client, container_id)).state is RUNNING
            await anyio.sleep(1.0)
            found = await status(client, container_id)
            ends.append((found.state, found.exit_code, found.reason))
        assert ends == [(EXITED, 1, "Error"), (EXITED, 0, "Completed")]


async def test_attempts_past_the_script_run_on_unless_it_repeats() -> None:
    assert Script(exits=[(1.0, 1)]).end_of(1) is None
    assert Script(exits=[(1.0, 1), (2.0, 2)], repeat=True).end_of(7) == (2.0, 2)
    assert Script(repeat=True).end_of(0) is None


async def test_a_script_for_one_pod_goes_before_one_for_the_container_name() -> None:
    scripts = {"pod/main": Script(exits=[(1.0, 7)]), "main": Script(exits=[(1.0, 8)])}
    async with served(SimulatedBackend(scripts)) as (client, _):
        mine = await start(client, container_config())
        other = await start(client, container_config(), sandbox_config("other"))
        await anyio.sleep(2)
        assert (await status(client, mine)).exit_code == 7
        assert (await status(client, other)).exit_code == 8


async def test_an_annotation_of_the_pod_is_a_script() -> None:
    sandbox = sandbox_config(annotations={"embedded.nodeagent/script.main": "3s:9"})
    async with served(SimulatedBackend()) as (client, _):
        container_id = await start(client, container_config(), sandbox)
        await anyio.sleep(4)
        assert (await status(client, container_id)).exit_code == 9


async def test_an_easy_command_ends_as_it_would() -> None:
    async with served(SimulatedBackend()) as (client, _):
        config = container_config(command=["sh", "-c"], args=["sleep 60; exit 3"])
        container_id = await start(client, config)
        await anyio.sleep(59)
        assert (await status(client, container_id)).state is RUNNING
        await anyio.sleep(2)
        assert (await status(client, container_id)).exit_code == 3


async def test_a_start_can_be_made_to_fail() -> None:
    backend = SimulatedBackend({"main": Script(start_error="no such program")})
    async with served(backend) as (client, embedded):
        with pytest.raises(rpc.Unknown, match="no such program"):
            await start(client, container_config())
        (record,) = embedded.core.state.containers.values()
        found = await status(client, record.id)
        assert (found.state, found.exit_code, found.reason) == (EXITED, 128, "StartError")


@pytest.mark.parametrize(
    ("stop_after", "grace", "code", "seconds"),
    [(0.0, 30, 143, 0.0), (3.0, 30, 143, 3.0), (100.0, 30, 137, 30.0), (5.0, 0, 137, 0.0)],
)
async def test_stopping_takes_what_the_script_says_and_never_longer_than_the_grace(
    stop_after: float, grace: int, code: int, seconds: float
) -> None:
    backend = SimulatedBackend({"main": Script(stop_after=stop_after)})
    async with served(backend) as (client, _):
        container_id = await start(client, container_config())
        began = anyio.current_time()
        await client.stop_container(container_id, grace)
        assert anyio.current_time() - began == pytest.approx(seconds, abs=0.2)
        assert (await status(client, container_id)).exit_code == code


async def test_calls_take_the_time_they_are_given() -> None:
    async with served(SimulatedBackend(latency={"StartContainer": 2.5})) as (client, _):
        began = anyio.current_time()
        await start(client, container_config())
        assert anyio.current_time() - began == pytest.approx(2.5, abs=0.2)


async def test_commands_give_the_scripted_result_or_run_out_of_time() -> None:
    script = Script(exec_result=ExecResult(b"out", b"err", 4), exec_after=3.0)
    async with served(SimulatedBackend({"main": script})) as (client, _):
        container_id = await start(client, container_config())
        done = await client.exec_sync(container_id, ["check"], 10)
        assert (done.stdout, done.stderr, done.exit_code) == (b"out", b"err", 4)
        with pytest.raises(rpc.DeadlineExceeded):
            await client.exec_sync(container_id, ["check"], 1)


async def test_a_container_can_be_ended_from_outside() -> None:
    backend = SimulatedBackend()
    async with served(backend) as (client, embedded):
        container_id = await start(client, container_config())
        backend.end(embedded.core.state.container(container_id), 42)
        assert (await status(client, container_id)).exit_code == 42


async def test_a_server_that_comes_back_on_its_socket_has_its_state() -> None:
    with TemporaryDirectory(prefix="cri") as directory:
        path = Path(directory, "s.sock")
        async with (
            open_embedded(SimulatedBackend()) as embedded,
            CRIClient(f"unix://{path}") as client,
        ):
            async with serve_open(path, embedded):
                await client.pull_image(v1.ImageSpec(image=IMAGE))
                container_id = await start(client, container_config())
            with pytest.raises(rpc.Unavailable):
                await client.list_containers()
            async with serve_open(path, embedded):
                assert (await status(client, container_id)).state is RUNNING


async def test_stopping_all_leaves_nothing_running() -> None:
    backend = SimulatedBackend({"slow": Script(stop_after=1000)})
    async with served(backend) as (client, embedded):
        await start(client, container_config())
        await start(client, container_config("slow"), sandbox_config("other"))
        began = anyio.current_time()
        await embedded.stop_all(grace=5)
        assert anyio.current_time() - began == pytest.approx(5, abs=0.2)
        assert {one.state for one in await client.list_containers()} == {EXITED}
        assert {one.state for one in await client.list_pod_sandbox()} == {
            v1.PodSandboxState.SANDBOX_NOTREADY
        }
