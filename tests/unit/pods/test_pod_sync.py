"""docs/behaviour/workers.md, "Sync calls", with the smallest of neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace as replace_data
from datetime import timedelta

import anyio
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from tests.unit.pods.status_builders import (
    UID,
    Clock,
    container_status,
    ended,
    look,
    make_pod,
    record,
    restarting_all,
    running,
    sandbox,
)

from nodeagent.api import Pod, PodIP, PodStatus
from nodeagent.journal import Journal
from nodeagent.model import (
    BackOffError,
    ContainerError,
    NetworkNotReadyError,
    PodRuntimeStatus,
    PodUID,
    RuntimePod,
    SyncError,
    UpdateType,
)
from nodeagent.model import ContainerState as Seen
from nodeagent.model.actions import PodSyncResult
from nodeagent.model.probes import NO_RESULTS, ProbeResults
from nodeagent.model.volumes import MountedVolume
from nodeagent.pods.metrics import PodMetrics
from nodeagent.pods.protocols import PodSyncer
from nodeagent.pods.status import DEADLINE_MESSAGE, NodeFacts
from nodeagent.pods.status_manager import StatusManager
from nodeagent.pods.sync import PodSync

pytestmark = pytest.mark.anyio

VOLUME = MountedVolume("data", "/host/data")
UP = look(record(), sandboxes=(sandbox(),), ips=("10.0.0.1",))
CRASHED = look(record("a", Seen.EXITED, code=1), sandboxes=(sandbox(),))
BACK_OFF = ContainerError("CrashLoopBackOff", "back-off 10s restarting failed container", 42.0)


class Neighbours:
    """Runtime, volumes and events of one pod; each does what the test says, and is noted."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.events: list[tuple[str, str, str]] = []
        self.result = PodSyncResult()
        self.start_errors: dict[str, ContainerError] = {}
        self.notes: dict[str, str] = {}
        self.mirrored: list[str] = []
        self.kill_error: Exception | None = None
        self.mount_error: SyncError | None = None
        self.unmount_error: SyncError | None = None
        self.after: PodRuntimeStatus | Exception = look()
        self.network = ""
        self.given: ProbeResults = NO_RESULTS
        self.unsupported: list[str] = []
        self.on_sync: Callable[[], None] = lambda: None
        self.clock = Clock()
        self.journal = Journal()
        self.registry = CollectorRegistry()
        self.statuses = StatusManager(self.clock, loop_time=anyio.current_time)
        self.sync = PodSync(
            runtime=self,
            ran_once=lambda _uid: {},
            start_error=lambda uid, name: self.start_errors.get(name) if uid == UID else None,
            volumes=self,
            statuses=self.statuses,
            inspect=self.inspect,
            record=self.record,
            unsupported=lambda _pod: self.unsupported,
            qos_class=lambda _pod: "BestEffort",
            network_error=lambda: self.network,
            runtime_name=lambda: "containerd",
            node=lambda: NodeFacts(("192.168.0.5",)),
            clock=self.clock,
            journal=self.journal,
            metrics=PodMetrics(self.registry),
            waiting_note=lambda _uid, name: self.notes.get(name, ""),
            want_mirror=lambda pod: self.mirrored.append(pod.metadata.uid),
        )

    async def sync_pod(
        self,
        pod: Pod,
        status: PodRuntimeStatus,
        volumes: Mapping[str, MountedVolume],
        *,
        probes: ProbeResults,
        restart_all: bool = False,
    ) -> PodSyncResult:
        self.given = probes
        self.calls.append(f"sync {pod.metadata.name} {sorted(volumes)}")
        self.on_sync()
        if restart_all:
            self.calls.append("reset")
            return PodSyncResult(did_something=True, reset=True)
        return self.result

    async def kill_pod(
        self, pod: Pod | None, status: PodRuntimeStatus, grace_override: int | None
    ) -> None:
        name = pod.metadata.name if pod else f"runtime-only {status.name}"
        self.calls.append(f"kill {name} {grace_override}")
        if self.kill_error is not None:
            raise self.kill_error

    async def mount(self, pod: Pod) -> Mapping[str, MountedVolume]:
        self.calls.append("mount")
        if self.mount_error is not None:
            raise self.mount_error
        return {"data": VOLUME}

    async def unmount(self, uid: PodUID) -> None:
        self.calls.append(f"unmount {uid}")
        if self.unmount_error is not None:
            raise self.unmount_error

    async def inspect(self, uid: PodUID) -> PodRuntimeStatus:
        self.calls.append(f"inspect {uid}")
        if isinstance(self.after, Exception):
            raise self.after
        return self.after

    def record(self, pod: Pod, kind: str, reason: str, message: str) -> None:
        self.events.append((kind, reason, message))

    # -- what a test asks ------------------------------------------------------------------

    async def bring_up(
        self, pod: Pod, status: PodRuntimeStatus, kind: UpdateType = UpdateType.SYNC
    ) -> bool:
        return await self.sync.sync_pod(kind, pod, None, status)

    def stored(self) -> PodStatus:
        found = self.statuses.get(UID)
        assert found is not None
        return found

    def waiting(self) -> tuple[str, str]:
        state = self.stored().container_statuses[0].state.waiting
        assert state is not None
        return state.reason, state.message

    def phases(self) -> list[str]:
        return [r.what for r in self.journal.select(UID) if r.component == "status"]


