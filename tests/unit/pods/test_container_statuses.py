"""docs/behaviour/phase.md, "Container statuses"."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from nodeagent.api import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStatus,
    ContainerUser,
    EphemeralContainer,
    LinuxContainerUser,
    ObjectMeta,
    Pod,
    PodSpec,
    Quantity,
    ResourceRequirements,
    VolumeMount,
    VolumeMountStatus,
)
from nodeagent.model import (
    ContainerError,
    ContainerID,
    ContainerRuntimeStatus,
    PodRuntimeStatus,
    PodUID,
)
from nodeagent.model import ContainerState as Seen
from nodeagent.pods.container_statuses import StatusContext, compute_container_statuses

NOTHING = StatusContext("containerd", lambda _name: None)
SECOND = 1_000_000_000


def pod(policy: str = "Always", *, init: bool = False) -> Pod:
    return Pod(
        metadata=ObjectMeta(name="p", namespace="d", uid="u"),
        spec=PodSpec(
            restart_policy=policy,
            containers=(Container(name="b", image="img"), Container(name="a", image="img")),
            init_containers=(Container(name="i", image="img"),) if init else (),
        ),
    )


def record(
    state: Seen, name: str = "a", id_: str = "1", count: int = 0, code: int = 0, reason: str = ""
) -> ContainerRuntimeStatus:
    return ContainerRuntimeStatus(
        id=ContainerID(id_),
        name=name,
        state=state,
        restart_count=count,
        attempt=count,
        started_at=5 * SECOND,
        finished_at=9 * SECOND if state is Seen.EXITED else 0,
        exit_code=code,
        reason=reason,
        image="img:resolved",
        image_ref="sha256:abc",
    )


def compute(
    p: Pod,
    *records: ContainerRuntimeStatus,
    old: ContainerStatus | None = None,
    context: StatusContext = NOTHING,
    name: str = "a",
) -> ContainerStatus:
    runtime = PodRuntimeStatus(PodUID("u"), containers=records)
    before = (old,) if old else ()
    found = compute_container_statuses(p, runtime, p.spec.containers, before, context)
    return next(s for s in found if s.name == name)


def running_before(count: int = 0) -> ContainerStatus:
    state = ContainerState(running=ContainerStateRunning())
    return ContainerStatus(
        name="a", state=state, container_id="containerd://1", restart_count=count
    )


def ended_before(code: int = 1, count: int = 0) -> ContainerStatus:
    end = ContainerStateTerminated(exit_code=code, reason="Error")
    return ContainerStatus(
        name="a",
        state=ContainerState(terminated=end),
        container_id="containerd://1",
        restart_count=count,
    )


def test_regular_containers_stand_by_name() -> None:
    """phase.md, PS15."""
    found = compute_container_statuses(
        pod(), PodRuntimeStatus(PodUID("u")), pod().spec.containers, (), NOTHING
    )
    assert [s.name for s in found] == ["a", "b"]


def test_a_container_shows_what_it_was_given() -> None:
    """phase.md, PS21."""
    amounts = {"cpu": Quantity("1")}
    given = ResourceRequirements(requests=amounts, limits={"memory": Quantity("1Gi")})
    mounts = (
        VolumeMount(name="v", mount_path="/v"),
        VolumeMount(name="w", mount_path="/w", read_only=True),
        VolumeMount(name="x", mount_path="x", read_only=True, recursive_read_only="IfPossible"),
    )
    user = ContainerUser(linux=LinuxContainerUser(uid=1, gid=2, supplemental_groups=(2, 3)))
    (_, a) = pod().spec.containers
    spec = PodSpec(containers=(replace(a, resources=given, volume_mounts=mounts),))
    wanted = replace(pod(), spec=spec)
    seen = dataclasses.replace(record(Seen.RUNNING), user=user, recursive_read_only=("/x",))
    shown = compute(wanted, seen)
    assert (shown.resources, shown.allocated_resources, shown.user) == (given, amounts, user)
    assert shown.volume_mounts == (
        VolumeMountStatus(name="v", mount_path="/v"),
        VolumeMountStatus(
            name="w", mount_path="/w", read_only=True, recursive_read_only="Disabled"
        ),
        VolumeMountStatus(name="x", mount_path="x", read_only=True, recursive_read_only="Enabled"),
    )
    nothing = compute(wanted)
    assert (nothing.resources, nothing.volume_mounts, nothing.user) == (None, (), None)


@pytest.mark.parametrize("old", [running_before(2), ended_before(42, 2)])
def test_what_is_removed_for_a_restart_of_all_waits_for_it(old: ContainerStatus) -> None:
    """phase.md, PS17."""
    context = StatusContext("containerd", lambda _name: None, restarting_all=True)
    found = compute(pod("Never"), old=old, context=context)
    assert found.state.waiting is not None
    assert found.state.waiting.reason == "RestartingAllContainers"
    end = found.last_state.terminated
    assert end is not None
    assert (end.exit_code, end.reason) == (137, "RestartingAllContainers")
    assert found.restart_count == 3
    again = compute(pod("Never"), old=found, context=context)
    assert (again.restart_count, again.last_state) == (3, found.last_state)


@pytest.mark.parametrize("state", [Seen.RUNNING, Seen.EXITED])
def test_an_ephemeral_container_is_never_ready_and_never_waits_for_a_restart(state: Seen) -> None:
    """phase.md, PS16."""
    debug = EphemeralContainer(name="a", image="img")
    context = StatusContext("containerd", lambda _name: ContainerError("CrashLoopBackOff", "x"))
    runtime = PodRuntimeStatus(PodUID("u"), containers=(record(state, code=1),))
    (found,) = compute_container_statuses(pod(), runtime, (debug,), (), context)
    assert found.state.waiting is None
    assert (found.ready, found.started) == (False, None)


@pytest.mark.parametrize(
    ("init", "reason"), [(False, "ContainerCreating"), (True, "PodInitializing")]
)
def test_nothing_known_is_waiting(init: bool, reason: str) -> None:
    """phase.md, PS1."""
    found = compute(pod(init=init))
    assert found.state.waiting is not None
    assert found.state.waiting.reason == reason
    assert not found.ready


def test_running_is_ready_and_started_and_dated() -> None:
    """phase.md, PS7."""
    found = compute(pod(), record(Seen.RUNNING))
    assert found.state.running is not None
    assert found.state.running.started_at == datetime.fromtimestamp(5, UTC)
    assert (found.ready, found.started) == (True, True)
    assert (found.container_id, found.image_id) == ("containerd://1", "sha256:abc")


def test_exited_is_terminated_with_the_runtimes_words() -> None:
    """phase.md, PS8."""
    found = compute(pod("Never"), record(Seen.EXITED, code=137, reason="OOMKilled"))
    end = found.state.terminated
    assert end is not None
    assert (end.exit_code, end.reason, end.container_id) == (137, "OOMKilled", "containerd://1")


def test_what_never_started_shows_the_beginning_of_time_not_the_year_1() -> None:
    """phase.md, PS8."""
    never = dataclasses.replace(record(Seen.EXITED, code=128, reason="StartError"), started_at=0)
    found = compute(pod("Never"), never)
    end = found.state.terminated
    assert end is not None
    assert end.started_at == datetime(1970, 1, 1, tzinfo=UTC)


def test_created_is_waiting_without_a_reason() -> None:
    """phase.md, PS6."""
    found = compute(pod(), record(Seen.CREATED))
    assert found.state.waiting is not None
    assert found.state.waiting.reason == ""


def test_an_older_exited_record_is_the_last_state() -> None:
    """phase.md, PS11."""
    found = compute(
        pod(), record(Seen.RUNNING, id_="2", count=1), record(Seen.EXITED, id_="1", code=3)
    )
    assert found.restart_count == 1
    assert found.last_state.terminated is not None
    assert found.last_state.terminated.exit_code == 3


def test_a_vanished_container_that_may_run_again_waits_with_one_more_restart() -> None:
    """phase.md, PS3."""
    found = compute(pod(), old=running_before(count=4))
    assert found.state.waiting is not None
    assert found.last_state.terminated is not None
    assert found.last_state.terminated.exit_code == 137
    assert found.last_state.terminated.reason == "ContainerStatusUnknown"
    assert "deleted.  The" in found.last_state.terminated.message
    assert found.restart_count == 5


def test_a_vanished_container_of_a_deleted_pod_was_not_restarted() -> None:
    """phase.md, PS3."""
    gone = replace(pod(), metadata=replace(pod().metadata, deletion_timestamp=datetime.now(UTC)))
    assert compute(gone, old=running_before(count=4)).restart_count == 4


def test_a_vanished_container_that_may_not_run_again_has_ended() -> None:
    """phase.md, PS4."""
    found = compute(pod("Never"), old=running_before())
    assert found.state.terminated is not None
    assert found.state.terminated.exit_code == 137
    assert found.restart_count == 0


def test_a_container_that_ran_once_and_has_no_record_has_ended() -> None:
    """phase.md, PS4."""
    context = StatusContext("containerd", lambda _name: None, {"a": "gone"})
    found = compute(pod("Never"), context=context)
    assert found.state.terminated is not None
    assert found.state.terminated.container_id == "containerd://gone"
    assert compute(pod("Never"), context=context, name="b").state.waiting is not None


def test_an_ended_container_without_record_stays_as_it_was() -> None:
    """phase.md, PS2."""
    old = ended_before(code=9)
    assert compute(pod("Never"), old=old).state == old.state


def test_unknown_after_running_is_terminated_once() -> None:
    """phase.md, PS9."""
    found = compute(pod("Never"), record(Seen.UNKNOWN), old=running_before(count=2))
    assert found.state.terminated is not None
    assert found.state.terminated.message.endswith("when the pod was terminated")
    assert found.restart_count == 3


def test_unknown_from_the_start_is_waiting() -> None:
    """phase.md, PS10."""
    assert compute(pod("Never"), record(Seen.UNKNOWN)).state.waiting is not None


def test_a_new_id_after_an_end_keeps_the_end_as_last_state() -> None:
    """phase.md, PS12."""
    old = ended_before(code=7)
    found = compute(pod(), record(Seen.RUNNING, id_="2", count=1), old=old)
    assert found.last_state == old.state
    assert found.restart_count == 1


def test_the_restart_count_never_drops() -> None:
    """phase.md, PS14."""
    old = ended_before(count=5)
    found = compute(pod(), record(Seen.RUNNING, id_="2", count=0), old=old)
    assert found.restart_count == 6
    assert compute(pod(), record(Seen.RUNNING), old=running_before(count=5)).restart_count == 5


def test_a_start_error_shows_as_waiting_and_the_end_as_last_state() -> None:
    """phase.md, PS13."""
    error = ContainerError("CrashLoopBackOff", "back-off 10s")
    context = StatusContext("containerd", lambda name: error if name == "a" else None)
    found = compute(pod(), record(Seen.EXITED, code=1), context=context)
    assert found.state.waiting is not None
    assert (found.state.waiting.reason, found.state.waiting.message) == (
        "CrashLoopBackOff",
        "back-off 10s",
    )
    assert found.last_state.terminated is not None
    assert found.last_state.terminated.exit_code == 1
    assert compute(pod(), record(Seen.EXITED, name="b"), context=context, name="b").state.terminated


def test_a_start_error_does_not_hide_a_container_that_runs_or_is_done() -> None:
    """phase.md, PS13."""
    error = ContainerError("ErrImagePull", "no such image")
    context = StatusContext("containerd", lambda _name: error)
    assert compute(pod(), record(Seen.RUNNING), context=context).state.running
    assert compute(pod("Never"), record(Seen.EXITED), context=context).state.terminated


def test_what_a_container_waits_for_stands_in_its_message_unless_it_runs() -> None:
    """phase.md, PS19."""
    error = ContainerError("ErrImagePull", "no such image")
    waits = StatusContext("containerd", lambda _name: None, note=lambda _name: "pulling")
    found = compute(pod(), context=waits)
    assert found.state.waiting is not None
    assert (found.state.waiting.reason, found.state.waiting.message) == (
        "ContainerCreating",
        "pulling",
    )
    assert compute(pod(), record(Seen.RUNNING), context=waits).state.running
    stopped = compute(pod(), record(Seen.EXITED), context=waits)
    assert stopped.state.waiting is not None
    assert stopped.state.waiting.message == "pulling"
    assert stopped.last_state.terminated is not None
    quiet = StatusContext("containerd", lambda _name: None)
    assert compute(pod(), record(Seen.EXITED), context=quiet).state.terminated
    failed = StatusContext("containerd", lambda _name: error, note=lambda _name: "pulling")
    state = compute(pod(), context=failed).state.waiting
    assert state is not None
    assert state.message == "no such image"


def test_an_init_container_without_record_is_done_when_a_regular_one_exists() -> None:
    """phase.md, PS5."""
    p = pod(init=True)
    runtime = PodRuntimeStatus(PodUID("u"), containers=(record(Seen.RUNNING),))
    (found,) = compute_container_statuses(
        p, runtime, p.spec.init_containers, (), NOTHING, init=True
    )
    assert found.state.terminated is not None
    assert (found.state.terminated.exit_code, found.state.terminated.reason) == (0, "Completed")
    assert found.ready
