"""The whole ring: a wanted pod becomes running containers, and stays so."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from ring import Ring, agent_on, phase, ring, simulated

from nodeagent.api import Pod, PodResourceClaim, VolumeDevice
from nodeagent.embedded import Script, SimulatedBackend
from nodeagent.embedded.records import ContainerRecord
from nodeagent.model import PodUID
from nodeagent.testing import MemorySource, make_container, make_pod

pytestmark = pytest.mark.anyio


def name_of(record: ContainerRecord) -> str:
    return record.config.labels["io.kubernetes.container.name"]


async def restarted(node: Ring, pod: str, count: int) -> None:
    await node.until(lambda: phase(node.pod(pod)) and node.status(pod).restart_count == count, 600)


async def test_a_wanted_pod_runs(tmp_path: Path) -> None:
    async with ring(tmp_path, make_pod("web")) as node:
        await node.running("web")
        status = node.status("web")
        assert status.ready
        assert status.container_id.startswith("nodeagent-embedded://")
        assert status.restart_count == 0
        pod = node.pod("web")
        assert pod is not None
        assert pod.status.host_ip == "10.0.0.1"
        assert pod.status.pod_ip
        assert {c.type: c.status for c in pod.status.conditions} == {
            "PodReadyToStartContainers": "True",
            "Initialized": "True",
            "Ready": "True",
            "ContainersReady": "True",
            "PodScheduled": "True",
        }


async def test_a_container_that_dies_is_started_again_and_counted(tmp_path: Path) -> None:
    backend = SimulatedBackend({"main": Script(exits=[(5.0, 1)])})
    async with ring(tmp_path, make_pod("web"), backend=backend) as node:
        await node.until(lambda: phase(node.pod("web")) and node.status("web").restart_count == 1)
        await node.until(lambda: node.status("web").ready)
        last = node.status("web").last_state.terminated
        assert last is not None
        assert last.exit_code == 1


async def test_crash_back_off_doubles_and_shows_at_once(tmp_path: Path) -> None:
    backend = SimulatedBackend({"main": Script(exits=[(0.1, 1)], repeat=True)})
    async with ring(tmp_path, make_pod("web"), backend=backend) as node:
        starts = []
        for count in range(1, 5):
            await restarted(node, "web", count)
            starts.append(anyio.current_time())
            await node.until(lambda: node.status("web").state.waiting is not None, 600)
            waiting = node.status("web").state.waiting
            assert waiting is not None
            assert waiting.reason == "CrashLoopBackOff"
        # The sync loop looks for due pods once a second.
        waited = [b - a for a, b in pairwise(starts)]
        assert all(d <= gap <= d + 1.5 for d, gap in zip((10, 20, 40), waited, strict=True))


@pytest.mark.parametrize(
    ("restart", "code", "wanted"),
    [("Never", 0, "Succeeded"), ("Never", 3, "Failed"), ("OnFailure", 0, "Succeeded")],
)
async def test_a_pod_that_is_done_ends(
    tmp_path: Path, restart: str, code: int, wanted: str
) -> None:
    backend = SimulatedBackend({"main": Script(exits=[(1.0, code)])})
    async with ring(tmp_path, make_pod("job", restart=restart), backend=backend) as node:
        await node.until(lambda: phase(node.pod("job")) == wanted)
        await anyio.sleep(300)
        assert phase(node.pod("job")) == wanted
        assert node.runtime.core.calls["StartContainer"] == 1


async def test_a_pod_that_is_no_longer_wanted_is_stopped_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    async with ring(tmp_path, make_pod("web"), make_pod("stays")) as node:
        await node.running("web")
        await node.running("stays")
        directory = tmp_path / "root" / "pods" / "uid-web"
        assert directory.is_dir()
        node.source.remove("uid-web")
        await node.until(lambda: not node.ids("web"))
        await node.until(lambda: not node.containers("web"), 300)
        await node.until(lambda: not directory.exists(), 300)
        await node.until(lambda: len(node.runtime.core.state.sandboxes) == 1, 300)
        assert len(node.ids("stays")) == 1


async def test_a_new_image_replaces_that_container_only(tmp_path: Path) -> None:
    pod = make_pod("web", make_container("a"), make_container("b"))
    async with ring(tmp_path, pod) as node:
        await node.running("web")
        before = {name_of(r): r.id for r in node.containers("web", running=True)}
        node.source.set(
            make_pod("web", make_container("a", image="busybox:2"), make_container("b"))
        )
        await node.until(lambda: node.status("web", "a").restart_count == 1)
        await node.until(lambda: node.status("web", "a").ready)
        after = {name_of(r): r.id for r in node.containers("web", running=True)}
        assert after["b"] == before["b"]
        assert after["a"] != before["a"]
        assert node.status("web", "a").image.endswith("/busybox:2")


async def test_an_agent_that_comes_back_adopts_what_runs(tmp_path: Path) -> None:
    backend = SimulatedBackend({"main": Script(exits=[(1.0, 1)])})
    source = MemorySource(make_pod("web"))
    async with simulated(tmp_path, backend) as (runtime, endpoint):
        async with agent_on(runtime, endpoint, tmp_path, source) as node:
            await node.until(
                lambda: phase(node.pod("web")) and node.status("web").restart_count == 1
            )
            await node.until(lambda: node.status("web").ready)
            before = node.ids()
        async with agent_on(runtime, endpoint, tmp_path, source) as node:
            await node.running("web")
            await anyio.sleep(120)
            assert node.ids() == before
            assert node.status("web").restart_count == 1


async def test_a_pod_put_back_while_it_ends_starts_anew_by_itself(tmp_path: Path) -> None:
    backend = SimulatedBackend({"main": Script(stop_after=3.0)})
    pod = make_pod("web", grace=10)
    async with ring(tmp_path, pod, backend=backend) as node:
        await node.running("web")
        old = node.ids()
        node.source.set()
        await node.until(
            lambda: any(
                r.what == "KillPod" or "Kill" in r.what for r in node.agent.journal.select()
            )
        )
        node.source.set(pod)
        await node.until(lambda: node.ids() and node.ids() != old, 300)
        await node.running("web")
        assert len(node.ids()) == 1


async def test_a_pod_with_a_field_we_cannot_honour_waits_and_names_it(tmp_path: Path) -> None:
    devices = (VolumeDevice(name="d", device_path="/dev/x"),)
    web = make_pod("web", make_container(volume_devices=devices))
    async with ring(tmp_path, web, make_pod("other")) as node:
        await node.running("other")
        await node.until(lambda: (p := node.pod("web")) is not None and p.status.message)
        pod = node.pod("web")
        assert pod is not None
        assert pod.status.phase == "Pending"
        assert pod.status.reason == "UnsupportedField"
        assert "spec.containers[0].volumeDevices" in pod.status.message
        assert not node.containers("web")


async def test_an_edit_to_something_we_cannot_honour_leaves_the_pod_running(
    tmp_path: Path,
) -> None:
    pod = make_pod("web")
    async with ring(tmp_path, pod) as node:
        await node.running("web")
        before = node.ids()
        claims = (PodResourceClaim(name="gpu"),)
        node.source.set(make_pod("web", resource_claims=claims))
        await node.until(
            lambda: (p := node.pod("web")) is not None and "resourceClaims" in p.status.message
        )
        assert node.ids() == before
        node.source.set(pod)
        await node.until(lambda: (p := node.pod("web")) is not None and not p.status.message)
        assert node.ids() == before


async def test_what_only_the_runtime_knows_is_stopped_once_all_sources_have_spoken(
    tmp_path: Path,
) -> None:
    first, late = MemorySource(make_pod("web")), MemorySource(name="late", silent=True)
    async with simulated(tmp_path) as (runtime, endpoint):
        async with agent_on(runtime, endpoint, tmp_path, first) as node:
            await node.running("web")
        async with agent_on(runtime, endpoint, tmp_path, late) as node:
            await anyio.sleep(60)
            assert len(node.ids("web")) == 1
            late.set()
            await node.until(lambda: not node.ids("web"))
            await node.until(lambda: not node.containers("web"), 300)


async def test_many_pods_start_and_stop(tmp_path: Path) -> None:
    pods = [make_pod(f"p{i}") for i in range(60)]
    async with ring(tmp_path, *pods) as node:
        await node.until(lambda: all(phase(node.pod(f"p{i}")) == "Running" for i in range(60)))
        node.source.set()
        await node.until(lambda: not node.ids(), 300)


async def test_a_container_killed_behind_our_back_is_replaced(tmp_path: Path) -> None:
    async with ring(tmp_path, make_pod("web")) as node:
        await node.running("web")
        (old,) = node.containers("web", running=True)
        await node.runtime.core.remove(old)
        await node.until(lambda: node.ids("web") and node.ids("web") != [old.id])
        await node.running("web")


async def test_pods_stop_with_the_agent_when_asked_to(tmp_path: Path) -> None:
    source = MemorySource(make_pod("web"))
    async with simulated(tmp_path) as (runtime, endpoint):
        async with agent_on(runtime, endpoint, tmp_path, source, stop_pods_on_exit=True) as node:
            await node.running("web")
        assert not node.ids()


async def test_what_the_agent_stops_at_its_end_has_not_crashed(tmp_path: Path) -> None:
    source = MemorySource(make_pod("web"))
    async with simulated(tmp_path) as (runtime, endpoint):
        for _ in range(4):
            async with agent_on(
                runtime, endpoint, tmp_path, source, stop_pods_on_exit=True
            ) as node:
                await node.until(lambda: len(node.ids("web")) == 1)
                await node.running("web")
                records = node.agent.journal.select("default/web")
                assert records
                assert not [r for r in records if r.what == "BackOff"]


async def test_pods_run_on_without_the_agent(tmp_path: Path) -> None:
    source = MemorySource(make_pod("web"))
    async with simulated(tmp_path) as (runtime, endpoint):
        async with agent_on(runtime, endpoint, tmp_path, source) as node:
            await node.running("web")
        assert len(node.ids()) == 1


async def test_two_pods_of_one_name_never_run_side_by_side(tmp_path: Path) -> None:
    backend = SimulatedBackend({"main": Script(stop_after=4.0)})
    static = {"kubernetes.io/config.source": "file"}
    old: Pod = make_pod("web", uid="one", grace=10, annotations=static)
    new: Pod = make_pod("web", uid="two", grace=10, annotations=static)
    async with ring(tmp_path, old, backend=backend) as node:
        await node.running("web")
        node.source.set(new)
        overlap = 0

        def done() -> bool:
            nonlocal overlap
            uids = {r.config.labels["io.kubernetes.pod.uid"] for r in node.containers(running=True)}
            overlap = max(overlap, len(uids))
            return uids == {"two"}

        await node.until(done)
        assert overlap == 1


async def test_status_survives_as_pods_json(tmp_path: Path) -> None:
    async with ring(tmp_path, make_pod("web")) as node:
        await node.running("web")
        stored = node.agent.parts.statuses.get(PodUID("uid-web"))
        pod = node.pod("web")
        assert pod is not None
        assert pod == replace(pod, status=stored)


async def test_a_container_that_may_run_once_does_not_run_again_after_its_record_is_lost(
    tmp_path: Path,
) -> None:
    source = MemorySource(make_pod("job", restart="Never"))
    async with simulated(tmp_path) as (runtime, endpoint):
        async with agent_on(runtime, endpoint, tmp_path, source) as node:
            await node.running("job")
        (record,) = node.containers("job")
        await runtime.core.remove(record)
        async with agent_on(runtime, endpoint, tmp_path, source) as node:
            await node.until(lambda: phase(node.pod("job")) in ("Failed", "Succeeded"))
            await anyio.sleep(120)
            assert runtime.core.calls["StartContainer"] == 1


async def test_a_crash_back_off_goes_on_after_a_restart_of_the_agent(tmp_path: Path) -> None:
    backend = SimulatedBackend({"main": Script(exits=[(0.1, 1)], repeat=True)})
    source = MemorySource(make_pod("web"))
    async with simulated(tmp_path, backend) as (runtime, endpoint):
        async with agent_on(runtime, endpoint, tmp_path, source) as node:
            await restarted(node, "web", 3)
            await node.until(lambda: node.status("web").state.waiting is not None)
        async with agent_on(runtime, endpoint, tmp_path, source) as node:
            began = anyio.current_time()
            await restarted(node, "web", 4)
            # The third restart was followed by a back-off of 40 s.
            assert anyio.current_time() - began > 20


async def test_a_sandbox_under_way_is_made_and_removed_when_its_pod_goes(tmp_path: Path) -> None:
    """The runtime is not left alone in the middle of a creation: it would leave half behind."""
    backend = SimulatedBackend(latency={"RunPodSandbox": 2.0})
    async with ring(tmp_path, make_pod("web"), backend=backend) as node:
        await node.until(lambda: node.runtime.core.calls.get("RunPodSandbox") == 1)
        node.source.set()
        began = anyio.current_time()
        await node.until(lambda: len(node.runtime.core.state.sandboxes) == 1)
        assert anyio.current_time() - began > 1
        await node.until(lambda: not node.runtime.core.state.sandboxes, 300)
        assert "CreateContainer" not in node.runtime.core.calls
