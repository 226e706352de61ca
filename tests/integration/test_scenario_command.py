"""``nodeagent embedded-runtime --scenario FILE``: what a file says happens, whatever the backend.

docs/embedded-runtime.md, "Scenario files". What happens exactly when is shown in virtual time by
the unit tests of scenarios; here a process of its own reads the file, and a client notices.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from command import command, stop_containers

from nodeagent import rpc
from nodeagent.cri import CRIClient
from nodeagent.proto.runtime import v1
from nodeagent.testing.cri_configs import IMAGE, container_config, sandbox_config

pytestmark = [pytest.mark.anyio, pytest.mark.realtime]

DEADLINE = 60.0
EVERYTHING = v1.ContainerFilter()
UNKNOWN = v1.ContainerState.CONTAINER_UNKNOWN
RUNNING = v1.ContainerState.CONTAINER_RUNNING
BACKENDS = pytest.mark.parametrize("backend", ["simulated", "process"])


class Runtime:
    """An embedded runtime in a process of its own, and a client of it."""

    def __init__(self, client: CRIClient, process: anyio.abc.Process, log: Path) -> None:
        self.client = client
        self.process = process
        self.log = log

    async def until(self, check: Callable[[], Awaitable[object]]) -> None:
        with anyio.fail_after(DEADLINE):
            while not await check():
                # Each question goes to another process: that paces the loop.
                await anyio.sleep(0.02)

    async def until_step(self, action: str) -> None:
        """Wait until the timeline has come to a step."""

        async def taken() -> bool:
            return f"action={action}" in self.log.read_text()

        await self.until(taken)

    async def answers(self) -> bool:
        assert self.process.returncode is None, self.log.read_text()
        try:
            await self.client.version()
        except rpc.Unavailable:
            return False
        return True

    async def sandbox(self, pod: str) -> str:
        return await self.client.run_pod_sandbox(sandbox_config(pod))

    async def create(self, sandbox: str, pod: str, name: str = "main", attempt: int = 0) -> str:
        own = sandbox_config(pod)
        made = container_config(name, labels=own.labels, attempt=attempt)
        return await self.client.create_container(sandbox, made, own)

    async def start(self, pod: str) -> str:
        container = await self.create(await self.sandbox(pod), pod)
        await self.client.start_container(container)
        return container

    async def pods(self) -> dict[str, str]:
        """Ids of sandboxes by the names of their pods."""
        found = await self.client.list_pod_sandbox()
        return {one.labels["io.kubernetes.pod.name"]: one.id for one in found}

    async def states(self) -> dict[str, tuple[v1.ContainerState, int]]:
        """State and time of creation of all containers."""
        found = await self.client.list_containers()
        return {one.id: (v1.ContainerState(one.state), one.created_at) for one in found}


@asynccontextmanager
async def playing(home: Path, backend: str, text: str) -> AsyncIterator[Runtime]:
    """The command on this scenario; the text must say ``images``."""
    scenario, socket, log = home / "scenario.yaml", home / "cri.sock", home / "runtime.log"
    scenario.write_text(text)
    command = [sys.executable, "-m", "nodeagent", "embedded-runtime", f"--socket={socket}"]
    with log.open("wb") as out:
        process = await anyio.open_process(
            [*command, f"--backend={backend}", f"--scenario={scenario}"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        async with CRIClient(f"unix://{socket}") as client:
            runtime = Runtime(client, process, log)
            await runtime.until(runtime.answers)
            yield runtime
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()
            await stop_containers(home / "cri.sock.state")


@BACKENDS
async def test_calls_hang_fail_and_come_late_for_the_pods_and_containers_that_it_names(
    tmp_path: Path, backend: str
) -> None:
    text = f"""
