"""Manifests that go, come back, are copied and renamed while their pods run.

docs/behaviour/sources.md, "Selection"; docs/behaviour/workers.md, "Housekeeping".
"""

from __future__ import annotations

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
  terminationGracePeriodSeconds: 10
  containers: [{name: main, image: "busybox:1.36"}]
"""
JOB = WEB.replace("name: web", "name: job").replace("spec:", "spec:\n  restartPolicy: Never")
OTHER = WEB.replace("name: web", "name: other")
FIXED = WEB.replace("{name: web}", "{name: web, uid: 11111111-2222-3333-4444-555555555555}")


def up(ring: Ring) -> bool:
    return phase(ring.pod("web-node1")) == "Running"


def uid(node: World) -> str:
    assert node.ring is not None
    pod = node.ring.pod("web-node1")
    assert pod is not None
    return pod.metadata.uid


@pytest.mark.parametrize("text", [WEB, FIXED], ids=["own uid", "fixed uid"])
@pytest.mark.parametrize("away", [0.0, 0.3, 1.0, 2.9, 3.0, 3.1, 4.0, 5.0, 8.0, 70.0])
async def test_a_manifest_that_comes_back_starts_its_pod_anew(
    text: str, away: float, tmp_path: Path
) -> None:
    """Stopping takes 3 s. Whenever it comes back: the old ends, then the new starts by itself."""
    file = tmp_path / "manifests" / "web.yaml"
    file.parent.mkdir()
    file.write_text(text)
    backend = SimulatedBackend({"main": Script(stop_after=3.0)})
    async with world(
        tmp_path, backend, KillHooks(), MemorySource(), static_pod_path=file.parent
    ) as node:
        await node.until(up)
        (old,), before = node.ids_of("web-node1"), uid(node)
        file.unlink()
        await node.until(lambda ring: ring.pod("web-node1") is None)
        await anyio.sleep(away)
        file.write_text(text)
        await node.until(lambda _ring: node.ids_of("web-node1") not in ([], [old]), 30)
        await node.until(up, 30)
        assert uid(node) == before
        assert node.most == {(before, "main"): 1, (before, ""): 1}
        assert node.effects("StartContainer") == 2
        (new,) = node.ids_of("web-node1")
        await anyio.sleep(150)
        assert node.ids_of("web-node1") == [new]


@pytest.mark.parametrize("ended", [False, True], ids=["killed", "done"])
@pytest.mark.parametrize("away", [0.5, 5.0, 30.0, 55.0, 130.0])
async def test_a_job_that_comes_back_runs_anew(away: float, ended: bool, tmp_path: Path) -> None:
    """It is another pod of the same UID: what is left of the old one says nothing about it."""
    file = tmp_path / "manifests" / "job.yaml"
    file.parent.mkdir()
    file.write_text(JOB)
    backend = SimulatedBackend({"main": Script(exits=[(20.0, 0)], repeat=True)})
    async with world(
        tmp_path, backend, KillHooks(), MemorySource(), static_pod_path=file.parent
    ) as node:
        await node.until(lambda ring: phase(ring.pod("job-node1")) == "Running")
        if ended:
            await node.until(lambda ring: phase(ring.pod("job-node1")) == "Succeeded")
        file.unlink()
        await node.until(lambda ring: ring.pod("job-node1") is None)
        await anyio.sleep(away)
        file.write_text(JOB)
        await node.until(lambda ring: phase(ring.pod("job-node1")) == "Running", 40)
        assert node.ring is not None
        assert node.ring.status("job-node1").restart_count == 0
        await node.until(lambda ring: phase(ring.pod("job-node1")) == "Succeeded")
        await anyio.sleep(150)
        assert node.effects("StartContainer") == 2


def remove_first(directory: Path) -> None:
    (directory / "a.yaml").unlink()


def remove_second(directory: Path) -> None:
    (directory / "b.yaml").unlink()


def rename(directory: Path) -> None:
    (directory / "b.yaml").unlink()
    (directory / "a.yaml").rename(directory / "z.yaml")


def rename_over(directory: Path) -> None:
    (directory / "a.yaml").rename(directory / "b.yaml")


def rewrite(directory: Path) -> None:
    (directory / "a.yaml").unlink()
    (directory / "b.yaml").write_text("# moved here\n" + WEB)


def into_another(directory: Path) -> None:
    (directory / "a.yaml").unlink()
    (directory / "b.yaml").write_text(f"{OTHER}---\n{WEB}")


@pytest.mark.parametrize("restarted", [False, True], ids=["seen", "while no agent runs"])
@pytest.mark.parametrize(
    "change", [remove_first, remove_second, rename, rename_over, rewrite, into_another]
)
async def test_a_pod_lives_as_long_as_any_file_gives_it(
    change: Callable[[Path], None], restarted: bool, tmp_path: Path
) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    for name in ("a.yaml", "b.yaml"):
        (manifests / name).write_text(WEB)
    hooks = KillHooks()
    async with world(
        tmp_path, SimulatedBackend(), hooks, MemorySource(), static_pod_path=manifests
    ) as node:
        await node.until(up)
        await anyio.sleep(30)
        containers, before = node.ids_of("web-node1"), uid(node)
        if restarted:
            node.on_death = lambda: change(manifests)
            hooks.kill()
            await node.until(up)
        else:
            change(manifests)
        await anyio.sleep(150)
        assert uid(node) == before
        assert node.ids_of("web-node1") == containers
        assert len(running(node.records(before, "main"))) == 1
        assert node.effects("StopContainer") == 0