@pytest.fixture
def around() -> Neighbours:
    return Neighbours()


def test_it_is_what_the_workers_ask_for(around: Neighbours) -> None:
    syncer: PodSyncer = around.sync
    assert syncer is around.sync


# -- SyncPod -----------------------------------------------------------------------------------


async def test_a_pod_is_brought_up_with_its_volumes(around: Neighbours) -> None:
    """workers.md, Y1, Y3, Y5, Y6."""
    assert await around.bring_up(make_pod(), look(), UpdateType.CREATE) is False
    assert around.calls == ["mount", "sync web ['data']"]
    assert around.stored().phase == "Pending"
    assert around.waiting() == ("ContainerCreating", "")
    assert around.events == []
    assert await around.bring_up(make_pod(), UP) is False
    assert around.stored().phase == "Running"
    assert around.stored().pod_ip == "10.0.0.1"
    assert around.phases() == ["PhasePending", "PhaseRunning"]


@pytest.mark.parametrize(
    ("source", "age", "counted", "seconds"),
    [("api", 7.0, 1, 10.0), ("api", -60.0, 1, 0.0), ("file", 7.0, 0, 0.0)],
    ids=["pod", "clock-behind", "static"],
)
async def test_a_start_is_timed_from_the_making_of_the_pod(
    around: Neighbours, source: str, age: float, counted: int, seconds: float
) -> None:
    pod = make_pod(source=source)
    created = around.clock.now() - timedelta(seconds=age)
    pod = replace(pod, metadata=replace(pod.metadata, creation_timestamp=created))
    await around.bring_up(pod, look(), UpdateType.CREATE)
    around.clock.move(3)
    await around.bring_up(pod, UP)
    around.clock.move(3)
    await around.bring_up(pod, UP)
    name = "kubelet_pod_start_total_duration_seconds"
    assert around.registry.get_sample_value(f"{name}_count") == counted
    assert around.registry.get_sample_value(f"{name}_sum") == seconds


async def test_the_status_is_stored_before_anything_is_done(around: Neighbours) -> None:
    """workers.md, Y3."""
    seen = []
    around.on_sync = lambda: seen.append(around.stored().phase)
    await around.bring_up(make_pod(), UP)
    assert seen == ["Running"]


async def test_a_sync_may_be_made_again_at_any_time(around: Neighbours) -> None:
    """workers.md, "Sync calls": each may be made again at any time."""
    for _ in range(3):
        await around.bring_up(make_pod(), UP)
    version = around.statuses.versioned(UID)
    assert version is not None
    assert version.version == 1
    assert around.phases() == ["PhaseRunning"]


