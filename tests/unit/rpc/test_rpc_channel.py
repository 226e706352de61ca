"""The client over a real unix socket: deadlines, errors by code, cuts and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest

from nodeagent import rpc
from nodeagent.proto.grpc.health import v1 as health
from nodeagent.proto.runtime import v1

pytestmark = pytest.mark.anyio

CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
SERVING = health.HealthCheckResponseServingStatus.SERVING


class Health(health.HealthBase):
    """Answers, stalls, fails or streams as the asked service name says."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.cancelled: list[str] = []
        self.gate = anyio.Event()
        self.metadata: dict[str, Any] = {}

    async def check(self, message: health.HealthCheckRequest) -> health.HealthCheckResponse:
        name = message.service
        self.asked.append(name)
        if name == "stall":
            try:
                await self.gate.wait()
            except BaseException:
                self.cancelled.append(name)
                raise
        if name.startswith("code "):
            raise rpc.error_for(int(name.removeprefix("code ")), "as told: ünï")
        if name == "bug":
            raise ZeroDivisionError("oops")
        return health.HealthCheckResponse(status=SERVING)

    async def watch(
        self, message: health.HealthCheckRequest
    ) -> AsyncIterator[health.HealthCheckResponse]:
        self.asked.append(message.service)
        for _ in range(3):
            yield health.HealthCheckResponse(status=SERVING)
        if message.service == "fails":
            raise rpc.NotFound("gone")
        if message.service == "stalls":
            await self.gate.wait()


@pytest.fixture
def path() -> Iterator[str]:
    with TemporaryDirectory(prefix="rpc") as directory:
        yield str(Path(directory, "s.sock"))


@asynccontextmanager
async def pair(path: str, **options: Any) -> AsyncIterator[tuple[Health, rpc.RpcChannel]]:
    service = Health()
    async with rpc.serve_unix([service], path), rpc.RpcChannel(path, **options) as channel:
        yield service, channel


async def check(channel: rpc.RpcChannel, service: str = "", timeout: float | None = 10) -> object:
    request = health.HealthCheckRequest(service=service)
    return (await channel.unary(CHECK, request, health.HealthCheckResponse, timeout=timeout)).status


async def watch(
    channel: rpc.RpcChannel,
    service: str,
    seen: Callable[[], Any] = lambda: None,
    work: float = 0,
    idle: float | None = None,
) -> list[object]:
    """Collect a whole stream, calling ``seen`` and working ``work`` seconds on each message."""
    got: list[object] = []
    request = health.HealthCheckRequest(service=service)
    async with channel.server_stream(
        WATCH, request, health.HealthCheckResponse, idle_timeout=idle
    ) as replies:
        async for reply in replies:
            seen()
            await anyio.sleep(work)
            got.append(reply.status)
    return got


@contextmanager
def same_cancel_count() -> Iterator[None]:
    """The task's cancel count is what asyncio's own timeouts go by."""
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    yield
    assert task.cancelling() == before


async def test_a_call_is_answered(path: str) -> None:
    async with pair(path) as (_, channel):
        assert await check(channel) is SERVING


async def test_many_calls_share_a_connection_and_may_finish_in_any_order(path: str) -> None:
    async with pair(path) as (service, channel), anyio.create_task_group() as tasks:
        tasks.start_soon(check, channel, "stall")
        for _ in range(150):
            tasks.start_soon(check, channel)
        await anyio.wait_all_tasks_blocked()
        assert await check(channel) is SERVING
        assert len(channel._links) == 1
        service.gate.set()


@pytest.mark.parametrize("code", list(rpc.Code))
async def test_each_status_code_raises_its_class(path: str, code: rpc.Code) -> None:
    async with pair(path) as (_, channel):
        with pytest.raises(rpc.RpcError) as caught:
            await check(channel, f"code {code.value}")
    error = caught.value
    assert type(error) is type(rpc.error_for(code, ""))
    assert (error.code, error.method, error.message) == (code, "Check", "as told: ünï")
    assert str(error) == f"Check: {code.name.lower().replace('_', ' ')}: as told: ünï"


async def test_a_broken_handler_is_unknown_and_the_server_goes_on(path: str) -> None:
    async with pair(path) as (_, channel):
        with pytest.raises(rpc.Unknown, match="ZeroDivisionError: oops"):
            await check(channel, "bug")
        assert await check(channel) is SERVING


async def test_a_method_that_is_not_there_is_unimplemented(path: str) -> None:
    async with pair(path) as (_, channel):
        with pytest.raises(rpc.Unimplemented):
            await channel.unary(
                "/x.Y/Z", health.HealthCheckRequest(), health.HealthCheckResponse, timeout=1
            )


async def test_a_deadline_ends_a_stalled_call_and_tells_the_server(path: str) -> None:
    async with pair(path) as (service, channel):
        began = anyio.current_time()
        with same_cancel_count(), pytest.raises(rpc.DeadlineExceeded) as caught:
            await check(channel, "stall", timeout=30)
        assert anyio.current_time() - began == pytest.approx(30)
        assert str(caught.value) == "Check: deadline exceeded: no answer within 30 s"
        assert await check(channel) is SERVING
        await anyio.sleep(1)
        assert service.cancelled == ["stall"]


