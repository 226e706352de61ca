"""Who waits for whom when a pod stops (docs/behaviour/runtime.md, "Stop order")."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.runtime.fakes import EXITED, RUNNING, FakeRuntime, make_container, make_pod

from nodeagent.api import Container, Pod
from nodeagent.model import ContainerID, SyncError
from nodeagent.rpc import Internal
from nodeagent.runtime import RuntimeManager
from nodeagent.runtime.stop_order import stops_after


def sidecar(name: str) -> Container:
    return make_container(name, restart_policy="Always")


POD = make_pod(
    make_container("a"),
    make_container("b"),
    init_containers=(sidecar("s1"), make_container("init"), sidecar("s2")),
)


def running(*names: str) -> list[tuple[ContainerID, str]]:
    return [(ContainerID(f"id-{name}"), name) for name in names]


def after(pod: Pod | None, *names: str) -> dict[str, set[str]]:
    order = stops_after(pod, running(*names))
    return {
        cid.removeprefix("id-"): {other.removeprefix("id-") for other in others}
        for cid, others in order.items()
    }


def test_sidecars_wait_for_all_others_and_for_later_sidecars() -> None:
    assert after(POD, "a", "b", "s1", "s2") == {"s1": {"a", "b", "s2"}, "s2": {"a", "b"}}


def test_only_what_runs_is_waited_for() -> None:
    assert after(POD, "a", "s1") == {"s1": {"a"}}
    assert after(POD, "s1") == {"s1": set()}
    assert after(POD, "init", "s1") == {"s1": {"init"}}


def test_strangers_and_pods_without_a_spec_keep_nobody_waiting() -> None:
    assert after(POD, "old", "s1") == {"s1": set()}
    assert after(None, "a", "s1") == {}


@given(st.lists(st.sampled_from(["a", "b", "s1", "s2", "init", "old"]), max_size=8))
def test_nobody_waits_for_itself_or_in_a_circle(names: list[str]) -> None:
    alive = [(ContainerID(f"{n}-{i}"), n) for i, n in enumerate(names)]
    order = stops_after(POD, alive)
    left = {cid for cid, _ in alive}
    while left:
        free = {cid for cid in left if not order.get(cid, frozenset()) & left}
        assert free
        left -= free


@pytest.mark.anyio
class TestStopping:
    """docs/behaviour/runtime.md, "Stop order"."""

    async def start(self, runtime: FakeRuntime, manager: RuntimeManager) -> None:
        for _ in range(4):
            await manager.sync_pod(POD, await runtime.status(), {})
            if runtime.calls["start_container"] == 2:
                runtime.exit("init")
        assert {n for n in ("a", "b", "s1", "s2") if runtime.newest(n).state is RUNNING} == {
            "a", "b", "s1", "s2",
        }  # fmt: skip

    async def test_each_gets_what_is_left_of_its_grace(
        self, runtime: FakeRuntime, manager: RuntimeManager
    ) -> None:
        await self.start(runtime, manager)
        runtime.stop_seconds = {"a": 5.0, "b": 9.5, "s2": 4.0}
        began = anyio.current_time()
        await manager.kill_pod(POD, await runtime.status(), 20)
        timeouts = {n: runtime.newest(n).stop_timeout for n in ("a", "b", "s1", "s2")}
        assert timeouts == {"a": 20, "b": 20, "s2": 11, "s1": 7}
        assert 13 < anyio.current_time() - began < 14

    async def test_nobody_waits_longer_than_its_grace(
        self, runtime: FakeRuntime, manager: RuntimeManager
    ) -> None:
        await self.start(runtime, manager)
        runtime.stop_seconds = {"a": 100.0}
        await manager.kill_pod(POD, await runtime.status(), 10)
        assert runtime.newest("s2").stop_timeout == 2
        assert runtime.newest("s1").stop_timeout == 2

    async def test_one_that_cannot_be_stopped_holds_the_sidecars_up(
        self, runtime: FakeRuntime, manager: RuntimeManager
    ) -> None:
        await self.start(runtime, manager)
        runtime.fail("stop_container", Internal("stuck"))
        began = anyio.current_time()
        with pytest.raises(SyncError, match="stuck"):
            await manager.kill_pod(POD, await runtime.status(), 10)
        assert anyio.current_time() - began == pytest.approx(10, abs=1)
        assert runtime.newest("s1").state is EXITED

    async def test_without_any_grace_nobody_waits(
        self, runtime: FakeRuntime, manager: RuntimeManager
    ) -> None:
        await self.start(runtime, manager)
        runtime.stop_seconds = {"a": 5.0}
        await manager.kill_pod(POD, await runtime.status(), 0)
        assert runtime.newest("s1").stop_timeout == 2