async def test_why_there_is_no_sandbox_shows_at_once(around: Neighbours) -> None:
    """workers.md, Y6; phase.md, PS20."""
    error = SyncError("no network", reason="CreatePodSandboxError")
    around.result = PodSyncResult(sandbox_error=error)
    around.on_sync = lambda: around.notes.update(a="no network")
    with pytest.raises(SyncError, match="no network"):
        await around.bring_up(make_pod(), look())
    assert around.waiting() == ("ContainerCreating", "no network")


async def test_a_new_sandbox_shows_at_once(around: Neighbours) -> None:
    """workers.md, Y16."""
    shown: list[tuple[str, str]] = []

    def begin() -> None:
        around.sync.sandbox_ready(UID, sandbox())
        status = around.stored()
        (usable,) = [c for c in status.conditions if c.type == "PodReadyToStartContainers"]
        shown.append((status.pod_ip, usable.status))

    around.on_sync = begin
    around.result = PodSyncResult(errors={"a": ContainerError("ErrImagePull", "no")})
    with pytest.raises(SyncError):
        await around.bring_up(make_pod(), look())
    assert shown == [("10.0.0.1", "True")]
    assert around.stored().pod_ip == "10.0.0.1"
    around.sync.sandbox_ready(UID, sandbox(ips=("10.0.0.9",)))
    assert around.stored().pod_ip == "10.0.0.1", "nobody works on the pod"


async def test_a_restart_of_all_removes_them_and_goes_on_at_once(around: Neighbours) -> None:
    """workers.md, Y15."""
    web = restarting_all(make_pod("a", "b", policy="Never"), "b")
    await around.bring_up(web, look(record("a"), record("b", id_="c2"), sandboxes=(sandbox(),)))
    around.calls.clear()
    around.after = look(sandboxes=(sandbox(),))
    asks = look(record("a"), record("b", Seen.EXITED, code=42, id_="c2"), sandboxes=(sandbox(),))
    assert await around.bring_up(web, asks) is False
    sync = "sync web ['data']"
    assert around.calls == ["mount", sync, "reset", f"inspect {UID}", "mount", sync]
    assert around.stored().phase == "Running"
    assert around.waiting() == ("RestartingAllContainers", "")
    assert around.statuses.refused == 0


async def test_what_a_restart_of_all_could_not_remove_is_an_error(around: Neighbours) -> None:
    """workers.md, Y15."""
    web = restarting_all(make_pod("a"), "a")
    around.after = asks = look(record("a", Seen.EXITED, code=42), sandboxes=(sandbox(),))
    with pytest.raises(SyncError, match="still there after they were removed: a"):
        await around.bring_up(web, asks)


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (3, "Failed")])
async def test_a_pod_that_has_ended_is_terminal_and_the_runtime_is_not_touched(
    around: Neighbours, code: int, phase: str
) -> None:
    """workers.md, Y1."""
    pod = make_pod(policy="Never")
    around.unsupported = ["spec.initContainers"]
    around.network = "no CNI"
    over = look(record("a", Seen.EXITED, code=code), sandboxes=(sandbox(),))
    assert await around.bring_up(pod, over) is True
    assert around.stored().phase == phase
    assert around.calls == []
    assert around.events == []


async def test_a_deadline_that_has_passed_ends_the_pod_and_is_said_once(
    around: Neighbours,
) -> None:
    """workers.md, Y1; phase.md, PG2; events.md, EV61."""
    pod = make_pod(deadline=60)
    assert await around.bring_up(pod, UP) is False
    around.clock.move(600)
    assert await around.bring_up(pod, UP) is False
    await anyio.sleep(60)
    for _ in range(2):
        assert await around.bring_up(pod, UP) is True
    assert (around.stored().phase, around.stored().reason) == ("Failed", "DeadlineExceeded")
    assert around.events == [("Normal", "DeadlineExceeded", DEADLINE_MESSAGE)]
    assert around.calls == ["mount", "sync web ['data']"] * 2


