"""A program with a terminal, as a person has one."""

import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager


class Terminal:
    """The other end of a program's terminal.

    Args:
        descriptor: of the pseudo-terminal.
        process: the program.
    """

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor = descriptor
        self._process = process
        self.shown = ""

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._descriptor, text.encode())

    def wait_for(self, text: str, *, timeout: float = 30) -> None:
        """Wait until something is shown.

        Raises:
            TimeoutError: says what was shown instead.
        """
        deadline = time.monotonic() + timeout
        while text not in self.shown:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {text!r} in {self.shown!r}")
            if not select.select([self._descriptor], [], [], 0.2)[0]:
                continue
            try:
                self.shown += os.read(self._descriptor, 65536).decode(errors="replace")
            except OSError as error:  # the program has ended
                raise TimeoutError(f"no {text!r} in {self.shown!r}") from error

    def ends(self, *, timeout: float = 30) -> int:
        """Wait for the end of the program; its exit code."""
        return self._process.wait(timeout=timeout)


@contextmanager
def in_terminal(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[Terminal]:
    """Run a program in a terminal of its own."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait(timeout=10)
        os.close(ours)