async def test_the_callers_own_scope_ends_a_call_without_deadline(path: str) -> None:
    async with pair(path) as (service, channel):
        with same_cancel_count(), anyio.move_on_after(7) as scope:
            await check(channel, "stall", timeout=None)
        assert scope.cancelled_caught
        await anyio.sleep(1)
        assert service.cancelled == ["stall"]


async def test_a_missing_socket_is_unavailable_and_says_so(path: str) -> None:
    async with rpc.RpcChannel(path) as channel:
        with pytest.raises(rpc.Unavailable, match=f"unix://{path}: there is no such socket"):
            await check(channel)


async def test_a_socket_without_listener_is_unavailable_and_says_so(path: str) -> None:
    async with pair(path) as (_, channel):
        await check(channel)
        Path(path).rename(path + ".kept")
    Path(path + ".kept").rename(path)
    async with rpc.RpcChannel(path) as channel:
        with pytest.raises(rpc.Unavailable, match="nobody listens"):
            await check(channel)


async def test_a_path_longer_than_the_kernel_takes_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"has 120 bytes, the limit is 107"):
        rpc.RpcChannel("/" + "x" * 119)
    with pytest.raises(ValueError, match=r"use a shorter one"):
        async with rpc.serve_unix([], "/" + "x" * 119):
            pass


async def test_a_restarted_server_on_a_new_inode_is_found(path: str) -> None:
    async with rpc.RpcChannel(path) as channel:
        for _ in range(3):
            async with rpc.serve_unix([Health()], path):
                assert await check(channel) is SERVING
            with pytest.raises(rpc.Unavailable):
                await check(channel)


async def test_a_stopping_server_cuts_the_calls_in_flight(path: str) -> None:
    caught: list[BaseException] = []

    async def stalled(channel: rpc.RpcChannel) -> None:
        with same_cancel_count(), pytest.raises(rpc.Unavailable) as info:
            await check(channel, "stall", timeout=None)
        caught.append(info.value)

    async with (
        rpc.RpcChannel(path) as channel,
        anyio.create_task_group() as tasks,
        rpc.serve_unix([Health()], path),
    ):
        for _ in range(3):
            tasks.start_soon(stalled, channel)
        await anyio.wait_all_tasks_blocked()
    assert len(caught) == 3


async def test_closing_the_channel_cuts_the_calls_in_flight(path: str) -> None:
    service = Health()
    async with rpc.serve_unix([service], path), anyio.create_task_group() as tasks:
        channel = rpc.RpcChannel(path)

        async def stalled() -> None:
            with pytest.raises(rpc.Unavailable):
                await check(channel, "stall", timeout=None)

        tasks.start_soon(stalled)
        await anyio.wait_all_tasks_blocked()
        await channel.aclose()
        with pytest.raises(rpc.Unavailable, match="closed"):
            await check(channel)


async def test_replies_of_any_size_are_taken(path: str) -> None:
    class Images(v1.ImageServiceBase):
        async def list_images(self, message: v1.ListImagesRequest) -> v1.ListImagesResponse:
            return v1.ListImagesResponse(images=[v1.Image(id="x" * 40_000_000)])

    async with rpc.serve_unix([Images()], path), rpc.RpcChannel(path) as channel:
        data = await channel.unary_bytes(
            "/runtime.v1.ImageService/ListImages", v1.ListImagesRequest(), timeout=60
        )
    assert len(data) > 40_000_000


async def test_the_bytes_of_a_reply_are_given_as_they_came(path: str) -> None:
    async with pair(path) as (_, channel):
        request = health.HealthCheckRequest()
        data = await channel.unary_bytes(CHECK, request, timeout=1)
    assert data == bytes(health.HealthCheckResponse(status=SERVING))


async def test_a_stream_gives_its_messages_and_ends(path: str) -> None:
    async with (
        pair(path) as (_, channel),
        channel.server_stream(
            WATCH, health.HealthCheckRequest(), health.HealthCheckResponse
        ) as replies,
    ):
        assert [reply.status async for reply in replies] == [SERVING] * 3


async def test_a_stream_that_fails_gives_its_messages_first(path: str) -> None:
    count = []
    async with pair(path) as (_, channel):
        with pytest.raises(rpc.NotFound, match="Watch: not found: gone"):
            await watch(channel, "fails", lambda: count.append(1))
    assert len(count) == 3


async def test_a_stream_without_messages_meets_its_idle_deadline(path: str) -> None:
    async with pair(path) as (_, channel):
        # Only waiting for the server counts as idle, not the 100 s of work on each message.
        with same_cancel_count(), pytest.raises(rpc.DeadlineExceeded, match="within 50 s"):
            await watch(channel, "stalls", work=100, idle=50)