REFUSAL = "not supported by this version of nodeagent: spec.initContainers, spec.hostPID"


async def test_a_pod_with_fields_we_cannot_honour_stays_pending_and_says_which(
    around: Neighbours,
) -> None:
    """workers.md, Y2; phase.md, PG6; events.md, EV62."""
    around.unsupported = ["spec.initContainers", "spec.hostPID"]
    around.network = "no CNI"
    for _ in range(3):
        assert await around.bring_up(make_pod(), look()) is False
    assert around.calls == []
    status = around.stored()
    assert (status.phase, status.reason, status.message) == ("Pending", "UnsupportedField", REFUSAL)
    assert around.waiting() == ("UnsupportedField", REFUSAL)
    assert around.events == [("Warning", "UnsupportedField", REFUSAL)]


async def test_another_refusal_is_said_again(around: Neighbours) -> None:
    """workers.md, Y2: once per message."""
    for fields in (["spec.a"], ["spec.a"], ["spec.b"], ["spec.a"]):
        around.unsupported = fields
        await around.bring_up(make_pod(), look())
    assert [message[-6:] for _, _, message in around.events] == ["spec.a", "spec.b", "spec.a"]


async def test_what_runs_is_not_touched_by_a_refusal(around: Neighbours) -> None:
    """workers.md, Y2."""
    await around.bring_up(make_pod(), UP)
    around.calls.clear()
    around.unsupported = ["spec.initContainers"]
    assert await around.bring_up(make_pod(), UP) is False
    status = around.stored()
    assert (status.phase, status.reason) == ("Running", "UnsupportedField")
    assert status.container_statuses[0].state.running is not None
    assert status.container_statuses[0].ready
    assert around.calls == []


async def test_a_refusal_that_no_longer_holds_leaves_nothing(around: Neighbours) -> None:
    """workers.md, Y3."""
    around.unsupported = ["spec.initContainers"]
    await around.bring_up(make_pod(), look())
    around.unsupported = []
    await around.bring_up(make_pod(), look())
    status = around.stored()
    assert (status.phase, status.reason, status.message) == ("Pending", "", "")
    assert around.waiting() == ("ContainerCreating", "")
    assert around.calls == ["mount", "sync web ['data']"]


async def test_reasons_of_others_stay(around: Neighbours) -> None:
    """phase.md, "Generated status": reason and message stay with their phase."""
    pod = make_pod(status=PodStatus(phase="Pending", reason="Theirs", message="text"))
    await around.bring_up(pod, look())
    assert (around.stored().reason, around.stored().message) == ("Theirs", "text")


async def test_what_a_container_waits_for_is_shown_while_it_waits(around: Neighbours) -> None:
    """phase.md, PS19."""
    around.notes["a"] = "pulling image since noon"
    around.sync.refresh(UID)
    assert around.statuses.get(UID) is None
    seen: list[tuple[str, str]] = []

    def during() -> None:
        around.sync.refresh(UID)
        seen.append(around.waiting())
        around.notes.clear()
        around.sync.refresh(UID)
        seen.append(around.waiting())

    around.on_sync = during
    await around.bring_up(make_pod(), look())
    assert seen == [
        ("ContainerCreating", "pulling image since noon"),
        ("ContainerCreating", ""),
    ]


async def test_a_missing_network_holds_the_pod_back(around: Neighbours) -> None:
    """workers.md, Y4; events.md, EV59."""
    around.network = "container runtime network not ready: <nil>"
    with pytest.raises(NetworkNotReadyError, match="network is not ready: container runtime"):
        await around.bring_up(make_pod(), look())
    text = "network is not ready: container runtime network not ready: <nil>"
    assert around.events == [("Warning", "NetworkNotReady", text)]
    assert around.calls == []
    assert around.stored().phase == "Pending"
    assert around.waiting() == ("ContainerCreating", text)


