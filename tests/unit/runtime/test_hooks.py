"""What containers want done after their start and before their end.

docs/behaviour/runtime.md, "Hooks".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.unit.probes.servers import (
    Replies,
    answer,
    closed_port,
    hang,
    raw_server,
    server_tls,
)
from tests.unit.runtime.fakes import (
    EXITED,
    RUNNING,
    UID,
    EventLog,
    FakeRuntime,
    make_container,
    make_pod,
    make_settings,
)

from nodeagent.api import (
    Container,
    ContainerPort,
    ExecAction,
    HTTPGetAction,
    HTTPHeader,
    Lifecycle,
    LifecycleHandler,
    Pod,
    SleepAction,
    TCPSocketAction,
)
from nodeagent.journal import Journal
from nodeagent.model import ContainerID, PodRuntimeStatus, PodUID, SyncError
from nodeagent.proto.runtime import v1
from nodeagent.rpc import Internal, NotFound
from nodeagent.runtime import RuntimeManager
from nodeagent.runtime.lookups import Lookups

pytestmark = pytest.mark.anyio

EXEC = LifecycleHandler(exec=ExecAction(command=("warm", "up")))


def sleep(seconds: int) -> LifecycleHandler:
    return LifecycleHandler(sleep=SleepAction(seconds=seconds))


def http(port: int | str, path: str = "/hook", **fields: Any) -> LifecycleHandler:
    action = HTTPGetAction(host="127.0.0.1", path=path, port=port, **fields)
    return LifecycleHandler(http_get=action)


def hooked(
    name: str = "web",
    post_start: LifecycleHandler | None = None,
    pre_stop: LifecycleHandler | None = None,
    **fields: Any,
) -> Container:
    lifecycle = Lifecycle(post_start=post_start, pre_stop=pre_stop)
    return make_container(name, lifecycle=lifecycle, **fields)


async def start(runtime: FakeRuntime, manager: RuntimeManager, pod: Pod) -> PodRuntimeStatus:
    assert (await manager.sync_pod(pod, await runtime.status(), {})).error() is None
    return await runtime.status()


async def failure(runtime: FakeRuntime, manager: RuntimeManager, hook: LifecycleHandler) -> str:
    """What the container shows after its hook has failed."""
    pod = make_pod(hooked(post_start=hook, ports=(ContainerPort(name="web", container_port=1),)))
    result = await manager.sync_pod(pod, await runtime.status(), {})
    assert result.errors["web"].reason == "PostStartHookError"
    return result.errors["web"].message


WHERE = 'for Container "web" in Pod "web_default(uid-1)" failed - error: '


class TestAfterStart:
    """docs/behaviour/runtime.md, "Hooks"."""

    async def test_a_command_runs_without_a_limit_and_before_the_next_container(
        self, runtime: FakeRuntime, manager: RuntimeManager
    ) -> None:
        runtime.exec_seconds["web"] = 500.0
        began = anyio.current_time()
        await start(runtime, manager, make_pod(hooked(post_start=EXEC), make_container("next")))
        assert runtime.execs == [("web", ("warm", "up"), 0)]
        assert anyio.current_time() - began >= 500
        steps = [call for call in runtime.order if call in ("start_container", "exec_sync")]
        assert steps == ["start_container", "exec_sync", "start_container"]

    async def test_one_that_fails_kills_the_container_and_says_why_in_its_status_only(
        self, runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
    ) -> None:
        """events.md, EV52."""
        runtime.exec_result = v1.ExecSyncResponse(b"out\n", b"no secret\n", 3)
        assert await failure(runtime, manager, EXEC) == (
            f"Exec lifecycle hook ([warm up]) {WHERE}command 'warm up' exited with 3: no secret\n"
            ', message: "out\nno secret\n"'
        )
        assert runtime.newest("web").state is EXITED
        assert runtime.newest("web").stop_timeout == 30
        assert events.last("FailedPostStartHook").message == "PostStartHook failed"
        assert events.last("Killing").message == "FailedPostStartHook"
        assert events.last("Killing").field_path == "spec.containers{web}"
        assert not any("secret" in event.message for event in events.events)

    async def test_a_container_that_could_not_be_killed_does_not_hide_why(
        self, runtime: FakeRuntime, manager: RuntimeManager
    ) -> None:
        runtime.fail("exec_sync", Internal("no shim"))
        runtime.fail("stop_container", Internal("stuck"))
        assert "no shim" in await failure(runtime, manager, EXEC)

    async def test_it_is_started_again_and_counted(
        self, runtime: FakeRuntime, manager: RuntimeManager
    ) -> None:
        runtime.fail("exec_sync", NotFound("gone"))
        pod = make_pod(hooked(post_start=EXEC))
        await manager.sync_pod(pod, await runtime.status(), {})
        await start(runtime, manager, pod)
        assert runtime.newest("web").state is RUNNING
        assert runtime.attempts("web") == [0, 1]

    @pytest.mark.parametrize(
        ("hook", "message"),
        [
            (LifecycleHandler(), "Cannot run handler: invalid handler: none"),
            (
                LifecycleHandler(tcp_socket=TCPSocketAction(port=1)),
                "Cannot run handler: invalid handler: tcpSocket",
            ),
        ],
    )
    async def test_what_is_no_action_fails(
        self, runtime: FakeRuntime, manager: RuntimeManager, hook: LifecycleHandler, message: str
    ) -> None:
        assert await failure(runtime, manager, hook) == message

    async def test_a_pause_lasts_as_long_as_it_says(
        self, runtime: FakeRuntime, manager: RuntimeManager
    ) -> None:
        began = anyio.current_time()
        await start(runtime, manager, make_pod(hooked(post_start=sleep(7))))
        assert anyio.current_time() - began == pytest.approx(7, abs=0.5)

    async def test_it_ends_with_its_container(self, runtime: FakeRuntime, tmp_path: Path) -> None:
        def ended(uid: PodUID, cid: ContainerID) -> bool:
            assert uid == UID
            assert cid == runtime.newest("web").id
            return anyio.current_time() - began > 3

        manager = RuntimeManager(
            runtime, runtime, make_settings(tmp_path), lookups=Lookups(ended=ended)
        )
        began = anyio.current_time()
        await start(runtime, manager, make_pod(hooked(post_start=sleep(300))))
        assert anyio.current_time() - began < 5

    async def test_one_that_takes_long_is_what_its_container_waits_for(
        self, runtime: FakeRuntime, tmp_path: Path
    ) -> None:
        """docs/behaviour/phase.md, PS19."""
        told: list[tuple[str, bool]] = []
        manager = RuntimeManager(
            runtime,
            runtime,
            make_settings(tmp_path),
            on_note=lambda uid: told.append((uid, bool(manager.waiting_note(uid, "web")))),
        )
        await start(runtime, manager, make_pod(hooked(post_start=sleep(8)), uid="quick"))
        assert told == []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start, runtime, manager, make_pod(hooked(post_start=sleep(20))))
            await anyio.sleep(15)
            assert "running its postStart hook since 20" in manager.waiting_note(UID, "web")
        assert manager.waiting_note(UID, "web") == ""
        assert told == [(UID, True), (UID, False)]

    async def test_others_start_while_a_hook_goes_on(
        self, runtime: FakeRuntime, tmp_path: Path
    ) -> None:
        """A hook holds no place among the creations."""
        manager = RuntimeManager(runtime, runtime, make_settings(tmp_path))
        other = make_pod(uid="other", name="other")
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                pod = make_pod(hooked(post_start=sleep(100)), uid=f"u{number}")
                uid = PodUID(f"u{number}")
                tasks.start_soon(manager.sync_pod, pod, await runtime.status(uid), {})
            await anyio.sleep(1)
            began = anyio.current_time()
            await manager.sync_pod(other, await runtime.status(PodUID("other")), {})
            assert anyio.current_time() - began < 1


class TestRequests:
    """docs/behaviour/runtime.md, "Hooks"."""

    @pytest.mark.parametrize("status", ["200 OK", "404 Not Found", "500 Trouble", "302 Found"])
    async def test_any_answer_is_good(
        self, runtime: FakeRuntime, manager: RuntimeManager, status: str
    ) -> None:
        server = Replies(answer(status, b"body"))
        async with raw_server(server) as port:
            hook = http(port, http_headers=(HTTPHeader(name="X-Who", value="me"),))
            await start(runtime, manager, make_pod(hooked(post_start=hook)))
        (request,) = server.requests
        assert request.startswith("GET /hook HTTP/1.1\r\n")
        assert "User-Agent: kube-lifecycle/1.36\r\n" in request
        assert "X-Who: me\r\n" in request

    async def test_redirects_on_the_same_host_are_followed(
        self, runtime: FakeRuntime, manager: RuntimeManager
    ) -> None:
        def reply(path: str) -> bytes:
            return answer("302 Found", Location="/there") if path == "/hook" else answer("200 OK")

        server = Replies(reply)
        async with raw_server(server) as port:
            await start(runtime, manager, make_pod(hooked(post_start=http(port))))
        assert [r.split(" ")[1] for r in server.requests] == ["/hook", "/there"]

    async def test_a_loop_of_redirects_fails(
        self, runtime: FakeRuntime, manager: RuntimeManager
    ) -> None:
        async with raw_server(Replies(answer("302 Found", Location="/hook"))) as port:
            assert "stopped after 10 redirects" in await failure(runtime, manager, http(port))

    async def test_nobody_who_answers_is_a_failure(
        self, runtime: FakeRuntime, manager: RuntimeManager
    ) -> None:
        with closed_port() as port:
            told = await failure(runtime, manager, http(port))
        url = f"http://127.0.0.1:{port}/hook"
        trouble = f'Get "{url}": dial tcp 127.0.0.1:{port}: connect: connection refused'
        assert told == f"HTTP lifecycle hook (/hook) {WHERE}{trouble}"

    async def test_a_port_may_be_named_and_must_exist(
        self, runtime: FakeRuntime, manager: RuntimeManager
    ) -> None:
        told = await failure(runtime, manager, http("nope"))
        assert told.endswith("container web has no port named 'nope'")
        server = Replies(answer("200 OK"))
        async with raw_server(server) as port:
            ports = (ContainerPort(name="web", container_port=port),)
            pod = make_pod(hooked(post_start=http("web"), ports=ports))
            await manager.sync_pod(pod, await runtime.status(), {})
        assert server.requests

    async def test_the_host_is_the_pod_by_default(
        self, runtime: FakeRuntime, manager: RuntimeManager
    ) -> None:
        hook = LifecycleHandler(http_get=HTTPGetAction(path="/", port=0))
        assert "invalid port number: 0" in await failure(runtime, manager, hook)
        server = Replies(answer("200 OK"))
        async with raw_server(server) as port:
            hook = LifecycleHandler(http_get=HTTPGetAction(path="/", port=port))
            pod = make_pod(hooked(post_start=hook), uid="u2")
            runtime.ip = "127.0.0.1"
            await manager.sync_pod(pod, await runtime.status(PodUID("u2")), {})
        assert server.requests

    async def test_no_certificate_is_verified(
        self, runtime: FakeRuntime, manager: RuntimeManager, tmp_path: Path, events: EventLog
    ) -> None:
        server = Replies(answer("200 OK"))
        async with raw_server(server, ssl=server_tls(tmp_path)) as port:
            hook = http(port, scheme="HTTPS")
            await start(runtime, manager, make_pod(hooked(post_start=hook)))
        assert server.requests
        assert "LifecycleHTTPFallback" not in events.reasons

    async def test_a_server_without_tls_is_asked_in_plain_text_and_told_no_secret(
        self, runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
    ) -> None:
        """events.md, EV53."""

        async def plain(reader: Any, writer: Any) -> None:
            head = await reader.read(1)
            rest = await reader.readuntil(b"\r\n\r\n") if head == b"G" else b""
            requests.append(rest.decode())
            writer.write(answer("200 OK" if rest else "400 Bad Request"))
            await writer.drain()

        requests: list[str] = []
        headers = (
            HTTPHeader(name="Authorization", value="secret"),
            HTTPHeader(name="X-Who", value="me"),
        )
        async with raw_server(plain) as port:
            hook = http(port, scheme="HTTPS", http_headers=headers)
            await start(runtime, manager, make_pod(hooked(post_start=hook)))
        assert "X-Who: me" in requests[-1]
        assert "secret" not in requests[-1]
        told = events.last("LifecycleHTTPFallback")
        assert told.kind == "Warning"
        assert told.message == (
            f"request to HTTPS lifecycle hook 127.0.0.1:{port} got HTTP response, "
            "retry with HTTP succeeded"
        )


class TestBeforeEnd:
    """docs/behaviour/runtime.md, "Hooks", "Grace"."""

    @pytest.mark.parametrize(
        ("seconds", "grace", "left"), [(5.9, 30, 25), (0.5, 30, 30), (29.5, 30, 2), (1, 1, 2)]
    )
    async def test_what_it_takes_comes_out_of_the_grace(
        self,
        runtime: FakeRuntime,
        manager: RuntimeManager,
        seconds: float,
        grace: int,
        left: int,
    ) -> None:
        pod = make_pod(hooked(pre_stop=EXEC))
        status = await start(runtime, manager, pod)
        runtime.exec_seconds["web"] = seconds
        await manager.kill_pod(pod, status, grace)
        assert runtime.execs == [("web", ("warm", "up"), 0)]
        assert runtime.newest("web").stop_timeout == left

    async def test_without_any_grace_it_is_left_out(
        self, runtime: FakeRuntime, manager: RuntimeManager
    ) -> None:
        pod = make_pod(hooked(pre_stop=EXEC))
        status = await start(runtime, manager, pod)
        await manager.kill_pod(pod, status, 0)
        assert runtime.execs == []

    @pytest.mark.parametrize("beside", [True, False])
    async def test_one_that_outlives_the_grace_is_cut_and_the_container_stopped(
        self, runtime: FakeRuntime, manager: RuntimeManager, events: EventLog, beside: bool
    ) -> None:
        """events.md, EV52."""
        pod = make_pod(hooked(pre_stop=sleep(600)))
        status = await start(runtime, manager, pod)
        async with anyio.create_task_group() as tasks:
            if beside:
                await tasks.start(manager.run)
            began = anyio.current_time()
            await manager.kill_pod(pod, status, 10)
            assert 10 <= anyio.current_time() - began < 11
            tasks.cancel_scope.cancel()
        assert runtime.newest("web").stop_timeout == 2
        told = events.last("FailedPreStopHook")
        assert told.message == "PreStop hook not completed in grace period of 10s"
        assert told.field_path == "spec.containers{web}"
        assert events.reasons.index("Killing") < events.reasons.index("FailedPreStopHook")

    async def test_one_that_fails_is_told_without_details_and_changes_nothing(
        self,
        runtime: FakeRuntime,
        manager: RuntimeManager,
        events: EventLog,
        journal: Journal,
    ) -> None:
        """events.md, EV52."""
        pod = make_pod(hooked(pre_stop=EXEC))
        status = await start(runtime, manager, pod)
        runtime.exec_result = v1.ExecSyncResponse(b"", b"secret", 1)
        await manager.kill_pod(pod, status, 30)
        assert events.last("FailedPreStopHook").message == "PreStopHook failed"
        assert runtime.newest("web").state is EXITED
        (record,) = [r for r in journal.select(UID) if r.what == "PreStopHookFailed"]
        assert "exited with 1: secret" in record.why

    @pytest.mark.parametrize("ends", [True, False])
    async def test_a_command_that_ends_with_its_container_has_not_failed(
        self, runtime: FakeRuntime, tmp_path: Path, events: EventLog, ends: bool
    ) -> None:
        """The kernel kills commands before anybody learns of the container's end."""
        killed = 1000.0
        manager = RuntimeManager(
            runtime,
            runtime,
            make_settings(tmp_path),
            events=events,
            lookups=Lookups(ended=lambda _uid, _cid: ends and anyio.current_time() > killed + 0.4),
        )
        pod = make_pod(hooked(pre_stop=EXEC))
        status = await start(runtime, manager, pod)
        runtime.exec_seconds["web"] = 3.2
        runtime.exec_result = v1.ExecSyncResponse(exit_code=137)
        killed = anyio.current_time() + 3.2
        await manager.kill_pod(pod, status, 30)
        assert ("FailedPreStopHook" in events.reasons) is not ends
        assert anyio.current_time() - killed < 2

    async def test_the_sidecars_wait_comes_after_its_own_hook(
        self, runtime: FakeRuntime, manager: RuntimeManager
    ) -> None:
        """docs/behaviour/runtime.md, "Stop order"."""
        side = hooked("side", pre_stop=sleep(3), restart_policy="Always")
        pod = make_pod(make_container("main"), init_containers=(side,))
        await start(runtime, manager, pod)
        status = await start(runtime, manager, pod)
        runtime.stop_seconds["main"] = 8.0
        began = anyio.current_time()
        await manager.kill_pod(pod, status, 20)
        assert runtime.newest("side").stop_timeout == 12
        assert anyio.current_time() - began == pytest.approx(8, abs=1)

    async def test_it_ends_with_its_container_and_does_not_stall_the_stop(
        self, runtime: FakeRuntime, tmp_path: Path
    ) -> None:
        manager = RuntimeManager(
            runtime,
            runtime,
            make_settings(tmp_path),
            lookups=Lookups(ended=lambda _uid, _cid: anyio.current_time() - began > 4),
        )
        pod = make_pod(hooked(pre_stop=sleep(600)))
        began = anyio.current_time() + 1000
        status = await start(runtime, manager, pod)
        began = anyio.current_time()
        await manager.kill_pod(pod, status, 300)
        assert anyio.current_time() - began < 6

    async def test_a_second_stop_with_less_grace_joins_it(
        self, runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
    ) -> None:
        pod = make_pod(hooked(pre_stop=EXEC))
        status = await start(runtime, manager, pod)
        runtime.exec_seconds["web"] = 20.0
        async with anyio.create_task_group() as tasks:
            await tasks.start(manager.run)
            began = anyio.current_time()
            with anyio.move_on_after(15):
                await manager.kill_pod(pod, status, 100)
            await manager.kill_pod(pod, await runtime.status(), 8)
            assert anyio.current_time() - began == pytest.approx(20, abs=0.5)
            tasks.cancel_scope.cancel()
        assert len(runtime.execs) == 1
        assert runtime.newest("web").stop_timeout == 3
        assert "FailedPreStopHook" not in events.reasons

    async def test_a_second_stop_cuts_it_when_its_grace_is_over(
        self, runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
    ) -> None:
        pod = make_pod(hooked(pre_stop=sleep(500)))
        status = await start(runtime, manager, pod)
        async with anyio.create_task_group() as tasks:
            await tasks.start(manager.run)
            began = anyio.current_time()
            with anyio.move_on_after(15):
                await manager.kill_pod(pod, status, 100)
            await manager.kill_pod(pod, await runtime.status(), 5)
            assert anyio.current_time() - began == pytest.approx(20, abs=0.5)
            tasks.cancel_scope.cancel()
        assert "not completed in grace period of 5s" in events.last("FailedPreStopHook").message

    async def test_it_is_not_performed_again_for_a_container_that_could_not_be_stopped(
        self, runtime: FakeRuntime, manager: RuntimeManager
    ) -> None:
        pod = make_pod(hooked(pre_stop=EXEC))
        status = await start(runtime, manager, pod)
        runtime.fail("stop_container", Internal("stuck"))
        runtime.fail("stop_pod_sandbox", Internal("stuck"))
        with pytest.raises(SyncError, match="stuck"):
            await manager.kill_pod(pod, status, 30)
        await manager.kill_pod(pod, await runtime.status(), 30)
        assert len(runtime.execs) == 1
        assert runtime.newest("web").stop_timeout == 30

    async def test_what_the_container_carries_counts_when_the_spec_is_gone(
        self, runtime: FakeRuntime, manager: RuntimeManager, events: EventLog
    ) -> None:
        server = Replies(answer("200 OK"))
        async with raw_server(server) as port:
            ports = (ContainerPort(name="web", container_port=port),)
            pod = make_pod(hooked(pre_stop=http("web"), ports=ports))
            status = await start(runtime, manager, pod)
            events.events.clear()
            await manager.kill_pod(None, status, 30)
        assert len(server.requests) == 1
        assert events.events == []

    @pytest.mark.parametrize("damaged", ["preStopHandler", "ports"])
    async def test_what_it_carries_may_be_damaged(
        self, runtime: FakeRuntime, manager: RuntimeManager, damaged: str
    ) -> None:
        pod = make_pod(hooked(pre_stop=http("web"), ports=(ContainerPort(container_port=1),)))
        await start(runtime, manager, pod)
        annotations = runtime.newest("web").config.annotations
        annotations[f"io.kubernetes.container.{damaged}"] = "{"
        await manager.kill_pod(None, await runtime.status(), 30)
        assert runtime.newest("web").state is EXITED

    async def test_one_that_hangs_ends_with_the_agent(
        self, runtime: FakeRuntime, manager: RuntimeManager
    ) -> None:
        async with raw_server(hang) as port:
            pod = make_pod(hooked(pre_stop=http(port)))
            status = await start(runtime, manager, pod)
            async with anyio.create_task_group() as tasks:
                await tasks.start(manager.run)
                tasks.start_soon(manager.kill_pod, pod, status, 1000)
                await anyio.sleep(5)
                tasks.cancel_scope.cancel()
        assert runtime.newest("web").state is RUNNING

    async def test_a_container_that_is_replaced_has_its_hook_too(
        self, runtime: FakeRuntime, manager: RuntimeManager
    ) -> None:
        pod = make_pod(hooked(pre_stop=EXEC))
        status = await start(runtime, manager, pod)
        runtime.add_image("example.test/web:v2")
        (web,) = pod.spec.containers
        newer = msgspec.structs.replace(web, image="example.test/web:v2")
        await manager.sync_pod(make_pod(newer), status, {})
        assert len(runtime.execs) == 1
        assert runtime.attempts("web") == [0, 1]
