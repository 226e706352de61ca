"""Containers without processes: scripted lives on the event loop's time.

What a container does is decided, first match wins, by the script given for ``pod/container``
or ``container`` in Python, by a rule of a scenario that says how long it lives, by the annotation
``embedded.nodeagent/script.<container>`` of its pod, by a command that is easy to foretell
(``sleep 5``, ``true``, ``false``, ``exit 3`` and ``sh -c`` lines made of these), and else by the
default script: it runs until it is stopped.
"""

from __future__ import annotations

import asyncio
import heapq
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
from anyio import to_thread

from nodeagent.aio import background
from nodeagent.clock import Clock, SystemClock
from nodeagent.embedded.backend import DiskUsage, ExecResult, Recovered, StartError, Usage
from nodeagent.embedded.records import ContainerRecord, Exit, RunState
from nodeagent.embedded.script import LogLine, Script, ScriptRule
from nodeagent.embedded.script_log import append_log, log_record
from nodeagent.embedded.script_streams import Scripted
from nodeagent.embedded.script_text import script_from_annotation, script_from_command
from nodeagent.log import Log
from nodeagent.rpc import DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import ByteStream, TaskGroup

    from nodeagent.embedded.records import SandboxRecord
    from nodeagent.streaming.commands import Command
    from nodeagent.streaming.protocols import Wanted

log = Log("embedded")
ANNOTATION: Final = "embedded.nodeagent/script."
_FORCED: Final = 128 + signal.SIGKILL


