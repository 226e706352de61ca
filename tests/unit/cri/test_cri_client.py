"""The CRI client over a real unix socket (docs/behaviour/runtime.md, "CRI calls")."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from prometheus_client import CollectorRegistry
from tests.unit.cri.fake_runtime import FakeImages, FakeRuntime, container_status, sandbox_status

from nodeagent import rpc
from nodeagent.cri import CRIClient, ImageService, RuntimeService, connect, methods, socket_path
from nodeagent.proto.runtime import v1

pytestmark = pytest.mark.anyio


@pytest.fixture
def path() -> Iterator[str]:
    with TemporaryDirectory(prefix="cri") as directory:
        yield str(Path(directory, "cri.sock"))


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


@pytest.fixture
def images() -> FakeImages:
    return FakeImages()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
async def client(
    path: str, runtime: FakeRuntime, images: FakeImages, registry: CollectorRegistry
) -> AsyncIterator[CRIClient]:
    async with (
        rpc.serve_unix([runtime, images], path),
        CRIClient(f"unix://{path}", registry=registry) as client,
    ):
        yield client


def test_the_client_is_a_runtime_service_and_an_image_service() -> None:
    client = CRIClient()
    runtime: RuntimeService = client
    images: ImageService = client
    assert [id(runtime), id(images)] == [id(client)] * 2


# Every unary call of the runtime service, with what it sends.
CALLS: list[tuple[methods.Method, Callable[[RuntimeService], Awaitable[Any]], Any]] = [
    (methods.VERSION, lambda r: r.version(), v1.VersionRequest(version="0.1.0")),
    (methods.STATUS, lambda r: r.status(True), v1.StatusRequest(verbose=True)),
    (
        methods.RUN_POD_SANDBOX,
        lambda r: r.run_pod_sandbox(v1.PodSandboxConfig(hostname="h"), "kata"),
        v1.RunPodSandboxRequest(config=v1.PodSandboxConfig(hostname="h"), runtime_handler="kata"),
    ),
    (
        methods.STOP_POD_SANDBOX,
        lambda r: r.stop_pod_sandbox("s"),
        v1.StopPodSandboxRequest(pod_sandbox_id="s"),
    ),
    (
        methods.REMOVE_POD_SANDBOX,
        lambda r: r.remove_pod_sandbox("s"),
        v1.RemovePodSandboxRequest(pod_sandbox_id="s"),
    ),
    (
        methods.POD_SANDBOX_STATUS,
        lambda r: r.pod_sandbox_status("s", True),
        v1.PodSandboxStatusRequest(pod_sandbox_id="s", verbose=True),
    ),
    (
        methods.LIST_POD_SANDBOX,
        lambda r: r.list_pod_sandbox(v1.PodSandboxFilter(id="s")),
        v1.ListPodSandboxRequest(filter=v1.PodSandboxFilter(id="s")),
    ),
    (
        methods.CREATE_CONTAINER,
        lambda r: r.create_container(
            "s", v1.ContainerConfig(tty=True), v1.PodSandboxConfig(hostname="h")
        ),
        v1.CreateContainerRequest(
            pod_sandbox_id="s",
            config=v1.ContainerConfig(tty=True),
            sandbox_config=v1.PodSandboxConfig(hostname="h"),
        ),
    ),
    (
        methods.START_CONTAINER,
        lambda r: r.start_container("c"),
        v1.StartContainerRequest(container_id="c"),
    ),
    (
        methods.STOP_CONTAINER,
        lambda r: r.stop_container("c", 30),
        v1.StopContainerRequest(container_id="c", timeout=30),
    ),
    (
        methods.REMOVE_CONTAINER,
        lambda r: r.remove_container("c"),
        v1.RemoveContainerRequest(container_id="c"),
    ),
    (
        methods.LIST_CONTAINERS,
        lambda r: r.list_containers(v1.ContainerFilter(id="c")),
        v1.ListContainersRequest(filter=v1.ContainerFilter(id="c")),
    ),
    (
        methods.CONTAINER_STATUS,
        lambda r: r.container_status("c"),
        v1.ContainerStatusRequest(container_id="c"),
    ),
    (
        methods.UPDATE_CONTAINER_RESOURCES,
        lambda r: r.update_container_resources(
            "c", v1.LinuxContainerResources(cpu_shares=2), {"a": "b"}
        ),
        v1.UpdateContainerResourcesRequest(
            container_id="c",
            linux=v1.LinuxContainerResources(cpu_shares=2),
            annotations={"a": "b"},
        ),
    ),
    (
        methods.UPDATE_POD_SANDBOX_RESOURCES,
        lambda r: r.update_pod_sandbox_resources("s", v1.LinuxContainerResources(cpu_shares=2)),
        v1.UpdatePodSandboxResourcesRequest(
            pod_sandbox_id="s", overhead=v1.LinuxContainerResources(cpu_shares=2)
        ),
    ),
    (
        methods.REOPEN_CONTAINER_LOG,
        lambda r: r.reopen_container_log("c"),
        v1.ReopenContainerLogRequest(container_id="c"),
    ),
    (
        methods.EXEC_SYNC,
        lambda r: r.exec_sync("c", ["ls", "-l"], 5),
        v1.ExecSyncRequest(container_id="c", cmd=["ls", "-l"], timeout=5),
    ),
    (methods.EXEC, lambda r: r.exec(v1.ExecRequest(tty=True)), v1.ExecRequest(tty=True)),
    (methods.ATTACH, lambda r: r.attach(v1.AttachRequest(tty=True)), v1.AttachRequest(tty=True)),
    (
        methods.PORT_FORWARD,
        lambda r: r.port_forward(v1.PortForwardRequest(port=[80])),
        v1.PortForwardRequest(port=[80]),
    ),
    (
        methods.CONTAINER_STATS,
        lambda r: r.container_stats("c"),
        v1.ContainerStatsRequest(container_id="c"),
    ),
    (
        methods.LIST_CONTAINER_STATS,
        lambda r: r.list_container_stats(),
        v1.ListContainerStatsRequest(),
    ),
    (
        methods.POD_SANDBOX_STATS,
        lambda r: r.pod_sandbox_stats("s"),
        v1.PodSandboxStatsRequest(pod_sandbox_id="s"),
    ),
    (
        methods.LIST_POD_SANDBOX_STATS,
        lambda r: r.list_pod_sandbox_stats(),
        v1.ListPodSandboxStatsRequest(),
    ),
    (
        methods.LIST_METRIC_DESCRIPTORS,
        lambda r: r.list_metric_descriptors(),
        v1.ListMetricDescriptorsRequest(),
    ),
    (
        methods.LIST_POD_SANDBOX_METRICS,
        lambda r: r.list_pod_sandbox_metrics(),
        v1.ListPodSandboxMetricsRequest(),
    ),
    (
        methods.UPDATE_RUNTIME_CONFIG,
        lambda r: r.update_runtime_config(v1.RuntimeConfig()),
        v1.UpdateRuntimeConfigRequest(runtime_config=v1.RuntimeConfig()),
    ),
    (methods.RUNTIME_CONFIG, lambda r: r.runtime_config(), v1.RuntimeConfigRequest()),
    (
        methods.CHECKPOINT_CONTAINER,
        lambda r: r.checkpoint_container("c", "/x", 7),
        v1.CheckpointContainerRequest(container_id="c", location="/x", timeout=7),
    ),
]
each_call = pytest.mark.parametrize(
    ("method", "call", "sent"), CALLS, ids=[call[0].name for call in CALLS]
)


def test_every_unary_call_of_the_protos_is_in_the_table() -> None:
    unary = {
        path.rpartition("/")[2]
        for path, handler in FakeRuntime().__mapping__().items()
        if not handler.cardinality.server_streaming
    }
    assert {method.name for method, _, _ in CALLS} == unary


@each_call
async def test_a_call_sends_its_arguments_and_is_counted(
    client: CRIClient,
    runtime: FakeRuntime,
    registry: CollectorRegistry,
    method: Any,
    call: Any,
    sent: Any,
) -> None:
    await call(client)
    assert runtime.requests[method.name] == sent
    labels = {"operation_type": method.operation}
    assert registry.get_sample_value("kubelet_runtime_operations_total", labels) == 1
    name = "kubelet_runtime_operations_duration_seconds_count"
    assert registry.get_sample_value(name, labels) == 1
    assert registry.get_sample_value("kubelet_runtime_operations_errors_total", labels) is None


# Seconds until a call that is never answered is given up, where it is not two minutes.
DEADLINES = {"RunPodSandbox": 240, "StopContainer": 150, "ExecSync": 125}


@each_call
async def test_a_call_that_is_never_answered_meets_its_deadline(
    client: CRIClient,
    runtime: FakeRuntime,
    registry: CollectorRegistry,
    method: Any,
    call: Any,
    sent: Any,
) -> None:
    await client.version()
    runtime.stall(method.name)
    began = anyio.current_time()
    with pytest.raises(rpc.DeadlineExceeded, match=f"^{method.name}: "):
        await call(client)
    assert anyio.current_time() - began == pytest.approx(DEADLINES.get(method.name, 120))
    labels = {"operation_type": method.operation}
    assert registry.get_sample_value("kubelet_runtime_operations_errors_total", labels) == 1


@each_call
async def test_an_error_of_a_call_carries_its_name(
    client: CRIClient, runtime: FakeRuntime, method: Any, call: Any, sent: Any
) -> None:
    runtime.replies[method.name] = rpc.FailedPrecondition("not now")
    with pytest.raises(rpc.FailedPrecondition) as caught:
        await call(client)
    assert str(caught.value) == f"{method.name}: failed precondition: not now"


async def test_a_command_without_limit_may_run_for_hours(
    client: CRIClient, runtime: FakeRuntime
) -> None:
    gate = runtime.stall("ExecSync")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.exec_sync, "c", ["sleep"])
        await anyio.sleep(10_000)
        gate.set()


async def test_a_pull_may_take_hours_and_ends_with_the_callers_scope(
    client: CRIClient, images: FakeImages
) -> None:
    images.gate = anyio.Event()
    with anyio.move_on_after(10_000) as scope:
        await client.pull_image(v1.ImageSpec(image="big"))
    assert scope.cancelled_caught


async def test_a_longer_checkpoint_gets_a_longer_deadline(
    client: CRIClient, runtime: FakeRuntime
) -> None:
    runtime.stall("CheckpointContainer")
    began = anyio.current_time()
    with pytest.raises(rpc.DeadlineExceeded):
        await client.checkpoint_container("c", "/x", 1000)
    assert anyio.current_time() - began == pytest.approx(1000)
    with pytest.raises(rpc.InvalidArgument, match="-1 s"):
        await client.checkpoint_container("c", "/x", -1)


async def test_stopping_a_container_that_is_gone_is_no_error(
    client: CRIClient, runtime: FakeRuntime
) -> None:
    runtime.replies["StopContainer"] = rpc.NotFound("no such container")
    await client.stop_container("c", 30)
    runtime.replies["StopContainer"] = rpc.Unknown("busy")
    with pytest.raises(rpc.Unknown):
        await client.stop_container("c", 30)


BAD_REPLIES: list[tuple[str, Any, Callable[[CRIClient], Awaitable[Any]], str]] = [
    (
        "RunPodSandbox",
        v1.RunPodSandboxResponse(),
        lambda c: c.run_pod_sandbox(v1.PodSandboxConfig()),
        "lacks pod_sandbox_id",
    ),
    (
        "CreateContainer",
        v1.CreateContainerResponse(),
        lambda c: c.create_container("s", v1.ContainerConfig(), v1.PodSandboxConfig()),
        "lacks container_id",
    ),
    ("Exec", v1.ExecResponse(), lambda c: c.exec(v1.ExecRequest()), "lacks url"),
    ("Attach", v1.AttachResponse(), lambda c: c.attach(v1.AttachRequest()), "lacks url"),
    (
        "PortForward",
        v1.PortForwardResponse(),
        lambda c: c.port_forward(v1.PortForwardRequest()),
        "lacks url",
    ),
    (
        "Status",
        v1.StatusResponse(
            status=v1.RuntimeStatus(conditions=[v1.RuntimeCondition(type="RuntimeReady")])
        ),
        lambda c: c.status(),
        "states the conditions RuntimeReady: ",
    ),
    ("Status", v1.StatusResponse(), lambda c: c.status(), "states the conditions none"),
    (
        "PodSandboxStatus",
        v1.PodSandboxStatusResponse(),
        lambda c: c.pod_sandbox_status("s"),
        "sandbox s lacks id, metadata.name, metadata.namespace, metadata.uid",
    ),
    *(
        (
            "PodSandboxStatus",
            v1.PodSandboxStatusResponse(status=sandbox_status("s", **change)),
            lambda c: c.pod_sandbox_status("s"),
            f"sandbox s lacks {missing}$",
        )
        for change, missing in (
            ({"id": ""}, "id"),
            ({"metadata": v1.PodSandboxMetadata(name="a", namespace="b")}, "metadata.uid"),
        )
    ),
    *(
        (
            "ContainerStatus",
            v1.ContainerStatusResponse(status=container_status("c", **change)),
            lambda c: c.container_status("c"),
            f"container c lacks {missing}$",
        )
        for change, missing in (
            ({"id": ""}, "id"),
            ({"metadata": v1.ContainerMetadata(attempt=1)}, "metadata.name"),
            ({"image": None}, "image.image"),
            ({"image_ref": ""}, "image_ref"),
        )
    ),
    (
        "ContainerStats",
        v1.ContainerStatsResponse(),
        lambda c: c.container_stats("c"),
        "container c has no figures",
    ),
]


@pytest.mark.parametrize(("method", "reply", "call", "message"), BAD_REPLIES)
async def test_an_answer_that_lacks_something_is_an_error_that_names_it(
    client: CRIClient, runtime: FakeRuntime, method: str, reply: Any, call: Any, message: str
) -> None:
    runtime.replies[method] = reply
    with pytest.raises(rpc.Internal, match=message) as caught:
        await call(client)
    assert caught.value.method == method


async def test_images_are_checked_too(client: CRIClient, images: FakeImages) -> None:
    image = v1.ImageSpec(image="nginx")
    assert (await client.image_status(image)).image is not None
    assert (await client.image_status(v1.ImageSpec(image="absent"))).image is None
    assert await client.pull_image(image) == "sha256:1"
    await client.remove_image(image)
    await client.image_fs_info()
    images.pulled, images.size = "", 0
    with pytest.raises(rpc.Internal, match="lacks image_ref"):
        await client.pull_image(image)
    with pytest.raises(rpc.Internal, match="image nginx lacks size"):
        await client.image_status(image)


async def test_lists_share_unchanged_items(client: CRIClient, runtime: FakeRuntime) -> None:
    for number in range(20):
        runtime.containers[f"c{number}"] = v1.Container(id=f"c{number}")
    before = {item.id: item for item in await client.list_containers()}
    runtime.containers["c7"] = v1.Container(id="c7", state=v1.ContainerState.CONTAINER_EXITED)
    after = {item.id: item for item in await client.list_containers()}
    assert {cid for cid in after if after[cid] is not before[cid]} == {"c7"}
    streamed = await client.stream_containers()
    assert all(item is after[item.id] for item in streamed)
    assert len(streamed) == 20


async def test_an_unknown_streaming_call_is_unimplemented(client: CRIClient) -> None:
    with pytest.raises(rpc.Unimplemented, match="StreamPodSandboxes"):
        await client.stream_pod_sandboxes()
    with pytest.raises(rpc.Unimplemented, match="StreamImages"):
        await client.stream_images()


async def test_a_streamed_list_that_stalls_meets_the_deadline(
    client: CRIClient, runtime: FakeRuntime
) -> None:
    runtime.stall("StreamContainers")
    with pytest.raises(rpc.DeadlineExceeded, match=r"StreamContainers: .* after 120 s"):
        await client.stream_containers()


@pytest.mark.parametrize(
    ("reply", "shown"),
    [(None, None), (rpc.Unimplemented("what?"), 1), (rpc.Unknown("no"), None)],
    ids=["told", "unimplemented", "failed"],
)
async def test_a_runtime_that_does_not_tell_its_configuration_is_losing_support(
    client: CRIClient,
    runtime: FakeRuntime,
    registry: CollectorRegistry,
    reply: Exception | None,
    shown: float | None,
) -> None:
    runtime.replies["RuntimeConfig"] = reply
    assert (await client.check()).runtime_name == "fake"
    assert runtime.calls["RuntimeConfig"] == 1
    name = "kubelet_cri_losing_support"
    assert registry.get_sample_value(name, {"version": "1.37.0"}) == shown


async def test_sandbox_starts_are_timed_by_handler(
    client: CRIClient, runtime: FakeRuntime, registry: CollectorRegistry
) -> None:
    runtime.replies["RunPodSandbox"] = rpc.Unknown("no")
    with pytest.raises(rpc.Unknown):
        await client.run_pod_sandbox(v1.PodSandboxConfig(), "kata")
    labels = {"runtime_handler": "kata"}
    name = "kubelet_run_podsandbox_duration_seconds_count"
    assert registry.get_sample_value(name, labels) == 1
    assert registry.get_sample_value("kubelet_run_podsandbox_errors_total", labels) == 1


async def test_a_cancelled_call_counts_as_no_error(
    client: CRIClient, runtime: FakeRuntime, registry: CollectorRegistry
) -> None:
    runtime.stall("Version")
    with anyio.move_on_after(1):
        await client.version()
    labels = {"operation_type": "version"}
    assert registry.get_sample_value("kubelet_runtime_operations_total", labels) == 1
    assert registry.get_sample_value("kubelet_runtime_operations_errors_total", labels) is None


async def test_a_lost_connection_is_unavailable_and_names_the_endpoint(path: str) -> None:
    async with CRIClient(f"unix://{path}") as client:
        with pytest.raises(rpc.Unavailable, match=f"^Status: unavailable: unix://{path}: there is"):
            await client.status()

        async def cut() -> None:
            with pytest.raises(rpc.Unavailable, match=f"unix://{path}: "):
                await client.status()

        runtime = FakeRuntime()
        runtime.stall("Status")
        async with anyio.create_task_group() as tasks, rpc.serve_unix([runtime], path):
            tasks.start_soon(cut)
            await anyio.wait_all_tasks_blocked()


async def test_a_containerd_that_has_just_started_is_not_available_yet(path: str) -> None:
    runtime = FakeRuntime()
    runtime.replies["Status"] = rpc.Unknown("server is not initialized yet")
    async with rpc.serve_unix([runtime], path), CRIClient(f"unix://{path}") as client:
        with pytest.raises(rpc.Unavailable, match=f"unix://{path}: server is not initialized"):
            await client.status()


async def test_two_endpoints_are_two_connections(path: str) -> None:
    other = path + "2"
    images = FakeImages()
    async with (
        rpc.serve_unix([FakeRuntime()], path),
        rpc.serve_unix([images], other),
        connect(f"unix://{path}", f"unix://{other}") as client,
    ):
        assert (await client.status()).status is not None
        assert await client.pull_image(v1.ImageSpec(image="nginx")) == "sha256:1"
    assert images.calls["ImageFsInfo"] == 1


async def open_and_close(endpoint: str, image_endpoint: str | None = None) -> None:
    async with connect(endpoint, image_endpoint):
        pass


async def test_connecting_to_nothing_says_where_and_what_to_do(path: str) -> None:
    with pytest.raises(rpc.Unavailable) as caught:
        await open_and_close(f"unix://{path}")
    assert caught.value.message == (
        f"no container runtime at unix://{path}: there is no such socket; "
        "start the runtime (for containerd: systemctl start containerd), "
        "or try --container-runtime-endpoint=embedded, which needs no runtime"
    )


async def test_connecting_to_a_mute_runtime_gives_up(path: str, runtime: FakeRuntime) -> None:
    runtime.stall("Version")
    async with rpc.serve_unix([runtime], path):
        with pytest.raises(rpc.Unavailable, match=r"no answer within 30 s; try --container"):
            await open_and_close(f"unix://{path}")


async def test_connecting_to_something_else_says_so(path: str, images: FakeImages) -> None:
    async with rpc.serve_unix([images], path):
        with pytest.raises(rpc.Unavailable, match=r"unknown method /runtime.v1.RuntimeService"):
            await open_and_close(f"unix://{path}")
    async with rpc.serve_unix([FakeRuntime()], path):
        with pytest.raises(rpc.Unavailable, match=r"unknown method /runtime.v1.ImageService"):
            await open_and_close(f"unix://{path}")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"runtime_name": ""}, rpc.Internal, "lacks runtime_name$"),
        ({"runtime_version": ""}, rpc.Internal, "lacks runtime_version$"),
        ({"runtime_api_version": ""}, rpc.Internal, "lacks runtime_api_version$"),
        ({"version": ""}, rpc.Internal, "lacks version$"),
        ({"version": "0.2.0"}, rpc.FailedPrecondition, "old 9 speaks version 0.2.0"),
    ],
)
async def test_connecting_checks_the_version(
    path: str,
    runtime: FakeRuntime,
    images: FakeImages,
    change: dict[str, str],
    error: type[rpc.RpcError],
    message: str,
) -> None:
    good = {
        "version": "0.1.0",
        "runtime_name": "old",
        "runtime_version": "9",
        "runtime_api_version": "v1",
    }
    runtime.replies["Version"] = v1.VersionResponse(**{**good, **change})
    async with rpc.serve_unix([runtime, images], path):
        with pytest.raises(error, match=message):
            await open_and_close(f"unix://{path}")


@pytest.mark.parametrize(
    "endpoint", ["", "/run/x.sock", "tcp://1.2.3.4:5", "unix://x.sock", "unix:x", "embedded"]
)
def test_only_unix_endpoints_are_taken(endpoint: str) -> None:
    with pytest.raises(ValueError, match="is not of the form unix:///path"):
        socket_path(endpoint)


def test_an_endpoint_with_a_path_too_long_is_refused() -> None:
    assert socket_path("unix:///run/a%20b.sock") == "/run/a%20b.sock"
    with pytest.raises(ValueError, match="the limit is 107"):
        CRIClient("unix:///" + "x" * 120)