images: ["{IMAGE}"]
faults:
- {{methods: [RunPodSandbox], pod: hung, hang: gate}}
- {{methods: [CreateContainer], pod: web, container: bad*, fail: {{code: INTERNAL}}}}
- {{methods: [CreateContainer], pod: late, late: 1h}}
- {{methods: [StopContainer], pod: web, count: 1, failAfter: {{code: ABORTED, message: done}}}}
- {{pod: odd, show: {{state: UNKNOWN, createdAt: 0}}}}
timeline:
- {{at: 3s, release: gate}}
"""
    async with playing(tmp_path, backend, text) as runtime, anyio.create_task_group() as tasks:
        tasks.start_soon(runtime.sandbox, "hung")
        web = await runtime.sandbox("web")
        main = await runtime.create(web, "web")
        await runtime.client.start_container(main)
        with pytest.raises(rpc.Internal, match="injected"):
            await runtime.create(web, "web", "bad-1")
        # It is done, whatever the answer says.
        with pytest.raises(rpc.Aborted, match="done"):
            await runtime.client.stop_container(main, 0)
        assert (await runtime.states())[main][0] is v1.ContainerState.CONTAINER_EXITED
        # It is done, though nobody heard of it: the name is taken.
        late = await runtime.sandbox("late")
        tasks.start_soon(runtime.create, late, "late")

        async def done() -> bool:
            return len(await runtime.states()) == 2

        await runtime.until(done)
        with pytest.raises(rpc.AlreadyExists, match="is reserved for"):
            await runtime.create(late, "late")
        odd = await runtime.start("odd")
        assert (await runtime.states())[odd] == (UNKNOWN, 0)
        there = await runtime.pods()
        if "action=release" not in runtime.log.read_text():
            assert "hung" not in there

        async def released() -> bool:
            return "hung" in await runtime.pods()

        await runtime.until(released)
        assert "action=release" in runtime.log.read_text()
        tasks.cancel_scope.cancel()


class Listener:
    """What a client hears, by pod."""

    def __init__(self, events: AsyncIterator[v1.ContainerEventResponse]) -> None:
        self.events = events
        self.heard: dict[str, list[str]] = {}
        self.error = ""

    async def listen(self) -> None:
        """Until the stream is cut."""
        try:
            async for event in self.events:
                self.take(event)
        except rpc.Aborted as error:
            self.error = str(error)

    def take(self, event: v1.ContainerEventResponse) -> None:
        status = event.pod_sandbox_status
        pod = status.metadata.name if status and status.metadata else ""
        # Events about the sandbox itself are not asked for.
        if any(one.id == event.container_id for one in event.containers_statuses):
            kind = (event.container_event_type.name or "").split("_")[1]
            self.heard.setdefault(pod, []).append(kind)

    async def until_heard(self, number: int) -> None:
        with anyio.move_on_after(10):
            while sum(map(len, self.heard.values())) < number:
                await anyio.sleep(0.02)


REVERSED = ["STARTED", "CREATED"]


@BACKENDS
async def test_events_are_lost_doubled_late_and_out_of_order(tmp_path: Path, backend: str) -> None:
    text = f"""
images: ["{IMAGE}"]
faults:
- {{pod: unheard-*, drop: true}}
- {{pod: twice-*, events: [STARTED], duplicate: {{times: 3}}}}
- {{pod: held-*, events: [CREATED], hold: 2s}}
- {{pod: mixed-*, reorder: 2s}}
- {{pod: last, cut: {{code: ABORTED, message: enough}}}}
"""
    async with (
        playing(tmp_path, backend, text) as runtime,
        runtime.client.get_container_events() as events,
        anyio.create_task_group() as tasks,
    ):
        listener = Listener(events)
        tasks.start_soon(listener.listen)
        heard = listener.heard
        for number in range(20):
            for pod in ("unheard", "twice", "held", "mixed"):
                await runtime.start(f"{pod}-{number}")
            await listener.until_heard(8 * (number + 1))
            # A machine may be too busy to start a container within the two seconds.
            if heard.get(f"held-{number}") == heard.get(f"mixed-{number}") == REVERSED:
                break
        else:
            raise AssertionError(heard)
        assert heard[f"twice-{number}"] == ["CREATED", *["STARTED"] * 3]
        assert not any(pod.startswith("unheard") for pod in heard)
        await runtime.start("last")

        async def is_cut() -> bool:
            return "enough" in listener.error

        await runtime.until(is_cut)
        # The runtime goes on.
        on = await runtime.start("held-on")
        assert (await runtime.states())[on][0] is RUNNING


@BACKENDS
async def test_it_dies_and_comes_back_with_a_part_of_its_state(
    tmp_path: Path, backend: str
) -> None:
    text = f"""
