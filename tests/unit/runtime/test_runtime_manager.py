"""Pods through the runtime manager, against a runtime in memory.

docs/behaviour/runtime.md, "Order of execution", "Starting", "Waiting reasons".
"""

from __future__ import annotations

import dataclasses
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import anyio
import msgspec
import pytest
from tests.unit.runtime.fakes import (
    EXITED,
    NOT_READY,
    READY,
    RUNNING,
    UID,
    EventLog,
    FakeRuntime,
    make_container,
    make_pod,
    make_settings,
)

from nodeagent.api import ConfigMapEnvSource, EnvFromSource, Pod, VolumeMount
from nodeagent.journal import Journal
from nodeagent.model import (
    BackOffError,
    PodRuntimeStatus,
    PodUID,
    SandboxRuntimeStatus,
    SyncError,
)
from nodeagent.model.volumes import MountedVolume
from nodeagent.rpc import Internal, Unavailable, Unknown
from nodeagent.runtime import RuntimeManager
from nodeagent.runtime.lookups import Lookups
from nodeagent.runtime.managed_files import termination_log
from nodeagent.runtime.metrics import RuntimeMetrics

pytestmark = pytest.mark.anyio


async def test_a_new_pod_gets_a_sandbox_and_its_containers(
    runtime: FakeRuntime,
    manager: RuntimeManager,
    events: EventLog,
    journal: Journal,
    actions: list[tuple[PodUID, str]],
) -> None:
    result = await manager.sync_pod(make_pod(), await runtime.status(), {})
    assert result.error() is None
    assert result.started == ("web",)
    assert result.did_something
    assert runtime.newest("web").state is RUNNING
    assert events.reasons == ["MissingClusterDNS", "Pulled", "Created", "Started"]
    assert events.last("Started").field_path == "spec.containers{web}"
    steps = [r.what for r in journal.select(UID)]
    assert steps == ["SandboxCreated", "ContainerCreated", "ContainerStarted", "PodSynced"]
    assert actions == [(UID, "container started")]


async def test_a_second_sync_does_nothing(runtime: FakeRuntime, manager: RuntimeManager) -> None:
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    status = await runtime.status()
    before = runtime.calls.total()
    result = await manager.sync_pod(make_pod(), status, {})
    assert not result.did_something
    assert runtime.calls.total() == before


async def test_files_of_the_pod_are_made(
    runtime: FakeRuntime, manager: RuntimeManager, tmp_path: Path
) -> None:
    container = make_container(termination_message_path="/dev/termination-log")
    await manager.sync_pod(make_pod(container), await runtime.status(), {})
    pod_dir = tmp_path / "agent/pods" / UID
    assert "10.0.0.7\tweb\n" in (pod_dir / "etc-hosts").read_text()
    (log,) = (pod_dir / "containers/web").iterdir()
    assert log.stat().st_mode & 0o777 == 0o666
    mounts = {m.container_path: m.host_path for m in runtime.newest("web").config.mounts}
    assert mounts == {"/etc/hosts": str(pod_dir / "etc-hosts"), "/dev/termination-log": str(log)}
    logs = tmp_path / "logs" / f"default_web_{UID}"
    assert (logs / "web").is_dir()
    assert logs.stat().st_mode & 0o777 == 0o755


