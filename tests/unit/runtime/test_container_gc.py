"""Cleaning up (docs/behaviour/garbage.md)."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.runtime.fakes import (
    NOT_READY,
    UID,
    EventLog,
    FakeRuntime,
    make_pod,
)

from nodeagent.cri.pods import PodLister
from nodeagent.model import (
    ContainerID,
    ContainerState,
    PodUID,
    RuntimeContainer,
    RuntimePod,
    RuntimeSandbox,
    SandboxID,
    SandboxState,
)
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Internal
from nodeagent.runtime import RuntimeManager
from nodeagent.runtime.gc import Collected, ContainerGC, GarbagePlan
from nodeagent.runtime.gc_plan import (
    DoomedContainer,
    GCPolicy,
    dead_containers,
    plan_containers,
    plan_sandboxes,
)
from nodeagent.runtime.logs import (
    link_log,
    link_name,
    next_attempt,
    plain_names,
    remove_container_logs,
    remove_dangling_links,
)
from nodeagent.runtime.names import PodNames, uid_of_log_directory

WEB = PodNames("web", "default", UID)


class Fates:
    """Which pods are gone for good, and whether all sources have spoken."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.ready = True

    def removable(self, uid: PodUID) -> bool:
        return uid in self.gone

    def sources_ready(self) -> bool:
        return self.ready


@pytest.fixture
def fates() -> Fates:
    return Fates()


@pytest.fixture
def collector(runtime: FakeRuntime, fates: Fates, events: EventLog, tmp_path: Path) -> ContainerGC:
    return make_gc(runtime, fates, tmp_path, events=events)


def make_gc(
    runtime: FakeRuntime,
    fates: Fates,
    root: Path,
    policy: GCPolicy | None = None,
    events: EventLog | None = None,
) -> ContainerGC:
    return ContainerGC(
        runtime,
        PodLister(runtime).list_pods,
        removable=fates.removable,
        sources_ready=fates.sources_ready,
        logs_dir=root / "logs",
        links_dir=root / "links",
        policy=policy,
        events=events,
    )


async def crash(runtime: FakeRuntime, manager: RuntimeManager, times: int, root: Path) -> None:
    """Let the pod's container exit and start again, with a log file each time."""
    for attempt in range(times + 1):
        manager.observe_exits(await runtime.status())
        await anyio.sleep(700)
        await manager.sync_pod(make_pod(), await runtime.status(), {})
        (root / "logs" / WEB.log_directory / f"web/{attempt}.log").write_text("x")
        if attempt < times:
            runtime.exit("web", 1)


@pytest.mark.anyio
async def test_gk2_gk6_one_dead_instance_is_kept_with_its_log(
    runtime: FakeRuntime, manager: RuntimeManager, collector: ContainerGC, tmp_path: Path
) -> None:
    await crash(runtime, manager, 3, tmp_path)
    result = await collector.collect()
    assert result.containers == 2
    assert not result.failures
    assert runtime.attempts("web") == [2, 3]
    logs = tmp_path / "logs" / WEB.log_directory / "web"
    assert sorted(path.name for path in logs.iterdir()) == ["2.log", "3.log"]


@pytest.mark.anyio
async def test_gk1_gs1_gl1_gl2_all_of_a_pod_that_is_gone_goes(
    runtime: FakeRuntime,
    manager: RuntimeManager,
    collector: ContainerGC,
    fates: Fates,
    tmp_path: Path,
) -> None:
    await crash(runtime, manager, 1, tmp_path)
    await manager.kill_pod(None, await runtime.status(), None)
    (tmp_path / "logs/lost+found").mkdir()
    links, log = tmp_path / "links", tmp_path / "logs" / WEB.log_directory / "web/0.log"
    links.mkdir()
    (links / "web_default_web-c2.log").symlink_to(log)
    fates.gone.add(UID)
    result = await collector.collect()
    assert (result.containers, result.sandboxes, result.log_dirs) == (2, 1, 1)
    assert runtime.containers == {}
    assert runtime.sandboxes == {}
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["lost+found"]
    assert list(links.iterdir()) == []


