"""A runtime server dies and comes back, loses things, and has bad connections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest

from nodeagent import rpc
from nodeagent.cri import CRIClient
from nodeagent.embedded import SimulatedBackend
from nodeagent.embedded.records import RunState
from nodeagent.proto.runtime import v1
from nodeagent.testing import (
    Fault,
    FaultPlan,
    Hang,
    OldPod,
    RuntimeServer,
    Show,
    list_size,
    populate,
    serve_faulty,
)
from nodeagent.testing.cri_configs import IMAGE, container_config, sandbox_config

pytestmark = pytest.mark.anyio

MIB = 2**20
# A filter that lets all pass: one plain call, where a list without a filter is fetched in parts.
EVERYTHING = v1.ContainerFilter()


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[RuntimeServer, CRIClient]]:
    with TemporaryDirectory(prefix="cri") as directory:
        path = Path(directory, "s.sock")
        async with (
            serve_faulty(path, SimulatedBackend(), **options) as server,
            CRIClient(f"unix://{path}", request_timeout=10) as client,
        ):
            server.core.images.pull(IMAGE)
            yield server, client


async def start(client: CRIClient, pod: str, *containers: str) -> list[str]:
    sandbox = await client.run_pod_sandbox(sandbox_config(pod))
    ids = []
    for name in containers or ("main",):
        labels = sandbox_config(pod).labels
        config = container_config(name, labels=labels)
        ids.append(await client.create_container(sandbox, config, sandbox_config(pod)))
        await client.start_container(ids[-1])
    return ids


async def listed(client: CRIClient) -> dict[str, str]:
    """State by id, as the list has it."""
    return {one.id: (one.state.name or "")[10:] for one in await client.list_containers()}


async def test_a_server_that_died_comes_back_on_its_path_with_its_state() -> None:
    async with serving() as (server, client):
        (container,) = await start(client, "web")
        await server.die()
        assert not server.alive
        with pytest.raises(rpc.Unavailable, match="nobody listens"):
            await client.list_containers()
        await server.start()
        await server.start()
        assert await listed(client) == {container: "RUNNING"}


async def test_a_server_that_stopped_in_order_leaves_no_socket() -> None:
    async with serving() as (server, client):
        await server.stop()
        with pytest.raises(rpc.Unavailable, match="there is no such socket"):
            await client.version()
        await server.stop()
        await server.die()


async def test_calls_under_way_are_cut_when_the_server_dies() -> None:
    plan = FaultPlan(Fault("RunPodSandbox", Hang(apart=True), count=1))
    errors: list[rpc.RpcError] = []
    async with serving(plan=plan) as (server, client):

        async def call() -> None:
            try:
                await client.run_pod_sandbox(sandbox_config("a"))
            except rpc.RpcError as exc:
                errors.append(exc)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await anyio.sleep(1)
            await server.restart(down=5)
        assert [type(error) for error in errors] == [rpc.Unavailable]
        plan.release("fault-1")
        await anyio.sleep(1)
        # The work went on while the server was away.
        assert len(await client.list_pod_sandbox()) == 1


async def test_part_of_the_containers_is_lost_without_a_word() -> None:
    async with serving() as (server, client), client.get_container_events() as events:
        ids = [id_ for pod in "abcd" for id_ in await start(client, pod, "x", "y")]
        records = list(server.core.state.containers.values())
        for _ in range(2 * 4 + 2 * 8):
            await anext(events)
        lost = await server.lose(share=0.5, seed=3)
        assert len(lost) == 4
        assert set(await listed(client)) == set(ids) - set(lost)
        assert all(one.state is RunState.EXITED for one in records if one.id in lost)
        with anyio.move_on_after(60) as waited:
            await anext(events)
        assert waited.cancelled_caught


async def test_what_is_lost_can_be_named() -> None:
    async with serving() as (server, client):
        await start(client, "web", "x", "y")
        ids = await start(client, "db", "x", "y")
        assert await server.lose(pod="default/db", container="y") == [ids[1]]
        sandboxes = await server.lose(pod="web", sandboxes=True)
        assert len(sandboxes) == 1
        assert set(await listed(client)) == {ids[0]}
        assert [one.metadata.name for one in await client.list_pod_sandbox() if one.metadata] == [
            "db"
        ]
        # Its name is free again.
        await start(client, "web")


async def test_states_and_times_are_shown_other_than_they_are() -> None:
    plan = FaultPlan()
    async with serving(plan=plan) as (_, client):
        (web,) = await start(client, "web")
        (db,) = await start(client, "db")
        shown = plan.add(Fault("", Show("UNKNOWN", created_at=0, started_at=1), pod="web"))
        assert await listed(client) == {web: "UNKNOWN", db: "RUNNING"}
        status = (await client.container_status(web)).status
        assert status is not None
        assert (status.state.name, status.created_at) == ("CONTAINER_UNKNOWN", 0)
        assert status.started_at == 1
        created = {
            one.metadata.name: one.created_at
            for one in await client.list_pod_sandbox()
            if one.metadata
        }
        assert created["web"] == 0
        assert created["db"] > 0
        sandbox = (await client.list_containers())[0].pod_sandbox_id
        found = (await client.pod_sandbox_status(sandbox)).status
        assert found is not None
        assert found.created_at == 0
        shown.remove()
        assert await listed(client) == {web: "RUNNING", db: "RUNNING"}


async def test_a_state_can_flip_each_second() -> None:
    plan = FaultPlan()
    async with serving(plan=plan) as (_, client):
        ids = await start(client, "web", "lives", "dies")
        await client.stop_container(ids[1], 0)
        plan.add(Fault("", Show("UNKNOWN", only="RUNNING", flip=1.0)))
        seen = []
        for _ in range(4):
            seen.append(list((await listed(client)).values()))
            await anyio.sleep(1)
        assert seen == [["RUNNING", "EXITED"], ["UNKNOWN", "EXITED"]] * 2


async def test_events_show_the_same() -> None:
    plan = FaultPlan(Fault("", Show("UNKNOWN", created_at=1)))
    async with serving(plan=plan) as (_, client), client.get_container_events() as events:
        await start(client, "web")
        for _ in range(4):
            event = await anext(events)
        assert [one.state.name for one in event.containers_statuses] == ["CONTAINER_UNKNOWN"]
        assert event.pod_sandbox_status is not None
        assert event.pod_sandbox_status.created_at == 1


async def test_lists_can_be_partial() -> None:
    plan = FaultPlan(Fault("ListContainers", Show(hidden=True), container="y"))
    async with serving(plan=plan) as (_, client):
        x, y = await start(client, "web", "x", "y")
        assert set(await listed(client)) == {x}
        assert (await client.container_status(y)).status is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state": "unknown"}, "state: must be one of CREATED, RUNNING, EXITED, UNKNOWN"),
        ({"flip": -1.0}, "flip: must not be negative"),
    ],
)
def test_what_cannot_be_shown_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Show(**options)


def test_only_answers_that_show_things_can_be_changed() -> None:
    with pytest.raises(ValueError, match="'StopContainer' is not the name of a method that shows"):
        Fault("StopContainer", Show("UNKNOWN"))


@pytest.mark.parametrize("size", [4 * MIB, 16 * MIB, 17 * MIB])
async def test_lists_can_be_large_and_a_server_may_refuse_to_send_them(size: int) -> None:
    async with serving(max_send=16 * MIB) as (server, client):
        (container,) = await start(client, "web")
        populate(server.core, 1000, list_bytes=size)
        found = list_size(server.core)
        assert size <= found < size + 512
        if size < 16 * MIB:
            assert len(await client.list_containers()) == 1001
        else:
            message = f"trying to send message larger than max \\({found} vs. 16777216\\)"
            with pytest.raises(rpc.ResourceExhausted, match=message):
                await client.list_containers(EVERYTHING)
        running = v1.ContainerStateValue(state=v1.ContainerState.CONTAINER_RUNNING)
        some = await client.list_containers(v1.ContainerFilter(state=running))
        assert [one.id for one in some] == [container]


async def test_dead_containers_are_attempts_of_pods_that_nobody_wants_or_of_some() -> None:
    async with serving() as (server, client):
        await start(client, "web")
        old = populate(server.core, 7, per_pod=3, exit_code=9)
        assert [one.metadata.attempt for one in old] == [0, 1, 2, 0, 1, 2, 0]
        assert len({one.pod_uid for one in old}) == 3
        ours = populate(server.core, 4, per_pod=2, pods=[OldPod("web")])
        assert {one.pod_uid for one in ours} == {"uid-web"}
        assert [one.metadata.attempt for one in ours] == [2, 3, 4, 5]
        status = (await client.container_status(old[0].id)).status
        assert status is not None
        assert (status.exit_code, status.finished_at - status.created_at) == (9, 10**9)
        for sandbox in [*server.core.state.sandboxes]:
            await client.remove_pod_sandbox(sandbox)
        assert not server.core.state.containers


async def test_a_connection_that_stalls_is_replaced() -> None:
    async with serving() as (server, client):
        await client.version()
        server.stall()
        with pytest.raises(rpc.DeadlineExceeded):
            await client.status()
        await client.status()
        server.resume()


async def test_a_server_that_is_frozen_answers_nobody() -> None:
    async with serving() as (server, client):
        server.stall(new=True)
        for _ in range(2):
            with pytest.raises(rpc.DeadlineExceeded):
                await client.status()
        server.resume()
        await client.status()


async def test_a_server_that_says_go_away_takes_new_connections() -> None:
    async with serving() as (server, client):
        await client.version()
        server.goaway()
        await client.version()
        server.drop_connections()
        await anyio.sleep(1)
        await client.version()


async def test_streams_can_be_cut() -> None:
    async with serving() as (server, client), client.get_container_events() as events:
        while not server.core.events.has_subscribers:
            await anyio.lowlevel.checkpoint()
        server.cut_streams()
        with pytest.raises(rpc.Unavailable, match="the stream was cut"):
            await anext(events)


async def test_a_server_that_is_dead_has_no_connections_to_spoil() -> None:
    async with serving() as (server, client):
        await server.die()
        server.goaway()
        server.stall()
        server.resume()
        server.drop_connections()
        await server.start()
        await client.version()
