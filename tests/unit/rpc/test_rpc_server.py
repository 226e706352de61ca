"""The serving side: the socket file, and the life of handlers."""

from __future__ import annotations

import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from hyperframe.frame import GoAwayFrame

from nodeagent import rpc
from nodeagent.proto.grpc.health import v1 as health
from nodeagent.rpc.link import Call

pytestmark = pytest.mark.anyio

CHECK = "/grpc.health.v1.Health/Check"


@pytest.fixture
def path() -> Iterator[Path]:
    with TemporaryDirectory(prefix="rpc") as directory:
        yield Path(directory, "s.sock")


async def check(channel: rpc.RpcChannel, timeout: float | None = 10) -> None:
    request = health.HealthCheckRequest()
    await channel.unary(CHECK, request, health.HealthCheckResponse, timeout=timeout)


class Quick(health.HealthBase):
    async def check(self, message: health.HealthCheckRequest) -> health.HealthCheckResponse:
        return health.HealthCheckResponse()


class Slow(health.HealthBase):
    """Works for 60 seconds and notes how that ended."""

    def __init__(self, *, shield: bool = False) -> None:
        self.shield = shield
        self.ends: list[str] = []

    async def check(self, message: health.HealthCheckRequest) -> health.HealthCheckResponse:
        try:
            with anyio.CancelScope(shield=self.shield):
                await anyio.sleep(60)
                self.ends.append("done")
        except BaseException:
            self.ends.append("cancelled")
            raise
        return health.HealthCheckResponse()


async def test_only_the_owner_may_connect_and_the_file_goes_at_the_end(path: Path) -> None:
    async with rpc.serve_unix([Quick()], path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


async def test_a_stale_socket_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))
    async with rpc.serve_unix([Quick()], path), rpc.RpcChannel(path) as channel:
        await check(channel)


async def test_a_socket_in_use_is_left_alone(path: Path) -> None:
    async with rpc.serve_unix([Quick()], path), rpc.RpcChannel(path) as channel:
        with pytest.raises(OSError, match="another server listens"):
            await anext(aiter_context(path))
        await check(channel)