async def test_mp1_a_sync_that_gets_to_the_volumes_or_refuses_the_pod_wants_its_mirror(
    around: Neighbours,
) -> None:
    around.network = "no CNI"
    with pytest.raises(NetworkNotReadyError):
        await around.bring_up(make_pod(), look())
    assert around.mirrored == []
    around.network = ""
    around.mount_error = SyncError("no disk", reason="FailedMount")
    with pytest.raises(SyncError):
        await around.bring_up(make_pod(), look())
    assert around.mirrored == [UID]
    around.unsupported = ["spec.hostPID"]
    await around.bring_up(make_pod(), look())
    assert around.mirrored == [UID, UID]


async def test_on_the_host_network_it_does_not_matter(around: Neighbours) -> None:
    """workers.md, Y4."""
    around.network = "no CNI"
    assert await around.bring_up(make_pod(host_network=True), look()) is False
    assert around.calls == ["mount", "sync web ['data']"]
    assert around.events == []


async def test_a_volume_that_fails_is_an_event_and_an_error(around: Neighbours) -> None:
    """workers.md, Y5; phase.md, PS20; events.md, EV60."""
    around.mount_error = SyncError("data: no such directory", reason="FailedMount")
    with pytest.raises(SyncError, match="no such directory"):
        await around.bring_up(make_pod(), look())
    text = "Unable to attach or mount volumes: data: no such directory"
    assert around.events == [("Warning", "FailedMount", text)]
    assert around.calls == ["mount"]
    assert around.stored().phase == "Pending"
    assert around.waiting() == ("ContainerCreating", text)
    around.mount_error = None
    await around.bring_up(make_pod(), look())
    await around.bring_up(make_pod(), look())
    assert around.waiting() == ("ContainerCreating", "")


async def test_why_a_container_waits_is_shown_at_once(around: Neighbours) -> None:
    """workers.md, Y6: with the sync that found it."""

    def crash() -> None:
        around.start_errors["a"] = BACK_OFF
        around.result = PodSyncResult({"a": BACK_OFF})

    around.on_sync = crash
    with pytest.raises(BackOffError) as caught:
        await around.bring_up(make_pod(), CRASHED)
    assert (caught.value.until, caught.value.reason) == (42.0, "CrashLoopBackOff")
    assert around.waiting() == (BACK_OFF.reason, BACK_OFF.message)
    last = around.stored().container_statuses[0].last_state.terminated
    assert last is not None
    assert last.exit_code == 1
    assert around.stored().phase == "Running"


async def test_an_image_that_cannot_be_pulled_is_an_error_of_the_sync(around: Neighbours) -> None:
    """workers.md, Y6: outcome O9."""
    failed = ContainerError("ErrImagePull", "not found")
    around.start_errors["a"] = failed
    around.result = PodSyncResult({"a": failed}, did_something=True)
    with pytest.raises(SyncError, match="a: ErrImagePull: not found") as caught:
        await around.bring_up(make_pod(), look())
    assert not isinstance(caught.value, BackOffError)
    assert around.waiting() == ("ErrImagePull", "not found")


async def test_one_back_off_among_errors_gives_the_time_of_the_next_try(
    around: Neighbours,
) -> None:
    """workers.md, Y6: outcome O7 if any waits for a back-off."""
    later = replace_data(BACK_OFF, until=99.0)
    failed = ContainerError("ErrImagePull", "not found")
    around.result = PodSyncResult({"x": failed, "a": later, "b": BACK_OFF})
    with pytest.raises(BackOffError) as caught:
        await around.bring_up(make_pod("a", "b", "x"), look())
    assert (caught.value.until, caught.value.only) == (42.0, False)


async def test_a_sandbox_that_fails_is_an_error_of_the_sync(around: Neighbours) -> None:
    """workers.md, Y6."""
    error = SyncError("no sandbox", reason="CreatePodSandboxError")
    around.result = PodSyncResult({"a": BACK_OFF}, sandbox_error=error)
    with pytest.raises(SyncError) as caught:
        await around.bring_up(make_pod(), look())
    assert caught.value is error


