"""The process that all monitors and commands are forked from.

Forking from a small process is quick and shares its memory; forking from the server would be
neither. It answers requests one at a time: a message names the kind, and the files sent along
are the specification, a control socket, and for commands what they write to and read from. It
ends when the server does, and its children go on.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import traceback

from nodeagent.embedded.process.launcher import execs, linux, monitor, rootfs, userns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from nodeagent.embedded.process.launcher.spec import IdentitySpec, ProbeSpec

_MAX_FILES = 5
_NOBODY: IdentitySpec = {
    "uid": None,
    "username": "",
    "gid": None,
    "groups": [],
    "merge_groups": False,
    "capabilities": None,
    "no_new_privs": False,
    "oom_score_adj": None,
}
"""Nobody in particular."""


def serve(fd: int) -> None:
    """Answer requests until the server has gone."""
    server = socket.socket(fileno=fd)
    server.set_inheritable(False)
    linux.set_name("na-zygote")
    _set_up_signals()
    gc.disable()  # a collection would touch, and so copy, the shared memory
    gc.freeze()
    while True:
        try:
            message, files, _, _ = socket.recv_fds(server, 64, _MAX_FILES)
        except OSError:
            return
        if not message:
            return
        # Read here and not in the child, which would have the memory for it to itself.
        spec = json.loads(_read_all(files.pop(0)))
        if os.fork() == 0:
            _child(server, message.decode(), spec, files)
        for one in files:
            os.close(one)


def _set_up_signals() -> None:
    """What this process and its children do on signals; set once, for the sake of memory."""
    zygote = os.getpid()

    def on_child(_number: int, _frame: object) -> None:
        if os.getpid() != zygote:
            return  # a monitor, which is woken by its pipe
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return

    signal.signal(signal.SIGCHLD, on_child)
    signal.signal(signal.SIGUSR1, lambda _number, _frame: None)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # those who end the server do not end containers


def _read_all(fd: int) -> bytes:
    os.lseek(fd, 0, os.SEEK_SET)
    data = b""
    while chunk := os.read(fd, 2**20):
        data += chunk
    os.close(fd)
    return data


def _child(server: socket.socket, kind: str, spec: Any, files: list[int]) -> None:
    status = 1
    try:
        server.close()
        for one in files:
            os.set_inheritable(one, False)  # noqa: FBT003
        if kind == "start":
            monitor.run(spec, files[0])
        elif kind == "exec":
            execs.run(spec, *files)
        else:
            _probe(spec, files[0])
        status = 0
    except BaseException:  # noqa: BLE001 - the zygote's loop must not run in a child
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _probe(spec: ProbeSpec, control: int) -> None:
    """Say whether containers can have namespaces and a file system of their own here."""
    try:
        if spec["user"]:
            userns.enter(_NOBODY, linux.CLONE_NEWPID)
        else:
            linux.unshare(linux.CLONE_NEWPID)
        pid = os.fork()
        if pid == 0:
            _try_isolation(spec, control)
        os.waitpid(pid, 0)
    except OSError as exc:
        os.write(control, json.dumps({"error": exc.strerror}).encode())


def _try_isolation(spec: ProbeSpec, control: int) -> None:
    try:
        rootfs.enter(
            {
                "user": spec["user"],
                "upper": spec["upper"],
                "hostname": "probe",
                "own_pid": True,
                "own_ipc": True,
                "mounts": [],
                "devices": [],
                "all_devices": False,
                "masked": [],
                "readonly_paths": [],
                "readonly_root": False,
                "hide": [],
            },
            spec["dir"],
            "/",
        )
        os.close(os.open(spec["file"], os.O_CREAT | os.O_WRONLY, 0o600))
        os.write(control, b"{}")
    except OSError as exc:
        os.write(control, json.dumps({"error": exc.strerror}).encode())
    except BaseException as exc:  # noqa: BLE001 - whatever it is, it is the answer
        os.write(control, json.dumps({"error": repr(exc)}).encode())
    finally:
        os._exit(0)