@pytest.mark.anyio
async def test_nothing_of_a_pod_goes_before_all_sources_have_spoken(
    runtime: FakeRuntime,
    manager: RuntimeManager,
    collector: ContainerGC,
    fates: Fates,
    tmp_path: Path,
) -> None:
    await crash(runtime, manager, 1, tmp_path)
    await manager.kill_pod(None, await runtime.status(), None)
    fates.gone.add(UID)
    fates.ready = False
    assert await collector.plan() == GarbagePlan()
    assert await collector.collect() == Collected()
    assert len(runtime.containers) == 2
    assert (tmp_path / "logs" / WEB.log_directory).exists()


@pytest.mark.anyio
async def test_gs2_an_old_sandbox_of_a_living_pod_goes_once_it_is_empty(
    runtime: FakeRuntime, manager: RuntimeManager, collector: ContainerGC
) -> None:
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    runtime.sandboxes["s1"].state = NOT_READY
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    await collector.collect()
    assert len(runtime.sandboxes) == 2
    del runtime.containers["c2"]
    assert (await collector.collect()).sandboxes == 1
    assert "s1" not in runtime.sandboxes


@pytest.mark.anyio
async def test_gk7_one_failure_does_not_stop_the_rest(
    runtime: FakeRuntime,
    manager: RuntimeManager,
    collector: ContainerGC,
    events: EventLog,
    tmp_path: Path,
) -> None:
    """events.md, EV63."""
    await crash(runtime, manager, 3, tmp_path)
    runtime.fail("remove_container", Internal("busy"))
    result = await collector.collect()
    assert result.containers == 1
    assert len(result.failures) == 1
    told = [event for event in events.node if event[1] == "ContainerGCFailed"]
    assert told == [("Warning", "ContainerGCFailed", result.failures[0])]
    runtime.fail("list_containers", Internal("down"))
    assert (await collector.collect()).failures == ("down",)
    assert events.node[-1] == ("Warning", "ContainerGCFailed", "down")


@pytest.mark.anyio
async def test_the_plan_says_what_goes_and_why_and_removes_nothing(
    runtime: FakeRuntime,
    manager: RuntimeManager,
    collector: ContainerGC,
    fates: Fates,
    tmp_path: Path,
) -> None:
    await crash(runtime, manager, 3, tmp_path)
    plan = await collector.plan()
    assert [(d.container.attempt, d.why) for d in plan.containers] == [
        (1, "of its name the newest 1 are kept"),
        (0, "of its name the newest 1 are kept"),
    ]
    assert (plan.sandboxes, plan.log_dirs) == ((), ())
    await manager.kill_pod(None, await runtime.status(), None)
    fates.gone.add(UID)
    plan = await collector.plan()
    assert {d.why for d in plan.containers} == {"its pod is gone"}
    assert [d.sandbox.id for d in plan.sandboxes] == ["s1"]
    assert [path.name for _, path in plan.log_dirs] == [WEB.log_directory]
    assert len(runtime.containers) == 4
    await collector.collect()
    assert await collector.plan() == GarbagePlan()


@pytest.mark.anyio
async def test_gk6_the_link_to_a_log_goes_with_its_container(
    runtime: FakeRuntime, manager: RuntimeManager, collector: ContainerGC, tmp_path: Path
) -> None:
    await crash(runtime, manager, 2, tmp_path)
    oldest = min(runtime.containers)
    link = tmp_path / "links" / link_name(WEB, "web", oldest)
    link.parent.mkdir()
    link.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").touch()
    await collector.collect()
    assert not link.is_symlink()


@pytest.mark.anyio
async def test_gk4_a_dead_container_is_left_alone_until_it_is_old_enough(
    runtime: FakeRuntime, manager: RuntimeManager, fates: Fates, tmp_path: Path
) -> None:
    await crash(runtime, manager, 2, tmp_path)
    old = make_gc(runtime, fates, tmp_path, GCPolicy(min_age=120.0))
    assert (await old.collect()).containers == 0
    await anyio.sleep(119)
    assert (await old.collect()).containers == 0
    await anyio.sleep(1)
    assert (await old.collect()).containers == 1


