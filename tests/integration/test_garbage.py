"""Garbage in the whole ring: what stays while a pod lives, and what goes with it."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ring import Ring, agent_on, client, phase, ring, simulated

from nodeagent.cli.gc import Wish, collect
from nodeagent.clock import SystemClock
from nodeagent.config import AgentConfig
from nodeagent.embedded import Script, SimulatedBackend
from nodeagent.embedded.fault_rules import Fail, Fault
from nodeagent.errors import StartError
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Code
from nodeagent.runtime.credentials import Credential
from nodeagent.runtime.pull_records import PullRecords, RecordMetrics
from nodeagent.runtime.pull_rights import VerificationPolicy
from nodeagent.testing import FaultPlan, MemorySource, make_container, make_pod
from nodeagent.testing.cri_configs import IMAGE, container_config, sandbox_config

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


# -- the command ------------------------------------------------------------------------------


async def dead_pods(endpoint: str, logs: Path) -> None:
    """A pod that ran four times in two sandboxes, without any agent."""
    async with client(endpoint) as cri:
        await cri.pull_image(v1.ImageSpec(image=IMAGE))
        for attempt in range(2):
            sandbox = sandbox_config("old", uid="u-old", attempt=attempt, logs=logs / "old")
            sid = await cri.run_pod_sandbox(sandbox)
            for each in range(2 * attempt, 2 * attempt + 2):
                config = container_config("main", attempt=each, labels=sandbox.labels)
                cid = await cri.create_container(sid, config, sandbox)
                await cri.start_container(cid)
                await cri.stop_container(cid, 0)
            await cri.stop_pod_sandbox(sid)


def settings(tmp_path: Path, endpoint: str, **more: Any) -> AgentConfig:
    return AgentConfig(
        container_runtime_endpoint=endpoint,
        root_dir=tmp_path / "root",
        pod_logs_dir=tmp_path / "logs",
        **more,
    )


DRY = Wish(dry_run=True, everything=False, all_images=False)
DO = Wish(dry_run=False, everything=False, all_images=False)
ALL = Wish(dry_run=False, everything=True, all_images=True)


async def test_the_command_tells_what_would_go_and_removes_just_that(tmp_path: Path) -> None:
    async with simulated(tmp_path) as (runtime, endpoint):
        await dead_pods(endpoint, tmp_path / "logs")
        config = settings(tmp_path, endpoint, image_gc_high_threshold_percent=100)
        dry = await collect(config, DRY)
        assert [(c["pod"], c["attempt"], c["why"]) for c in dry.containers] == [
            ("default/old", attempt, "of its name the newest 1 are kept") for attempt in (2, 1, 0)
        ]
        assert [(s["attempt"], s["why"]) for s in dry.sandboxes] == [(0, "the pod has a newer one")]
        assert (dry.log_directories, dry.images, dry.failures) == ([], [], [])
        assert len(runtime.core.state.containers) == 4
        done = await collect(config, DO)
        assert (done.containers, done.sandboxes) == (dry.containers, dry.sandboxes)
        assert len(runtime.core.state.containers) == 1
        assert len(runtime.core.state.sandboxes) == 1
        assert (await collect(config, DRY)).containers == []


async def test_young_containers_are_left_alone_by_the_command_too(tmp_path: Path) -> None:
    async with simulated(tmp_path) as (_, endpoint):
        await dead_pods(endpoint, tmp_path / "logs")
        config = settings(
            tmp_path,
            endpoint,
            minimum_container_ttl_duration=3600.0,
            image_gc_high_threshold_percent=100,
        )
        assert (await collect(config, DRY)).containers == []


async def test_all_that_does_not_run_goes_when_no_agent_comes_back(tmp_path: Path) -> None:
    async with simulated(tmp_path) as (runtime, endpoint):
        await dead_pods(endpoint, tmp_path / "logs")
        (tmp_path / "root").mkdir()
        (tmp_path / "logs" / "default_old_u-old").mkdir(parents=True)
        config = settings(tmp_path, endpoint)
        done = await collect(config, ALL)
        assert len(done.containers) == 4
        assert len(done.sandboxes) == 2
        assert [d["uid"] for d in done.log_directories] == ["u-old"]
        assert len(done.images) >= 1
        assert not runtime.core.state.containers
        assert not runtime.core.state.sandboxes
        assert not runtime.core.images.images
        assert list((tmp_path / "logs").iterdir()) == []


async def test_next_to_an_agent_it_takes_only_what_the_agent_would(tmp_path: Path) -> None:
    backend = SimulatedBackend({"main": Script(exits=[(1.0, 1)] * 3)})
    async with (
        simulated(tmp_path, backend) as (runtime, endpoint),
        agent_on(runtime, endpoint, tmp_path, MemorySource(make_pod("web"))) as node,
    ):
        await restarted(node, 3)
        await node.running("web")
        config = settings(tmp_path, endpoint)
        done = await collect(config, Wish(dry_run=False, everything=False, all_images=True))
        assert done.failures == []
        assert done.images == []
        assert len(node.containers("web", running=True)) == 1
        with pytest.raises(StartError, match=r"an agent uses .* stop it before --all"):
            await collect(config, ALL)
        # Only telling is allowed.
        told = await collect(config, Wish(dry_run=True, everything=True, all_images=True))
        assert told.log_directories == []
        assert (await node.agent.parts.image_gc.images.list_images()) != []


async def test_images_go_by_the_disk_and_by_what_is_known_of_their_age(tmp_path: Path) -> None:
    config_of_all: dict[str, Any] = {
        "image_gc_high_threshold_percent": 1,
        "image_gc_low_threshold_percent": 0,
    }
    async with simulated(tmp_path) as (runtime, endpoint):
        for name in ("registry.test/young:1", "registry.test/unknown:1", "registry.test/pulling:1"):
            runtime.core.images.pull(name)
        records = PullRecords(
            directory=tmp_path / "root" / "image_manager",
            images=client(endpoint),
            policy=VerificationPolicy(),
            clock=SystemClock(),
            metrics=RecordMetrics(),
        )
        async with client(endpoint) as cri:
            records.images = cri
            young = runtime.core.images.require("registry.test/young:1")
            await records.intend("registry.test/young:1")
            await records.pulled("registry.test/young:1", young.id, Credential())
            await records.intend("registry.test/pulling:1")
        told = await collect(settings(tmp_path, endpoint, **config_of_all), DRY)
        assert [i["name"] for i in told.images] == ["registry.test/unknown:1"]
        (note,) = told.notes
        assert "bytes of images have to go" in note
        calm = await collect(settings(tmp_path, endpoint, image_gc_high_threshold_percent=100), DRY)
        assert calm.images == []
        assert "no image has to go" in calm.notes[0]
        await collect(settings(tmp_path, endpoint, **config_of_all), DO)
        left = {name for image in runtime.core.images.images for name in image.repo_tags}
        assert left == {"registry.test/young:1", "registry.test/pulling:1"}


async def test_images_that_are_too_old_go_whatever_the_disk(tmp_path: Path) -> None:
    async with simulated(tmp_path) as (runtime, endpoint):
        config = settings(
            tmp_path, endpoint, image_gc_high_threshold_percent=100, image_maximum_gc_age=3600.0
        )
        images = runtime.core.images
        for name in ("registry.test/young:1", "registry.test/old:1", "registry.test/unknown:1"):
            images.pull(name)
        async with client(endpoint) as cri:
            for name, seconds in (("young", 60), ("old", 7200)):
                records = PullRecords(
                    directory=tmp_path / "root" / "image_manager",
                    images=cri,
                    policy=VerificationPolicy(),
                    clock=Ago(seconds),
                    metrics=RecordMetrics(),
                )
                image = f"registry.test/{name}:1"
                await records.intend(image)
                await records.pulled(image, images.require(image).id, Credential())
        told = await collect(config, DRY)
        (unknown, old) = told.images
        assert (unknown["name"], unknown["why"]) == ("registry.test/unknown:1", "never in use")
        assert old["name"] == "registry.test/old:1"
        assert old["why"].startswith("unused for 2h")
        assert len(images.images) == 3
        done = await collect(config, DO)
        assert (done.images, done.failures) == (told.images, [])
        left = {name for image in images.images for name in image.repo_tags}
        assert left == {"registry.test/young:1"}


class Ago(SystemClock):
    """A clock that is late."""

    def __init__(self, seconds: float) -> None:
        self._late = timedelta(seconds=seconds)

    def now(self) -> datetime:
        return super().now() - self._late


async def test_what_cannot_be_removed_is_a_failure(tmp_path: Path) -> None:
    plan = FaultPlan(Fault("RemoveContainer", Fail(Code.INTERNAL, "busy"), count=1))
    async with simulated(tmp_path, SimulatedBackend(), hooks=plan) as (_, endpoint):
        await dead_pods(endpoint, tmp_path / "logs")
        config = settings(tmp_path, endpoint, image_gc_high_threshold_percent=100)
        done = await collect(config, DO)
        (failure,) = done.failures
        assert "busy" in failure


async def test_without_a_runtime_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="sock"):
        await collect(settings(tmp_path, f"unix://{tmp_path}/none.sock"), DRY)
