"""Running a program once: input in, bounded output out, and never longer than it may."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from nodeagent.duration import format_duration

MAX_OUTPUT: Final = 1024 * 1024
_MAX_COMPLAINT: Final = 1024
_SHUTDOWN: Final = 2.0


class ProgramError(Exception):
    """A program could not be run, or ended badly; says how, and shows nothing that it printed
    on its standard output.

    Attributes:
        code: the code with which it ended; None when it did not end by itself.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class _Output:
    data: bytearray
    limit: int
    cut: bool = False

    async def read(self, stream: ByteReceiveStream) -> None:
        """Take what comes; what exceeds the limit is thrown away."""
        async for chunk in stream:
            room = self.limit - len(self.data)
            self.cut = self.cut or len(chunk) > room
            self.data += chunk[:room]


async def run_program(
    command: Sequence[str], request: bytes, env: Mapping[str, str], timeout: float
) -> bytes:
    """Run a program with ``request`` as its input; returns what it printed.

    The program and its children end when this returns, however it does.

    Raises:
        ProgramError: it does not exist, failed, took too long or printed more than 1 MiB.
    """
    answer, complaint = _Output(bytearray(), MAX_OUTPUT), _Output(bytearray(), _MAX_COMPLAINT)
    try:
        process = await anyio.open_process(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
    except OSError as error:
        msg = f"cannot be run: {error.strerror}"
        raise ProgramError(msg) from error
    try:
        with anyio.move_on_after(timeout) as scope:
            await _talk(process, request, answer, complaint)
    finally:
        await end_program(process)
    if scope.cancelled_caught:
        msg = f"did not end within {format_duration(timeout)}"
        raise ProgramError(msg)
    if process.returncode != 0:
        text = complaint.data.decode(errors="replace").strip()
        msg = f"ended with code {process.returncode}" + (f": {text}" if text else "")
        raise ProgramError(msg, process.returncode)
    if answer.cut:
        raise ProgramError("printed more than 1 MiB")
    return bytes(answer.data)


async def _talk(process: Process, request: bytes, answer: _Output, complaint: _Output) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    read = anyio.Event()

    async def read_all(outputs: Sequence[tuple[_Output, ByteReceiveStream]]) -> None:
        async with anyio.create_task_group() as readers:
            for output, stream in outputs:
                readers.start_soon(output.read, stream)
        read.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_send, process.stdin, request)
        tasks.start_soon(read_all, ((answer, process.stdout), (complaint, process.stderr)))
        await process.wait()
        # A child that holds the pipes open is no reason to wait on.
        with anyio.move_on_after(_SHUTDOWN):
            await read.wait()
        tasks.cancel_scope.cancel()


async def _send(stream: ByteSendStream, data: bytes) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await stream.send(data)
        await stream.aclose()


async def end_program(process: Process) -> None:
    """End a program that was started in a session of its own, and its children."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with anyio.move_on_after(_SHUTDOWN, shield=True):
        await process.aclose()