@pytest.mark.anyio
async def test_gk5_a_container_in_an_unknown_state_is_stopped_first(
    runtime: FakeRuntime, manager: RuntimeManager, collector: ContainerGC, fates: Fates
) -> None:
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    runtime.newest("web").state = v1.ContainerState.CONTAINER_UNKNOWN
    fates.gone.add(UID)
    await collector.collect()
    assert runtime.order.index("stop_container") < runtime.order.index("remove_container")


@pytest.mark.anyio
async def test_one_container_is_removed_on_demand_with_its_logs(
    runtime: FakeRuntime, manager: RuntimeManager, collector: ContainerGC, tmp_path: Path
) -> None:
    await crash(runtime, manager, 1, tmp_path)
    await collector.remove_container(ContainerID("c2"))
    assert runtime.attempts("web") == [1]
    logs = tmp_path / "logs" / WEB.log_directory / "web"
    assert [path.name for path in logs.iterdir()] == ["1.log"]
    await collector.remove_container(ContainerID("c2"))


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["../../victim", "..", "a/b", "a\0b", ""])
async def test_gk9_labels_lead_to_no_other_files(
    runtime: FakeRuntime,
    manager: RuntimeManager,
    collector: ContainerGC,
    tmp_path: Path,
    name: str,
) -> None:
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    (tmp_path / "victim").mkdir()
    victim = tmp_path / "victim" / "0.log"
    victim.touch()
    made = runtime.newest("web")
    made.config.labels["io.kubernetes.container.name"] = name
    await collector.remove_container(ContainerID(made.id))
    assert runtime.containers == {}
    assert victim.exists()
    assert not plain_names(WEB, name)


def runtime_pod(uid: str, *containers: tuple[str, int, ContainerState]) -> RuntimePod:
    return RuntimePod(
        PodUID(uid),
        uid,
        "default",
        containers=tuple(
            RuntimeContainer(
                ContainerID(f"{uid}-{name}-{attempt}"), name, attempt, state, SandboxID("s")
            )
            for name, attempt, state in containers
        ),
    )


DEAD = ContainerState.EXITED


def ids(chosen: list[DoomedContainer]) -> set[str]:
    return {dead.container.id for dead in chosen}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (GCPolicy(), {"p-a-0", "p-a-1", "p-b-0"}),
        (GCPolicy(max_per_pod_container=2), {"p-a-0"}),
        (GCPolicy(max_per_pod_container=0), {"p-a-0", "p-a-1", "p-a-2", "p-b-0", "p-b-1"}),
        (GCPolicy(max_per_pod_container=9, max_containers=9), set()),
        (GCPolicy(max_per_pod_container=9, max_containers=4), {"p-a-0"}),
    ],
)
def test_gk2_gk3_the_newest_of_each_name_are_kept(policy: GCPolicy, expected: set[str]) -> None:
    pod = runtime_pod("p", *[("a", n, DEAD) for n in range(3)], *[("b", n, DEAD) for n in (0, 1)])
    dead = dead_containers([pod], lambda _: True)
    assert ids(plan_containers(dead, policy, lambda _: False)) == expected


containers = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.sampled_from(ContainerState)),
    max_size=10,
    unique_by=lambda c: c[:2],
)


@given(
    st.dictionaries(st.sampled_from(["p", "q", "r"]), containers),
    st.integers(0, 3),
    st.integers(-1, 6),
    st.sets(st.sampled_from(["p", "q", "r"])),
)
def test_gk1_gk2_gk3_limits_hold_and_the_running_stay(
    given_pods: dict[str, list[tuple[str, int, ContainerState]]],
    per_name: int,
    total: int,
    gone: set[str],
) -> None:
    pods = [runtime_pod(uid, *found) for uid, found in given_pods.items()]
    policy = GCPolicy(max_per_pod_container=per_name, max_containers=total)
    dead = dead_containers(pods, lambda _: True)
    chosen = plan_containers(dead, policy, lambda uid: uid in gone)
    assert len(chosen) == len(ids(chosen))
    left = [d for d in dead if d.container.id not in ids(chosen)]
    assert all(d.container.state is not ContainerState.RUNNING for d in chosen)
    assert not [d for d in left if d.pod.uid in gone]
    if total >= 0:
        assert len(left) <= total
    for uid in given_pods:
        for name in "ab":
            kept = [d for d in left if (d.pod.uid, d.container.name) == (uid, name)]
            assert len(kept) <= per_name