async def test_a_file_that_is_no_socket_is_left_alone(path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(FileExistsError, match="is not a socket"):
        await anext(aiter_context(path))
    assert path.read_text() == "precious"


async def aiter_context(path: Path):  # type: ignore[no-untyped-def]
    async with rpc.serve_unix([Quick()], path):
        yield


async def test_a_directory_that_is_not_there_is_named(path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing/s\.sock"):
        await anext(aiter_context(path.parent / "missing" / "s.sock"))


async def test_a_successors_socket_is_not_removed(path: Path) -> None:
    async with rpc.serve_unix([Quick()], path):
        path.unlink()
        with socket.socket(socket.AF_UNIX) as successor:
            successor.bind(str(path))
    assert path.exists()


async def test_the_body_s_own_error_comes_out_as_it_is(path: Path) -> None:
    with pytest.raises(KeyError):
        async with rpc.serve_unix([Quick()], path):
            raise KeyError("mine")
    assert not path.exists()


async def test_running_handlers_are_cancelled_and_awaited_at_the_end(path: Path) -> None:
    service = Slow()

    async def call(channel: rpc.RpcChannel) -> None:
        with pytest.raises(rpc.Unavailable):
            await check(channel, None)

    async with rpc.RpcChannel(path) as channel, anyio.create_task_group() as tasks:
        with anyio.move_on_after(5):
            async with rpc.serve_unix([service], path):
                tasks.start_soon(call, channel)
                await anyio.sleep_forever()
        assert service.ends == ["cancelled"]
    assert not path.exists()


async def test_a_handler_may_shield_its_work_from_a_client_that_leaves(path: Path) -> None:
    service = Slow(shield=True)
    async with rpc.serve_unix([service], path):
        async with rpc.RpcChannel(path) as channel:
            with pytest.raises(rpc.DeadlineExceeded):
                await check(channel, 10)
        await anyio.sleep(100)
    assert service.ends == ["done"]


async def call_with_timeout_header(channel: rpc.RpcChannel, value: str) -> None:
    link = await channel._current_link()
    headers = (
        (":method", "POST"),
        (":path", CHECK),
        ("content-type", "application/grpc"),
        ("grpc-timeout", value),
    )
    call = Call(link, anyio.CancelScope())
    await call.send(headers, b"")
    await call.receive()


async def test_the_deadline_that_a_client_sends_along_is_kept(path: Path) -> None:
    service = Slow()
    async with rpc.serve_unix([service], path), rpc.RpcChannel(path) as channel:
        began = anyio.current_time()
        with pytest.raises(rpc.DeadlineExceeded, match="the client set"):
            await call_with_timeout_header(channel, "7S")
        assert anyio.current_time() - began == pytest.approx(7)
        with pytest.raises(rpc.InvalidArgument, match="timeout"):
            await call_with_timeout_header(channel, "soon")
    assert service.ends == ["cancelled"]


async def test_a_request_that_is_no_message_is_an_invalid_argument(path: Path) -> None:
    class Broken:
        def __bytes__(self) -> bytes:
            return b"\x0a\x02\xff\xfe"

        @classmethod
        def parse(cls, data: bytes) -> Broken:
            return cls()

    async with rpc.serve_unix([Quick()], path), rpc.RpcChannel(path) as channel:
        with pytest.raises(rpc.InvalidArgument, match="the request is not a HealthCheckRequest"):
            await channel.unary(CHECK, Broken(), Broken, timeout=5)


async def test_a_handler_that_gives_no_answer_is_internal(path: Path) -> None:
    class Forgetful(health.HealthBase):
        def __mapping__(self):  # type: ignore[no-untyped-def]
            mapping = super().__mapping__()
            handler = mapping[CHECK]

            async def nothing(stream: object) -> None:
                pass

            return {CHECK: handler._replace(func=nothing)}

    async with rpc.serve_unix([Forgetful()], path), rpc.RpcChannel(path) as channel:
        with pytest.raises(rpc.Internal, match="no answer"):
            await check(channel)


async def test_what_is_not_http2_costs_its_own_connection_only(path: Path) -> None:
    async with rpc.serve_unix([Quick()], path), rpc.RpcChannel(path) as channel:
        stranger = await anyio.connect_unix(path)
        async with stranger:
            await stranger.send(b"GET / HTTP/1.1\r\n\r\n")
            with anyio.fail_after(5):
                assert b"".join([data async for data in stranger]) is not None
        await check(channel)


# -- what can befall connections


async def test_a_message_that_is_too_large_is_refused_as_servers_in_go_do(path: Path) -> None:
    class Large(health.HealthBase):
        async def check(self, message: health.HealthCheckRequest) -> health.HealthCheckResponse:
            serving = health.HealthCheckResponseServingStatus.SERVING
            return health.HealthCheckResponse(status=serving)

    async with rpc.serve_unix([Large()], path, max_send=1), rpc.RpcChannel(path) as channel:
        message = r"grpc: trying to send message larger than max \(2 vs. 1\)"
        with pytest.raises(rpc.ResourceExhausted, match=message):
            await check(channel)


async def test_after_goaway_calls_that_were_taken_are_answered(path: Path) -> None:
    slow = Slow()
    async with rpc.serve_unix([slow], path) as server, rpc.RpcChannel(path) as channel:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(check, channel, 100)
            await anyio.sleep(1)
            (old,) = server.links
            server.goaway()
            await anyio.sleep(1)
            tasks.start_soon(check, channel, 100)
            await anyio.sleep(1)
            assert len(server.links) == 2
        assert slow.ends == ["done", "done"]
        await old.lost.wait()


async def test_after_goaway_calls_that_were_not_taken_are_made_again_once(path: Path) -> None:
    slow = Slow()
    async with rpc.serve_unix([slow], path) as server, rpc.RpcChannel(path) as channel:
        await check(channel, 100)
        server.goaway()
        # Sent before the client has read the frame: this server lets it lie.
        await check(channel, 100)
    assert slow.ends == ["done", "done"]


async def test_calls_that_no_connection_takes_are_given_up(path: Path) -> None:
    async with rpc.serve_unix([Quick()], path) as server, rpc.RpcChannel(path) as channel:
        await check(channel)
        made = 0

        class AwayAtOnce(set[object]):
            def add(self, link: object) -> None:
                nonlocal made
                made += 1
                super().add(link)
                link.send_goaway()  # type: ignore[attr-defined]

        server.links = AwayAtOnce(server.links)  # type: ignore[assignment]
        server.goaway()
        with pytest.raises(rpc.Unavailable, match="takes no more calls on this connection"):
            await check(channel)
        assert made == 2


async def test_goaway_with_an_error_cuts_the_calls(path: Path) -> None:
    slow = Slow()

    async def cut(channel: rpc.RpcChannel) -> None:
        with pytest.raises(rpc.Unavailable, match="GOAWAY"):
            await check(channel, 100)

    async with (
        rpc.serve_unix([slow], path) as server,
        rpc.RpcChannel(path) as channel,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(cut, channel)
        await anyio.sleep(1)
        (link,) = server.links
        link.transport.write(GoAwayFrame(0, last_stream_id=1, error_code=11).serialize())
    assert slow.ends == ["cancelled"]


async def test_a_killed_server_leaves_its_socket_and_tells_nobody(path: Path) -> None:
    async with rpc.RpcChannel(path) as channel:
        async with rpc.serve_unix([Quick()], path) as server:
            await check(channel)
            server.kill()
        assert path.exists()
        with pytest.raises(rpc.Unavailable, match="nobody listens"):
            await check(channel)
        async with rpc.serve_unix([Quick()], path):
            await check(channel)


async def test_stalled_bytes_flow_again_after_a_time(path: Path) -> None:
    slow = Slow()
    async with rpc.serve_unix([slow], path) as server, rpc.RpcChannel(path) as channel:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(check, channel, 1000)
            await anyio.sleep(1)
            server.stall()
            await anyio.sleep(7)
            server.resume()
        assert slow.ends == ["done"]


async def test_a_connection_that_stands_still_is_given_up_and_its_calls_with_it(
    path: Path,
) -> None:
    async with rpc.serve_unix([Slow()], path) as server, rpc.RpcChannel(path) as channel:
        await check(channel, 100)
        server.stall()
        began = anyio.current_time()
        with pytest.raises(rpc.Unavailable, match="the connection made no progress"):
            await check(channel, 1000)
        assert 10 <= anyio.current_time() - began <= 15.1
        await check(channel, 100)


async def test_a_long_call_on_a_living_connection_is_pinged_once(path: Path) -> None:
    async with (
        rpc.serve_unix([Slow()], path) as server,
        rpc.RpcChannel(path) as channel,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(check, channel, 100)
        await anyio.sleep(4)
        (link,) = server.links
        heard = link.heard
        await anyio.sleep(50)
        assert link.heard == heard + 1