images: ["{IMAGE}"]
timeline:
- {{at: 4s, down: 1s}}
- {{at: 6s, add: {{pod: odd-*, show: {{state: UNKNOWN, createdAt: 0, startedAt: 0}}}}}}
- {{at: 7s, lose: {{pod: lost-*}}}}
- {{at: 17s, lose: {{pod: lost-*}}}}
- {{at: 37s, lose: {{pod: lost-*}}}}
"""
    async with playing(tmp_path, backend, text) as runtime:
        kept, odd, lost = [await made(runtime, pod) for pod in ("kept", "odd", "lost")]
        await runtime.until_step("down")
        seen: dict[str, tuple[v1.ContainerState, int]] = {}

        async def look() -> None:
            try:
                seen.clear()
                seen.update(await runtime.states())
            except rpc.Unavailable:
                await runtime.until(runtime.answers)  # it dies just now

        async def is_odd() -> bool:
            await look()
            return seen.get(odd) == (UNKNOWN, 0)

        await runtime.until(is_odd)
        assert seen[kept][0] is RUNNING
        assert seen[kept][1] > 0
        found = seen[kept]

        async def is_lost() -> bool:
            await look()
            return kept in seen and lost not in seen

        await runtime.until(is_lost)
        assert seen == {kept: found, odd: (UNKNOWN, 0)}


async def made(runtime: Runtime, pod: str) -> str:
    """A container of the only pod of that name that could be made in one go."""
    for attempt in range(100):
        try:
            return await runtime.start(f"{pod}-{attempt}")
        except rpc.RpcError:
            # It was just dying: what is half made is taken away when it is back.
            await runtime.until(runtime.answers)
            if half := (await runtime.pods()).get(f"{pod}-{attempt}"):
                await runtime.client.remove_pod_sandbox(half)
    raise AssertionError(pod)


@BACKENDS
@pytest.mark.parametrize("size", ["16700000", "17Mi"])
async def test_it_has_many_dead_containers_and_refuses_to_send_lists_of_over_16_mib(
    tmp_path: Path, backend: str, size: str
) -> None:
    text = f"""
maxSend: 16Mi
images: ["{IMAGE}"]
populate: [{{containers: 5000, listSize: {size}}}]
"""
    async with playing(tmp_path, backend, text) as runtime:
        if size == "17Mi":
            with pytest.raises(rpc.ResourceExhausted, match=r"larger than max .* vs\. 16777216"):
                await runtime.client.list_containers(EVERYTHING)
        else:
            assert len(await runtime.client.list_containers(EVERYTHING)) == 5000
        # Clients of ours have their ways.
        assert len(await runtime.client.list_containers()) == 5000
        assert len(await runtime.client.list_pod_sandbox()) == 1000


MOST_MEMORY = 160 * 2**20
"""Bytes, for a whole agent: two thirds more than it takes."""


async def test_an_agent_among_5000_dead_containers_is_healthy_and_small(tmp_path: Path) -> None:
    """One that kept all there is to know of each of them would not be."""
    wanted = [f"web-{number}" for number in range(30)]
    text = "populate: [{containers: 5000}]"
    async with playing(tmp_path, "simulated", text) as runtime, command(tmp_path) as agent:
        assert len(await runtime.client.list_containers()) == 5000
        for name in wanted:
            agent.put(f"{name}.yaml", MANIFEST.format(name=name))
        await agent.start(f"--container-runtime-endpoint=unix://{tmp_path}/cri.sock")

        async def all_run() -> bool:
            pods = await agent.pods()
            phases = [pod["status"].get("phase") for pod in pods.values()]
            return phases == ["Running"] * len(wanted)

        await agent.until(all_run, 2 * DEADLINE)
        assert await agent.get(agent.health, "/healthz") == "ok"
        status = await anyio.Path(f"/proc/{agent.running.pid}/status").read_text()
        (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
        assert int(peak) * 1024 < MOST_MEMORY


MANIFEST = """apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec: {{containers: [{{name: main, image: "busybox:1.36"}}]}}
"""
