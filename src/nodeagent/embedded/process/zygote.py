"""The server's side of the zygote: starting it, and asking it to fork."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import to_thread

from nodeagent.log import Log
from nodeagent.rpc import Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = Log("embedded.zygote")

_MAIN: Final = Path(__file__).parent / "launcher" / "__main__.py"
_ANSWER: Final = 16 * 1024
_GOODBYE: Final = 5.0


class Control:
    """The server's end of the socket of one monitor's start or of one command."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)  # noqa: FBT003
        self._sock = sock

    async def answer(self) -> dict[str, Any]:
        """Wait for the one answer; empty when the other side ended without one."""
        data = b""
        while True:
            await anyio.wait_readable(self._sock)
            try:
                chunk = self._sock.recv(_ANSWER)
            except BlockingIOError:
                continue
            except OSError:
                chunk = b""
            if not chunk:
                break
            data += chunk
        found: dict[str, Any] = json.loads(data) if data else {}
        return found

    def close(self) -> None:
        """Let go; a command that still runs is killed by that."""
        self._sock.close()


class Zygote:
    """A small process that forks others.

    Args:
        log_path: file for what the small processes complain about.
    """

    def __init__(self, log_path: Path) -> None:
        self._log_path = log_path
        self._lock = anyio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None

    async def fork(self, kind: str, spec: Mapping[str, Any], files: Sequence[int] = ()) -> Control:
        """Have a process forked.

        Args:
            kind: ``start``, ``exec`` or ``probe``.
            spec: what it is to do.
            files: what else it gets; they stay open here.

        Raises:
            Unavailable: the zygote cannot be reached, even after it was started anew.
        """
        async with self._lock:
            return Control(await to_thread.run_sync(self._fork, kind, spec, files))

    async def close(self) -> None:
        """End the zygote; what it has forked goes on."""
        async with self._lock:
            await to_thread.run_sync(self._stop)

    # What follows blocks, and runs in a thread.

    def _fork(self, kind: str, spec: Mapping[str, Any], files: Sequence[int]) -> socket.socket:
        for last_try in (False, True):
            mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                with theirs, open(os.memfd_create("spec"), "wb") as file:  # noqa: PTH123
                    file.write(json.dumps(spec).encode())
                    file.flush()
                    sock = self._running()
                    socket.send_fds(sock, [kind.encode()], [file.fileno(), theirs.fileno(), *files])
            except OSError as exc:
                mine.close()
                self._stop()
                if last_try:
                    msg = f"the launcher of containers does not answer: {exc}"
                    raise Unavailable(msg) from exc
                log.warning("zygote_lost", error=str(exc))
            else:
                return mine
        raise AssertionError("unreachable")

    def _running(self) -> socket.socket:
        if self._sock is not None:
            return self._sock
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mine.settimeout(_GOODBYE)
        with theirs, self._log_path.open("ab") as complaints:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-E", "-P", "-X", "utf8", str(_MAIN), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                cwd="/",
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._sock = mine
        return mine

    def _stop(self) -> None:
        if self._sock is not None:
            self._sock.close()
        if self._process is not None:
            try:
                self._process.wait(_GOODBYE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._sock = self._process = None
