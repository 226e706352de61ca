"""The server goes away and comes back; containers do not notice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from embedded_lab import PATIENCE, Lab, a_day, clean_up, gone, lab, processes_with, reopened, shell

from nodeagent import rpc
from nodeagent.cri import CRIClient
from nodeagent.embedded.process.launcher import procs
from nodeagent.proto.runtime import v1
from nodeagent.testing.cri_configs import IMAGE, container_config, sandbox_config

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]

CREATED = v1.ContainerState.CONTAINER_CREATED
RUNNING = v1.ContainerState.CONTAINER_RUNNING
EXITED = v1.ContainerState.CONTAINER_EXITED


@asynccontextmanager
async def left_behind(root: Path) -> AsyncIterator[Lab]:
    """A lab whose server goes at the end, and nothing else does."""
    async with reopened(root) as found:
        await found.embedded.images.pull_image(v1.ImageSpec(image=IMAGE))
        config = sandbox_config(logs=root / "logs", hostname="lab-host")
        found.sandbox = await found.runtime.run_pod_sandbox(config)
        yield found


@asynccontextmanager
async def taken_over(root: Path) -> AsyncIterator[Lab]:
    """The next server, which cleans up at the end."""
    async with reopened(root) as found:
        try:
            yield found
        finally:
            with anyio.move_on_after(PATIENCE, shield=True):
                await clean_up(found)


async def test_a_new_server_adopts_what_runs(tmp_path: Path) -> None:
    async with left_behind(tmp_path) as one:
        running = await one.start("sleep", "1000")
        before = await one.status(running)
        sandbox_before = await one.runtime.pod_sandbox_status(one.sandbox)
        pid = one.monitor(running).pid
    async with taken_over(tmp_path) as two:
        assert await two.status(running) == before
        assert (await two.runtime.pod_sandbox_status(one.sandbox)).status == sandbox_before.status
        assert two.monitor(running).pid == pid
        assert procs.start_time(pid)
        assert two.embedded.core.images.find(IMAGE) is not None
        done = await two.runtime.exec_sync(running, ["echo", "still here"], 30)
        assert done.stdout == b"still here\n"
        with pytest.raises(rpc.AlreadyExists):
            await two.create("true")
        await two.runtime.stop_container(running, 0)
        assert (await two.status(running)).exit_code == 137


async def test_what_ended_while_nobody_looked_is_known_exactly(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.mkdir()
    async with left_behind(tmp_path) as one:
        where = "/flag" if one.isolated else str(flag)
        running = await one.start(
            *shell(f"while ! test -e {where}/go; do sleep 0.01; done; echo ended; exit 6"),
            mounts=[v1.Mount(host_path=str(flag), container_path=where)],
        )
        created = await one.create("true", name="created")
        record = one.monitor(running)
    (flag / "go").touch()
    with anyio.fail_after(PATIENCE):
        while procs.start_time(record.monitor_pid) == record.monitor_start:
            await anyio.sleep(0.01)
    async with taken_over(tmp_path) as two:
        found = await two.status(running)
        assert (found.state, found.exit_code, found.reason) == (EXITED, 6, "Error")
        assert 0 < found.started_at <= found.finished_at
        assert two.log(running) == ["ended"]
        assert (await two.status(created)).state is CREATED
        await two.runtime.start_container(created)
        assert (await two.ended(created)).exit_code == 0


async def test_the_end_of_an_adopted_container_is_noticed(tmp_path: Path) -> None:
    async with left_behind(tmp_path) as one:
        running = await one.start("sleep", "1000")
        pid = one.monitor(running).pid
    async with taken_over(tmp_path) as two, two.runtime.get_container_events() as events:
        os.kill(pid, signal.SIGKILL)
        with anyio.fail_after(PATIENCE):
            event = await anext(events)
        assert event.container_id == running
        assert (await two.status(running)).exit_code == 137


async def test_another_process_under_the_old_id_is_not_taken_for_the_container(
    tmp_path: Path,
) -> None:
    async with left_behind(tmp_path) as one:
        container_id = await one.start("sleep", "1000")
        record = one.monitor(container_id)
        path = one.backend.store.container_dir(container_id) / "monitor.json"
    os.kill(record.monitor_pid, signal.SIGKILL)
    with anyio.fail_after(PATIENCE):
        while procs.start_time(record.monitor_pid) == record.monitor_start:
            await anyio.sleep(0.01)
    with subprocess.Popen(["sleep", "1000"]) as bystander:
        try:
            reused = json.loads(path.read_text())
            reused.update(monitor_pid=bystander.pid, pid=bystander.pid)
            path.write_text(json.dumps(reused))
            async with taken_over(tmp_path) as two:
                found = await two.status(container_id)
                assert (found.state, found.exit_code, found.reason) == (EXITED, 255, "Unknown")
            assert bystander.poll() is None
        finally:
            bystander.kill()


async def test_after_a_reboot_nothing_runs_and_no_sandbox_is_ready(tmp_path: Path) -> None:
    async with left_behind(tmp_path) as one:
        container_id = await one.start("true")
        await one.ended(container_id)
        running = await one.start("sleep", "1000", name="other")
        record = one.monitor(running)
        where = one.backend.store.container_dir(running) / "monitor.json"
        sandbox_file = one.backend.store.sandbox_dir(one.sandbox) / "sandbox.json"
    for path in (where, sandbox_file):
        text = path.read_text().replace(record.boot_id, "00000000-0000-0000-0000-000000000000")
        path.write_text(text)
    async with taken_over(tmp_path) as two:
        assert (await two.status(container_id)).exit_code == 0
        assert (await two.status(running)).exit_code == 255
        (found,) = await two.runtime.list_pod_sandbox()
        assert found.state is v1.PodSandboxState.SANDBOX_NOTREADY
        assert procs.start_time(
            record.pid
        )  # another boot's ids mean nothing, so it was not touched
        os.kill(record.pid, signal.SIGKILL)


async def test_a_container_whose_record_is_damaged_does_not_run_on_unseen(tmp_path: Path) -> None:
    mark = a_day()
    async with left_behind(tmp_path) as one:
        container_id = await one.start("sleep", mark)
        where = one.backend.store.container_dir(container_id)
    (where / "container.json").write_bytes(b"\0" * 64)
    async with taken_over(tmp_path) as two:
        await gone(mark)
        assert await two.runtime.list_containers() == []
        assert not where.exists()


async def test_a_start_that_was_begun_is_never_begun_again(tmp_path: Path) -> None:
    async with lab(tmp_path) as one:
        container_id = await one.create("true")
        (one.backend.store.container_dir(container_id) / "claim").touch()
        with pytest.raises(rpc.Unknown):
            await one.runtime.start_container(container_id)


SERVER = """
import sys, anyio
from pathlib import Path
from nodeagent.embedded import run_embedded
anyio.run(run_embedded, Path(sys.argv[1]))
"""


@asynccontextmanager
async def server_process(socket: Path) -> AsyncIterator[tuple[CRIClient, subprocess.Popen[bytes]]]:
    """A server in a process of its own, and a client on its socket."""
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(socket)])
    try:
        async with CRIClient(f"unix://{socket}") as client:
            with anyio.fail_after(PATIENCE):
                while True:
                    try:
                        await client.version()
                        break
                    except rpc.Unavailable:
                        await anyio.sleep(0.05)
            yield client, process
    finally:
        process.kill()
        process.wait()


async def test_a_server_killed_without_warning_loses_nothing(tmp_path: Path) -> None:
    mark = a_day()
    socket = tmp_path / "cri.sock"
    logs = tmp_path / "logs"
    line = f"echo one; sleep {mark} & trap 'echo two; exit 8' TERM; wait"
    async with server_process(socket) as (client, process):
        assert socket.stat().st_mode & 0o777 == 0o600
        await client.pull_image(v1.ImageSpec(image=IMAGE))
        config = sandbox_config(logs=logs)
        sandbox_id = await client.run_pod_sandbox(config)
        container_id = await client.create_container(
            sandbox_id, container_config(command=shell(line)), config
        )
        await client.start_container(container_id)
        with anyio.fail_after(PATIENCE):
            while not processes_with(mark):
                await anyio.sleep(0.01)
        before = await client.container_status(container_id)
        process.kill()
        process.wait()
    assert processes_with(mark)
    async with server_process(socket) as (client, _):
        assert [one.id for one in await client.list_containers()] == [container_id]
        assert (await client.container_status(container_id)).status == before.status
        await client.stop_container(container_id, 30)
        found = (await client.container_status(container_id)).status
        assert found is not None
        assert found.exit_code == 8
        lines = (logs / "main/0.log").read_text().splitlines()
        assert [text.split(" ", 3)[3] for text in lines] == ["one", "two"]
        await client.remove_pod_sandbox(sandbox_id)
        await gone(mark)
        assert not await client.list_containers()
