"""Running a command in a container, from the server's side."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import anyio

from nodeagent.embedded.backend import ExecResult
from nodeagent.embedded.records import RunState
from nodeagent.rpc import DeadlineExceeded, FailedPrecondition, Unavailable, Unknown

if TYPE_CHECKING:
    from nodeagent.embedded.process.launcher.spec import ExecSpec
    from nodeagent.embedded.process.zygote import Control, Zygote

MAX_OUTPUT: Final = 16 * 2**20
"""Bytes kept of each output of a command; the rest is read and dropped."""
_CHUNK: Final = 64 * 1024
_DRAIN_SECONDS: Final = 0.5


def not_running() -> FailedPrecondition:
    """What a command is answered when its container has ended before it began."""
    return FailedPrecondition(f"container is in {RunState.EXITED.value.name} state")


class Output:
    """The reading end of one output of a command.

    Attributes:
        fd: the writing end, for the command; close it here once it was sent.
        data: what was read so far.
    """

    def __init__(self, limit: int = MAX_OUTPUT) -> None:
        self._reading, self.fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reading, False)
        self._limit = limit
        self.data = bytearray()

    def close_writing(self) -> None:
        """The command has it now."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    async def read(self) -> None:
        """Read to the end."""
        while True:
            await anyio.wait_readable(self._reading)
            try:
                chunk = os.read(self._reading, _CHUNK)
            except BlockingIOError:
                continue
            if not chunk:
                return
            self.data += chunk[: max(self._limit - len(self.data), 0)]

    def close(self) -> None:
        """Let go of both ends."""
        self.close_writing()
        os.close(self._reading)


async def run_command(
    zygote: Zygote, spec: ExecSpec, timeout: float | None, container_ended: anyio.Event
) -> ExecResult:
    """Run a command to its end, or kill it.

    Args:
        zygote: what forks it.
        spec: the command.
        timeout: seconds that it has, None for no limit.
        container_ended: the command does not outlive this.

    Raises:
        DeadlineExceeded: it took too long and was killed.
        Unknown: it could not be run.
        FailedPrecondition: the container ended before the command began.
        Unavailable: it ended meanwhile.
    """
    outputs = (Output(), Output())
    control: Control | None = None
    try:
        control = await zygote.fork("exec", spec, [one.fd for one in outputs])
        for one in outputs:
            one.close_writing()
        code = await _follow(control, outputs, timeout, container_ended)
    finally:
        if control is not None:
            control.close()
        for one in outputs:
            one.close()
    return ExecResult(bytes(outputs[0].data), bytes(outputs[1].data), code)


async def _follow(
    control: Control,
    outputs: tuple[Output, Output],
    timeout: float | None,
    container_ended: anyio.Event,
) -> int:
    answer: dict[str, object] | None = None
    async with anyio.create_task_group() as tg:

        async def give_up_with_container() -> None:
            await container_ended.wait()
            await anyio.sleep(_DRAIN_SECONDS)  # the kernel has killed it; its answer is coming
            tg.cancel_scope.cancel()

        async def collect() -> None:
            nonlocal answer
            async with anyio.create_task_group() as readers:
                for one in outputs:
                    readers.start_soon(one.read)
                answer = await control.answer()
                # Children that it leaves behind may hold its outputs open for ever.
                readers.cancel_scope.deadline = anyio.current_time() + _DRAIN_SECONDS
            tg.cancel_scope.cancel()

        if timeout is not None:
            tg.cancel_scope.deadline = anyio.current_time() + timeout
        tg.start_soon(give_up_with_container)
        tg.start_soon(collect)
    if answer is None:
        if container_ended.is_set():
            raise Unavailable("the container ended while the command ran")
        msg = f"failed to exec in container: timeout {timeout or 0:g}s exceeded"
        raise DeadlineExceeded(msg)
    if answer.get("ended"):
        raise not_running()
    if "exit_code" not in answer:
        why = answer.get("error", "the command's helper ended without a word")
        msg = f"failed to exec in container: failed to start exec: {why}"
        raise Unknown(msg)
    return int(str(answer["exit_code"]))