class SimulatedBackend:
    """Runs nothing, and says that containers run and end as their scripts have it.

    Args:
        scripts: by ``pod/container`` or ``container``; may be changed at any time.
        rules: for the containers that patterns name, the first that matches; may be changed too.
            One that does not say when they end leaves that to annotation and command.
        default: for all other containers.
        latency: seconds that calls take, by CRI method name.
        clock: wall time for the stamps.
    """

    name = "simulated"

    def __init__(
        self,
        scripts: Mapping[str, Script] | None = None,
        *,
        rules: Sequence[ScriptRule] = (),
        default: Script | None = None,
        latency: Mapping[str, float] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.scripts: dict[str, Script] = dict(scripts or {})
        self.rules: list[ScriptRule] = list(rules)
        self.default = default or Script()
        self.latency: dict[str, float] = dict(latency or {})
        self._clock: Clock = clock or SystemClock()
        self._on_exit: Callable[[ContainerRecord, Exit], None] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._own: dict[str, Script] = {}
        self._started: dict[str, float] = {}
        self._tasks: TaskGroup

    @asynccontextmanager
    async def open(self, on_exit: Callable[[ContainerRecord, Exit], None]) -> AsyncIterator[None]:
        """Scripts run inside the context."""
        self._on_exit = on_exit
        try:
            async with background() as self._tasks:
                yield
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    async def pace(self, method: str) -> None:
        """Wait for the latency of the method."""
        if seconds := self.latency.get(method, 0.0):
            await anyio.sleep(seconds)

    def info(self) -> Mapping[str, str]:
        """Nothing more to say."""
        return {}

    def warnings(self, container: ContainerRecord) -> Sequence[str]:
        """Everything is honoured where nothing happens."""
        del container
        return ()

    async def create_sandbox(self, sandbox: SandboxRecord) -> None:
        """Nothing to prepare."""

    async def stop_sandbox(self, sandbox: SandboxRecord) -> None:
        """Nothing to stop."""

    async def remove_sandbox(self, sandbox: SandboxRecord) -> None:
        """Nothing to remove."""

    async def create(self, container: ContainerRecord, sandbox: SandboxRecord) -> None:
        """Choose the script."""
        self._own[container.id] = self._choose(container, sandbox)

    async def start(self, container: ContainerRecord, sandbox: SandboxRecord) -> int:
        """Begin the script."""
        del sandbox
        script = self._script(container)
        await anyio.sleep(script.start_after)
        now = self._clock.time_ns()
        if script.start_error:
            raise StartError(Exit(128, now, "StartError", script.start_error))
        if end := script.end_of(container.metadata.attempt):
            self._end_after(container, *end, by_itself=True)
        self._started[container.id] = anyio.current_time()
        if script.log and container.log_path:
            self._tasks.start_soon(self._write_log, container, script.log)
        return now

    def signal(self, container: ContainerRecord, number: int) -> None:
        """End it after its ``stop_after``, or at once for SIGKILL."""
        if number == signal.SIGKILL:
            self._end(container, _FORCED)
            return
        script = self._script(container)
        if not script.ignores_stop:
            self._end_after(container, script.stop_after, script.stop_code)

    async def remove(self, container: ContainerRecord) -> None:
        """Forget the script."""
        self._own.pop(container.id, None)
        self._started.pop(container.id, None)
        if timer := self._timers.pop(container.id, None):
            timer.cancel()

    async def exec_sync(
        self, container: ContainerRecord, cmd: Sequence[str], timeout: float | None
    ) -> ExecResult:
        """Give the result of the script after its time."""
        age = anyio.current_time() - self._started.get(container.id, 0.0)
        rule = self._script(container).exec_of(cmd, age)
        if timeout is not None and rule.takes > timeout:
            await anyio.sleep(timeout)
            msg = f"failed to exec in container: timeout {timeout:g}s exceeded"
            raise DeadlineExceeded(msg)
        await anyio.sleep(rule.takes)
        return rule.result

    @asynccontextmanager
    async def exec(
        self, container: ContainerRecord, cmd: Sequence[str], wanted: Wanted
    ) -> AsyncIterator[Command]:
        """Say what the script says, after its time; input is dropped."""
        del wanted
        yield Scripted(partial(self.exec_sync, container, cmd, None), container.exited)

    @asynccontextmanager
    async def attach(self, container: ContainerRecord, wanted: Wanted) -> AsyncIterator[Command]:
        """Wait in silence for the end of the container."""
        del wanted

        async def end() -> ExecResult:
            await container.exited.wait()
            return ExecResult(exit_code=container.exit.code if container.exit else 0)

        yield Scripted(end, container.exited)

    async def connect(self, sandbox: SandboxRecord, port: int) -> ByteStream:
        """Refuse: nobody listens."""
        del sandbox
        msg = f"connection to port {port} refused: containers are simulated, nothing listens"
        raise ConnectionRefusedError(msg)

    async def reopen_log(self, container: ContainerRecord) -> None:
        """Every line goes to the file that has the log's path then."""
        if self._script(container).log and container.log_path:
            await to_thread.run_sync(append_log, container.log_path, b"")

    async def usage(self, containers: Sequence[ContainerRecord]) -> Mapping[str, Usage]:
        """What the scripts say."""
        return {one.id: self._usage(one) for one in containers}

    def _usage(self, container: ContainerRecord) -> Usage:
        script, now = self._script(container), anyio.current_time()
        busy = script.cores * (now - self._started.get(container.id, now))
        return replace(script.usage, cpu_ns=script.usage.cpu_ns + int(busy * 1e9))

    async def disk_usage(self) -> DiskUsage:
        """Nothing is on disk."""
        return DiskUsage("/", 0, 0)

    async def save_images(self, references: Sequence[str]) -> None:
        """Nothing is remembered."""

    async def recover(self) -> Recovered:
        """Nothing is left of an earlier server."""
        return Recovered()

    # -- for tests

    def end(self, container: ContainerRecord, code: int) -> None:
        """End a running container now."""
        self._end(container, code)

    # -- inner workings

    def _script(self, container: ContainerRecord) -> Script:
        return self._own.get(container.id, self.default)

    def _choose(self, container: ContainerRecord, sandbox: SandboxRecord) -> Script:
        pod, name = sandbox.metadata.name, container.name
        for key in (f"{pod}/{name}", name):
            if key in self.scripts:
                return self.scripts[key]
        base = self.default
        for rule in self.rules:
            if rule.matches(sandbox.metadata, name):
                base = rule.script
                break
        if base is not self.default and base.exits:
            return base
        if text := sandbox.config.annotations.get(ANNOTATION + name):
            exits, repeat = script_from_annotation(text)
            return replace(base, exits=exits, repeat=repeat)
        end = script_from_command([*container.config.command, *container.config.args])
        return replace(base, exits=(end,), repeat=True) if end else base

    def _end_after(
        self, container: ContainerRecord, seconds: float, code: int, *, by_itself: bool = False
    ) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        timer = self._timers.get(container.id)
        if timer is not None and timer.when() <= due:
            return  # it ends sooner by itself
        if timer is not None:
            timer.cancel()
        script = self._script(container)
        why = (script.exit_reason, script.exit_message) if by_itself else ("", "")
        self._timers[container.id] = loop.call_at(due, self._end, container, code, *why)

    def _end(
        self, container: ContainerRecord, code: int, reason: str = "", message: str = ""
    ) -> None:
        if timer := self._timers.pop(container.id, None):
            timer.cancel()
        if container.state is RunState.RUNNING and self._on_exit is not None:
            self._on_exit(container, Exit(code, self._clock.time_ns(), reason, message))

    async def _write_log(self, container: ContainerRecord, lines: Sequence[LogLine]) -> None:
        """Write what the script says, for as long as the container runs."""
        began = anyio.current_time()
        due = [(began + line.after, number) for number, line in enumerate(lines)]
        heapq.heapify(due)
        while due:
            at, number = heapq.heappop(due)
            with anyio.CancelScope(deadline=at):
                await container.exited.wait()
                return
            line = lines[number]
            record = log_record(self._clock.time_ns(), line.stream, line.text)
            try:
                await to_thread.run_sync(append_log, container.log_path, record)
            except OSError as exc:
                log.warning("log_not_written", container=container.name, error=str(exc))
                return
            if line.every > 0:
                heapq.heappush(due, (at + line.every, number))