async def test_a_pod_on_the_nodes_network_is_not_asked_for_its_address(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    pod = make_pod(host_network=True)
    await manager.sync_pod(pod, await runtime.status(), {})
    assert runtime.calls["pod_sandbox_status"] == 0
    assert (await manager.sync_pod(pod, await runtime.status(), {})).started == ()


async def test_an_exited_container_starts_again_with_the_next_attempt(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    runtime.exit("web", 1)
    result = await manager.sync_pod(make_pod(), await runtime.status(), {})
    assert result.started == ("web",)
    assert runtime.attempts("web") == [0, 1]
    assert (await runtime.status()).containers[0].restart_count == 1


async def test_a_container_that_crashes_again_waits_and_says_so_at_once(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    pod = make_pod()
    for _ in range(2):
        await manager.sync_pod(pod, await runtime.status(), {})
        runtime.exit("web", 1)
    await anyio.sleep(1)
    result = await manager.sync_pod(pod, await runtime.status(), {})
    assert result.started == ()
    error = result.errors["web"]
    assert error.reason == "CrashLoopBackOff"
    assert error.message == (
        "back-off 10s restarting failed container=web pod=web_default(uid-1), "
        "next try at 2030-01-01T00:00:11Z"
    )
    assert manager.reasons.get(UID, "web") == error
    assert events.last("BackOff").kind == "Warning"
    waiting = result.error()
    assert isinstance(waiting, BackOffError)
    await anyio.sleep(waiting.until - anyio.current_time() - 0.5)
    again = await manager.sync_pod(pod, await runtime.status(), {})
    assert again.errors["web"] == error
    await anyio.sleep(0.5)
    assert (await manager.sync_pod(pod, await runtime.status(), {})).started == ("web",)
    assert manager.reasons.get(UID, "web") is None
    assert runtime.attempts("web") == [0, 1, 2]


async def test_one_failing_container_does_not_hold_up_the_others(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    bad = make_container(
        "bad", env_from=(EnvFromSource(config_map_ref=ConfigMapEnvSource(name="gone")),)
    )
    result = await manager.sync_pod(
        make_pod(bad, make_container("good")), await runtime.status(), {}
    )
    assert result.started == ("good",)
    assert result.errors["bad"].reason == "CreateContainerConfigError"
    failed = events.last("Failed")
    assert failed.message == 'Error: configmap "gone" not found'
    assert failed.field_path == "spec.containers{bad}"
    error = result.error()
    assert isinstance(error, SyncError)
    assert not isinstance(error, BackOffError)


@pytest.mark.parametrize(
    ("method", "reason"),
    [("create_container", "CreateContainerError"), ("start_container", "RunContainerError")],
)
async def test_a_failing_call_becomes_the_waiting_reason(
    runtime: FakeRuntime, manager: RuntimeManager, method: str, reason: str
) -> None:
    runtime.fail(method, Unknown("the disk is full"))
    result = await manager.sync_pod(make_pod(), await runtime.status(), {})
    assert result.errors["web"].reason == reason
    assert result.errors["web"].message == "the disk is full"
    result = await manager.sync_pod(make_pod(), await runtime.status(), {})
    assert result.started == ("web",)


@pytest.mark.parametrize("method", ["image_status", "create_container", "start_container"])
async def test_a_runtime_that_went_away_during_a_start_is_the_cause(
    runtime: FakeRuntime, manager: RuntimeManager, method: str
) -> None:
    runtime.fail(method, Unavailable("connection lost"))
    error = (await manager.sync_pod(make_pod(), await runtime.status(), {})).error()
    assert isinstance(error, SyncError)
    assert isinstance(error.__cause__, Unavailable)


async def test_a_container_id_in_an_error_is_replaced_by_the_name(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    runtime.fail("start_container", Unknown("cannot start c2: no such file"))
    result = await manager.sync_pod(make_pod(), await runtime.status(), {})
    assert result.errors["web"].message == "cannot start web: no such file"


async def test_a_missing_volume_is_a_configuration_error(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    container = make_container(volume_mounts=(VolumeMount(name="data", mount_path="/data"),))
    pod = make_pod(container)
    result = await manager.sync_pod(pod, await runtime.status(), {})
    assert result.errors["web"].reason == "CreateContainerConfigError"
    volumes = {"data": MountedVolume("data", "/host/data")}
    result = await manager.sync_pod(pod, await runtime.status(), volumes)
    assert result.started == ("web",)
    assert runtime.newest("web").config.mounts[0].host_path == "/host/data"


async def test_groups_of_volumes_are_those_of_sandbox_and_containers(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    """docs/behaviour/runtime.md, "Sandbox", "Security"."""
    volumes = {"data": MountedVolume("data", "/host/data", groups=(7000,))}
    await manager.sync_pod(make_pod(), await runtime.status(), volumes)
    (sandbox,) = runtime.sandboxes.values()
    for config in (sandbox.config, runtime.newest("web").config):
        assert config.linux is not None
        assert config.linux.security_context is not None
        assert config.linux.security_context.supplemental_groups == [7000]


async def test_every_sandbox_that_cannot_be_made_is_counted_and_no_other(
    runtime: FakeRuntime, tmp_path: Path
) -> None:
    """docs/metrics.md."""
    metrics = RuntimeMetrics()
    manager = RuntimeManager(runtime, runtime, make_settings(tmp_path), metrics=metrics)

    async def counted(pod: Pod) -> float:
        before = metrics.started_pods_errors._value.get()
        await manager.sync_pod(pod, PodRuntimeStatus(PodUID(pod.metadata.uid)), {})
        return float(metrics.started_pods_errors._value.get() - before)

    assert await counted(make_pod(uid="a", runtime_class_name="gvisor")) == 1
    runtime.fail("run_pod_sandbox", Internal("no network"), times=2)
    leaving = make_pod(uid="b")
    meta = msgspec.structs.replace(leaving.metadata, deletion_timestamp=datetime.now(UTC))
    assert await counted(make_pod(uid="c")) == 1
    assert await counted(msgspec.structs.replace(leaving, metadata=meta)) == 0
    runtime.fail("pod_sandbox_status", Internal("shim is gone"))
    assert await counted(make_pod(uid="d")) == 0


async def test_a_sandbox_that_cannot_be_made_fails_the_sync(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    runtime.fail("run_pod_sandbox", Internal("no network"))
    result = await manager.sync_pod(make_pod(), await runtime.status(), {})
    assert result.sandbox_error is not None
    assert result.sandbox_error.reason == "CreatePodSandboxError"
    assert events.last("FailedCreatePodSandBox").message == (
        "Failed to create pod sandbox: no network"
    )
    assert runtime.calls["create_container"] == 0


async def test_a_pod_on_its_way_out_fails_quietly(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    runtime.fail("run_pod_sandbox", Internal("no network"))
    pod = make_pod()
    meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=datetime.now(UTC))
    pod = msgspec.structs.replace(pod, metadata=meta)
    assert (await manager.sync_pod(pod, await runtime.status(), {})).error() is None
    assert "FailedCreatePodSandBox" not in events.reasons


async def test_a_dead_sandbox_is_replaced_with_all_containers(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    runtime.sandboxes["s1"].state = NOT_READY
    result = await manager.sync_pod(make_pod(), await runtime.status(), {})
    assert result.started == ("web",)
    assert "SandboxChanged" in events.reasons
    assert runtime.order.index("stop_container") < runtime.order.index("stop_pod_sandbox")
    assert [s.state for s in runtime.sandboxes.values()] == [NOT_READY, READY]
    assert runtime.attempts("web") == [0, 1]


async def test_a_changed_image_replaces_only_its_container(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    """events.md, EV48."""
    runtime.add_image("example.test/web:v2")
    pod = make_pod(make_container(), make_container("other"))
    await manager.sync_pod(pod, await runtime.status(), {})
    changed = make_pod(make_container(image="example.test/web:v2"), make_container("other"))
    result = await manager.sync_pod(changed, await runtime.status(), {})
    assert result.started == ("web",)
    assert events.last("Killing").message == ("Container web definition changed, will be restarted")
    assert runtime.attempts("other") == [0]
    assert len(runtime.sandboxes) == 1


async def test_a_kill_that_fails_stops_the_sync(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    runtime.fail("stop_container", Internal("stuck"))
    changed = make_pod(make_container(image="example.test/web:v2"))
    result = await manager.sync_pod(changed, await runtime.status(), {})
    assert result.sandbox_error is not None
    assert result.sandbox_error.reason == "KillContainerError"
    assert runtime.attempts("web") == [0]


async def test_a_finished_pod_is_stopped_with_its_sandbox(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    pod = make_pod(restart_policy="Never")
    await manager.sync_pod(pod, await runtime.status(), {})
    runtime.exit("web")
    result = await manager.sync_pod(pod, await runtime.status(), {})
    assert result.started == ()
    assert runtime.sandboxes["s1"].state is NOT_READY


async def test_init_containers_run_one_after_the_other(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    pod = make_pod(init_containers=(make_container("i1"), make_container("i2")))
    for name in ("i1", "i2", "web"):
        result = await manager.sync_pod(pod, await runtime.status(), {})
        assert result.started == (name,)
        if name != "web":
            runtime.exit(name)


async def test_older_instances_of_init_containers_are_removed(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    pod = make_pod(init_containers=(make_container("i1"),))
    for _ in range(3):
        await manager.sync_pod(pod, await runtime.status(), {})
        runtime.exit("i1", 1)
        manager.observe_exits(await runtime.status())
        await anyio.sleep(400)
    assert runtime.attempts("i1") == [1, 2]


async def test_logs_of_removed_init_containers_go_with_them(
    runtime: FakeRuntime, manager: RuntimeManager, tmp_path: Path
) -> None:
    """docs/behaviour/runtime.md, "Order of execution"."""
    pod = make_pod(init_containers=(make_container("i1"),))
    logs = tmp_path / f"logs/default_web_{UID}/i1"
    for attempt in range(3):
        await manager.sync_pod(pod, await runtime.status(), {})
        for name in (f"{attempt}.log", f"{attempt}.log.20300101-000000.gz"):
            (logs / name).touch()
        runtime.exit("i1", 1)
        manager.observe_exits(await runtime.status())
        await anyio.sleep(400)
    assert {path.name.partition(".")[0] for path in logs.iterdir()} == {"1", "2"}


async def test_a_new_sandbox_begins_without_init_containers_of_the_old_one(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    """docs/behaviour/runtime.md, "Order of execution": also those that ran until now."""
    side = make_container("side", restart_policy="Always")
    pod = make_pod(init_containers=(side,))
    await manager.sync_pod(pod, await runtime.status(), {})
    runtime.sandboxes["s1"].state = NOT_READY
    assert runtime.newest("side").state is RUNNING
    await manager.sync_pod(pod, await runtime.status(), {})
    assert runtime.attempts("side") == [1]


async def test_an_init_container_that_cannot_be_removed_is_in_nobodys_way(
    runtime: FakeRuntime, manager: RuntimeManager, journal: Journal
) -> None:
    """docs/behaviour/runtime.md, "Order of execution"."""
    pod = make_pod(init_containers=(make_container("i1"),))
    await manager.sync_pod(pod, await runtime.status(), {})
    runtime.exit("i1", 0)
    runtime.sandboxes["s1"].state = NOT_READY
    runtime.fail("remove_container", Internal("it is busy"))
    result = await manager.sync_pod(pod, await runtime.status(), {})
    assert result.error() is None
    assert result.started == ("i1",)
    assert runtime.attempts("i1") == [0, 1]
    told = [r.why for r in journal.select(UID) if r.what == "InitContainerNotRemoved"]
    assert told == ["container i1: it is busy"]


async def test_restarting_all_containers_removes_them_first(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    pod = make_pod(make_container("a"), make_container("b"))
    await manager.sync_pod(pod, await runtime.status(), {})
    runtime.exit("b", 1)
    running = runtime.newest("a")
    result = await manager.sync_pod(pod, await runtime.status(), {}, restart_all=True)
    assert result.reset
    assert running.stop_timeout == 2
    assert runtime.containers == {}
    assert (await manager.sync_pod(pod, await runtime.status(), {})).started == ("a", "b")


async def test_hung_creations_do_not_starve_the_others(
    runtime: FakeRuntime, tmp_path: Path
) -> None:
    settings = dataclasses.replace(make_settings(tmp_path), concurrency=1, patience=5.0)
    manager = RuntimeManager(runtime, runtime, settings)
    runtime.hang("run_pod_sandbox")
    async with anyio.create_task_group() as tasks:
        hung = make_pod(uid="hung", name="hung")
        tasks.start_soon(manager.sync_pod, hung, await runtime.status(PodUID("hung")), {})
        await anyio.sleep(1)
        runtime.unhang()
        began = anyio.current_time()
        await manager.sync_pod(make_pod(), await runtime.status(), {})
        assert 4 <= anyio.current_time() - began < 5
        tasks.cancel_scope.cancel()


async def test_what_must_survive_a_restart_of_the_agent_is_plain_data(
    runtime: FakeRuntime, manager: RuntimeManager, tmp_path: Path
) -> None:
    pod = make_pod(restart_policy="Never")
    await manager.sync_pod(pod, await runtime.status(), {})
    saved = json.loads(json.dumps(manager.snapshot()))
    runtime.containers.clear()
    runtime.sandboxes.clear()
    heir = RuntimeManager(runtime, runtime, make_settings(tmp_path))
    heir.restore(saved)
    result = await heir.sync_pod(pod, await runtime.status(), {})
    assert result.started == ()
    assert runtime.containers == {}
    heir.forget_pod(UID)
    assert (await heir.sync_pod(pod, await runtime.status(), {})).started == ("web",)


async def test_the_attempt_goes_on_from_the_log_files_when_records_are_gone(
    runtime: FakeRuntime, manager: RuntimeManager, tmp_path: Path
) -> None:
    logs = tmp_path / "logs" / f"default_web_{UID}" / "web"
    logs.mkdir(parents=True)
    (logs / "6.log").touch()
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    assert runtime.attempts("web") == [7]
    assert runtime.newest("web").state is not EXITED


class Classes:
    """One runtime class."""

    def handler(self, name: str) -> str | None:
        return "runsc" if name == "gvisor" else None


async def test_a_runtime_class_leads_to_a_handler(runtime: FakeRuntime, tmp_path: Path) -> None:
    """docs/behaviour/runtime.md, "Sandbox"."""
    lookups = Lookups(runtime_classes=Classes())
    manager = RuntimeManager(runtime, runtime, make_settings(tmp_path), lookups=lookups)
    for name in ("gvisor", ""):
        pod = make_pod(runtime_class_name=name, uid=f"u{name}")
        await manager.sync_pod(pod, await runtime.status(PodUID(f"u{name}")), {})
    assert [s.handler for s in runtime.sandboxes.values()] == ["runsc", ""]


async def test_a_runtime_class_that_nobody_knows_fails_the_sandbox(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    """docs/behaviour/runtime.md, "Sandbox"."""
    pod = make_pod(runtime_class_name="gvisor")
    result = await manager.sync_pod(pod, await runtime.status(), {})
    assert result.sandbox_error is not None
    assert (
        'runtimeclass.node.k8s.io "gvisor" not found'
        in events.last("FailedCreatePodSandBox").message
    )
    assert not runtime.sandboxes


async def test_a_new_sandbox_is_told_before_anything_starts_in_it(
    runtime: FakeRuntime, tmp_path: Path
) -> None:
    """docs/behaviour/runtime.md, "Order of execution"."""
    told: list[tuple[str, SandboxRuntimeStatus, int]] = []

    def note(uid: PodUID, sandbox: SandboxRuntimeStatus) -> None:
        told.append((uid, sandbox, runtime.calls["create_container"]))

    manager = RuntimeManager(runtime, runtime, make_settings(tmp_path), on_sandbox=note)
    pod = make_pod(init_containers=(make_container("init"),))
    await manager.sync_pod(pod, await runtime.status(), {})
    runtime.exit("init")
    await manager.sync_pod(pod, await runtime.status(), {})
    ((uid, sandbox, created),) = told
    assert (uid, created) == (UID, 0)
    assert (await runtime.status()).sandboxes == (sandbox,)
    assert (sandbox.id, sandbox.ips) == ("s1", ("10.0.0.7",))


async def test_only_the_last_words_of_the_last_runs_are_kept(
    runtime: FakeRuntime, manager: RuntimeManager, tmp_path: Path
) -> None:
    """docs/behaviour/runtime.md, "Starting"."""
    pod = make_pod(make_container(termination_message_path="/dev/termination-log"))
    for _ in range(7):
        assert (await manager.sync_pod(pod, await runtime.status(), {})).error() is None
        runtime.exit("web", 1)
        manager.observe_exits(await runtime.status())
        await anyio.sleep(400)
    mounts = [
        mount.host_path
        for made in runtime.containers.values()
        for mount in made.config.mounts
        if mount.container_path == "/dev/termination-log"
    ]
    kept = {str(path) for path in (tmp_path / "agent/pods" / UID / "containers/web").iterdir()}
    assert kept == set(mounts[-4:])


def test_files_for_last_words_are_in_order_whatever_the_clock_shows(tmp_path: Path) -> None:
    """docs/behaviour/runtime.md, "Starting"."""
    made = []
    for name in ("", "", "a0000000", "", "ffffffff", ""):
        path = termination_log(tmp_path) if not name else tmp_path / name
        path.touch()
        os.utime(path, ns=(10**18, 10**18))  # the clock of the file system stands still
        made.append(path.name)
    assert made[:4] == ["00000000", "00000001", "a0000000", "a0000001"]
    assert len(made[-1]) == 8
    assert {path.name for path in tmp_path.iterdir()} == {*made[2:]}


async def test_why_there_is_no_sandbox_is_known_until_there_is_one(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    """docs/behaviour/runtime.md, "Order of execution"."""
    runtime.fail("run_pod_sandbox", Internal("no network"))
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    assert manager.waiting_note(UID, "web") == "failed to create pod sandbox: no network"
    assert manager.waiting_note(PodUID("other"), "web") == ""
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    assert manager.waiting_note(UID, "web") == ""