async def test_a_refusal_is_not_shown_again_by_a_later_start_error(around: Neighbours) -> None:
    """workers.md, Y3."""
    around.unsupported = ["spec.initContainers"]
    await around.bring_up(make_pod(), look())
    around.unsupported = []
    around.start_errors["a"] = BACK_OFF
    around.result = PodSyncResult({"a": BACK_OFF})
    with pytest.raises(BackOffError):
        await around.bring_up(make_pod(), look())
    assert around.stored().reason == ""
    assert around.waiting()[0] == "CrashLoopBackOff"


# -- SyncTerminatingPod ------------------------------------------------------------------------


async def test_stopping_kills_looks_and_stores_the_final_status(around: Neighbours) -> None:
    """workers.md, Y7, Y8, Y9, Y11."""
    pod = make_pod(source="api")
    await around.bring_up(pod, UP)
    around.calls.clear()
    around.after = look(record("a", Seen.EXITED, code=143))
    await around.sync.sync_terminating_pod(pod, UP, 7, None)
    assert around.calls == ["kill web 7", f"inspect {UID}"]
    status = around.stored()
    assert status.phase == "Failed"
    assert status.container_statuses[0].state.terminated is not None
    assert [p.ip for p in status.pod_ips] == ["10.0.0.1"]
    assert around.events == []
    assert around.phases() == ["PhaseRunning", "PhaseFailed"]


async def test_without_an_override_each_container_has_its_own_grace(around: Neighbours) -> None:
    """workers.md, C2."""
    await around.sync.sync_terminating_pod(make_pod(), look(), None, None)
    assert around.calls[0] == "kill web None"


async def test_a_pod_that_cannot_be_brought_up_can_still_be_stopped(around: Neighbours) -> None:
    """workers.md, Y8, whatever holds up its start."""
    around.unsupported = ["spec.initContainers"]
    around.network = "no CNI"
    around.mount_error = SyncError("x")
    await around.sync.sync_terminating_pod(make_pod(), UP, None, None)
    assert around.calls == ["kill web None", f"inspect {UID}"]


async def test_a_registered_status_change_is_stored_before_the_kill_and_stays(
    around: Neighbours,
) -> None:
    """workers.md, Y7."""
    around.kill_error = SyncError("stuck")

    def evict(status: PodStatus) -> PodStatus:
        return replace(status, phase="Failed", reason="Evicted", message="no memory")

    with pytest.raises(SyncError):
        await around.sync.sync_terminating_pod(make_pod(), UP, 1, evict)
    assert (around.stored().phase, around.stored().reason) == ("Failed", "Evicted")
    around.kill_error = None
    await around.sync.sync_terminating_pod(make_pod(), UP, 1, None)
    found = around.stored()
    assert (found.phase, found.reason, found.message) == ("Failed", "Evicted", "no memory")


async def test_a_kill_that_fails_is_an_event_and_an_error(around: Neighbours) -> None:
    """workers.md, Y8; events.md, EV57."""
    around.kill_error = SyncError("a: context deadline exceeded", reason="KillContainerError")
    with pytest.raises(SyncError) as caught:
        await around.sync.sync_terminating_pod(make_pod(), UP, None, None)
    assert caught.value is around.kill_error
    text = "error killing pod: a: context deadline exceeded"
    assert around.events == [("Warning", "FailedKillPod", text)]
    assert around.calls == ["kill web None"]
    assert around.stored().phase == "Running"


async def test_a_container_that_runs_after_the_kill_is_an_error(around: Neighbours) -> None:
    """workers.md, Y10."""
    around.after = look(
        record("b", id_="2"), record("a", id_="1"), record("c", Seen.EXITED, id_="3")
    )
    with pytest.raises(SyncError, match="after they were stopped: a, b") as caught:
        await around.sync.sync_terminating_pod(make_pod("a", "b", "c"), UP, None, None)
    assert caught.value.reason == "FailedKillPod"
    # No final status: the pod has not ended.
    assert around.stored().phase not in ("Failed", "Succeeded")


