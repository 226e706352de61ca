"""A command in a running container."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import time

from nodeagent.embedded.process.launcher import linux, procs, program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodeagent.embedded.process.launcher.spec import ExecSpec

_END_SECONDS = 2.0
_NAMESPACES = ("user", "mnt", "uts", "ipc", "pid")


class ContainerEndedError(program.ExecError):
    """There is nothing left to run it in."""

    def __init__(self) -> None:
        super().__init__("the container has just ended")


def run(spec: ExecSpec, control: int, stdout: int, stderr: int, stdin: int | None = None) -> None:
    """Run the command and say on ``control`` how it ended.

    When the other side of ``control`` is closed first, the command and all its children are
    killed.

    Args:
        spec: the command and its container.
        control: a socket; it gets one line of JSON and is closed.
        stdout: where the command writes to.
        stderr: the same for its errors.
        stdin: what it reads from; nothing without.
    """
    os.setsid()
    linux.set_name("na-exec")
    linux.adopt_orphans()
    wake, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        inside = _open_namespaces(spec)
        pid = start(spec, inside, stdout, stderr, stdin)
    except (OSError, program.ExecError) as exc:
        ended = isinstance(exc, ContainerEndedError)
        os.write(control, json.dumps({"error": str(exc), "ended": ended}).encode())
        return
    for fd in {stdout, stderr} | ({stdin} if stdin is not None else set()):
        os.close(fd)
    code = _wait(pid, wake, control)
    if "pid" not in inside:
        procs.kill_descendants(os.getpid())  # nobody else could find them later
    if code is not None:
        os.write(control, json.dumps({"exit_code": code}).encode())


def _open_namespaces(spec: ExecSpec) -> dict[str, int]:
    """The namespaces that the container does not share with this process."""
    inside: dict[str, int] = {}
    try:
        for name in _NAMESPACES if spec["isolated"] else ():
            fd = os.open(f"/proc/{spec['pid']}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
            if os.path.samestat(os.fstat(fd), os.stat(f"/proc/self/ns/{name}")):  # noqa: PTH116
                os.close(fd)
            else:
                inside[name] = fd
    except (FileNotFoundError, ProcessLookupError) as exc:
        raise ContainerEndedError from exc  # it gives them up a moment before it has ended
    if procs.start_time(spec["pid"]) != spec["start_time"]:
        raise ContainerEndedError
    return inside


def start(
    spec: ExecSpec, inside: dict[str, int], stdout: int, stderr: int, stdin: int | None = None
) -> int:
    """Fork the command, and wait until it runs; returns its process id.

    Args:
        spec: the command and its container.
        inside: namespaces to enter, by name.
        stdout: where the command writes to.
        stderr: the same for its errors.
        stdin: what it reads from; nothing without.

    Raises:
        OSError: it could not be forked.
        program.ExecError: it could not be run.
    """
    if "user" in inside:
        linux.setns(inside["user"])  # first: it gives the right to enter the others
    if "pid" in inside:
        linux.setns(inside["pid"])  # for the child; this process keeps seeing the host's /proc
    told, tell = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
    except OSError as exc:
        # Also what the kernel says where the first process of a namespace is about to end.
        if exc.errno == errno.ENOMEM and "pid" in inside and _ends(spec):
            raise ContainerEndedError from exc
        raise
    if pid == 0:
        _become(spec, inside, tell, (stdout, stderr, stdin))
    os.close(tell)
    trouble = os.read(told, 4096)
    if trouble:
        os.waitpid(pid, 0)
        raise program.ExecError(trouble.decode("utf-8", "replace"))
    os.close(told)
    return pid


def _ends(spec: ExecSpec) -> bool:
    """Whether the container ends within a moment."""
    deadline = time.monotonic() + _END_SECONDS
    while procs.start_time(spec["pid"]) == spec["start_time"]:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _become(
    spec: ExecSpec, inside: dict[str, int], tell: int, streams: tuple[int, int, int | None]
) -> None:
    try:
        linux.die_with_parent(signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        os.setsid()
        for name, fd in inside.items():
            if name not in ("user", "pid"):
                linux.setns(fd)
        program.use_streams(*streams, tty=spec["tty"])
        program.run(spec["process"], make_cwd=False, mapped="user" in inside)
    except BaseException as exc:  # noqa: BLE001 - whatever it is, the caller must hear of it
        os.write(tell, str(exc).encode("utf-8", "replace")[:2000] or b"unknown error")
    finally:
        os._exit(127)


def _wait(pid: int, wake: int, control: int) -> int | None:
    """Wait for the command; None when it was given up and killed."""
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    poll.register(control, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == control:
                for stat in procs.descendants(pid, procs.all_processes()):
                    _kill(stat.pid)
                _kill(pid)
                os.waitpid(pid, 0)  # a namespace does not end while one in it is not reaped
                return None
            os.read(wake, 256)
        status = _reap(pid)
        if status is not None:
            ended = os.waitstatus_to_exitcode(status)
            return ended if ended >= 0 else 128 - ended


def _reap(pid: int) -> int | None:
    found: int | None = None
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if ended == 0:
            return found
        if ended == pid:
            found = status


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
