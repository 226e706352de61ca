"""Nothing is made twice (docs/behaviour/runtime.md, "At most once")."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.unit.runtime.fakes import (
    CREATED,
    EXITED,
    NOT_READY,
    READY,
    RUNNING,
    UID,
    FakeRuntime,
    make_container,
    make_pod,
    make_settings,
)

from nodeagent.model import PodRuntimeStatus
from nodeagent.rpc import DeadlineExceeded, Internal, RpcError, Unavailable, Unknown
from nodeagent.runtime import RuntimeManager

pytestmark = pytest.mark.anyio

CUT = [DeadlineExceeded("no answer"), Unavailable("connection lost")]


@pytest.mark.parametrize("error", CUT)
async def test_a_sandbox_made_by_a_call_that_was_cut_is_adopted(
    runtime: FakeRuntime, manager: RuntimeManager, error: RpcError
) -> None:
    runtime.fail_late("run_pod_sandbox", error)
    stale = await runtime.status()
    assert (await manager.sync_pod(make_pod(), stale, {})).sandbox_error is not None
    result = await manager.sync_pod(make_pod(), stale, {})
    assert result.started == ("web",)
    assert list(runtime.sandboxes) == ["s1"]


@pytest.mark.parametrize("error", CUT)
async def test_a_container_made_by_a_call_that_was_cut_is_adopted(
    runtime: FakeRuntime, manager: RuntimeManager, error: RpcError
) -> None:
    runtime.fail_late("create_container", error)
    assert (await manager.sync_pod(make_pod(), await runtime.status(), {})).errors
    (made,) = runtime.containers
    result = await manager.sync_pod(make_pod(), await runtime.status(), {})
    assert result.started == ("web",)
    assert list(runtime.containers) == [made]
    assert runtime.containers[made].state is RUNNING


async def test_a_container_that_the_status_does_not_show_yet_is_adopted(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    runtime.fail_late("create_container", DeadlineExceeded("no answer"))
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    status = await runtime.status()
    stale = PodRuntimeStatus(UID, "web", "default", status.ips, status.sandboxes)
    assert (await manager.sync_pod(make_pod(), stale, {})).started == ("web",)
    assert runtime.attempts("web") == [0]


@pytest.mark.parametrize("state", [RUNNING, EXITED])
async def test_a_container_that_started_by_a_call_that_was_cut_is_not_started_again(
    runtime: FakeRuntime, manager: RuntimeManager, state: object
) -> None:
    runtime.fail_late("create_container", DeadlineExceeded("no answer"))
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    runtime.newest("web").state = RUNNING
    if state is EXITED:
        runtime.exit("web")
    status = await runtime.status()
    stale = PodRuntimeStatus(UID, "web", "default", status.ips, status.sandboxes)
    assert (await manager.sync_pod(make_pod(), stale, {})).errors == {}
    assert runtime.attempts("web") == [0]
    assert runtime.calls["start_container"] == 0


async def test_a_cancelled_creation_is_looked_for(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    runtime.exit("web", 1)
    stale = await runtime.status()
    with anyio.move_on_after(1):
        runtime.hang("start_container")
        await manager.sync_pod(make_pod(), stale, {})
    runtime.unhang()
    assert runtime.newest("web").state is CREATED
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    assert runtime.attempts("web") == [0, 1]
    assert runtime.newest("web").state is RUNNING


async def test_a_restarted_agent_looks_before_it_creates(
    runtime: FakeRuntime, manager: RuntimeManager, tmp_path: Path
) -> None:
    empty = await runtime.status()
    await manager.sync_pod(make_pod(), empty, {})
    heir = RuntimeManager(runtime, runtime, make_settings(tmp_path))
    result = await heir.sync_pod(make_pod(), empty, {})
    assert result.error() is None
    assert list(runtime.sandboxes) == ["s1"]
    assert list(runtime.containers) == ["c2"]


async def test_nothing_is_looked_for_in_the_first_sandbox_of_a_pod(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    assert runtime.calls["list_pod_sandbox"] == 1
    assert runtime.calls["list_containers"] == 0


async def test_a_container_in_a_first_sandbox_is_looked_for_once_its_creation_was_cut(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    runtime.fail_late("create_container", Unknown('name "web_default" is reserved for "c2"'))
    assert (await manager.sync_pod(make_pod(), await runtime.status(), {})).started == ("web",)
    assert runtime.calls["list_containers"] == 1
    assert runtime.attempts("web") == [0]


async def test_a_created_container_is_started_rather_than_made_again(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    runtime.newest("web").state = CREATED
    assert (await manager.sync_pod(make_pod(), await runtime.status(), {})).started == ("web",)
    assert runtime.attempts("web") == [0]


async def test_a_created_container_that_refused_to_start_is_not_tried_again(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    runtime.fail("start_container", Unknown("no such file"))
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    assert (await manager.sync_pod(make_pod(), await runtime.status(), {})).started == ("web",)
    assert runtime.attempts("web") == [0, 1]


async def test_a_created_container_of_another_definition_is_not_adopted(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    runtime.add_image("example.test/web:v2")
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    runtime.newest("web").state = CREATED
    changed = make_pod(make_container(image="example.test/web:v2"))
    await manager.sync_pod(changed, await runtime.status(), {})
    assert runtime.attempts("web") == [0, 1]
    assert runtime.newest("web").state is RUNNING


@pytest.mark.parametrize(
    "error", [Unknown('name "web_0" is reserved for "abc"'), Internal("name is reserved")]
)
async def test_reserved_names_raise_the_attempt(
    runtime: FakeRuntime, manager: RuntimeManager, error: RpcError
) -> None:
    runtime.fail("run_pod_sandbox", error)
    runtime.fail("create_container", error)
    result = await manager.sync_pod(make_pod(), await runtime.status(), {})
    assert result.started == ("web",)
    assert runtime.attempts("web") == [1]
    (sandbox,) = runtime.sandboxes.values()
    assert sandbox.config.metadata is not None
    assert sandbox.config.metadata.attempt == 1


async def test_names_that_stay_reserved_fail_the_sync(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    runtime.fail("run_pod_sandbox", Unknown("is reserved"), times=3)
    result = await manager.sync_pod(make_pod(), await runtime.status(), {})
    assert result.sandbox_error is not None
    assert (await manager.sync_pod(make_pod(), await runtime.status(), {})).started == ("web",)


async def test_a_sandbox_that_appears_too_late_is_stopped_and_the_pod_goes_on(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    runtime.fail("run_pod_sandbox", Unknown("is reserved"))
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    (used,) = runtime.sandboxes
    late = runtime.copy_sandbox(used, "late", attempt=0)
    result = await manager.sync_pod(make_pod(), await runtime.status(), {})
    assert result.did_something
    assert late.state is NOT_READY
    assert runtime.sandboxes[used].state is READY
    assert runtime.newest("web").state is RUNNING
    assert runtime.attempts("web") == [0]


async def test_a_container_that_appears_too_late_is_removed_and_the_pod_goes_on(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    runtime.copy_container("c2", "late", "s1", attempt=1)
    runtime.containers["late"].state = CREATED
    result = await manager.sync_pod(make_pod(), await runtime.status(), {})
    assert result.did_something
    assert list(runtime.containers) == ["c2"]
    assert runtime.newest("web").state is RUNNING


async def test_two_sandboxes_in_use_are_both_replaced(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    (used,) = runtime.sandboxes
    runtime.copy_sandbox(used, "second", attempt=1)
    runtime.copy_container("c2", "c-second", "second", attempt=1)
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    states = [s.state for s in runtime.sandboxes.values()]
    assert states == [NOT_READY, NOT_READY, READY]
    assert runtime.newest("web").state is RUNNING


async def test_a_container_that_may_run_once_does_so_although_its_record_vanishes(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    pod = make_pod(make_container(), make_container("other"), restart_policy="Never")
    await manager.sync_pod(pod, await runtime.status(), {})
    del runtime.containers[runtime.newest("web").id]
    result = await manager.sync_pod(pod, await runtime.status(), {})
    assert not result.did_something
    assert runtime.attempts("web") == []


async def test_an_unanswered_start_of_a_container_that_may_run_once_counts(
    runtime: FakeRuntime, manager: RuntimeManager
) -> None:
    pod = make_pod(make_container(), make_container("other"), restart_policy="Never")
    runtime.fail("start_container", DeadlineExceeded("no answer"))
    await manager.sync_pod(pod, await runtime.status(), {})
    del runtime.containers[runtime.newest("web").id]
    await manager.sync_pod(pod, await runtime.status(), {})
    assert runtime.attempts("web") == []


@pytest.mark.parametrize(
    "text",
    [
        'failed to set starting state for container "c1": container is already in starting state',
        'failed to start container "c1": container is in starting state',
    ],
    ids=["containerd", "embedded"],
)
async def test_a_start_that_a_killed_agent_began_is_waited_for(
    runtime: FakeRuntime, manager: RuntimeManager, text: str
) -> None:
    runtime.fail("create_container", DeadlineExceeded("no answer"))
    await manager.sync_pod(make_pod(), await runtime.status(), {})
    runtime.fail("start_container", Unknown(text))
    assert (await manager.sync_pod(make_pod(), await runtime.status(), {})).errors
    (made,) = runtime.containers
    result = await manager.sync_pod(make_pod(), await runtime.status(), {})
    assert result.started == ("web",)
    assert list(runtime.containers) == [made]


async def test_what_ran_once_is_learnt_again_from_the_runtime(
    runtime: FakeRuntime, manager: RuntimeManager, tmp_path: Path
) -> None:
    """The note is lost, and later the runtime's own record is, too."""
    pod = make_pod(restart_policy="Never")
    await manager.sync_pod(pod, await runtime.status(), {})
    heir = RuntimeManager(runtime, runtime, make_settings(tmp_path))
    await heir.sync_pod(pod, await runtime.status(), {})
    assert heir.ran_once(UID) == {"web": runtime.newest("web").id}
    runtime.containers.clear()
    assert (await heir.sync_pod(pod, await runtime.status(), {})).started == ()
    assert runtime.containers == {}