async def test_a_look_that_fails_is_an_error(around: Neighbours) -> None:
    """workers.md, Y9."""
    around.after = ConnectionError("runtime is away")
    with pytest.raises(ConnectionError):
        await around.sync.sync_terminating_pod(make_pod(source="api"), UP, None, None)
    assert around.stored().phase == "Running"


async def test_a_pod_the_runtime_does_not_know_runs_nothing(around: Neighbours) -> None:
    """workers.md, Y9."""
    around.after = look()
    pod = make_pod(source="api", policy="Never")
    await around.bring_up(pod, UP)
    await around.sync.sync_terminating_pod(pod, look(), None, None)
    assert around.stored().phase == "Failed"


async def test_a_static_pod_that_was_stopped_may_run_again(around: Neighbours) -> None:
    """phase.md, PH5: a static pod is never final."""
    around.after = look(record("a", Seen.EXITED, code=143))
    await around.sync.sync_terminating_pod(make_pod(), UP, None, None)
    assert around.stored().phase == "Running"


# -- SyncTerminatingRuntimePod and SyncTerminatedPod -------------------------------------------


async def test_what_only_the_runtime_knows_is_stopped_within_a_second(around: Neighbours) -> None:
    """workers.md, Y12."""
    await around.sync.sync_terminating_runtime_pod(RuntimePod(UID, "web", "default"), UP)
    assert around.calls == ["kill runtime-only web 1"]
    assert around.statuses.get(UID) is None
    around.kill_error = SyncError("stuck")
    with pytest.raises(SyncError, match="stuck"):
        await around.sync.sync_terminating_runtime_pod(RuntimePod(UID, "web", "default"), UP)


async def test_the_end_releases_volumes_and_closes_the_status(around: Neighbours) -> None:
    """workers.md, Y13, Y14."""
    pod = make_pod("a", "b", source="api")
    over = look(record("a", Seen.EXITED, code=0))
    await around.sync.sync_terminated_pod(pod, over)
    assert around.calls == [f"unmount {UID}"]
    status = around.stored()
    assert status.phase == "Failed"
    a, b = status.container_statuses
    assert (a.state.terminated, b.state.terminated) != (None, None)
    assert b.state.terminated is not None
    assert b.state.terminated.reason == "ContainerStatusUnknown"
    assert [r.what for r in around.journal.select(UID)][-1] == "PodTerminated"


async def test_a_volume_that_stays_keeps_the_pod_from_its_end(around: Neighbours) -> None:
    """workers.md, Y13: the call fails, and it is made again."""
    around.unmount_error = SyncError("data: device or resource busy")
    pod = make_pod(source="api", policy="Never")
    with pytest.raises(SyncError, match="busy"):
        await around.sync.sync_terminated_pod(pod, look())
    assert around.stored().phase == "Pending"
    assert "PodTerminated" not in [r.what for r in around.journal.select(UID)]
    around.unmount_error = None
    await around.sync.sync_terminated_pod(pod, look())
    assert around.stored().phase == "Failed"


async def test_addresses_stay_to_the_end(around: Neighbours) -> None:
    """workers.md, Y11."""
    await around.bring_up(make_pod(), UP)
    await around.sync.sync_terminating_pod(make_pod(), UP, None, None)
    await around.sync.sync_terminated_pod(make_pod(), look())
    assert around.stored().pod_ips == (PodIP(ip="10.0.0.1"),)


async def test_the_status_starts_from_what_the_api_says(around: Neighbours) -> None:
    """phase.md, "Container statuses": after an agent restart counts and last states go on."""
    known = replace(container_status("a", running(), last=ended(9)), restart_count=4)
    pod = make_pod(status=PodStatus(phase="Running", container_statuses=(known,)))
    await around.bring_up(pod, UP)
    (found,) = around.stored().container_statuses
    assert found.restart_count == 4
    assert found.last_state == ended(9)
