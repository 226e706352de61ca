"""Collecting: once for all, only when asked, and from where (docs/behaviour/stats.md)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.stats.stats_lab import (
    MIB,
    NOW,
    SANDBOX,
    STARTED,
    WEB,
    SaidRuntime,
    add_cgroup,
    collecting,
    container_stats,
    make_machine,
    sandbox_stats,
    tick,
    web_pod,
)

from nodeagent.model import ContainerID, ContainerState, PodUID, RuntimeContainer, SandboxID
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Internal, Unavailable, Unimplemented
from nodeagent.stats import StatsError
from nodeagent.stats.assemble import over, together
from nodeagent.stats.collector import AFTER_FAILURE, ASK_AGAIN, DEADLINE, FRESH, STALE
from nodeagent.stats.rates import SPAN_NS, Rates
from nodeagent.stats.records import Cpu, Fs, Memory, Snapshot, Usage, VolumeFigures
from nodeagent.wiring.stats import peer_of

pytestmark = pytest.mark.anyio


async def test_sc1_nothing_is_collected_while_nobody_asks(tmp_path: Path) -> None:
    async with collecting(tmp_path) as bench:
        await anyio.sleep(3600)
        assert bench.runtime.calls == []
        await bench.collector.snapshot()
        asked = list(bench.runtime.calls)
        await anyio.sleep(3600)
        assert bench.runtime.calls == asked


async def test_sc2_a_fresh_collection_is_the_answer(tmp_path: Path) -> None:
    async with collecting(tmp_path) as bench:
        first = await bench.collector.snapshot()
        assert await bench.collector.snapshot() is first
        assert bench.collector.collections == 1


async def test_sc3_many_get_one_collection(tmp_path: Path) -> None:
    runtime = SaidRuntime(gate=anyio.Event())
    async with collecting(tmp_path, runtime) as bench:
        found: list[Snapshot] = []

        async def ask() -> None:
            found.append(await bench.collector.snapshot())

        async with anyio.create_task_group() as tasks:
            with anyio.move_on_after(1):
                await bench.collector.snapshot()
            for _ in range(20):
                tasks.start_soon(ask)
            await anyio.sleep(1)
            assert runtime.gate is not None
            runtime.gate.set()
        assert len(found) == 20
        assert all(one is found[0] for one in found)
        assert runtime.calls.count("pods") == 1


async def test_sc4_one_that_is_stale_is_shown_while_the_next_is_made(tmp_path: Path) -> None:
    async with collecting(tmp_path) as bench:
        first = await bench.collector.snapshot()
        bench.runtime.gate = anyio.Event()
        await anyio.sleep((FRESH + STALE) / 2)
        assert await bench.collector.snapshot() is first
        bench.runtime.gate.set()
        with anyio.fail_after(60):
            while bench.collector.collections < 2:
                await anyio.sleep(0.1)
        assert await bench.collector.snapshot() is not first


async def test_sc5_one_that_is_old_is_not_shown(tmp_path: Path) -> None:
    async with collecting(tmp_path) as bench:
        first = await bench.collector.snapshot()
        await anyio.sleep(STALE + 1)
        assert await bench.collector.snapshot() is not first


async def test_sc5_a_runtime_that_hangs_is_not_waited_for_without_end(tmp_path: Path) -> None:
    async with collecting(tmp_path, SaidRuntime(gate=anyio.Event())) as bench:
        began = anyio.current_time()
        with pytest.raises(StatsError, match="not there within 60 s"):
            await bench.collector.snapshot()
        assert anyio.current_time() - began == pytest.approx(DEADLINE, abs=5)


async def test_sc6_the_next_who_asks_after_a_failure_causes_another_try(tmp_path: Path) -> None:
    runtime = SaidRuntime(broken=Unavailable("connection refused", "ListPodSandbox"))
    async with collecting(tmp_path, runtime) as bench:
        with pytest.raises(StatsError, match="connection refused"):
            await bench.collector.snapshot()
        runtime.broken = None
        assert (await bench.collector.snapshot()).pods


async def test_sc6_after_the_end_there_are_no_figures(tmp_path: Path) -> None:
    async with collecting(tmp_path) as bench:
        pass
    with pytest.raises(StatsError, match="ending"):
        await bench.collector.snapshot()


@pytest.mark.parametrize(
    ("failure", "patience"),
    [(Unimplemented("unknown"), ASK_AGAIN), (Internal("no cgroup"), AFTER_FAILURE)],
)
async def test_sc7_a_runtime_without_figures_of_sandboxes(
    tmp_path: Path, failure: Unimplemented | Internal, patience: float
) -> None:
    runtime = SaidRuntime(failure=failure)
    async with collecting(tmp_path, runtime) as bench:
        found = await bench.collector.snapshot()
        (web,) = found.pods[0].containers
        assert web.rootfs is not None
        assert web.rootfs.used == 4096
        await anyio.sleep(patience / 2)
        await bench.collector.snapshot()
        assert runtime.calls.count("sandboxes") == 1
        assert runtime.calls.count("containers") == 2
        await anyio.sleep(patience)
        await bench.collector.snapshot()
        assert runtime.calls.count("sandboxes") == 2


async def test_sc8_without_image_fs_info_the_agents_own_file_system_counts(tmp_path: Path) -> None:
    async with collecting(tmp_path) as bench:
        node = (await bench.collector.snapshot()).node
        assert node.image_fs == node.fs
        assert node.fs is not None
        assert node.fs.capacity == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize


async def test_sf2_the_room_of_a_writable_layer_is_that_of_the_runtimes_disk(
    tmp_path: Path,
) -> None:
    images = v1.ImageFsInfoResponse(
        image_filesystems=[
            v1.FilesystemUsage(
                timestamp=NOW,
                fs_id=v1.FilesystemIdentifier(mountpoint=str(tmp_path)),
                used_bytes=v1.UInt64Value(value=77),
            )
        ]
    )
    async with collecting(tmp_path, SaidRuntime(images=images)) as bench:
        found = await bench.collector.snapshot()
        assert found.node.image_fs is not None
        assert (found.node.image_fs.used, found.node.image_fs.time) == (77, NOW)
        assert found.node.container_fs is not None
        (web,) = found.pods[0].containers
        assert web.rootfs is not None
        assert (web.rootfs.used, web.rootfs.inodes_used) == (4096, 3)
        assert web.rootfs.capacity == found.node.image_fs.capacity


async def test_sc9_texts_that_were_asked_for_are_written_with_the_next_collection(
    tmp_path: Path,
) -> None:
    async with collecting(tmp_path) as bench:
        written: list[int] = []

        def write(found: Snapshot) -> bytes:
            written.append(found.time)
            return json.dumps(found.time).encode()

        first = await bench.collector.text("times", write)
        assert await bench.collector.text("times", write) == first
        assert len(written) == 1
        await anyio.sleep(STALE + 1)
        found = await bench.collector.snapshot()
        assert len(written) == 2, "written before anybody asked for it"
        assert await bench.collector.text("times", write) == str(found.time).encode()
        assert len(written) == 2
        for _ in range(2):
            await anyio.sleep(STALE + 1)
            await bench.collector.snapshot()
        assert len(written) == 3, "nobody wants it any more"


async def test_sc10_volumes_that_take_long_are_in_a_later_answer(tmp_path: Path) -> None:
    measured = anyio.Event()

    async def volumes(_uid: PodUID) -> Sequence[VolumeFigures]:
        await measured.wait()
        return [VolumeFigures(name="data", fs=Fs(used=5), local=True)]

    async with collecting(tmp_path, volumes=volumes) as bench:
        assert (await bench.collector.snapshot()).pods[0].volumes == ()
        measured.set()
        await anyio.sleep(STALE + 1)
        (pod,) = (await bench.collector.snapshot()).pods
        assert [one.name for one in pod.volumes] == ["data"]


async def test_sc10_one_that_fails_leaves_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def volumes(_uid: PodUID) -> Sequence[VolumeFigures]:
        raise ValueError("no such thing")

    async with collecting(tmp_path, volumes=volumes) as bench:
        assert (await bench.collector.snapshot()).pods[0].volumes == ()
    assert "volumes_not_measured" in caplog.text


async def test_sf1_cgroups_before_the_runtime(tmp_path: Path) -> None:
    async with collecting(tmp_path) as bench:
        (web,) = (await bench.collector.snapshot()).pods[0].containers
        assert web.cgroup == f"/kubepods/pod1/{WEB}"
        assert web.usage.cpu is not None
        assert web.usage.cpu.usage == 3 * 10**9
        assert web.started_at == STARTED


async def test_sf1_the_runtime_where_there_is_no_cgroup(tmp_path: Path) -> None:
    other = "77" * 32
    pod = web_pod()
    container = replace(pod.containers[0], id=ContainerID(other))
    runtime = SaidRuntime(
        pods=[replace(pod, containers=(container,))], containers=[container_stats(other, 5)]
    )
    async with collecting(tmp_path, runtime) as bench:
        (web,) = (await bench.collector.snapshot()).pods[0].containers
        assert web.cgroup == ""
        assert web.usage.cpu is not None
        assert web.usage.cpu.usage == 5
        assert web.usage.memory is not None
        assert web.usage.memory.working_set == 8 * MIB


async def test_sf3_logs_are_measured(tmp_path: Path) -> None:
    logs = tmp_path / "logs/default_web_uid-1/main"
    logs.mkdir(parents=True)
    (logs / "0.log").write_bytes(b"x" * 100)
    (logs / "0.log.20260101-000000.gz").write_bytes(b"x" * 50)
    async with collecting(tmp_path) as bench:
        found = await bench.collector.snapshot()
        (web,) = found.pods[0].containers
        assert web.logs is not None
        assert (web.logs.used, web.logs.inodes_used) == (150, 2)
        assert found.node.fs is not None
        assert web.logs.capacity == found.node.fs.capacity


async def test_sf3_names_that_lead_elsewhere_are_not_followed(tmp_path: Path) -> None:
    pod = web_pod()
    odd = replace(pod.containers[0], name="../../..")
    async with collecting(tmp_path, SaidRuntime(pods=[replace(pod, containers=(odd,))])) as bench:
        (one,) = (await bench.collector.snapshot()).pods[0].containers
        assert one.logs is None


async def test_sf4_a_pod_is_the_sum_where_the_runtime_does_not_say(tmp_path: Path) -> None:
    async with collecting(tmp_path) as bench:
        (pod,) = (await bench.collector.snapshot()).pods
        assert pod.usage.cpu is not None
        assert pod.usage.cpu.usage == 6 * 10**9, "the container and the sandbox"
        assert pod.usage.processes == 3


async def test_sf4_a_pod_is_what_the_runtime_says_of_its_sandbox(tmp_path: Path) -> None:
    runtime = SaidRuntime(sandboxes=[sandbox_stats([container_stats()])])
    async with collecting(tmp_path, runtime) as bench:
        (pod,) = (await bench.collector.snapshot()).pods
        assert pod.usage.cpu is not None
        assert pod.usage.cpu.usage == 5 * 10**9
        assert pod.usage.processes == 6
        assert "containers" not in runtime.calls


async def test_sf5_a_container_without_a_limit_leaves_the_pod_without(tmp_path: Path) -> None:
    limited = Usage(memory=Memory(working_set=10, available=5))
    free = Usage(memory=Memory(working_set=10))
    for usages, expected in (([limited, limited], 10), ([limited, free], None)):
        whole = together(usages).memory
        assert whole is not None
        assert (whole.available, whole.working_set) == (expected, 20)


async def test_sf6_the_network_is_that_of_the_sandboxs_process(tmp_path: Path) -> None:
    async with collecting(tmp_path) as bench:
        network = (await bench.collector.snapshot()).pods[0].network
        assert network is not None
        assert network.default == "eth0"
        assert network.main is not None
        assert (network.main.rx_bytes, network.main.tx_packets) == (1000, 20)
        assert [one.name for one in network.interfaces] == ["eth0", "eth1"]


async def test_sf6_without_a_process_it_is_what_the_runtime_says(tmp_path: Path) -> None:
    make_machine(root := tmp_path / "machine")
    add_cgroup(root, f"kubepods/pod1/{SANDBOX}", 2, cgroup__procs="")
    runtime = SaidRuntime(sandboxes=[sandbox_stats([container_stats()])])
    async with collecting(tmp_path, runtime) as bench:
        network = (await bench.collector.snapshot()).pods[0].network
        assert network is not None
        assert network.main is not None
        assert (network.main.rx_bytes, network.main.rx_packets) == (1, None)


async def test_sf6_on_the_hosts_network_there_is_none(tmp_path: Path) -> None:
    async with collecting(tmp_path) as bench:
        bench.host_network = True
        assert (await bench.collector.snapshot()).pods[0].network is None


async def test_sf7_ephemeral_storage_is_layers_logs_and_local_volumes(tmp_path: Path) -> None:
    logs = tmp_path / "logs/default_web_uid-1/main"
    logs.mkdir(parents=True)
    (logs / "0.log").write_bytes(b"x" * 100)

    async def volumes(_uid: PodUID) -> Sequence[VolumeFigures]:
        return [
            VolumeFigures(name="scratch", fs=Fs(used=1000, inodes_used=2), local=True),
            VolumeFigures(name="data", fs=Fs(used=10**9, inodes_used=9), claim=("default", "d")),
        ]

    async with collecting(tmp_path, volumes=volumes) as bench:
        ephemeral = (await bench.collector.snapshot()).pods[0].ephemeral
        assert ephemeral is not None
        assert (ephemeral.used, ephemeral.inodes_used) == (4096 + 100 + 1000, 3 + 1 + 2)


async def test_sf8_what_does_not_run_is_left_out(tmp_path: Path) -> None:
    pod = web_pod()
    dead = RuntimeContainer(
        ContainerID("dead"), "other", 0, ContainerState.EXITED, SandboxID(SANDBOX)
    )
    before = replace(pod.containers[0], id=ContainerID("before"))
    mixed = replace(pod, containers=(*pod.containers, before, dead))
    over_ = replace(pod, uid=PodUID("uid-2"), containers=(dead,))
    async with collecting(tmp_path, SaidRuntime(pods=[mixed, over_])) as bench:
        (found,) = (await bench.collector.snapshot()).pods
        assert [(one.name, one.id) for one in found.containers] == [("main", WEB)]


@pytest.mark.parametrize("version", [1, 2])
async def test_sf9_the_node_by_proc_where_its_cgroup_does_not_tell(
    tmp_path: Path, version: int
) -> None:
    async with collecting(tmp_path, version=version) as bench:
        node = (await bench.collector.snapshot()).node
        cpu, memory, swap = node.usage.cpu, node.usage.memory, node.usage.swap
        assert cpu is not None
        assert memory is not None
        assert swap is not None
        assert cpu.usage == (100 + 20 + 30 + 6 + 7) * 10**9 // tick()
        assert cpu.psi is not None
        assert memory.usage == 600_000 * 1024
        assert memory.working_set == 500_000 * 1024
        assert memory.available == 500_000 * 1024
        assert (swap.usage, swap.available) == (1500 * 1024, 500 * 1024)
        assert node.started_at == 1690000000 * 10**9
        assert (node.most_tasks, node.tasks) == (32768, 345)
        assert node.network is not None
        assert node.network.default == "eth0"
        facts = node.machine
        assert (facts.physical_cores, facts.sockets, facts.boot_id) == (2, 1, "boot-1")


async def test_sf9_the_topmost_cgroup_tells_of_the_node(tmp_path: Path) -> None:
    make_machine(root := tmp_path / "machine", 1)
    add_cgroup(root, "", 1)
    async with collecting(tmp_path) as bench:
        usage = (await bench.collector.snapshot()).node.usage
        assert usage.cpu is not None
        assert usage.cpu.usage == 3 * 10**9
        assert usage.memory is not None
        assert usage.memory.working_set == 80 * MIB
        assert usage.memory.available == 1_000_000 * 1024 - 80 * MIB


async def test_sf10_what_runs_beside_the_pods(tmp_path: Path) -> None:
    make_machine(root := tmp_path / "machine")
    own = root / "proc/self/stat"
    (root / "proc/42").mkdir()
    (root / "proc/42/stat").write_text(own.read_text())
    (root / "proc/42/cgroup").write_text("0::/system.slice/containerd.service\n")
    add_cgroup(root, "system.slice/containerd.service", 2)
    async with collecting(tmp_path, runtime_pid=lambda: 42) as bench:
        found = {one.name: one for one in (await bench.collector.snapshot()).node.system}
        assert set(found) == {"kubelet", "runtime", "pods"}
        cpu = {name: one.usage.cpu for name, one in found.items()}
        assert all(one is not None for one in cpu.values())
        assert [one.usage for one in cpu.values() if one is not None] == [
            500 * 10**9 // tick(),
            3 * 10**9,
            6 * 10**9,
        ]
        began = 1690000000 * 10**9 + 1000 * 10**9 // tick()
        assert found["kubelet"].started_at == began


async def test_sf10_a_runtime_that_is_gone_is_left_out(tmp_path: Path) -> None:
    async with collecting(tmp_path, runtime_pid=lambda: 99) as bench:
        names = [one.name for one in (await bench.collector.snapshot()).node.system]
        assert names == ["kubelet", "pods"]


def test_sf11_the_process_behind_a_socket(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    assert peer_of(f"unix://{path}") is None
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        assert peer_of(f"unix://{path}") is None, "it is this very process"
    assert peer_of("") is None
    assert peer_of("tcp://127.0.0.1:1") is None


def test_sr1_sr2_rates() -> None:
    rates, second = Rates(), 10**9
    assert rates.rate("a", 0, 0) is None
    assert rates.rate("a", second, 500) == 500
    assert rates.rate("a", 10 * second, 1000) == 100, "since the first one"
    assert rates.rate("a", 11 * second, 3000) == 3000 // 11, "not over the last second alone"
    assert rates.rate("a", 20 * second, 11_000) == 1000, "since the one of 10 s"
    assert rates.rate("b", 20 * second, 5) is None
    assert rates.rate("a", 20 * second, 11_000) is not None


def test_sr3_a_counter_that_begins_anew() -> None:
    rates, second = Rates(), 10**9
    rates.rate("a", 0, 1000)
    assert rates.rate("a", second, 10) is None
    assert rates.rate("a", 2 * second, 20) == 10
    rates.keep([])
    assert rates.rate("a", 3 * second, 30) is None


@given(st.lists(st.tuples(st.integers(0, 3 * SPAN_NS), st.integers(0, 10**12)), max_size=30))
def test_sr2_rates_are_never_negative(steps: list[tuple[int, int]]) -> None:
    rates, time, value = Rates(), 0, 0
    for passed, grown in steps:
        time, value = time + passed, value + grown
        rate = rates.rate("a", time, value)
        assert rate is None or rate >= 0


async def test_sr1_the_runtimes_own_rate_until_there_are_two_readings(tmp_path: Path) -> None:
    other = "77" * 32
    pod = web_pod()
    container = replace(pod.containers[0], id=ContainerID(other))
    runtime = SaidRuntime(
        pods=[replace(pod, containers=(container,))],
        containers=[container_stats(other, 10**9, nano_cores=42)],
    )
    async with collecting(tmp_path, runtime) as bench:
        (web,) = (await bench.collector.snapshot()).pods[0].containers
        assert web.usage.cpu is not None
        assert web.usage.cpu.nano_cores == 42
        runtime.containers = [container_stats(other, 3 * 10**9, nano_cores=42)]
        told = runtime.containers[0].cpu
        assert told is not None
        told.timestamp = NOW + 2 * 10**9
        await anyio.sleep(STALE + 1)
        (web,) = (await bench.collector.snapshot()).pods[0].containers
        assert web.usage.cpu is not None
        assert web.usage.cpu.nano_cores == 10**9


amounts = st.one_of(st.none(), st.integers(0, 10**15))
usages = st.builds(
    Usage,
    cpu=st.one_of(st.none(), st.builds(Cpu, time=st.integers(0, 9), usage=amounts)),
    memory=st.one_of(st.none(), st.builds(Memory, usage=amounts, working_set=amounts)),
    processes=amounts,
)


@given(st.lists(usages, max_size=6), st.randoms())
def test_sf4_sums_know_no_order(parts: list[Usage], random: object) -> None:
    turned = list(reversed(parts))
    assert together(parts) == together(turned)
    for part in parts:
        assert over(part, Usage()) == part
        assert over(Usage(), part) == part


@pytest.mark.realtime
def test_sc1_an_agent_whom_nobody_asks_does_not_load_what_makes_figures() -> None:
    script = (
        "import sys, nodeagent.agent, nodeagent.wiring\n"
        "print(sorted(m for m in sys.modules if m.startswith('nodeagent.stats.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    waiting = ("collector", "log_usage", "places", "rates")
    assert done.stdout.strip() == str([f"nodeagent.stats.{name}" for name in waiting])
