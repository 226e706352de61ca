"""Stopping containers and pods (docs/behaviour/runtime.md, "Stopping", "Grace")."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import anyio
import msgspec
import pytest
from tests.unit.runtime.fakes import (
    EXITED,
    NOT_READY,
    RUNNING,
    EventLog,
    FakeRuntime,
    make_container,
    make_pod,
)

from nodeagent.api import Pod, Probe
from nodeagent.model import PodRuntimeStatus, SyncError
from nodeagent.model.actions import KillReason
from nodeagent.rpc import DeadlineExceeded, Internal, NotFound, Unavailable
from nodeagent.runtime import RuntimeManager
from nodeagent.runtime.grace import container_grace, stop_timeout

pytestmark = pytest.mark.anyio

TWO = (make_container("a"), make_container("b"))


async def start(
    runtime: FakeRuntime, manager: RuntimeManager, pod: Pod | None = None
) -> PodRuntimeStatus:
    pod = pod or make_pod(*TWO)
    assert (await manager.sync_pod(pod, await runtime.status(), {})).error() is None
    return await runtime.status()


async def test_all_containers_stop_side_by_side_then_the_sandbox(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    status = await start(runtime, manager)
    runtime.stop_seconds = {"a": 20.0, "b": 25.0}
    began = anyio.current_time()
    await manager.kill_pod(make_pod(*TWO), status, None)
    assert 25 <= anyio.current_time() - began < 26
    assert {runtime.newest(n).state for n in "ab"} == {EXITED}
    assert runtime.sandboxes["s1"].state is NOT_READY
    assert runtime.order[-1] == "stop_pod_sandbox"
    messages = {e.message for e in events.events if e.reason == "Killing"}
    assert messages == {"Stopping container a", "Stopping container b"}


@pytest.mark.parametrize(("override", "seconds"), [(None, 30), (7, 7), (1, 2), (0, 2), (300, 300)])
async def test_an_override_replaces_the_grace(
    runtime: FakeRuntime, manager: RuntimeManager, override: int | None, seconds: int
) -> None:
    status = await start(runtime, manager)
    await manager.kill_pod(make_pod(*TWO), status, override)
    assert runtime.newest("a").stop_timeout == seconds


async def test_a_pod_without_a_spec_is_stopped_by_what_its_containers_carry(
    runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
) -> None:
    status = await start(runtime, manager, make_pod(*TWO, termination_grace_period_seconds=11))
    events.events.clear()
    await manager.kill_pod(None, status, None)
    assert runtime.newest("a").stop_timeout == 11
    assert events.events == []


async def test_what_is_gone_counts_as_stopped(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    status = await start(runtime, manager)
    runtime.fail("stop_container", NotFound("gone"))
    runtime.fail("stop_pod_sandbox", NotFound("gone"))
    await manager.kill_pod(make_pod(*TWO), status, None)


async def test_one_that_cannot_be_stopped_does_not_keep_the_rest_alive(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    status = await start(runtime, manager)
    runtime.fail("stop_container", Internal("stuck"))
    with pytest.raises(SyncError, match="container a: stuck") as caught:
        await manager.kill_pod(make_pod(*TWO), status, None)
    assert caught.value.reason == "KillContainerError"
    assert runtime.newest("b").state is EXITED
    assert runtime.sandboxes["s1"].state is NOT_READY


async def test_a_runtime_that_went_away_is_the_cause_whatever_else_failed(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    status = await start(runtime, manager)
    runtime.fail("stop_container", Internal("stuck"))
    runtime.fail("stop_pod_sandbox", Unavailable("gone"))
    with pytest.raises(SyncError, match="container a: stuck; sandbox s1: gone") as caught:
        await manager.kill_pod(make_pod(*TWO), status, None)
    assert isinstance(caught.value.__cause__, Unavailable)


async def test_a_sandbox_that_cannot_be_stopped_is_an_error(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    status = await start(runtime, manager)
    runtime.fail("stop_pod_sandbox", Internal("network"))
    with pytest.raises(SyncError, match="network") as caught:
        await manager.kill_pod(make_pod(*TWO), status, None)
    assert caught.value.reason == "KillPodSandboxError"


async def test_containers_that_do_not_run_are_left_alone(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    await start(runtime, manager)
    runtime.exit("a")
    await manager.kill_pod(make_pod(*TWO), await runtime.status(), None)
    assert runtime.newest("a").stop_timeout is None
    assert runtime.newest("b").stop_timeout == 30


async def test_what_a_cut_call_made_is_stopped_too(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    runtime.fail_late("create_container", DeadlineExceeded("no answer"))
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    stale = PodRuntimeStatus((await runtime.status()).uid)
    runtime.newest("web").state = RUNNING
    await manager.kill_pod(make_pod(), stale, None)
    assert runtime.newest("web").state is EXITED
    assert runtime.sandboxes["s1"].state is NOT_READY


async def test_a_stop_that_is_cut_short_can_be_repeated_with_less_grace(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    status = await start(runtime, manager)
    runtime.stop_seconds = {"a": 300.0}
    with anyio.move_on_after(5):
        await manager.kill_pod(make_pod(*TWO), status, 300)
    assert runtime.newest("a").state is RUNNING
    runtime.stop_seconds = {}
    await manager.kill_pod(make_pod(*TWO), await runtime.status(), 1)
    assert runtime.newest("a").state is EXITED
    assert runtime.newest("a").stop_timeout == 2


def probed(seconds: int | None) -> Any:
    return make_container(
        startup_probe=Probe(termination_grace_period_seconds=seconds),
        liveness_probe=Probe(termination_grace_period_seconds=seconds),
    )


def deleted(pod: Pod, grace: int) -> Pod:
    meta = msgspec.structs.replace(
        pod.metadata,
        deletion_timestamp=datetime.now(UTC),
        deletion_grace_period_seconds=grace,
    )
    return msgspec.structs.replace(pod, metadata=meta)


PLAIN = make_container()
LIVENESS, STARTUP = KillReason.LIVENESS_PROBE, KillReason.STARTUP_PROBE


@pytest.mark.parametrize(
    ("pod", "reason", "expected"),
    [
        (make_pod(PLAIN), KillReason.NONE, 30),
        (make_pod(PLAIN, termination_grace_period_seconds=0), KillReason.NONE, 0),
        (make_pod(PLAIN, termination_grace_period_seconds=None), KillReason.NONE, 2),
        (make_pod(probed(5)), KillReason.NONE, 30),
        (make_pod(probed(5)), LIVENESS, 5),
        (make_pod(probed(5)), STARTUP, 5),
        (make_pod(probed(None)), LIVENESS, 30),
        (make_pod(probed(5), termination_grace_period_seconds=None), LIVENESS, 2),
        (deleted(make_pod(probed(5)), 9), LIVENESS, 9),
        (deleted(make_pod(PLAIN), 0), KillReason.NONE, 0),
    ],
)
def test_the_grace_of_a_container(pod: Pod, reason: KillReason, expected: int) -> None:
    assert container_grace(pod, pod.spec.containers[0], {}, reason) == expected


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, 2),
        ({"io.kubernetes.pod.terminationGracePeriod": "12"}, 12),
        ({"io.kubernetes.pod.terminationGracePeriod": "x"}, 2),
        (
            {
                "io.kubernetes.pod.terminationGracePeriod": "12",
                "io.kubernetes.pod.deletionGracePeriod": "4",
            },
            4,
        ),
    ],
)
def test_the_grace_of_a_container_whose_spec_is_gone(
    annotations: dict[str, str], expected: int
) -> None:
    assert container_grace(None, None, annotations) == expected


@pytest.mark.parametrize(("grace", "seconds"), [(-1, 2), (0, 2), (2, 2), (30, 30)])
def test_every_container_gets_two_seconds(grace: int, seconds: int) -> None:
    assert stop_timeout(grace) == seconds
