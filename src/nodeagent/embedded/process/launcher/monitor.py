"""The monitor of one container: starts it, writes its log, records its end.

It is a child of the zygote that outlives it and the server. What it knows stands in the
container's directory: ``claim`` (a start was begun; there is never a second one),
``monitor.json`` and ``exit.json``, and beside them ``attach.sock`` for those who attach. It obeys
one signal, SIGUSR1: reopen the log.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time

from nodeagent.embedded.process.launcher import attach, linux, procs, program, rootfs, userns
from nodeagent.embedded.process.launcher.logs import LineCutter, LogFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from nodeagent.embedded.process.launcher.spec import ContainerSpec, ExitRecord, MonitorRecord

START_FAILED = 128
_EXIT_SIZE = 4096
_DRAIN_SECONDS = 2.0


def run(spec: ContainerSpec, control: int) -> None:
    """Run the container to its end. The answer on ``control`` says whether it started.

    Args:
        spec: the container.
        control: a socket; it gets one line of JSON and is closed.
    """
    os.setsid()
    os.chdir("/")
    linux.set_name("na:" + spec["name"])
    linux.adopt_orphans()
    wake = _catch_signals()
    directory = spec["dir"]
    os.close(os.open(f"{directory}/claim", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    _reserve_exit(directory)
    try:
        monitor = _Monitor(spec)
        record = monitor.start()
    except (OSError, program.ExecError) as exc:
        _record_exit(directory, START_FAILED, time.time_ns(), "StartError", str(exc))
        _answer(control, _as_json({"error": str(exc)}))
        return
    _answer(control, record)
    code = monitor.follow(wake)
    _record_exit(directory, code, monitor.ended_at, "Error" if code else "Completed", "")


def _answer(control: int, record: bytes) -> None:
    try:  # noqa: SIM105 - contextlib is heavy
        os.write(control, record)
    except OSError:
        pass  # the server has gone; it will find the records
    os.close(control)


def _catch_signals() -> int:
    """Have signals with a handler (the zygote's) write to a pipe; returns its reading end."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


class _Monitor:
    def __init__(self, spec: ContainerSpec) -> None:
        self._spec = spec
        self._log = LogFile(spec["log_directory"], spec["log_path"]) if spec["log_path"] else None
        self._outputs: dict[int, LineCutter] = {}
        self._attached: attach.Attached | None = None
        self._pid = 0
        self.ended_at = 0

    def start(self) -> bytes:
        """Fork the container and wait until its program runs; returns the record as JSON.

        Raises:
            OSError: it could not be forked.
            program.ExecError: the child could not become the program.
        """
        mode = _enter_namespaces(self._spec)
        go_in, go_out = os.pipe2(os.O_CLOEXEC)
        told, tell = os.pipe2(os.O_CLOEXEC)
        stdout, stderr = self._make_outputs()
        stdin = self._make_input()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(go_out)
            _become(self._spec, go_in, tell, (stdout, stderr, stdin))
        for fd in {go_in, tell, stdout, stderr} | ({stdin} if stdin is not None else set()):
            os.close(fd)
        record: MonitorRecord = {
            "isolation": mode,
            "boot_id": procs.boot_id(),
            "monitor_pid": os.getpid(),
            "monitor_start": procs.start_time(os.getpid()),
            "pid": self._pid,
            "start": procs.start_time(self._pid),
            "started_at": 0,
        }
        # Written before the program runs: a server that comes back knows of it in any case.
        _replace(f"{self._spec['dir']}/monitor.json", _as_json(record))
        os.write(go_out, b"go")
        os.close(go_out)
        trouble = _read_all(told)
        if trouble:
            os.waitpid(self._pid, 0)
            raise program.ExecError(trouble.decode("utf-8", "replace"))
        record["started_at"] = time.time_ns()
        _replace(f"{self._spec['dir']}/monitor.json", _as_json(record))
        return _as_json(record)

    def _make_outputs(self) -> tuple[int, int]:
        """What the container writes to; its other ends are read here."""
        if self._spec["tty"]:
            master, slave = os.openpty()
            os.set_inheritable(master, False)  # noqa: FBT003
            self._outputs[master] = LineCutter("stdout")
            return slave, slave
        if self._log is None:
            null = os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)
            return null, null
        ends = []
        for stream in ("stdout", "stderr"):
            reading, writing = os.pipe2(os.O_CLOEXEC)
            self._outputs[reading] = LineCutter(stream)
            ends.append(writing)
        return ends[0], ends[1]

    def _make_input(self) -> int | None:
        """What the container reads from; those who attach to it write to its other end."""
        terminal = stdin = -1
        reading: int | None = None
        if self._spec["tty"]:
            terminal = os.dup(next(iter(self._outputs)))
            stdin = terminal if self._spec["stdin"] else -1
        elif self._spec["stdin"]:
            reading, stdin = os.pipe2(os.O_CLOEXEC)
        listener = attach.listen(self._spec["dir"])
        once = self._spec["stdin_once"]
        self._attached = attach.Attached(listener, stdin, terminal, once=once)
        return reading

    def follow(self, wake: int) -> int:
        """Write the log until the container ends; returns its exit code."""
        assert self._attached is not None
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        self._attached.watch(poll)
        status: int | None = None
        held = True
        deadline = 0.0
        while status is None or self._outputs:
            if held != (self._attached.held and status is None):
                held = not held
                self._take_outputs(poll, take=not held)
            wait = self._attached.wait() if status is None else _DRAIN_SECONDS
            ready = poll.poll(None if wait is None else int(wait * 1000) + 1)
            for fd, mask in ready:
                if fd == wake:
                    status = self._on_signal(wake, status)
                elif fd not in self._outputs:
                    self._attached.on_event(fd, mask)
                elif not self._pass_on(fd):
                    poll.unregister(fd)
            if status is None:
                self._attached.give_up()
            else:
                deadline = deadline or time.monotonic() + _DRAIN_SECONDS
                if not ready or time.monotonic() > deadline:
                    break  # somebody outside the container holds on to its output
        for fd in tuple(self._outputs):
            self._finish(fd)
        self._attached.close()
        assert status is not None
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def _on_signal(self, wake: int, status: int | None) -> int | None:
        for number in os.read(wake, 256):
            if number == signal.SIGUSR1 and self._log is not None:
                self._log.reopen()
        while True:
            try:
                pid, ended = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return status
            if pid == 0:
                return status
            if pid == self._pid:
                status = ended
                self.ended_at = time.time_ns()
                self._kill_rest()

    def _kill_rest(self) -> None:
        """End what the container leaves behind where the kernel does not do it."""
        isolation = self._spec["isolation"]
        if isolation is not None and isolation["own_pid"]:
            return
        deadline = time.monotonic() + _DRAIN_SECONDS
        while time.monotonic() < deadline:
            procs.kill_descendants(os.getpid())
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            time.sleep(0.005)

    def _pass_on(self, fd: int) -> bool:
        """Write to the log what an output has; False at its end."""
        try:
            data = os.read(fd, attach.CHUNK)
        except BlockingIOError:
            return True
        except OSError:  # how a terminal says that nobody is left
            data = b""
        if not data:
            self._finish(fd)
            return False
        cutter = self._outputs[fd]
        if self._log is not None:
            self._log.write(cutter.feed(data, time.time_ns()))
        if self._attached is not None:
            self._attached.say(attach.STDERR if cutter.is_stderr else attach.STDOUT, data)
        return True

    def _take_outputs(self, poll: select.poll, *, take: bool) -> None:
        """Read what the container writes, or leave it until those who are attached have read."""
        for fd in self._outputs:
            if take:
                poll.register(fd, select.POLLIN)
            else:
                poll.unregister(fd)

    def _finish(self, fd: int) -> None:
        rest = self._outputs.pop(fd).finish(time.time_ns())
        if rest and self._log is not None:
            self._log.write(rest)
        os.close(fd)


