"""The file that a unix socket listens on. Blocking."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path


def bind(path: str, mode: int) -> socket.socket:
    """A socket that listens on the path. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The file takes over the mode that the socket has when it is bound.
        os.fchmod(sock.fileno(), mode)
        try:
            sock.bind(path)
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, path) from exc
        sock.listen(128)
    except BaseException:
        sock.close()
        raise
    return sock


def clear(path: str) -> None:
    """Remove a socket that nobody listens on."""
    try:
        found = Path(path).lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        msg = f"{path} exists and is not a socket: choose another path or remove it"
        raise FileExistsError(msg)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
            return
        except FileNotFoundError:
            return
    msg = f"{path} is in use: another server listens on it"
    raise OSError(msg)


def unlink(path: str, inode: int) -> None:
    """Remove the socket file, if it is still the one with that inode."""
    # A successor may have put its own socket there meanwhile.
    with contextlib.suppress(FileNotFoundError):
        if Path(path).lstat().st_ino == inode:
            Path(path).unlink()
