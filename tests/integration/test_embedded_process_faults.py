"""Faults of the embedded runtime on real processes: the same rules, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from embedded_lab import a_day, gone, processes_with

from nodeagent import rpc
from nodeagent.cri import CRIClient
from nodeagent.embedded.process import ProcessBackend
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Code
from nodeagent.testing import (
    Delay,
    Fail,
    Fault,
    FaultPlan,
    Hang,
    RuntimeServer,
    Show,
    populate,
    serve_faulty,
)
from nodeagent.testing.cri_configs import IMAGE, container_config, sandbox_config

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]


async def start(client: CRIClient, day: str, pod: str = "web") -> tuple[str, str]:
    """A sandbox with a container that sleeps for a day."""
    await client.pull_image(v1.ImageSpec(image=IMAGE))
    sandbox = sandbox_config(pod)
    sandbox_id = await client.run_pod_sandbox(sandbox)
    config = container_config("main", ("sleep", day), labels=sandbox.labels)
    container_id = await client.create_container(sandbox_id, config, sandbox)
    await client.start_container(container_id)
    return sandbox_id, container_id


async def remove_all(server: RuntimeServer) -> None:
    server.plan.clear()
    for sandbox_id in tuple(server.core.state.sandboxes):
        await server.embedded.runtime.remove_pod_sandbox(sandbox_id)


async def test_processes_live_on_while_the_server_is_dead_and_end_when_they_are_lost(
    tmp_path: Path,
) -> None:
    first, second = a_day(), a_day()
    socket = tmp_path / "s"
    async with (
        serve_faulty(socket, ProcessBackend(tmp_path / "state")) as server,
        CRIClient(f"unix://{socket}") as client,
    ):
        sandbox, _ = await start(client, first, "web")
        _, other = await start(client, second, "db")
        await server.die()
        with pytest.raises(rpc.Unavailable):
            await client.version()
        assert processes_with(first)
        await server.lose(pod="web")
        await gone(first)
        await server.start()
        assert [one.id for one in await client.list_containers()] == [other]
        assert len(await client.list_pod_sandbox()) == 2
        await server.lose(pod="web", sandboxes=True)
        assert sandbox not in {one.id for one in await client.list_pod_sandbox()}
        assert processes_with(second)
        await remove_all(server)
        await gone(second)
    # Nothing of it comes back with the next server.
    async with serve_faulty(socket, ProcessBackend(tmp_path / "state")) as server:
        assert not server.core.state.containers
        assert not server.core.state.sandboxes


async def test_rules_strike_calls_about_processes(tmp_path: Path) -> None:
    day, socket = a_day(), tmp_path / "s"
    plan = FaultPlan(
        Fault("StopContainer", Fail(Code.DEADLINE_EXCEEDED), pod="web", count=1),
        Fault("CreateContainer", Delay(0.2, apart=True), pod="db"),
        Fault("RunPodSandbox", Hang(), pod="stuck"),
        Fault("", Show("UNKNOWN", created_at=0), pod="web"),
    )
    async with (
        serve_faulty(socket, ProcessBackend(tmp_path / "state"), plan=plan) as server,
        CRIClient(f"unix://{socket}") as client,
    ):
        _, container = await start(client, day)
        (listed,) = await client.list_containers()
        assert (listed.state, listed.created_at) == (v1.ContainerState.CONTAINER_UNKNOWN, 0)
        with pytest.raises(rpc.DeadlineExceeded):
            await client.stop_container(container, 0)
        assert processes_with(day)
        sandbox = await client.run_pod_sandbox(sandbox_config("db"))
        with anyio.move_on_after(0.05):
            await client.create_container(sandbox, container_config(), sandbox_config("db"))
        with anyio.fail_after(10):
            while len(server.core.state.containers) < 2:
                await anyio.sleep(0.01)
        with pytest.raises(rpc.DeadlineExceeded):
            await client.run_pod_sandbox(sandbox_config("stuck"), timeout=0.2)
        await remove_all(server)
        await gone(day)


async def test_dead_containers_that_never_were_can_be_removed(tmp_path: Path) -> None:
    socket = tmp_path / "s"
    async with (
        serve_faulty(socket, ProcessBackend(tmp_path / "state")) as server,
        CRIClient(f"unix://{socket}") as client,
    ):
        dead = populate(server.core, 20)
        assert len(await client.list_containers()) == 20
        await client.remove_container(dead[0].id)
        await client.stop_container(dead[1].id, 5)
        await server.lose(share=0.5)
        await remove_all(server)
        assert not await client.list_containers()
        assert not await client.list_pod_sandbox()
