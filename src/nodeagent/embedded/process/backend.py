"""Containers as processes of this machine, each under a monitor that survives the server."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import to_thread

from nodeagent.clock import Clock, SystemClock
from nodeagent.embedded.backend import DiskUsage, ExecResult, Recovered, StartError, Usage
from nodeagent.embedded.process import specs, usage
from nodeagent.embedded.process.attached import AttachedProcess, attached_process
from nodeagent.embedded.process.execution import not_running, run_command
from nodeagent.embedded.process.handles import (
    Handle,
    check_kernel,
    kill_process,
    open_handle,
    wait_for_end,
)
from nodeagent.embedded.process.isolation import (
    Isolation,
    container_warnings,
    refuse_impossible,
)
from nodeagent.embedded.process.log_reopen import reopen_log
from nodeagent.embedded.process.probe import find_isolation
from nodeagent.embedded.process.store import MonitorFile, Store, sandbox_files
from nodeagent.embedded.process.streamed import StreamedCommand, streamed_command
from nodeagent.embedded.process.zygote import Zygote
from nodeagent.embedded.records import LOST_EXIT_CODE, ContainerRecord, Exit, RunState
from nodeagent.log import Log
from nodeagent.rpc import Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from anyio.abc import ByteStream, TaskGroup

    from nodeagent.embedded.process.launcher.spec import ExecSpec, MountSpec
    from nodeagent.embedded.records import SandboxRecord
    from nodeagent.streaming.protocols import Wanted

log = Log("embedded.process")

_START_SECONDS: Final = 30.0
_CLAIM_SECONDS: Final = 2.0
_SANDBOX_FILES: Final = {"resolv.conf": "/etc/resolv.conf", "hostname": "/etc/hostname"}


@dataclass(eq=False, slots=True)
class _Session:
    """What there is only while the backend is open."""

    tasks: TaskGroup
    zygote: Zygote
    on_exit: Callable[[ContainerRecord, Exit], None]
    isolation: Isolation


class ProcessBackend:
    """Runs containers as processes. Needs Linux 5.3 or newer.

    As root, and where the kernel allows user namespaces, a container gets mount, PID, UTS and
    IPC namespaces of its own and an overlay of the host's root file system; else it is a plain
    process, and one that asks for mounts is refused.

    Args:
        state_dir: where everything is recorded; made with mode 0700. One server at a time.
        isolate: False for plain processes even where more is possible.
        clock: wall time for the stamps.
    """

    name = "process"

    def __init__(
        self, state_dir: Path, *, isolate: bool = True, clock: Clock | None = None
    ) -> None:
        self.store = Store(state_dir)
        self._isolate = isolate
        self._clock: Clock = clock or SystemClock()
        self._handles: dict[str, Handle] = {}
        self._sandboxes: dict[str, SandboxRecord] = {}
        self._session: _Session | None = None

    # -- opening

    @asynccontextmanager
    async def open(self, on_exit: Callable[[ContainerRecord, Exit], None]) -> AsyncIterator[None]:
        """Have the launcher ready inside the context.

        Raises:
            OSError: the state directory cannot be made, or the kernel is too old.
        """
        check_kernel()
        await to_thread.run_sync(self.store.open)
        zygote = Zygote(self.store.root / "launcher.log")
        try:
            isolation = await find_isolation(zygote, self.store.root, wanted=self._isolate)
            _say(isolation)
            async with anyio.create_task_group() as tasks:
                self._session = _Session(tasks, zygote, on_exit, isolation)
                try:
                    yield
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            self._session = None
            for handle in self._handles.values():
                handle.close()
            self._handles.clear()
            with anyio.CancelScope(shield=True):
                await zygote.close()
                await to_thread.run_sync(self.store.close)

    async def recover(self) -> Recovered:
        """Adopt what runs, and find out how the rest ended."""
        sandboxes = await to_thread.run_sync(self.store.load_sandboxes)
        containers, unknown = await to_thread.run_sync(self.store.load_containers)
        self._sandboxes = {sandbox.id: sandbox for sandbox in sandboxes}
        kept = []
        for container in containers:
            if container.sandbox_id in self._sandboxes:
                await self._take_up(container)
                kept.append(container)
            else:
                unknown.append(container.id)
        for container_id in unknown:
            await to_thread.run_sync(self._destroy, container_id)
        images = await to_thread.run_sync(self.store.load_images)
        return Recovered(sandboxes, kept, images)

    # -- facts

    async def pace(self, method: str) -> None:
        """Calls take the time they take."""

    def info(self) -> Mapping[str, str]:
        """The state directory, and how isolated containers are."""
        isolation = self._open().isolation
        return {"stateDir": str(self.store.root), "isolation": str(isolation)}

    def warnings(self, container: ContainerRecord) -> Sequence[str]:
        """What of the configuration has no effect here."""
        return container_warnings(container.config, self._open().isolation)

    # -- sandboxes

    async def create_sandbox(self, sandbox: SandboxRecord) -> None:
        """Record it; there is no process behind a sandbox."""
        specs.check_sandbox(sandbox.config)
        await to_thread.run_sync(self.store.save_sandbox, sandbox)
        self._sandboxes[sandbox.id] = sandbox

    async def stop_sandbox(self, sandbox: SandboxRecord) -> None:
        """Record that it is not ready."""
        await to_thread.run_sync(self.store.save_sandbox, sandbox)

    async def remove_sandbox(self, sandbox: SandboxRecord) -> None:
        """Remove its record."""
        self._sandboxes.pop(sandbox.id, None)
        await to_thread.run_sync(self.store.remove_sandbox, sandbox.id)

    # -- containers

    async def create(self, container: ContainerRecord, sandbox: SandboxRecord) -> None:
        """Check and record it."""
        specs.check_container(container.config)
        self._spec(container, sandbox)  # refuses what it cannot say
        await to_thread.run_sync(self.store.save_container, container)

    async def start(self, container: ContainerRecord, sandbox: SandboxRecord) -> int:
        """Fork its monitor and wait until its program runs."""
        spec = self._spec(container, sandbox)
        answer = await self._ask_to_start(spec)
        if answer == {} and not await to_thread.run_sync(self.store.was_claimed, container.id):
            # The launcher died before it read the request; the next one is started by asking.
            answer = await self._ask_to_start(spec)
        if answer is None:
            await to_thread.run_sync(self._kill_recorded, container.id)
            msg = f"the container did not start within {_START_SECONDS:g} s"
            raise Unavailable(msg)
        record = MonitorFile(**answer) if "pid" in answer else None
        if record is None:
            end = await to_thread.run_sync(self.store.read_exit, container.id)
            # An earlier start may have been taken for failed, and have succeeded.
            record = await to_thread.run_sync(self.store.read_monitor, container.id)
            if end is not None or record is None:
                message = answer.get("error", "the monitor ended without a word")
                raise StartError(end or Exit(128, self._clock.time_ns(), "StartError", message))
        self._watch(container, await self._hold(record))
        return record.started_at or self._clock.time_ns()

    def signal(self, container: ContainerRecord, number: int) -> None:
        """Signal its first process; all of it ends with that."""
        if handle := self._handles.get(container.id):
            handle.signal(number)

    async def remove(self, container: ContainerRecord) -> None:
        """Remove its record and its file system."""
        await to_thread.run_sync(self.store.remove_container, container.id)

    async def exec_sync(
        self, container: ContainerRecord, cmd: Sequence[str], timeout: float | None
    ) -> ExecResult:
        """Run a command in its namespaces, as its user, with its environment."""
        spec = self._exec_spec(container, cmd, tty=False)
        return await run_command(self._open().zygote, spec, timeout, container.exited)

    def exec(
        self, container: ContainerRecord, cmd: Sequence[str], wanted: Wanted
    ) -> AbstractAsyncContextManager[StreamedCommand]:
        """The same with streams, or a terminal."""
        spec = self._exec_spec(container, cmd, tty=wanted.tty)
        return streamed_command(self._open().zygote, spec, wanted, container.exited)

    def attach(
        self, container: ContainerRecord, wanted: Wanted
    ) -> AbstractAsyncContextManager[AttachedProcess]:
        """The streams of its first process, which its monitor passes on."""
        return attached_process(self.store.container_dir(container.id), speaks=wanted.stdin)

    async def connect(self, sandbox: SandboxRecord, port: int) -> ByteStream:
        """Connect to a port of this machine, whose network all pods have."""
        del sandbox
        return await anyio.connect_tcp("localhost", port)

    def _exec_spec(self, container: ContainerRecord, cmd: Sequence[str], *, tty: bool) -> ExecSpec:
        handle = self._handles.get(container.id)
        if handle is None:
            raise not_running()
        sandbox = self._sandboxes[container.sandbox_id]
        isolated = handle.record.isolation != "none"
        scratch = "" if isolated else str(self.store.container_dir(container.id) / "cwd")
        return {
            "pid": handle.record.pid,
            "start_time": handle.record.start,
            "isolated": isolated,
            "tty": tty,
            "process": specs.process_spec(container, sandbox, scratch=scratch, argv=cmd),
        }

    async def reopen_log(self, container: ContainerRecord) -> None:
        """Make the log file anew and have the monitor write to it."""
        handle = self._handles.get(container.id)
        if handle is not None and container.log_path:
            directory = self._sandboxes[container.sandbox_id].config.log_directory
            await reopen_log(handle, directory, container.config.log_path)

    async def usage(self, containers: Sequence[ContainerRecord]) -> Mapping[str, Usage]:
        """Add up what their processes use."""
        running: dict[str, tuple[MonitorFile, Path]] = {
            one.id: (self._handles[one.id].record, self._layer(one.id))
            for one in containers
            if one.id in self._handles
        }
        return await to_thread.run_sync(usage.measure, running)

    async def disk_usage(self) -> DiskUsage:
        """What all container directories take."""
        size, files = await to_thread.run_sync(usage.tree_size, self.store.root / "containers")
        return DiskUsage(await to_thread.run_sync(usage.mount_point, self.store.root), size, files)

    async def save_images(self, references: Sequence[str]) -> None:
        """Record which images are present."""
        await to_thread.run_sync(self.store.save_images, references)

    # -- inner workings

    def _open(self) -> _Session:
        if self._session is None:
            raise Unavailable("the embedded runtime is closed")
        return self._session

    def _layer(self, container_id: str) -> Path:
        return self.store.container_dir(container_id) / "rootfs" / "upper"

    def _spec(self, container: ContainerRecord, sandbox: SandboxRecord) -> Mapping[str, object]:
        refuse_impossible(container.config, self._open().isolation)
        where = self.store.sandbox_dir(sandbox.id)
        files: list[MountSpec] = [
            {
                "source": str(where / name),
                "target": _SANDBOX_FILES[name],
                "readonly": False,
                "private": True,
            }
            for name in sandbox_files(sandbox.config)
        ]
        return specs.container_spec(
            container,
            sandbox,
            self._open().isolation,
            directory=str(self.store.container_dir(container.id)),
            sandbox_files=files,
            hidden=[str(self.store.root)],
        )

    async def _ask_to_start(self, spec: Mapping[str, object]) -> Mapping[str, Any] | None:
        """What the monitor answers; empty when it ended without a word, None when it hangs."""
        control = await self._open().zygote.fork("start", spec)
        try:
            with anyio.move_on_after(_START_SECONDS):
                return await control.answer()
        finally:
            control.close()
        return None

    async def _take_up(self, container: ContainerRecord) -> None:
        """Bring a container of an earlier server up to date."""
        end = await to_thread.run_sync(self.store.read_exit, container.id)
        if end is None and await to_thread.run_sync(self.store.was_claimed, container.id):
            record = await self._wait_for_monitor(container.id)
            handle = await self._hold(record) if record else None
            if record is not None and handle is not None:
                container.mark_running(record.started_at or self._clock.time_ns())
                self._watch(container, handle)
                return
            end = await self._find_end(container, record)
        if end is not None:
            record = await to_thread.run_sync(self.store.read_monitor, container.id)
            container.started_at = record.started_at if record else 0
            container.mark_exited(end)

    async def _hold(self, record: MonitorFile) -> Handle | None:
        return await to_thread.run_sync(open_handle, record, self.store.boot_id)

    async def _wait_for_monitor(self, container_id: str) -> MonitorFile | None:
        """Its record; one that is just being made is waited for."""
        deadline = anyio.current_time() + _CLAIM_SECONDS
        while True:
            record = await to_thread.run_sync(self.store.read_monitor, container_id)
            if record is not None or anyio.current_time() > deadline:
                return record
            await anyio.sleep(0.05)

    def _watch(self, container: ContainerRecord, handle: Handle | None) -> None:
        if handle is not None:
            self._handles[container.id] = handle
        self._open().tasks.start_soon(self._follow, container, handle)

    async def _follow(self, container: ContainerRecord, handle: Handle | None) -> None:
        """Wait for the monitor to end, and say how the container did."""
        record = None
        if handle is not None:
            await anyio.wait_readable(handle.monitor_fd)
            self._handles.pop(container.id, None)
            record = handle.record
            handle.close()
        end = await self._find_end(container, record)
        if container.state is RunState.RUNNING:
            self._open().on_exit(container, end)

    async def _find_end(self, container: ContainerRecord, record: MonitorFile | None) -> Exit:
        """How a container ended whose monitor has."""
        end = await to_thread.run_sync(self.store.read_exit, container.id)
        if end is not None:
            return end
        if record is not None and record.boot_id == self.store.boot_id:
            await to_thread.run_sync(kill_process, record.pid, record.start)
        message = "nobody saw how it ended: its monitor is gone"
        end = Exit(LOST_EXIT_CODE, self._clock.time_ns(), "Unknown", message)
        try:
            await to_thread.run_sync(self.store.save_exit, container.id, end)
        except OSError as exc:
            log.warning("exit_not_recorded", container_id=container.id, error=str(exc))
        return end

    def _kill_recorded(self, container_id: str) -> None:
        """Kill a container by what its monitor wrote down, and see that both end."""
        record = self.store.read_monitor(container_id)
        if record is None or record.boot_id != self.store.boot_id:
            return
        kill_process(record.pid, record.start)
        if not wait_for_end(record.monitor_pid, record.monitor_start, _CLAIM_SECONDS):
            kill_process(record.monitor_pid, record.monitor_start)

    def _destroy(self, container_id: str) -> None:
        """Kill and forget what nobody could ever ask about again."""
        log.warning("container_without_record_removed", container_id=container_id)
        self._kill_recorded(container_id)
        self.store.remove_container(container_id)


def _say(isolation: Isolation) -> None:
    """One line on what containers have of their own here."""
    if isolation.means == "none":
        log.warning("containers_not_isolated", why=isolation.reason, remedy=isolation.remedy)
        return
    means = "root" if isolation.means == "root" else "user namespaces"
    changes = "memory" if isolation.upper == "tmpfs" else "the state directory"
    why = {"why": isolation.reason} if isolation.reason else {}
    log.info("containers_isolated", by=means, changes_go_to=changes, **why)