async def test_a_lost_stream_ends_the_iteration_not_the_work_on_a_message(path: str) -> None:
    times: list[float] = []
    async with rpc.RpcChannel(path) as channel, anyio.create_task_group() as tasks:
        stop = anyio.Event()

        async def server(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            async with rpc.serve_unix([Health()], path):
                task_status.started()
                await stop.wait()

        def seen() -> None:
            times.append(anyio.current_time())
            stop.set()

        await tasks.start(server)
        with same_cancel_count(), pytest.raises(rpc.Unavailable):
            await watch(channel, "stalls", seen, work=5)
        assert anyio.current_time() >= times[0] + 5


async def test_leaving_a_stream_tells_the_server(path: str) -> None:
    left = anyio.Event()

    class Endless(health.HealthBase):
        async def watch(
            self, message: health.HealthCheckRequest
        ) -> AsyncIterator[health.HealthCheckResponse]:
            try:
                yield health.HealthCheckResponse()
                await anyio.sleep_forever()
            finally:
                left.set()

    async with rpc.serve_unix([Endless()], path), rpc.RpcChannel(path) as channel:
        async with channel.server_stream(
            WATCH, health.HealthCheckRequest(), health.HealthCheckResponse
        ) as replies:
            await anext(replies)
        with anyio.fail_after(5):
            await left.wait()


Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


@asynccontextmanager
async def raw_server(path: str, peer: Peer) -> AsyncIterator[None]:
    server = await asyncio.start_unix_server(peer, path)
    try:
        yield
    finally:
        server.close()


async def test_a_connection_that_never_says_a_word_is_replaced(path: str) -> None:
    peers: list[asyncio.StreamWriter] = []

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(writer)
        while await reader.read(65536):
            pass
        writer.close()

    async with raw_server(path, mute), rpc.RpcChannel(path, ping_timeout=20) as channel:
        async with anyio.create_task_group() as tasks:

            async def patient() -> None:
                with pytest.raises(rpc.Unavailable, match="stopped answering"):
                    await check(channel, timeout=None)

            tasks.start_soon(patient)
            with pytest.raises(rpc.DeadlineExceeded):
                await check(channel, timeout=8)
            assert len(peers) == 1
            with pytest.raises(rpc.DeadlineExceeded):
                await check(channel, timeout=3)
            assert len(peers) == 2
            began = anyio.current_time()
        assert anyio.current_time() - began == pytest.approx(17, abs=1)


async def test_after_a_mute_server_its_successor_on_a_new_inode_answers(path: str) -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            pass
        writer.close()

    async with rpc.RpcChannel(path) as channel, raw_server(path, mute):
        with pytest.raises(rpc.DeadlineExceeded):
            await check(channel, timeout=8)
        Path(path).unlink()
        async with rpc.serve_unix([Health()], path):
            assert await check(channel) is SERVING


async def test_a_slow_call_on_a_live_connection_leaves_the_others_alone(path: str) -> None:
    async with pair(path) as (service, channel), anyio.create_task_group() as tasks:
        tasks.start_soon(check, channel, "stall", None)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(rpc.DeadlineExceeded):
            await check(channel, "stall", timeout=10)
        await anyio.sleep(100)  # longer than the ping may take
        service.gate.set()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 100, b""])
async def test_what_is_not_http2_is_unavailable(path: str, answer: bytes) -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with raw_server(path, peer), rpc.RpcChannel(path) as channel:
        with same_cancel_count(), pytest.raises(rpc.Unavailable):
            await check(channel, timeout=60)


async def test_a_reply_that_is_no_message_is_internal(path: str) -> None:
    class Broken:
        def __bytes__(self) -> bytes:
            return b"\x08\xff"

    class Odd(Health):
        async def check(self, message: health.HealthCheckRequest) -> Any:
            return Broken()

    async with rpc.serve_unix([Odd()], path), rpc.RpcChannel(path) as channel:
        with pytest.raises(rpc.Internal, match="Check: internal: the reply is not a"):
            await check(channel)


async def test_the_server_sees_what_grpc_clients_send_and_the_callers_metadata(path: str) -> None:
    seen: list[Any] = []

    class Looking(Health):
        def __mapping__(self):  # type: ignore[no-untyped-def]
            mapping = super().__mapping__()
            inner = mapping[CHECK].func

            async def look(stream: Any) -> None:
                seen.append(stream.metadata)
                await inner(stream)

            return {CHECK: mapping[CHECK]._replace(func=look)}

    async with rpc.serve_unix([Looking()], path), rpc.RpcChannel(path) as channel:
        await channel.unary(
            CHECK,
            health.HealthCheckRequest(),
            health.HealthCheckResponse,
            timeout=5,
            metadata={"containerd-namespace": "k8s.io"},
        )
    assert seen[0]["containerd-namespace"] == "k8s.io"


async def test_the_authority_is_localhost(path: str) -> None:
    import h2.config
    import h2.connection
    import h2.events

    headers: dict[bytes, bytes] = {}

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        while data := await reader.read(65536):
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    headers.update(event.headers)
                    writer.close()

    async with raw_server(path, peer), rpc.RpcChannel(path) as channel:
        with pytest.raises(rpc.Unavailable):
            await check(channel)
    assert headers[b":authority"] == b"localhost"
    assert headers[b"grpc-timeout"] == b"11S"
