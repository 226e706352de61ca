"""What the CRI says about sandboxes and containers, whatever the backend."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from nodeagent import rpc
from nodeagent.embedded import (
    ContainerRecord,
    Embedded,
    EmbeddedRuntime,
    SandboxRecord,
    Script,
    SimulatedBackend,
    open_embedded,
)
from nodeagent.proto.runtime import v1
from nodeagent.testing.cri_configs import IMAGE, container_config, sandbox_config

pytestmark = pytest.mark.anyio

READY = v1.PodSandboxState.SANDBOX_READY
NOT_READY = v1.PodSandboxState.SANDBOX_NOTREADY
CREATED = v1.ContainerState.CONTAINER_CREATED
RUNNING = v1.ContainerState.CONTAINER_RUNNING
EXITED = v1.ContainerState.CONTAINER_EXITED


@asynccontextmanager
async def opened() -> AsyncIterator[Embedded]:
    async with open_embedded(SimulatedBackend()) as embedded:
        await embedded.images.pull_image(v1.ImageSpec(image=IMAGE))
        yield embedded


async def make(runtime: EmbeddedRuntime, pod: str = "pod", name: str = "main") -> tuple[str, str]:
    """A sandbox with a created container."""
    sandbox_id = await runtime.run_pod_sandbox(sandbox_config(pod))
    return sandbox_id, await runtime.create_container(sandbox_id, container_config(name))


async def state_of(runtime: EmbeddedRuntime, container_id: str) -> v1.ContainerState:
    found = (await runtime.container_status(container_id)).status
    assert found is not None
    return found.state


async def test_it_says_what_it_is() -> None:
    async with opened() as embedded:
        version = await embedded.runtime.version()
        assert version.version == "0.1.0"
        assert version.runtime_name == "nodeagent-embedded"
        assert version.runtime_version
        assert version.runtime_api_version == "v1"
        status = await embedded.runtime.status(verbose=True)
        assert status.status is not None
        conditions = {one.type: one for one in status.status.conditions}
        assert conditions["RuntimeReady"].status
        assert conditions["NetworkReady"].status
        assert "for development" in conditions["RuntimeReady"].message
        assert "for development" in status.info["note"]
        config = await embedded.runtime.runtime_config()
        assert config.linux is not None
        assert config.linux.cgroup_driver is v1.CgroupDriver.CGROUPFS


async def test_a_sandbox_has_an_address_of_its_own_until_it_is_stopped() -> None:
    async with opened() as embedded:
        ips = []
        for name in ("a", "b", "c"):
            sandbox_id = await embedded.runtime.run_pod_sandbox(sandbox_config(name))
            found = (await embedded.runtime.pod_sandbox_status(sandbox_id)).status
            assert found is not None
            assert found.network is not None
            ips.append(found.network.ip)
        assert len(set(ips)) == 3
        assert all(ip.startswith("127.88.") for ip in ips)
        await embedded.runtime.stop_pod_sandbox(sandbox_id)
        stopped = (await embedded.runtime.pod_sandbox_status(sandbox_id)).status
        assert stopped is not None
        assert stopped.state is NOT_READY
        assert stopped.network == v1.PodSandboxNetworkStatus(ip="")


async def test_a_sandbox_on_the_hosts_network_has_the_hosts_address() -> None:
    async with opened() as embedded:
        config = sandbox_config(host_network=True)
        sandbox_id = await embedded.runtime.run_pod_sandbox(config)
        found = (await embedded.runtime.pod_sandbox_status(sandbox_id)).status
        assert found is not None
        assert found.network == v1.PodSandboxNetworkStatus(ip="127.0.0.1")
        assert found.linux is not None
        assert found.linux.namespaces is not None
        assert found.linux.namespaces.options is not None
        assert found.linux.namespaces.options.network is v1.NamespaceMode.NODE


async def test_the_name_of_a_sandbox_is_reserved_until_it_is_removed() -> None:
    async with opened() as embedded:
        runtime = embedded.runtime
        sandbox_id = await runtime.run_pod_sandbox(sandbox_config("web"))
        with pytest.raises(rpc.AlreadyExists) as caught:
            await runtime.run_pod_sandbox(sandbox_config("web"))
        assert caught.value.message == (
            'failed to reserve sandbox name "web_default_uid-web_0": '
            f'name "web_default_uid-web_0" is reserved for "{sandbox_id}"'
        )
        await runtime.run_pod_sandbox(sandbox_config("web", attempt=1))
        await runtime.remove_pod_sandbox(sandbox_id)
        await runtime.run_pod_sandbox(sandbox_config("web"))


async def test_the_name_of_a_container_is_reserved_until_it_is_removed() -> None:
    async with opened() as embedded:
        runtime = embedded.runtime
        sandbox_id, container_id = await make(runtime)
        with pytest.raises(rpc.AlreadyExists, match="main_pod_default_uid-pod_0"):
            await runtime.create_container(sandbox_id, container_config())
        await runtime.create_container(sandbox_id, container_config(attempt=1))
        await runtime.remove_container(container_id)
        await runtime.create_container(sandbox_id, container_config())


async def test_a_container_goes_from_created_to_running_to_exited() -> None:
    async with opened() as embedded:
        runtime = embedded.runtime
        _, container_id = await make(runtime)
        assert await state_of(runtime, container_id) is CREATED
        await runtime.start_container(container_id)
        assert await state_of(runtime, container_id) is RUNNING
        with pytest.raises(rpc.FailedPrecondition, match="CONTAINER_RUNNING"):
            await runtime.start_container(container_id)
        await runtime.stop_container(container_id, 5)
        assert await state_of(runtime, container_id) is EXITED
        with pytest.raises(rpc.FailedPrecondition, match="CONTAINER_EXITED"):
            await runtime.start_container(container_id)


async def test_a_status_says_everything() -> None:
    async with opened() as embedded:
        runtime = embedded.runtime
        _, container_id = await make(runtime)
        await runtime.start_container(container_id)
        await runtime.stop_container(container_id, 5)
        found = (await runtime.container_status(container_id, verbose=True)).status
        assert found is not None
        assert found.metadata == v1.ContainerMetadata(name="main")
        assert 0 < found.created_at <= found.started_at <= found.finished_at
        assert found.image == v1.ImageSpec(image=IMAGE)
        assert found.image_ref.startswith("example.com/app@sha256:")
        assert found.image_id.startswith("sha256:")
        assert found.labels == {"io.kubernetes.container.name": "main"}


async def test_stopping_a_created_container_changes_nothing() -> None:
    async with opened() as embedded:
        _, container_id = await make(embedded.runtime)
        await embedded.runtime.stop_container(container_id, 5)
        assert await state_of(embedded.runtime, container_id) is CREATED


async def test_stopping_and_removing_are_idempotent_and_forgive_unknown_ids() -> None:
    async with opened() as embedded:
        runtime = embedded.runtime
        sandbox_id, container_id = await make(runtime)
        for _ in range(2):
            await runtime.stop_container(container_id, 0)
            await runtime.stop_pod_sandbox(sandbox_id)
        for _ in range(2):
            await runtime.remove_container(container_id)
            await runtime.remove_pod_sandbox(sandbox_id)
        await runtime.stop_container("unknown", 0)
        await runtime.stop_pod_sandbox("unknown")


UNKNOWN: list[Callable[[EmbeddedRuntime], Awaitable[object]]] = [
    lambda runtime: runtime.container_status("nope"),
    lambda runtime: runtime.pod_sandbox_status("nope"),
    lambda runtime: runtime.start_container("nope"),
    lambda runtime: runtime.exec_sync("nope", ["true"]),
    lambda runtime: runtime.container_stats("nope"),
    lambda runtime: runtime.pod_sandbox_stats("nope"),
    lambda runtime: runtime.reopen_container_log("nope"),
    lambda runtime: runtime.update_container_resources("nope"),
    lambda runtime: runtime.update_pod_sandbox_resources("nope"),
    lambda runtime: runtime.create_container("nope", container_config()),
]


@pytest.mark.parametrize("call", UNKNOWN)
async def test_what_does_not_exist_is_not_found(
    call: Callable[[EmbeddedRuntime], Awaitable[object]],
) -> None:
    async with opened() as embedded:
        with pytest.raises(rpc.NotFound, match="nope"):
            await call(embedded.runtime)


async def test_an_id_may_be_cut_as_long_as_it_is_unambiguous() -> None:
    async with opened() as embedded:
        _, container_id = await make(embedded.runtime)
        found = (await embedded.runtime.container_status(container_id[:13])).status
        assert found is not None
        assert found.id == container_id
        with pytest.raises(rpc.NotFound):
            await embedded.runtime.container_status("")


async def test_a_container_needs_an_image_that_is_present() -> None:
    async with opened() as embedded:
        sandbox_id = await embedded.runtime.run_pod_sandbox(sandbox_config())
        with pytest.raises(rpc.NotFound, match="other:2"):
            await embedded.runtime.create_container(sandbox_id, container_config(image="other:2"))
        await embedded.images.pull_image(v1.ImageSpec(image="other:2"))
        await embedded.runtime.create_container(sandbox_id, container_config(image="other:2"))


async def test_nothing_is_created_or_started_in_a_stopped_sandbox() -> None:
    async with opened() as embedded:
        runtime = embedded.runtime
        sandbox_id, container_id = await make(runtime)
        await runtime.stop_pod_sandbox(sandbox_id)
        with pytest.raises(rpc.FailedPrecondition, match="not running"):
            await runtime.create_container(sandbox_id, container_config("other"))
        with pytest.raises(rpc.FailedPrecondition, match="not running"):
            await runtime.start_container(container_id)


async def test_stopping_a_sandbox_kills_what_runs_in_it() -> None:
    async with opened() as embedded:
        runtime = embedded.runtime
        sandbox_id, container_id = await make(runtime)
        await runtime.start_container(container_id)
        await runtime.stop_pod_sandbox(sandbox_id)
        found = (await runtime.container_status(container_id)).status
        assert found is not None
        assert (found.state, found.exit_code) == (EXITED, 137)


async def test_removing_a_running_container_or_sandbox_takes_force() -> None:
    async with opened() as embedded:
        runtime = embedded.runtime
        sandbox_id, container_id = await make(runtime)
        await runtime.start_container(container_id)
        await runtime.remove_container(container_id)
        other = await runtime.create_container(sandbox_id, container_config("other"))
        await runtime.start_container(other)
        await runtime.remove_pod_sandbox(sandbox_id)
        assert await runtime.list_containers() == []
        assert await runtime.list_pod_sandbox() == []


async def test_a_second_stop_may_shorten_the_grace() -> None:
    backend = SimulatedBackend({"main": Script(stop_after=1000)})
    async with open_embedded(backend) as embedded:
        await embedded.images.pull_image(v1.ImageSpec(image=IMAGE))
        _, container_id = await make(embedded.runtime)
        await embedded.runtime.start_container(container_id)
        began = anyio.current_time()
        async with anyio.create_task_group() as tg:
            tg.start_soon(embedded.runtime.stop_container, container_id, 500)
            await anyio.sleep(1)
            await embedded.runtime.stop_container(container_id, 2)
        assert anyio.current_time() - began == pytest.approx(3, abs=0.1)


async def test_lists_can_be_narrowed_by_id_state_sandbox_and_labels() -> None:
    async with opened() as embedded:
        runtime = embedded.runtime
        first, main = await make(runtime, "one")
        second, _ = await make(runtime, "two", "side")
        await runtime.start_container(main)
        await runtime.stop_pod_sandbox(second)

        async def containers(where: v1.ContainerFilter) -> list[str]:
            return [one.id for one in await runtime.list_containers(where)]

        async def sandboxes(where: v1.PodSandboxFilter) -> list[str]:
            return [one.id for one in await runtime.list_pod_sandbox(where)]

        assert await containers(v1.ContainerFilter(id=main)) == [main]
        assert await containers(v1.ContainerFilter(pod_sandbox_id=first)) == [main]
        running = v1.ContainerStateValue(state=RUNNING)
        assert await containers(v1.ContainerFilter(state=running)) == [main]
        labels = {"io.kubernetes.container.name": "main"}
        assert await containers(v1.ContainerFilter(label_selector=labels)) == [main]
        assert await containers(v1.ContainerFilter(label_selector={**labels, "x": "y"})) == []
        ready = v1.PodSandboxStateValue(state=READY)
        assert await sandboxes(v1.PodSandboxFilter(state=ready)) == [first]
        gone = v1.PodSandboxStateValue(state=NOT_READY)
        assert await sandboxes(v1.PodSandboxFilter(state=gone)) == [second]
        labels = {"io.kubernetes.pod.uid": "uid-one"}
        assert await sandboxes(v1.PodSandboxFilter(label_selector=labels)) == [first]
        assert await sandboxes(v1.PodSandboxFilter(id=second)) == [second]


async def test_an_item_of_a_list_is_the_same_object_until_it_changes() -> None:
    async with opened() as embedded:
        runtime = embedded.runtime
        _, container_id = await make(runtime)
        before = await runtime.list_containers()
        again = await runtime.list_containers()
        assert before[0] is again[0]
        await runtime.start_container(container_id)
        after = await runtime.list_containers()
        assert after[0] is not before[0]
        assert before[0].state is CREATED


async def test_resources_are_recorded_and_shown() -> None:
    async with opened() as embedded:
        _, container_id = await make(embedded.runtime)
        limits = v1.LinuxContainerResources(memory_limit_in_bytes=123)
        await embedded.runtime.update_container_resources(container_id, limits)
        found = (await embedded.runtime.container_status(container_id)).status
        assert found is not None
        assert found.resources == v1.ContainerResources(linux=limits)


async def test_figures_come_for_running_containers_and_add_up_for_their_sandbox() -> None:
    async with opened() as embedded:
        runtime = embedded.runtime
        sandbox_id, container_id = await make(runtime)
        await make(runtime, "idle")
        await runtime.start_container(container_id)
        (one,) = await runtime.list_container_stats()
        assert one.attributes is not None
        assert one.attributes.id == container_id
        assert one.memory is not None
        assert one.memory.working_set_bytes == v1.UInt64Value(value=2**20)
        both = await runtime.list_pod_sandbox_stats()
        assert len(both) == 2
        only = await runtime.list_pod_sandbox_stats(v1.PodSandboxStatsFilter(id=sandbox_id))
        (pod,) = only
        assert pod.linux is not None
        assert pod.linux.process is not None
        assert pod.linux.process.process_count == v1.UInt64Value(value=1)
        assert [c.attributes.id for c in pod.linux.containers if c.attributes] == [container_id]
        nobody = v1.ContainerStatsFilter(label_selector={"no": "such"})
        assert await runtime.list_container_stats(nobody) == []


REFUSED: list[Callable[[EmbeddedRuntime], Awaitable[object]]] = [
    lambda runtime: runtime.checkpoint_container("x", "/tmp/x"),
    lambda runtime: runtime.list_metric_descriptors(),
    lambda runtime: runtime.list_pod_sandbox_metrics(),
    lambda runtime: runtime.stream_pod_sandbox_metrics(),
]


@pytest.mark.parametrize("call", REFUSED)
async def test_what_it_cannot_do_it_refuses_and_says_what_to_do_instead(
    call: Callable[[EmbeddedRuntime], Awaitable[object]],
) -> None:
    async with opened() as embedded:
        with pytest.raises(rpc.Unimplemented, match=r"the embedded runtime has no .*: "):
            await call(embedded.runtime)


async def test_senseless_requests_are_refused() -> None:
    async with opened() as embedded:
        runtime = embedded.runtime
        with pytest.raises(rpc.InvalidArgument, match="metadata"):
            await runtime.run_pod_sandbox(v1.PodSandboxConfig())
        with pytest.raises(rpc.InvalidArgument, match='no runtime for "gvisor"'):
            await runtime.run_pod_sandbox(sandbox_config(), "gvisor")
        sandbox_id, container_id = await make(runtime)
        config = v1.ContainerConfig(image=v1.ImageSpec(image=IMAGE))
        with pytest.raises(rpc.InvalidArgument, match="metadata"):
            await runtime.create_container(sandbox_id, config)
        await runtime.start_container(container_id)
        with pytest.raises(rpc.InvalidArgument, match="empty"):
            await runtime.exec_sync(container_id, [])
        created = await runtime.create_container(sandbox_id, container_config("b"))
        with pytest.raises(rpc.FailedPrecondition, match="CONTAINER_CREATED"):
            await runtime.exec_sync(created, ["true"])


async def test_a_failed_sandbox_leaves_its_name_free() -> None:
    class Failing(SimulatedBackend):
        async def create_sandbox(self, sandbox: object) -> None:
            raise rpc.Internal("disk full")

    async with open_embedded(Failing()) as embedded:
        for _ in range(2):
            with pytest.raises(rpc.Internal):
                await embedded.runtime.run_pod_sandbox(sandbox_config())
        assert await embedded.runtime.list_pod_sandbox() == []


async def test_what_the_machine_refuses_is_an_error_of_the_call() -> None:
    class Full(SimulatedBackend):
        async def create(self, container: object, sandbox: object) -> None:
            raise OSError(28, "No space left on device")

    async with open_embedded(Full()) as embedded:
        await embedded.images.pull_image(v1.ImageSpec(image=IMAGE))
        with pytest.raises(rpc.Internal, match="No space left on device"):
            await make(embedded.runtime)
        assert await embedded.runtime.list_containers() == []


async def test_a_start_that_its_caller_gave_up_is_known_to_have_happened() -> None:
    class Slow(SimulatedBackend):
        async def start(self, container: ContainerRecord, sandbox: SandboxRecord) -> int:
            await anyio.sleep(10)
            return await super().start(container, sandbox)

    async with open_embedded(Slow()) as embedded:
        await embedded.images.pull_image(v1.ImageSpec(image=IMAGE))
        _, container_id = await make(embedded.runtime)
        with anyio.move_on_after(1):
            await embedded.runtime.start_container(container_id)
        assert await state_of(embedded.runtime, container_id) is RUNNING


async def test_a_container_that_is_starting_is_neither_started_twice_nor_removed() -> None:
    class Slow(SimulatedBackend):
        async def start(self, container: ContainerRecord, sandbox: SandboxRecord) -> int:
            await anyio.sleep(10)
            return await super().start(container, sandbox)

    async with open_embedded(Slow()) as embedded:
        await embedded.images.pull_image(v1.ImageSpec(image=IMAGE))
        _, container_id = await make(embedded.runtime)
        async with anyio.create_task_group() as tg:
            tg.start_soon(embedded.runtime.start_container, container_id)
            await anyio.sleep(1)
            with pytest.raises(rpc.FailedPrecondition, match="starting"):
                await embedded.runtime.start_container(container_id)
            with pytest.raises(rpc.FailedPrecondition, match="starting"):
                await embedded.runtime.remove_container(container_id)
        assert await state_of(embedded.runtime, container_id) is RUNNING
