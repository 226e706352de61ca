"""Damaged state, full disks, read-only directories: pods run on, and the agent says what is wrong.

docs/architecture.md, "Decisions".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from killing import KillHooks, World, running, world
from ring import Ring, phase

from nodeagent.embedded import Script, SimulatedBackend
from nodeagent.testing import MemorySource

pytestmark = pytest.mark.anyio

WEB = """apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: a, image: busybox}
  - name: b
    image: busybox
    readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1}
"""
JOB = """apiVersion: v1
kind: Pod
metadata: {name: job}
spec:
  restartPolicy: Never
  containers: [{name: once, image: busybox}]
"""

CHECKPOINTS = {
    "checkpoints/manifests.json",
    "checkpoints/runtime.json",
    "image_manager/pulled/sha256-*",
}
"""Every file that an agent reads when it starts, and writes itself."""

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "NUL-filled": lambda good: bytes(len(good)),
    "truncated": lambda good: good[: len(good) // 2],
    "one byte short": lambda good: good[:-1],
    "binary": lambda _: bytes(range(256)) * 16,
    "another form": lambda _: b"[]",
    "of a future version": lambda good: re.sub(
        rb'"version":\d+|/v1beta1"', lambda m: m[0].replace(m[0][-2:], b"99"), good
    ),
    "nested without end": lambda _: b"[" * 100_000,
}


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
        files[name].write_bytes(DAMAGE[damage](files[name].read_bytes()))

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
        records = [r.what for r in node.ring.agent.journal.select() if r.component == "checkpoint"]
        files = state_files(root)
        if name.startswith("checkpoints/"):
            assert "CheckpointDamaged" in records
            assert files.pop(f"{name}.damaged").is_file()
            assert b'"crc32"' in files[name].read_bytes()
        assert files.keys() == CHECKPOINTS
