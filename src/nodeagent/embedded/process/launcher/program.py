"""Becoming the program: the last steps in the forked child, up to the exec."""

from __future__ import annotations

import errno
import fcntl
import os
import signal

from nodeagent.embedded.process.launcher import identity, linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodeagent.embedded.process.launcher.spec import ProcessSpec

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SET_CONTROLLING_TTY = 0x540E


class ExecError(Exception):
    """The program could not be run; the text says why, in the words of other runtimes."""


def use_streams(stdout: int, stderr: int, stdin: int | None = None, *, tty: bool) -> None:
    """Make these the standard streams; with a terminal it is all three."""
    if tty:
        fcntl.ioctl(stdout, _SET_CONTROLLING_TTY, 0)
        stdin = stdout
    if stdin is not None:
        os.dup2(stdin, 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)


def run(process: ProcessSpec, *, make_cwd: bool, mapped: bool) -> None:
    """Run the program in place of this process.

    Args:
        process: what to run.
        make_cwd: make a missing working directory.
        mapped: this process is in the container's user namespace.

    Raises:
        ExecError: it cannot be run.
    """
    env = dict(process["env"])
    env.setdefault("PATH", _PATH)
    cwd = process["cwd"] or "/"
    try:
        if make_cwd:
            os.makedirs(cwd, mode=0o755, exist_ok=True)  # noqa: PTH103 - pathlib is heavy
        os.chdir(cwd)
        identity.take_on(process["identity"], mapped=mapped)
    except OSError as exc:
        raise ExecError(str(exc)) from exc
    env.setdefault("HOME", identity.home_of(os.getuid()))
    linux.die_with_parent(signal.SIGKILL)  # again: a change of user has undone it
    _restore_signals()
    argv = process["argv"]
    os.execve(_find(argv[0], env["PATH"]), argv, env)  # noqa: S606 - that is the purpose


def _restore_signals() -> None:
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o022)


def _find(program: str, path: str) -> str:
    if "/" in program:
        if not os.path.exists(program):  # noqa: PTH110
            msg = f'exec: "{program}": stat {program}: no such file or directory'
            raise ExecError(msg)
        return _executable(program, program)
    for directory in path.split(":"):
        candidate = os.path.join(directory or ".", program)  # noqa: PTH118
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):  # noqa: PTH113
            return candidate
    msg = f'exec: "{program}": executable file not found in $PATH'
    raise ExecError(msg)


def _executable(candidate: str, program: str) -> str:
    if os.path.isdir(candidate):  # noqa: PTH112
        msg = f'exec: "{program}": is a directory'
        raise ExecError(msg)
    if not os.access(candidate, os.X_OK):
        msg = f'exec: "{program}": {os.strerror(errno.EACCES).lower()}'
        raise ExecError(msg)
    return candidate