def _enter_namespaces(spec: ContainerSpec) -> Literal["root", "user", "none"]:
    """Enter those that the child must be born in; returns how it will be isolated."""
    isolation = spec["isolation"]
    if isolation is None:
        return "none"
    flags = linux.CLONE_NEWPID if isolation["own_pid"] else 0
    if isolation["user"]:
        userns.enter(spec["process"]["identity"], flags)
        return "user"
    linux.unshare(flags)
    return "root"


def _become(spec: ContainerSpec, go: int, tell: int, streams: tuple[int, int, int | None]) -> None:
    """The child: wait for the word, then become the program."""
    try:
        linux.die_with_parent(signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        if os.read(go, 2) != b"go":
            os._exit(1)  # the monitor is gone already
        os.setsid()
        isolation = spec["isolation"]
        if isolation is not None:
            rootfs.enter(isolation, spec["dir"], spec["process"]["cwd"])
        program.use_streams(*streams, tty=spec["tty"])
        mapped = isolation is not None and isolation["user"]
        program.run(spec["process"], make_cwd=isolation is None, mapped=mapped)
    except BaseException as exc:  # noqa: BLE001 - whatever it is, the monitor must hear of it
        os.write(tell, str(exc).encode("utf-8", "replace")[:2000] or b"unknown error")
    finally:
        os._exit(127)


def _read_all(fd: int) -> bytes:
    data = b""
    while chunk := os.read(fd, 4096):
        data += chunk
    os.close(fd)
    return data


def _as_json(record: Mapping[str, object]) -> bytes:
    """Flat records as JSON. The json module would touch much shared memory for so little."""
    pairs = []
    for key, value in record.items():
        plain = isinstance(value, str) and value.isascii() and value.isprintable()
        if isinstance(value, int):
            text = str(value)
        elif plain and '"' not in str(value) and "\\" not in str(value):
            text = f'"{value}"'
        else:
            text = json.dumps(value)
        pairs.append(f'"{key}": {text}')
    return ("{" + ", ".join(pairs) + "}").encode()


def _replace(path: str, data: bytes) -> None:
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.write(fd, data)
    os.close(fd)
    os.replace(path + ".new", path)  # noqa: PTH105


def _reserve_exit(directory: str) -> None:
    """Take the space for the last record now: it must be written on a full disk, too."""
    fd = os.open(f"{directory}/exit.new", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(fd, b" " * _EXIT_SIZE)
    os.close(fd)


def _record_exit(directory: str, code: int, finished_at: int, reason: str, message: str) -> None:
    record: ExitRecord = {
        "code": code,
        "finished_at": finished_at,
        "reason": reason,
        "message": message[:1000],
    }
    fd = os.open(f"{directory}/exit.new", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.pwrite(fd, _as_json(record).ljust(_EXIT_SIZE), 0)
    os.close(fd)
    os.replace(f"{directory}/exit.new", f"{directory}/exit.json")  # noqa: PTH105
