"""Damaged state, full disks, read-only directories: pods run on, and the agent says what is wrong.

docs/architecture.md, "Decisions".
"""

from __future__ import annotations

import errno
import os
import re
import resource
from collections import Counter
from pathlib import Path

import aiohttp
import anyio
import pytest
from broken_disk import BrokenDisk
from command import Command, command
from killing import KillHooks, World, running, world
from ring import Ring, phase
from tests.unit.sources.damage import DAMAGE

from nodeagent import AgentConfig, NodeAgent, StartError
from nodeagent.embedded import Embedded, Script, SimulatedBackend, serve_embedded
from nodeagent.embedded.records import ContainerRecord, RunState
from nodeagent.server.health import Level
from nodeagent.testing import MemorySource, make_pod

pytestmark = pytest.mark.anyio

WEB = """apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: a, image: "busybox:1.36"}
  - name: b
    image: busybox:1.36
    readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1}
"""
JOB = """apiVersion: v1
kind: Pod
metadata: {name: job}
spec:
  restartPolicy: Never
  containers: [{name: once, image: "busybox:1.36"}]
"""

CHECKPOINTS = {
    "checkpoints/manifests.json",
    "checkpoints/runtime.json",
    "image_manager/pulled/sha256-*",
}
"""Every file that an agent reads when it starts, and writes itself."""


def state_files(root: Path) -> dict[str, Path]:
    """Files in the root directory that are neither pods' nor locks."""
    found = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_file() and not name.startswith(("pods/", "agent.lock")):
            found[re.sub(r"sha256-\w+", "sha256-*", name)] = path
    return found


async def busy_life(node: World) -> None:
    """Until everything that is kept has something to keep."""
    await node.until(lambda ring: phase(ring.pod("web-node1")) == "Running")
    await node.until(lambda ring: phase(ring.pod("job-node1")) == "Succeeded")
    await node.until(lambda ring: ring.status("web-node1", "a").restart_count == 1)
    await node.until(lambda ring: all_ready(ring))
    await anyio.sleep(6)


def all_ready(ring: Ring) -> bool:
    return all(ring.status("web-node1", name).ready for name in "ab")


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", sorted(CHECKPOINTS))
async def test_a_damaged_checkpoint_is_done_without(name: str, damage: str, tmp_path: Path) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    (manifests / "web.yaml").write_text(WEB)
    (manifests / "job.yaml").write_text(JOB)
    hooks = KillHooks()
    backend = SimulatedBackend({"a": Script(exits=[(1.0, 1)]), "once": Script(exits=[(1.0, 0)])})
    root = tmp_path / "root"

    def harm() -> None:
        files = state_files(root)
        assert files.keys() == CHECKPOINTS
        good = files[name].read_bytes()
        files[name].write_bytes(DAMAGE[damage](good))
        assert files[name].read_bytes() != good

    async with world(tmp_path, backend, hooks, MemorySource(), static_pod_path=manifests) as node:
        await busy_life(node)
        before = [r.id for r in running(node.runtime.core.state.containers.values())]
        assert len(before) == 2
        node.on_death = harm
        hooks.kill()
        await node.until(lambda ring: phase(ring.pod("job-node1")) == "Succeeded")
        await busy_life(node)
        assert [r.id for r in running(node.runtime.core.state.containers.values())] == before
        assert node.effects("RunPodSandbox") == 2
        assert node.effects("StartContainer", "once") == 1
        assert node.ring is not None
        journal = node.ring.agent.journal.select()
        told = [r.why for r in journal if r.what == "CheckpointDamaged"]
        files = state_files(root)
        if name.startswith("checkpoints/"):
            assert told
            assert ("another version" in told[0]) is (damage == "of a future version")
            assert files.pop(f"{name}.damaged").is_file()
            assert b'"crc32"' in files[name].read_bytes()
        assert files.keys() == CHECKPOINTS


def manifest(name: str) -> str:
    return f"""apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec: {{containers: [{{name: main, image: "busybox:1.36"}}]}}
"""


def health(node: World) -> dict[str, tuple[Level, str]]:
    assert node.ring is not None
    checks = node.ring.agent.parts.checks.of("healthz")
    return {name: (result.level, result.cause) for name, result in checks}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
