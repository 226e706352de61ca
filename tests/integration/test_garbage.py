"""Garbage in the whole ring: what stays while a pod lives, and what goes with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ring import Ring, phase, ring

from nodeagent.embedded import Script, SimulatedBackend
from nodeagent.testing import MemorySource, make_container, make_pod

pytestmark = pytest.mark.anyio


async def restarted(node: Ring, count: int) -> None:
    def often() -> bool:
        return bool(phase(node.pod("web"))) and node.status("web").restart_count >= count

    await node.until(often, 1800)


@pytest.mark.parametrize("kept", [1, 3])
async def test_of_each_name_the_newest_dead_containers_are_kept(tmp_path: Path, kept: int) -> None:
    backend = SimulatedBackend({"main": Script(exits=[(1.0, 1)] * 5)})
    async with ring(
        tmp_path, make_pod("web"), backend=backend, maximum_dead_containers_per_container=kept
    ) as node:
        await restarted(node, 5)
        await node.until(lambda: len(node.containers("web")) == kept + 1, 120)
        attempts = sorted(
            c.config.metadata.attempt for c in node.containers("web") if c.config.metadata
        )
        assert attempts == list(range(5 - kept, 6))


async def test_all_of_a_pod_goes_with_it(tmp_path: Path) -> None:
    backend = SimulatedBackend({"main": Script(exits=[(1.0, 1)])})
    source = MemorySource(make_pod("web"), make_pod("other"))
    async with ring(tmp_path, backend=backend, source=source) as node:
        await restarted(node, 1)
        pod = node.pod("web")
        assert pod is not None
        uid = pod.metadata.uid
        logs = tmp_path / "logs"
        (logs / f"default_web_{uid}").mkdir(exist_ok=True)
        (logs / "lost+found").mkdir()
        source.remove(uid)
        await node.until(lambda: not node.containers("web"), 300)
        await node.until(lambda: not (logs / f"default_web_{uid}").exists(), 300)
        assert (logs / "lost+found").exists()
        assert not (tmp_path / "root" / "pods" / uid).exists()
        assert node.containers("other", running=True)


async def test_unused_images_go_when_the_disk_is_full_and_used_ones_stay(tmp_path: Path) -> None:
    source = MemorySource(
        make_pod("web", make_container(image="registry.test/used:1")),
        make_pod("old", make_container(image="registry.test/old:1")),
    )
    async with ring(
        tmp_path,
        source=source,
        # Every disk of this world is used by more than one percent of it.
        image_gc_high_threshold_percent=1,
        image_gc_low_threshold_percent=0,
    ) as node:
        await node.running("web")
        await node.running("old")
        old = node.pod("old")
        assert old is not None
        source.remove(old.metadata.uid)

        def names() -> set[str]:
            return {name for i in node.runtime.core.images.images for name in i.repo_tags}

        await node.until(lambda: "registry.test/old:1" not in names(), 1800)
        assert "registry.test/used:1" in names()
        await node.running("web")
        collected = [r for r in node.agent.journal.select() if r.what == "ImageCollected"]
        assert [(r.fields or {})["image"] for r in collected] == ["registry.test/old:1"]
        what = {r.what for r in node.agent.journal.select()}
        # Not even that was enough.
        assert {"FreeDiskSpaceFailed", "ImageGCFailed"} <= what
        records = tmp_path / "root" / "image_manager" / "pulled"
        await node.until(lambda: len(list(records.iterdir())) == 1)