@pytest.mark.parametrize(("gone", "expected"), [(False, {"s0", "s1"}), (True, {"s0", "s1", "s2"})])
def test_gs1_gs2_the_newest_sandbox_of_a_living_pod_is_kept(gone: bool, expected: set[str]) -> None:
    pod = RuntimePod(
        PodUID("p"),
        "p",
        "default",
        sandboxes=tuple(
            RuntimeSandbox(SandboxID(f"s{n}"), n, SandboxState.NOT_READY) for n in (2, 1, 0)
        ),
    )
    assert {d.sandbox.id for d in plan_sandboxes([pod], lambda _: gone)} == expected


@pytest.mark.parametrize(
    ("names", "attempt"),
    [
        ([], 0),
        (["0.log"], 1),
        (["3.log", "10.log"], 11),
        (["145.log.log.rotated"], 146),
        (["12log.rotated", "x.log"], 0),
        (["7.log.20240101-000000.gz"], 8),
    ],
)
def test_lr1_the_next_attempt_follows_the_log_files(
    names: list[str], attempt: int, tmp_path: Path
) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert next_attempt(tmp_path) == attempt
    assert next_attempt(tmp_path / "missing") == 0


def test_gk6_rotated_siblings_go_with_a_log_and_an_empty_directory_too(tmp_path: Path) -> None:
    directory = tmp_path / "web"
    directory.mkdir()
    for name in ("1.log", "1.log.20240101-000000", "1.log.gz", "11.log"):
        (directory / name).touch()
    remove_container_logs(directory / "1.log")
    assert [path.name for path in directory.iterdir()] == ["11.log"]
    remove_container_logs(directory / "11.log")
    assert not directory.exists()
    remove_container_logs(directory / "11.log")


@pytest.mark.anyio
async def test_logs_of_names_that_lead_elsewhere_are_left_alone(
    runtime: FakeRuntime, manager: RuntimeManager, collector: ContainerGC, tmp_path: Path
) -> None:
    await crash(runtime, manager, 1, tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "0.log").touch()
    runtime.containers["c2"].config.labels["io.kubernetes.container.name"] = "../../elsewhere"
    await collector.remove_container(ContainerID("c2"))
    assert runtime.attempts("web") == [1]
    assert (elsewhere / "0.log").exists()


def test_lr2_gl2_links_lead_to_logs_and_go_when_they_dangle(tmp_path: Path) -> None:
    links, log = tmp_path / "links", tmp_path / "0.log"
    link_log(links, log, WEB, "web", "abc")
    assert not links.exists()
    log.touch()
    link_log(links, log, WEB, "web", "abc")
    link_log(links, log, WEB, "web", "abc")
    link = links / "web_default_web-abc.log"
    assert link.resolve() == log
    assert remove_dangling_links(links, ()) == 0
    log.unlink()
    assert remove_dangling_links(links, {"abc"}) == 0
    assert remove_dangling_links(links, ()) == 1


def test_lr2_long_link_names_are_cut() -> None:
    name = link_name(PodNames("p" * 250, "ns", "u"), "c", "abc")
    assert len(name) == 255
    assert name.endswith(".log")


@pytest.mark.parametrize(
    ("name", "uid"),
    [("default_web_uid-1", "uid-1"), ("a_b_c_d", "d"), ("lost+found", ""), ("a_b", ""), ("", "")],
)
def test_gl1_the_uid_is_what_follows_the_last_separator(name: str, uid: str) -> None:
    assert uid_of_log_directory(name) == uid
