"""A command in a container with streams or a terminal, from the server's side."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio

from nodeagent.streaming.protocols import Channel, Outcome

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nodeagent.embedded.process.launcher.spec import ExecSpec
    from nodeagent.embedded.process.zygote import Control, Zygote
    from nodeagent.streaming.commands import Say
    from nodeagent.streaming.protocols import Wanted

_CHUNK: Final = 64 * 1024
_DRAIN_SECONDS: Final = 0.5
_ENDED: Final = "the container ended while the command ran"


class _Files:
    """Both ends of a command's streams; all are closed in the end."""

    def __init__(self, wanted: Wanted) -> None:
        self.outputs: dict[int, Channel] = {}
        self.stdin = -1
        self.theirs: list[int] = []
        try:
            if wanted.tty:
                master, slave = os.openpty()
                self.theirs = [slave, os.dup(slave)]
                self.outputs[master] = Channel.STDOUT
                self.stdin = os.dup(master)
            else:
                for channel in (Channel.STDOUT, Channel.STDERR):
                    reading, writing = os.pipe2(os.O_CLOEXEC)
                    self.theirs.append(writing)
                    self.outputs[reading] = channel
                if wanted.stdin:
                    reading, self.stdin = os.pipe2(os.O_CLOEXEC)
                    self.theirs.append(reading)
            for fd in (*self.outputs, self.stdin):
                if fd >= 0:
                    os.set_blocking(fd, False)
        except OSError:
            self.close()
            raise

    def close_theirs(self) -> None:
        """The command has them now."""
        while self.theirs:
            os.close(self.theirs.pop())

    def close_stdin(self) -> None:
        """The command is to see the end of its input."""
        if self.stdin >= 0:
            fd, self.stdin = self.stdin, -1
            os.close(fd)

    def close(self) -> None:
        """Let go of all."""
        self.close_theirs()
        self.close_stdin()
        for fd in self.outputs:
            os.close(fd)
        self.outputs.clear()


class StreamedCommand:
    """A command that runs: :class:`nodeagent.streaming.commands.Command`."""

    def __init__(
        self, control: Control, files: _Files, container_ended: anyio.Event, *, tty: bool
    ) -> None:
        self._control = control
        self._files = files
        self._container_ended = container_ended
        self._tty = tty
        self._waiting: dict[int, anyio.CancelScope] = {}
        self._over = False

    async def follow(self, say: Say) -> Outcome:
        """Pass on what it writes until it has ended; how it did."""
        answer: dict[str, object] | None = None
        async with anyio.create_task_group() as readers:
            for fd, channel in self._files.outputs.items():
                readers.start_soon(self._read, fd, channel, say)
            answer = await self._answer()
            # Children that it leaves behind may hold its outputs open for ever.
            self._over = True
            for scope in self._waiting.values():
                scope.deadline = anyio.current_time() + _DRAIN_SECONDS
        if answer is None or answer.get("ended"):
            return Outcome(error=_ENDED)
        if "exit_code" not in answer:
            why = answer.get("error", "the command's helper ended without a word")
            return Outcome(error=f"failed to exec in container: failed to start exec: {why}")
        return Outcome(int(str(answer["exit_code"])))

    async def _answer(self) -> dict[str, object] | None:
        """What its helper says of its end; None when there is no container any more."""
        answer: dict[str, object] | None = None
        async with anyio.create_task_group() as tg:

            async def give_up_with_container() -> None:
                await self._container_ended.wait()
                await anyio.sleep(_DRAIN_SECONDS)  # the kernel has killed it; its answer is coming
                tg.cancel_scope.cancel()

            tg.start_soon(give_up_with_container)
            answer = await self._control.answer()
            tg.cancel_scope.cancel()
        return answer

    async def _read(self, fd: int, channel: Channel, say: Say) -> None:
        while True:
            try:
                data = os.read(fd, _CHUNK)
            except BlockingIOError:
                deadline = anyio.current_time() + _DRAIN_SECONDS if self._over else float("inf")
                with anyio.CancelScope(deadline=deadline) as self._waiting[fd]:
                    await anyio.wait_readable(fd)
                if self._waiting.pop(fd).cancelled_caught:
                    return
                continue
            except OSError:  # how a terminal says that nobody is left
                return
            if not data:
                return
            await say(channel, data)

    async def write(self, data: bytes) -> None:
        """Give it input; what it will not read any more is dropped."""
        view = memoryview(data)
        while view and self._files.stdin >= 0:
            try:
                view = view[os.write(self._files.stdin, view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._files.stdin)
            except OSError:
                self._files.close_stdin()

    def end_input(self) -> None:
        """There is no more input. A terminal has no such end: it hangs up with the command."""
        if not self._tty:
            self._files.close_stdin()

    def resize(self, columns: int, rows: int) -> None:
        """Its terminal has that size now."""
        if self._tty and self._files.stdin >= 0:
            size = struct.pack("HHHH", rows, columns, 0, 0)
            fcntl.ioctl(self._files.stdin, termios.TIOCSWINSZ, size)


@asynccontextmanager
async def streamed_command(
    zygote: Zygote, spec: ExecSpec, wanted: Wanted, container_ended: anyio.Event
) -> AsyncIterator[StreamedCommand]:
    """Run a command inside the context; leaving it kills the command.

    Args:
        zygote: what forks it.
        spec: the command.
        wanted: its streams.
        container_ended: the command does not outlive this.
    """
    files = _Files(wanted)
    control: Control | None = None
    try:
        control = await zygote.fork("exec", spec, files.theirs)
        files.close_theirs()
        yield StreamedCommand(control, files, container_ended, tty=wanted.tty)
    finally:
        if control is not None:
            control.close()
        files.close()