async def test_a_disk_that_refuses_stops_no_pod(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    for name in ("calm", "gone"):
        (manifests / f"{name}.yaml").write_text(manifest(name))
    (manifests / "web.yaml").write_text(WEB)
    disk = BrokenDisk(monkeypatch, tmp_path / "root")
    backend = SimulatedBackend({"a": Script(exits=[(20.0, 1)], repeat=True)})
    cause = os.strerror(code)
    async with world(
        tmp_path, backend, KillHooks(), MemorySource(), static_pod_path=manifests
    ) as node:
        await node.until(lambda ring: phases(ring) == {"Running": 3})
        await anyio.sleep(10)
        calm = node.ids_of("calm-node1")
        disk.break_(code)
        (manifests / "late.yaml").write_text(manifest("late"))
        (manifests / "gone.yaml").unlink()
        # What crashes is started again, what is no longer wanted is stopped.
        await node.until(lambda ring: ring.status("web-node1", "a").restart_count == 2)
        await node.until(lambda _ring: not node.ids_of("gone-node1"))
        # What is new waits, and the journal says for what.
        await node.until(
            lambda ring: any(cause in r.why for r in ring.agent.journal.select("late-node1"))
        )
        assert node.ids_of("late-node1") == []
        level, text = health(node)["storage"]
        assert level is Level.DEGRADED
        assert cause in text
        assert {level for level, _ in health(node).values()} == {Level.OK, Level.DEGRADED}
        assert node.ids_of("calm-node1") == calm
        disk.repair()
        await node.until(lambda ring: phases(ring) == {"Running": 3}, 60)
        await node.until(lambda _ring: health(node)["storage"] == (Level.OK, ""), 10)
        assert node.ids_of("calm-node1") == calm
        assert node.ring is not None
        what = [r.what for r in node.ring.agent.journal.select() if r.component == "checkpoint"]
        assert sorted(what) == ["CheckpointNotSaved"] * 2 + ["CheckpointSavedAgain"] * 2
        pods = tmp_path / "root" / "pods"
        await node.until(lambda _ring: len(list(pods.iterdir())) == 3)


def phases(ring: Ring) -> Counter[str]:
    return Counter(phase(pod) for pod in ring.agent.pods())


async def test_an_agent_does_not_start_where_it_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so in one sentence; the pods run on, and the next start takes them over."""
    disk, hooks = BrokenDisk(monkeypatch, tmp_path / "root"), KillHooks()
    source = MemorySource(make_pod("web"))
    async with world(tmp_path, SimulatedBackend(), hooks, source) as node:
        await node.until(lambda ring: phase(ring.pod("web")) == "Running")
        (before,) = node.ids_of("web")
        node.on_death = lambda: disk.break_(errno.EROFS)
        hooks.kill(rest=3600.0)
        await anyio.sleep(1)
        agent = NodeAgent(
            AgentConfig(root_dir=tmp_path / "root", pod_logs_dir=tmp_path / "logs"),
            runtime=node.runtime.runtime,
            images=node.runtime.images,
        )
        with pytest.raises(StartError, match=r"agent\.lock: Read-only file system.*--root-dir"):
            async with agent:
                pass
        disk.repair()
        await node.until(lambda ring: phase(ring.pod("web")) == "Running", 7200)
        assert node.ids_of("web") == [before]


async def test_an_agent_starts_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, hooks = BrokenDisk(monkeypatch, tmp_path / "root"), KillHooks()
    source = MemorySource(make_pod("web"), make_pod("job", restart="Never"))
    backend = SimulatedBackend()
    async with world(tmp_path, backend, hooks, source) as node:
        await node.until(lambda ring: phases(ring) == {"Running": 2})
        web, job = (running(node.records(f"uid-{name}", "main")) for name in ("web", "job"))
        node.on_death = lambda: disk.break_(errno.ENOSPC)
        hooks.kill()
        await node.until(lambda ring: ring.pod("web") is not None and phases(ring)["Running"] == 2)
        backend.end(job[0], 0)
        await node.until(lambda ring: phase(ring.pod("job")) == "Succeeded")
        assert running(node.records("uid-web", "main")) == web
        backend.end(web[0], 1)
        await node.until(lambda ring: ring.status("web").restart_count == 1)
        await node.until(lambda _ring: health(node)["storage"][0] is Level.DEGRADED)
        assert node.effects("StartContainer") == 3
        disk.repair()
        await node.until(lambda _ring: health(node)["storage"] == (Level.OK, ""), 10)


@pytest.mark.realtime
async def test_an_agent_without_descriptors_stops_no_pod(tmp_path: Path) -> None:
    backend, socket = SimulatedBackend(), tmp_path / "cri.sock"
    async with (
        serve_embedded(socket, backend) as runtime,
        command(tmp_path) as agent,
        aiohttp.ClientSession(f"http://127.0.0.1:{agent.health}") as session,
    ):
        for name in ("calm", "crash"):
            agent.put(f"{name}.yaml", manifest(name))
        await agent.start(
            f"--container-runtime-endpoint=unix://{socket}", "--file-check-frequency=1s"
        )
        await agent.runs("calm-n1")
        await agent.runs("crash-n1")
        records = {r.config.labels["io.kubernetes.pod.name"]: r for r in containers(runtime)}

        async def told(path: str, *texts: str) -> bool:
            """Asks over the one connection that is open already."""
            async with session.get(path) as reply:
                answer = await reply.text()
            return all(text in answer for text in texts)

        assert await told("/healthz", "ok")
        _, most = resource.prlimit(agent.running.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(agent.running.pid, resource.RLIMIT_NOFILE, (1, most))
        agent.put("late.yaml", manifest("late"))
        backend.end(records["crash-n1"], 1)
        cause = "Too many open files"
        await agent.until(lambda: told("/healthz?verbose", "manifests ok, degraded", cause))
        await agent.until(lambda: told("/healthz?verbose", "storage ok, degraded", cause))
        await agent.until(lambda: told("/debug/journal", "CheckpointNotSaved", cause))
        assert await told("/healthz", "ok")
        assert not runtime.core.calls.get("StopContainer")
        assert records["calm-n1"].state is RunState.RUNNING
        resource.prlimit(agent.running.pid, resource.RLIMIT_NOFILE, (most, most))
        await agent.runs("late-n1")
        await agent.until(lambda: restarted(agent, "crash-n1"))
        await agent.until(lambda: told("/healthz?verbose", "manifests ok\n", "storage ok\n"))
        assert records["calm-n1"].state is RunState.RUNNING
        assert not runtime.core.calls.get("StopContainer")


def containers(runtime: Embedded) -> list[ContainerRecord]:
    return list(runtime.core.state.containers.values())


async def restarted(agent: Command, pod: str) -> bool:
    status = await agent.container(pod)
    return status.get("restartCount") == 1 and status.get("ready", False)
